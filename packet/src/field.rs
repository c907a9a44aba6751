//! The header fields that edits can change, each as a number and as bits of a [`FlowKey`].

use crate::{FlowKey, MacAddr};

/// A field of a packet's headers that an edit can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HeaderField {
    /// Ethernet source, 48 bits.
    EthSrc,
    /// Ethernet destination, 48 bits.
    EthDst,
    /// VLAN identifier of the outer tag, 12 bits: without OpenFlow's OFPVID_PRESENT.
    VlanVid,
    /// Priority of the outer tag, 3 bits.
    VlanPcp,
    /// The upper six bits of the IPv4 TOS or IPv6 traffic class.
    IpDscp,
    /// The lower two bits of the IPv4 TOS or IPv6 traffic class.
    IpEcn,
    /// IPv4 TTL or IPv6 hop limit, 8 bits.
    IpTtl,
    /// IPv4 source, 32 bits.
    Ipv4Src,
    /// IPv4 destination, 32 bits.
    Ipv4Dst,
    /// IPv6 source, 128 bits.
    Ipv6Src,
    /// IPv6 destination, 128 bits.
    Ipv6Dst,
    /// IPv6 flow label, 20 bits.
    Ipv6Label,
    /// TCP, UDP or SCTP source port, 16 bits.
    L4Src,
    /// TCP, UDP or SCTP destination port, 16 bits.
    L4Dst,
    /// ICMP or ICMPv6 type, 8 bits.
    IcmpType,
    /// ICMP or ICMPv6 code, 8 bits.
    IcmpCode,
    /// ARP operation: the 8 bits of it that a key holds. Setting it clears the upper 8.
    ArpOp,
    /// ARP sender protocol address, 32 bits.
    ArpSpa,
    /// ARP target protocol address, 32 bits.
    ArpTpa,
    /// ARP sender hardware address, 48 bits.
    ArpSha,
    /// ARP target hardware address, 48 bits.
    ArpTha,
    /// Target address of a neighbour solicitation or advertisement, 128 bits.
    NdTarget,
    /// Source link-layer address option of a neighbour solicitation, 48 bits.
    NdSll,
    /// Target link-layer address option of a neighbour advertisement, 48 bits.
    NdTll,
}

impl HeaderField {
    /// Every field.
    pub const ALL: [Self; 24] = [
        Self::EthSrc,
        Self::EthDst,
        Self::VlanVid,
        Self::VlanPcp,
        Self::IpDscp,
        Self::IpEcn,
        Self::IpTtl,
        Self::Ipv4Src,
        Self::Ipv4Dst,
        Self::Ipv6Src,
        Self::Ipv6Dst,
        Self::Ipv6Label,
        Self::L4Src,
        Self::L4Dst,
        Self::IcmpType,
        Self::IcmpCode,
        Self::ArpOp,
        Self::ArpSpa,
        Self::ArpTpa,
        Self::ArpSha,
        Self::ArpTha,
        Self::NdTarget,
        Self::NdSll,
        Self::NdTll,
    ];

    /// Width in bits.
    #[inline]
    pub const fn bits(self) -> u32 {
        match self {
            Self::IpEcn => 2,
            Self::VlanPcp => 3,
            Self::IpDscp => 6,
            Self::IpTtl | Self::IcmpType | Self::IcmpCode | Self::ArpOp => 8,
            Self::VlanVid => 12,
            Self::L4Src | Self::L4Dst => 16,
            Self::Ipv6Label => 20,
            Self::Ipv4Src | Self::Ipv4Dst | Self::ArpSpa | Self::ArpTpa => 32,
            Self::EthSrc
            | Self::EthDst
            | Self::ArpSha
            | Self::ArpTha
            | Self::NdSll
            | Self::NdTll => 48,
            Self::Ipv6Src | Self::Ipv6Dst | Self::NdTarget => 128,
        }
    }

    /// A number of as many ones as the field has bits.
    #[inline]
    pub const fn full_mask(self) -> u128 {
        u128::MAX >> (128 - self.bits())
    }

