//! From OpenFlow's match fields to the flow key's bits.

use tollgate_classifier::{ExtraKey, ExtraMatch};
use tollgate_openflow::field::OFPVID_PRESENT;
use tollgate_openflow::{ErrorCode, Field, Match, OxmField};
use tollgate_packet::{FlowKey, FlowMask, FlowMatch, HeaderField};

use super::error::FlowError;
use super::fields::{place, write_extra};

/// A match as the rule tables keep it. `in_port` stays an OpenFlow port number.
pub(super) fn compile(matcher: &Match) -> Result<(FlowMatch, ExtraMatch), FlowError> {
    let (mut key, mut mask) = (FlowKey::default(), FlowKey::default());
    let (mut extra, mut extra_mask) = (ExtraKey::ZERO, ExtraKey::ZERO);
    for field in matcher.iter() {
        let field = canonical(*field);
        let (name, value) = (field.field(), field.value());
        if name == Field::ArpOp && value > u128::from(u8::MAX) {
            return Err(ARP_OP_TOO_LARGE);
        }
        if write_extra(name, value, u128::MAX, &mut extra) {
            write_extra(name, field.mask(), u128::MAX, &mut extra_mask);
        } else {
            merge(&mut key, &place(name, value));
            merge(&mut mask, &place(name, field.mask()));
        }
    }
    Ok((FlowMatch::new(&key, FlowMask(mask)), ExtraMatch::new(&extra, extra_mask)))
}

/// "No tag" is one bit of the packet, not thirteen.
fn canonical(field: OxmField) -> OxmField {
    match (field.field(), field.value(), field.is_exact()) {
        (Field::VlanVid, 0, true) => OxmField::masked(Field::VlanVid, 0u16, OFPVID_PRESENT),
        _ => field,
    }
}

const ARP_OP_TOO_LARGE: FlowError =
    FlowError::new(ErrorCode::OFPBMC_BAD_VALUE, "ARP opcodes beyond 255 cannot be matched");

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
