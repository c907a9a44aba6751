//! Flows: which addresses and ports frame number `seq` carries.
//!
//! Everything follows from the sequence number, so the receiver knows a frame's flow without any
//! room for it in the frame.

use std::net::Ipv4Addr;
use std::str::FromStr;

/// The fields that tell flows apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowFields {
    /// IPv4 source.
    pub sip: Ipv4Addr,
    /// IPv4 destination.
    pub dip: Ipv4Addr,
    /// UDP source port.
    pub sport: u16,
    /// UDP destination port.
    pub dport: u16,
}

/// Which of [`FlowFields`] vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vary {
    sip: bool,
    dip: bool,
    sport: bool,
    dport: bool,
}

impl Vary {
    /// Only the source port.
    pub const SPORT: Self = Self { sip: false, dip: false, sport: true, dport: false };

    fn count(self) -> u32 {
        u32::from(self.sip) + u32::from(self.dip) + u32::from(self.sport) + u32::from(self.dport)
    }
}

impl FromStr for Vary {
    type Err = String;

    /// Field names joined by `+`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut vary = Self { sip: false, dip: false, sport: false, dport: false };
        for field in text.split('+') {
            match field {
                "sip" => vary.sip = true,
                "dip" => vary.dip = true,
                "sport" => vary.sport = true,
                "dport" => vary.dport = true,
                other => {
                    return Err(format!("'{other}' is none of sip, dip, sport, dport"));
                }
            }
        }
        Ok(vary)
    }
}

/// A set of flows.
#[derive(Clone, Copy, Debug)]
pub struct Flows {
    base: FlowFields,
    count: u64,
    /// ceil(2^64 / count), for a remainder without division (Lemire, Kaser and Kurz, "Faster
    /// remainder by direct computation", 2019): exact for 32-bit operands.
    inverse: u64,
    random: bool,
    seed: u64,
    /// Several fields vary, by hashed bits.
    hashed: bool,
    /// Which bits of each field vary: all or none of one that counts up, 16 or none of hashed ones.
    masks: FlowMasks,
}

#[derive(Clone, Copy, Debug)]
struct FlowMasks {
    sip: u32,
    dip: u32,
    sport: u16,
    dport: u16,
}

impl Flows {
    /// `count` flows (1 to 2^32) around `base`, visited in turn or, when `random`, at random.
    pub fn new(base: FlowFields, count: u64, vary: Vary, random: bool, seed: u64) -> Self {
        let count = count.clamp(1, 1 << 32);
        let hashed = vary.count() > 1;
        let varies = count > 1;
        let ip = if hashed { 0xffff } else { u32::MAX };
        let masks = FlowMasks {
            sip: if vary.sip && varies { ip } else { 0 },
            dip: if vary.dip && varies { ip } else { 0 },
            sport: if vary.sport && varies { u16::MAX } else { 0 },
            dport: if vary.dport && varies { u16::MAX } else { 0 },
        };
        let inverse = (u64::MAX / count).wrapping_add(1);
        Self { base, count, inverse, random, seed, hashed, masks }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The flow of frame `seq`.
    #[inline]
    pub fn flow_of(&self, seq: u32) -> u64 {
        let part = if self.random {
            mix(u64::from(seq) ^ self.seed)
        } else {
            // The fraction seq / count, without its whole part.
            self.inverse.wrapping_mul(u64::from(seq))
        };
        ((u128::from(part) * u128::from(self.count)) >> 64) as u64
    }

    /// A flow's fields. With one varying field it counts up from the base; with several, each gets
    /// 16 hashed bits.
    #[inline]
    pub fn fields(&self, flow: u64) -> FlowFields {
        let (base, masks) = (&self.base, &self.masks);
        let ip = |ip: Ipv4Addr, mask: u32, bits: u64| {
            let ip = u32::from(ip);
            let bits = bits as u32 & mask;
            Ipv4Addr::from(if self.hashed { ip & !mask | bits } else { ip.wrapping_add(bits) })
        };
        let port = |port: u16, mask: u16, bits: u64| {
            let bits = bits as u16 & mask;
            if self.hashed { port & !mask | bits } else { port.wrapping_add(bits) }
        };
        let bits = if self.hashed { mix(flow.wrapping_add(1)) } else { flow };
        let next = |shift: u32| if self.hashed { bits >> shift } else { bits };
        FlowFields {
            sip: ip(base.sip, masks.sip, bits),
            dip: ip(base.dip, masks.dip, next(16)),
            sport: port(base.sport, masks.sport, next(32)),
            dport: port(base.dport, masks.dport, next(48)),
        }
    }
}

/// A 64-bit finaliser: every input bit moves about half of the output bits (Stafford's mix 13).
#[inline]
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const BASE: FlowFields = FlowFields {
        sip: Ipv4Addr::new(10, 0, 0, 1),
        dip: Ipv4Addr::new(10, 0, 0, 2),
        sport: 1024,
        dport: 9,
    };

    fn key(fields: FlowFields) -> (u32, u32, u16, u16) {
        (fields.sip.into(), fields.dip.into(), fields.sport, fields.dport)
    }

    #[test]
    fn each_vary_list_yields_distinct_flows_and_leaves_other_fields_alone() {
        for text in ["sip", "dip", "sport", "dport", "sip+dport", "sip+dip+sport+dport"] {
            let vary: Vary = text.parse().unwrap();
            let flows = Flows::new(BASE, 5000, vary, false, 0);
            let keys: HashSet<_> = (0..5000).map(|flow| key(flows.fields(flow))).collect();
            assert!(keys.len() > 4990, "{text}: {} distinct", keys.len());
            for (sip, dip, sport, dport) in keys {
                assert!(vary.sip || Ipv4Addr::from(sip) == BASE.sip, "{text}");
                assert!(vary.dip || Ipv4Addr::from(dip) == BASE.dip, "{text}");
                assert!(vary.sport || sport == BASE.sport, "{text}");
                assert!(vary.dport || dport == BASE.dport, "{text}");
            }
        }
        assert!("sip+tos".parse::<Vary>().is_err());
    }

    #[test]
    fn the_remainder_without_division_is_the_remainder() {
        for count in [1, 2, 3, 7, 1000, 4096, 65_537, 1 << 31, (1 << 32) - 1, 1 << 32] {
            let flows = Flows::new(BASE, count, Vary::SPORT, false, 0);
            let edges = [0, 1, count as u32, (count as u32).wrapping_sub(1), u32::MAX, 1 << 31];
            for seq in edges.into_iter().chain((0..100_000).map(|i: u32| i.wrapping_mul(42_949))) {
                assert_eq!(flows.flow_of(seq), u64::from(seq) % count, "{seq} % {count}");
            }
        }
    }

    #[test]
    fn every_flow_is_visited_in_turn_or_at_random() {
        for random in [false, true] {
            let flows = Flows::new(BASE, 100, Vary::SPORT, random, 7);
            let seen: HashSet<u64> = (0..2000).map(|seq| flows.flow_of(seq)).collect();
            assert_eq!(seen.len(), 100);
            assert!(seen.iter().all(|flow| *flow < 100));
        }
    }
}
