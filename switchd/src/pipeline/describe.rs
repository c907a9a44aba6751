//! Packets and matches of the flow key in the terms of OpenFlow.

use tollgate_classifier::{ExtraKey, ExtraMatch};
use tollgate_openflow::{Field, Match, OxmField};
use tollgate_packet::parse::parse;
use tollgate_packet::{FlowKey, FlowMask, FlowMatch, HeaderBuf, PortIndex};

use super::fields::read;

/// The bits of the key that the fields of OpenFlow stand for, as far as the match says which fields
/// they are: layer 4 ports without a protocol are none.
pub(super) fn match_of(flow: &FlowMatch, extra: &ExtraMatch) -> Match {
    let mut described = Match::any();
    for field in Field::ALL {
        let value = read(*field, flow.key(), extra.key());
        let mask = match (field, read(*field, &flow.mask().0, extra.mask())) {
            // The key has eight bits of it.
            (Field::ArpOp, 0xff) => field.full_mask(),
            (_, mask) => mask,
        };
        if mask != 0 && field.info().prerequisite.satisfied_by(&described) {
            let fields = described.iter().copied();
            let longer = fields.chain([OxmField::masked(*field, value, mask)]);
            // Refuses nothing: no field comes twice, and each prerequisite is met.
            described = Match::from_fields(longer).unwrap_or(described);
        }
    }
    described
}

/// The fields of a frame; it is for the caller to say where it came in.
pub(super) fn key_of(frame: &[u8]) -> FlowKey {
    let header = HeaderBuf::from_frame(frame);
    parse(header.bytes(), frame.len() as u32, PortIndex(0)).key
}

/// Every field of a packet, and of its pipeline fields those that are not zero.
pub(super) fn packet_match(key: &FlowKey, extra: &ExtraKey) -> Match {
    let mut every_bit = FlowKey::ZERO;
    every_bit.words_mut().fill(u64::MAX);
    let mut carried = ExtraKey::ZERO;
    carried.metadata = if extra.metadata == 0 { 0 } else { u64::MAX };
    for (mask, reg) in carried.regs.iter_mut().zip(&extra.regs) {
        *mask = if *reg == 0 { 0 } else { u32::MAX };
    }
    match_of(&FlowMatch::new(key, FlowMask(every_bit)), &ExtraMatch::new(extra, carried))
}

/// The fields that a packet has picked up on its way, for a controller (OpenFlow 1.3.5, section
/// 7.4.1): the port it came in by, and whatever is not zero of the metadata and the registers.
pub(super) fn pipeline_match(in_port: u32, extra: &ExtraKey) -> Match {
    let value = |field: &Field| read(*field, &FlowKey { in_port, ..FlowKey::ZERO }, extra);
    let carried = Field::REGISTERS.iter().chain([&Field::Metadata]);
    let carried = carried.filter(|field| value(field) != 0);
    let fields = [&Field::InPort].into_iter().chain(carried);
    // Refuses nothing: no field comes twice, and none has a prerequisite.
    Match::from_fields(fields.map(|field| OxmField::exact(*field, value(field))))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::matching;
    use super::*;

    #[test]
    fn a_match_comes_back_from_its_key() {
        let exact = |field: Field, value: u128| OxmField::exact(field, value);
        let ip = exact(Field::EthType, 0x0800);
        let icmpv6 = [exact(Field::EthType, 0x86dd), exact(Field::IpProto, 58)];
        for fields in [
            vec![],
            vec![
                exact(Field::InPort, 3),
                OxmField::masked(Field::EthDst, 1_u64 << 40, 1_u64 << 40),
            ],
            vec![ip, OxmField::masked(Field::Ipv4Dst, 0x0a00_0000_u32, 0xff00_0000_u32)],
            vec![ip, exact(Field::IpProto, 6), exact(Field::TcpDst, 80), exact(Field::IpDscp, 10)],
            vec![ip, exact(Field::IpProto, 17), exact(Field::UdpSrc, 53), exact(Field::NwTtl, 64)],
            vec![exact(Field::EthType, 0x0806), exact(Field::ArpOp, 2), exact(Field::ArpTpa, 9)],
            [&icmpv6[..], &[exact(Field::Icmpv6Type, 135), exact(Field::NdTarget, 7)]].concat(),
            vec![exact(Field::VlanVid, 0x1005), exact(Field::VlanPcp, 3)],
            vec![exact(Field::Metadata, 5), exact(Field::Reg7, 9), exact(Field::Reg0, 1)],
        ] {
            let matcher = Match::from_fields(fields).unwrap();
            let (flow, extra) = matching::compile(&matcher).unwrap();
            assert_eq!(match_of(&flow, &extra), matcher);
        }
    }

    #[test]
    fn a_controller_is_told_what_is_not_zero() {
        let mut extra = ExtraKey { metadata: 7, ..ExtraKey::ZERO };
        extra.regs[3] = 9;
        let fields: Vec<_> =
            pipeline_match(2, &extra).iter().map(|f| (f.field(), f.value())).collect();
        assert_eq!(fields, [(Field::InPort, 2), (Field::Reg3, 9), (Field::Metadata, 7)]);
        assert_eq!(pipeline_match(2, &ExtraKey::ZERO).iter().count(), 1);
    }
}
