//! From OpenFlow's match fields to the flow key's bits.

use tollgate_classifier::{ExtraKey, ExtraMatch};
use tollgate_openflow::field::OFPVID_PRESENT;
use tollgate_openflow::{ErrorCode, Field, Match, OxmField};
use tollgate_packet::{FlowKey, FlowMask, FlowMatch, MacAddr};

use super::error::FlowError;

/// A match as the rule tables keep it. `in_port` stays an OpenFlow port number.
pub(super) fn compile(matcher: &Match) -> Result<(FlowMatch, ExtraMatch), FlowError> {
    let (mut key, mut mask) = (FlowKey::default(), FlowKey::default());
    let (mut extra, mut extra_mask) = (ExtraKey::ZERO, ExtraKey::ZERO);
    for field in matcher.iter() {
        if field.field() == Field::Metadata {
            extra.metadata = field.value() as u64;
            extra_mask.metadata = field.mask() as u64;
            continue;
        }
        let field = canonical(*field);
        merge(&mut key, &place(field.field(), field.value())?);
        // The mask of an exact match is all ones, which is no value that could be refused.
        merge(&mut mask, &place(field.field(), field.mask()).or_else(|_| all_ones(field.field()))?);
    }
    Ok((FlowMatch::new(&key, FlowMask(mask)), ExtraMatch::new(&extra, extra_mask)))
}

/// Whether rules can match the field.
pub(super) fn can_match(field: Field) -> bool {
    field == Field::Metadata || place(field, 0).is_ok()
}

/// "No tag" is one bit of the packet, not thirteen.
fn canonical(field: OxmField) -> OxmField {
    match (field.field(), field.value(), field.is_exact()) {
        (Field::VlanVid, 0, true) => OxmField::masked(Field::VlanVid, 0u16, OFPVID_PRESENT),
        _ => field,
    }
}

fn all_ones(field: Field) -> Result<FlowKey, FlowError> {
    match field {
        Field::ArpOp => Ok(FlowKey { ip_proto: u8::MAX, ..FlowKey::default() }),
        _ => Err(UNSUPPORTED),
    }
}

const UNSUPPORTED: FlowError =
    FlowError::new(ErrorCode::OFPBMC_BAD_FIELD, "this match field is not supported");
const ARP_OP_TOO_LARGE: FlowError =
    FlowError::new(ErrorCode::OFPBMC_BAD_VALUE, "ARP opcodes beyond 255 cannot be matched");

/// A key in which the bits of `field` are `bits` and all others zero.
fn place(field: Field, bits: u128) -> Result<FlowKey, FlowError> {
    let none = FlowKey::default();
    let narrow = bits as u32;
    let half = bits as u16;
    let octet = bits as u8;
    Ok(match field {
        Field::InPort => FlowKey { in_port: narrow, ..none },
        Field::EthSrc => FlowKey { eth_src: mac(bits), ..none },
        Field::EthDst => FlowKey { eth_dst: mac(bits), ..none },
        Field::EthType => FlowKey { eth_type: half, ..none },
        Field::VlanVid => FlowKey { vlan_tci: half, ..none },
        Field::VlanPcp => FlowKey { vlan_tci: half << 13, ..none },
        Field::Ipv4Src | Field::ArpSpa => FlowKey { ip_src: first_four(narrow), ..none },
        Field::Ipv4Dst | Field::ArpTpa => FlowKey { ip_dst: first_four(narrow), ..none },
        Field::Ipv6Src => FlowKey { ip_src: bits.to_be_bytes(), ..none },
        Field::Ipv6Dst => FlowKey { ip_dst: bits.to_be_bytes(), ..none },
        Field::Ipv6Flabel => FlowKey { ipv6_label: narrow, ..none },
        Field::NwFrag => FlowKey { ip_frag: octet, ..none },
        Field::IpDscp => FlowKey { ip_tos: octet << 2, ..none },
        Field::IpEcn => FlowKey { ip_tos: octet, ..none },
        Field::NwTtl => FlowKey { ip_ttl: octet, ..none },
        Field::IpProto => FlowKey { ip_proto: octet, ..none },
        Field::TcpFlags => FlowKey { tcp_flags: half, ..none },
        Field::TcpSrc | Field::UdpSrc | Field::SctpSrc => FlowKey { l4_src: half, ..none },
        Field::TcpDst | Field::UdpDst | Field::SctpDst => FlowKey { l4_dst: half, ..none },
        Field::Icmpv4Type | Field::Icmpv6Type => FlowKey { l4_src: half, ..none },
        Field::Icmpv4Code | Field::Icmpv6Code => FlowKey { l4_dst: half, ..none },
        Field::ArpOp => {
            let ip_proto = u8::try_from(bits).map_err(|_| ARP_OP_TOO_LARGE)?;
            FlowKey { ip_proto, ..none }
        }
        Field::ArpSha => FlowKey { arp_sha: mac(bits), ..none },
        Field::ArpTha => FlowKey { arp_tha: mac(bits), ..none },
        Field::NdTarget | Field::NdSll | Field::NdTll | Field::Metadata => return Err(UNSUPPORTED),
    })
}

fn merge(key: &mut FlowKey, bits: &FlowKey) {
    key.words_mut().iter_mut().zip(bits.words()).for_each(|(word, bits)| *word |= bits);
}

pub(super) fn mac(bits: u128) -> MacAddr {
    let [.., a, b, c, d, e, f] = bits.to_be_bytes();
    MacAddr([a, b, c, d, e, f])
}

fn first_four(bits: u32) -> [u8; 16] {
    let [a, b, c, d] = bits.to_be_bytes();
    [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}
