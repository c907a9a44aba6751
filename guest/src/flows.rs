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
    vary: Vary,
    random: bool,
    seed: u64,
}

impl Flows {
    /// `count` flows (at least 1) around `base`, visited in turn or, when `random`, at random.
    pub fn new(base: FlowFields, count: u64, vary: Vary, random: bool, seed: u64) -> Self {
        Self { base, count: count.max(1), vary, random, seed }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The flow of frame `seq`.
    #[inline]
    pub fn flow_of(&self, seq: u32) -> u64 {
        if self.count == 1 {
            0
        } else if self.random {
            let spread = u128::from(mix(u64::from(seq) ^ self.seed)) * u128::from(self.count);
            (spread >> 64) as u64
        } else {
            u64::from(seq) % self.count
        }
    }

    /// A flow's fields. With one varying field it counts up from the base; with several, each gets
    /// 16 hashed bits.
    #[inline]
    pub fn fields(&self, flow: u64) -> FlowFields {
        let mut fields = self.base;
        if self.count == 1 {
            return fields;
        }
        if self.vary.count() == 1 {
            let add = |ip: Ipv4Addr| Ipv4Addr::from(u32::from(ip).wrapping_add(flow as u32));
            let vary = self.vary;
            fields.sip = if vary.sip { add(fields.sip) } else { fields.sip };
            fields.dip = if vary.dip { add(fields.dip) } else { fields.dip };
            fields.sport = fields.sport.wrapping_add(if vary.sport { flow as u16 } else { 0 });
            fields.dport = fields.dport.wrapping_add(if vary.dport { flow as u16 } else { 0 });
            return fields;
        }
        let bits = mix(flow.wrapping_add(1));
        let low = |ip: Ipv4Addr, bits: u64| {
            Ipv4Addr::from(u32::from(ip) & 0xffff_0000 | (bits & 0xffff) as u32)
        };
        let vary = self.vary;
        fields.sip = if vary.sip { low(fields.sip, bits) } else { fields.sip };
        fields.dip = if vary.dip { low(fields.dip, bits >> 16) } else { fields.dip };
        fields.sport = if vary.sport { (bits >> 32) as u16 } else { fields.sport };
        fields.dport = if vary.dport { (bits >> 48) as u16 } else { fields.dport };
        fields
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
    fn every_flow_is_visited_in_turn_or_at_random() {
        for random in [false, true] {
            let flows = Flows::new(BASE, 100, Vary::SPORT, random, 7);
            let seen: HashSet<u64> = (0..2000).map(|seq| flows.flow_of(seq)).collect();
            assert_eq!(seen.len(), 100);
            assert!(seen.iter().all(|flow| *flow < 100));
        }
    }
}