    /// The field's value in a key; zero if the packet does not have it, or the value of the field
    /// that has its place (an ARP address for an IPv4 one).
    pub fn read(self, key: &FlowKey) -> u128 {
        let value = match self {
            Self::EthSrc => key.eth_src.to_bits().into(),
            Self::EthDst => key.eth_dst.to_bits().into(),
            Self::VlanVid => key.vlan_tci.into(),
            Self::VlanPcp => (key.vlan_tci >> 13).into(),
            Self::IpDscp => (key.ip_tos >> 2).into(),
            Self::IpEcn => key.ip_tos.into(),
            Self::IpTtl => key.ip_ttl.into(),
            Self::Ipv4Src | Self::ArpSpa => u32::from_be_bytes(key.ipv4_src()).into(),
            Self::Ipv4Dst | Self::ArpTpa => u32::from_be_bytes(key.ipv4_dst()).into(),
            Self::Ipv6Src => u128::from_be_bytes(key.ip_src),
            Self::Ipv6Dst => u128::from_be_bytes(key.ip_dst),
            Self::Ipv6Label => key.ipv6_label.into(),
            Self::L4Src | Self::IcmpType => key.l4_src.into(),
            Self::L4Dst | Self::IcmpCode => key.l4_dst.into(),
            Self::ArpOp => key.ip_proto.into(),
            Self::ArpSha | Self::NdSll => key.arp_sha.to_bits().into(),
            Self::ArpTha | Self::NdTll => key.arp_tha.to_bits().into(),
            Self::NdTarget => u128::from_be_bytes(key.nd_target),
        };
        value & self.full_mask()
    }

    /// A key in which the bits of the field are the low ones of `bits`, and all others zero: a
    /// value to be matched or, from a mask, the mask for it.
    pub fn place(self, bits: u128) -> FlowKey {
        let bits = bits & self.full_mask();
        let (narrow, half, octet) = (bits as u32, bits as u16, bits as u8);
        let none = FlowKey::ZERO;
        match self {
            Self::EthSrc => FlowKey { eth_src: MacAddr::from_bits(bits as u64), ..none },
            Self::EthDst => FlowKey { eth_dst: MacAddr::from_bits(bits as u64), ..none },
            Self::VlanVid => FlowKey { vlan_tci: half, ..none },
            Self::VlanPcp => FlowKey { vlan_tci: half << 13, ..none },
            Self::IpDscp => FlowKey { ip_tos: octet << 2, ..none },
            Self::IpEcn => FlowKey { ip_tos: octet, ..none },
            Self::IpTtl => FlowKey { ip_ttl: octet, ..none },
            Self::Ipv4Src | Self::ArpSpa => FlowKey { ip_src: first_four(narrow), ..none },
            Self::Ipv4Dst | Self::ArpTpa => FlowKey { ip_dst: first_four(narrow), ..none },
            Self::Ipv6Src => FlowKey { ip_src: bits.to_be_bytes(), ..none },
            Self::Ipv6Dst => FlowKey { ip_dst: bits.to_be_bytes(), ..none },
            Self::Ipv6Label => FlowKey { ipv6_label: narrow, ..none },
            Self::L4Src | Self::IcmpType => FlowKey { l4_src: half, ..none },
            Self::L4Dst | Self::IcmpCode => FlowKey { l4_dst: half, ..none },
            Self::ArpOp => FlowKey { ip_proto: octet, ..none },
            Self::ArpSha | Self::NdSll => {
                FlowKey { arp_sha: MacAddr::from_bits(bits as u64), ..none }
            }
            Self::ArpTha | Self::NdTll => {
                FlowKey { arp_tha: MacAddr::from_bits(bits as u64), ..none }
            }
            Self::NdTarget => FlowKey { nd_target: bits.to_be_bytes(), ..none },
        }
    }
}

fn first_four(address: u32) -> [u8; 16] {
    (u128::from(address) << 96).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placed_value_is_read_back_and_lies_inside_the_placed_mask() {
        for field in HeaderField::ALL {
            let value = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210 & field.full_mask();
            let placed = field.place(value);
            assert_eq!(field.read(&placed), value, "{field:?}");
            let mask = field.place(u128::MAX);
            let bits: u32 = mask.words().iter().map(|word| word.count_ones()).sum();
            assert_eq!(bits, field.bits(), "{field:?}");
            assert_eq!(placed.masked(&crate::FlowMask(mask)), placed, "{field:?}");
        }
    }
}
