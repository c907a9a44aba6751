//! From OpenFlow's match fields to the flow key's bits.

use tollgate_classifier::{ExtraKey, ExtraMatch};
use tollgate_openflow::field::OFPVID_PRESENT;
use tollgate_openflow::{ErrorCode, Field, Match, OxmField};
use tollgate_packet::{FlowKey, FlowMask, FlowMatch, HeaderField};

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
    Ok(match field {
        Field::InPort => FlowKey { in_port: bits as u32, ..none },
        Field::EthType => FlowKey { eth_type: bits as u16, ..none },
        // With the bit that says that there is a tag.
        Field::VlanVid => FlowKey { vlan_tci: bits as u16, ..none },
        Field::NwFrag => FlowKey { ip_frag: bits as u8, ..none },
        Field::IpProto => FlowKey { ip_proto: bits as u8, ..none },
        Field::TcpFlags => FlowKey { tcp_flags: bits as u16, ..none },
        Field::ArpOp if bits > u128::from(u8::MAX) => return Err(ARP_OP_TOO_LARGE),
        field => header_field(field).ok_or(UNSUPPORTED)?.place(bits),
    })
}

/// The packet's field of this name, if it is one that an edit could set.
pub(super) fn header_field(field: Field) -> Option<HeaderField> {
    Some(match field {
        Field::EthSrc => HeaderField::EthSrc,
        Field::EthDst => HeaderField::EthDst,
        Field::VlanVid => HeaderField::VlanVid,
        Field::VlanPcp => HeaderField::VlanPcp,
        Field::Ipv4Src => HeaderField::Ipv4Src,
        Field::Ipv4Dst => HeaderField::Ipv4Dst,
        Field::Ipv6Src => HeaderField::Ipv6Src,
        Field::Ipv6Dst => HeaderField::Ipv6Dst,
        Field::Ipv6Flabel => HeaderField::Ipv6Label,
        Field::IpDscp => HeaderField::IpDscp,
        Field::IpEcn => HeaderField::IpEcn,
        Field::NwTtl => HeaderField::IpTtl,
        Field::TcpSrc | Field::UdpSrc | Field::SctpSrc => HeaderField::L4Src,
        Field::TcpDst | Field::UdpDst | Field::SctpDst => HeaderField::L4Dst,
        Field::Icmpv4Type | Field::Icmpv6Type => HeaderField::IcmpType,
        Field::Icmpv4Code | Field::Icmpv6Code => HeaderField::IcmpCode,
        Field::ArpOp => HeaderField::ArpOp,
        Field::ArpSpa => HeaderField::ArpSpa,
        Field::ArpTpa => HeaderField::ArpTpa,
        Field::ArpSha => HeaderField::ArpSha,
        Field::ArpTha => HeaderField::ArpTha,
        Field::NdTarget => HeaderField::NdTarget,
        Field::NdSll => HeaderField::NdSll,
        Field::NdTll => HeaderField::NdTll,
        Field::InPort
        | Field::EthType
        | Field::NwFrag
        | Field::IpProto
        | Field::TcpFlags
        | Field::Metadata
        | Field::Reg0
        | Field::Reg1
        | Field::Reg2
        | Field::Reg3
        | Field::Reg4
        | Field::Reg5
        | Field::Reg6
        | Field::Reg7
        | Field::Reg8
        | Field::Reg9
        | Field::Reg10
        | Field::Reg11
        | Field::Reg12
        | Field::Reg13
        | Field::Reg14
        | Field::Reg15 => return None,
    })
}

fn merge(key: &mut FlowKey, bits: &FlowKey) {
    key.words_mut().iter_mut().zip(bits.words()).for_each(|(word, bits)| *word |= bits);
}
