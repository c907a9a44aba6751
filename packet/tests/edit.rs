//! Edits of bytes against edits of keys, and against checksums computed anew.

mod common;

use common::edits::{apply_all, edit};
use common::{Frame, ICMP, ICMPV6, PORT, SCTP, TCP, UDP, frame, sums};
use proptest::collection::vec;
use proptest::prelude::*;
use tollgate_packet::edit::{apply, apply_to_key, prerequisites};
use tollgate_packet::key::VLAN_PRESENT;
use tollgate_packet::parse::parse;
use tollgate_packet::{
    Edit, EditError, FLOW_WORDS, FlowKey, FlowMask, HeaderBuf, HeaderField, MacAddr, Parsed,
};

fn noise() -> impl Strategy<Value = FlowKey> {
    any::<[u64; FLOW_WORDS]>().prop_map(|words| {
        let mut key = FlowKey::default();
        *key.words_mut() = words;
        key
    })
}

/// The frame with its header replaced.
fn reassemble(frame: &Frame, header: &HeaderBuf) -> Vec<u8> {
    let copied = HeaderBuf::from_frame(&frame.bytes).len();
    [header.bytes(), &frame.bytes[copied..]].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn an_edited_frame_parses_to_the_edited_key_and_has_right_checksums(
        frame in frame(),
        edits in vec(edit(), 1..8),
    ) {
        let (header, grown) = apply_all(&frame.bytes, &edits);
        sums::assert_right(&frame, &reassemble(&frame, &header), grown);
    }

    #[test]
    fn damaged_frames_are_edited_alike_or_not_at_all(
        frame in frame(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        kept in any::<prop::sample::Index>(),
        cut in any::<bool>(),
        edits in vec(edit(), 1..5),
    ) {
        let mut bytes = frame.bytes;
        for (index, value) in damage {
            bytes[index.index(80.min(frame.end))] = value;
        }
        if cut {
            bytes.truncate(kept.index(bytes.len()));
        }
        apply_all(&bytes, &edits);
    }

    #[test]
    fn every_edit_is_legal_on_some_frame(frame in frame(), tag in any::<bool>(), edit in edit()) {
        // Not a property but a guard: the two tests above would pass if all edits were refused.
        let mut header = HeaderBuf::from_frame(&frame.bytes);
        let copied = header.len();
        let Parsed { key, mut layout } = parse(header.bytes(), frame.bytes.len() as u32, PORT);
        if tag && layout.vlan_tags == 0 {
            let push = Edit::PushVlan { tpid: 0x8100 };
            prop_assert_eq!(apply(&push, &mut header, &mut layout, &key), Ok(4));
        }
        let is_ip = frame.is_ipv4() || frame.is_ipv6();
        // An address is not changed where the checksum over it cannot be.
        let l4_is_whole = frame.l4_offset + l4_header_len(key.ip_proto) <= copied;
        let expected = match edit {
            Edit::Set { field, .. } => match field {
                HeaderField::EthSrc | HeaderField::EthDst => true,
                HeaderField::Ipv4Src | HeaderField::Ipv4Dst => frame.is_ipv4(),
                HeaderField::Ipv6Src | HeaderField::Ipv6Dst => frame.is_ipv6() && l4_is_whole,
                HeaderField::Ipv6Label => frame.is_ipv6(),
                HeaderField::IpDscp | HeaderField::IpEcn | HeaderField::IpTtl => is_ip,
                HeaderField::L4Src | HeaderField::L4Dst => {
                    let has_ports = frame.l4_offset != 0 && [TCP, UDP, SCTP].contains(&key.ip_proto);
                    has_ports && l4_is_whole && (key.ip_proto != SCTP || key.ip_frag == 0)
                }
                HeaderField::IcmpType | HeaderField::IcmpCode => {
                    frame.l4_offset != 0 && [ICMP, ICMPV6].contains(&key.ip_proto) && l4_is_whole
                }
                HeaderField::ArpOp
                | HeaderField::ArpSpa
                | HeaderField::ArpTpa
                | HeaderField::ArpSha
                | HeaderField::ArpTha => [0x0806, 0x8035].contains(&key.eth_type),
                HeaderField::NdTarget => key.nd_target != [0; 16],
                HeaderField::NdSll => key.l4_src == 135 && key.arp_sha != MacAddr([0; 6]),
                HeaderField::NdTll => key.l4_src == 136 && key.arp_tha != MacAddr([0; 6]),
                HeaderField::VlanVid | HeaderField::VlanPcp => tag || key.vlan_tpid != 0,
            },
            Edit::DecTtl => is_ip && key.ip_ttl > 1,
            Edit::PopVlan => tag || key.vlan_tpid != 0,
            Edit::PushVlan { tpid } => tpid != 0x9100 && layout.vlan_tags < 2,
        };
        let result = apply(&edit, &mut header, &mut layout, &key);
        prop_assert_eq!(result.is_ok(), expected, "{:?}", result);
    }

    /// A lookup after the edit that looks at `looked_at` depends on no more of the packet than
    /// `looked_at` and the prerequisites.
    #[test]
    fn prerequisites_are_all_that_an_edit_depends_on(
        frame in frame(),
        edit in edit(),
        noise in noise(),
        looked_at in noise_mask(),
    ) {
        let mask = prerequisites(&edit) | looked_at;
        let mut key = frame.key;
        let mut similar = blend(&key, &noise, &mask);
        let result = apply_to_key(&edit, &mut key);
        prop_assert_eq!(apply_to_key(&edit, &mut similar), result);
        if result.is_ok() {
            prop_assert_eq!(key.masked(&looked_at), similar.masked(&looked_at));
        }
    }
}

fn l4_header_len(protocol: u8) -> usize {
    match protocol {
        TCP => 20,
        UDP | ICMP | ICMPV6 => 8,
        SCTP => 12,
        _ => 0,
    }
}

fn noise_mask() -> impl Strategy<Value = FlowMask> {
    (noise(), noise()).prop_map(|(a, b)| FlowMask(a) & FlowMask(b))
}

fn blend(inside: &FlowKey, outside: &FlowKey, mask: &FlowMask) -> FlowKey {
    let mut key = *outside;
    for (index, word) in key.words_mut().iter_mut().enumerate() {
        let mask = mask.words()[index];
        *word = (inside.words()[index] & mask) | (*word & !mask);
    }
    key
}

fn tagged_udp() -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x88, 0xa8, 0xb0, 0x05, 0x08, 0x00]);
    frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 1, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 80, 0, 81, 0, 8, 0, 0]);
    frame
}

fn edited(bytes: &[u8], edits: &[Edit]) -> (Vec<u8>, Result<i32, EditError>) {
    let mut header = HeaderBuf::from_frame(bytes);
    let Parsed { key, mut layout } = parse(bytes, bytes.len() as u32, PORT);
    let results = edits.iter().map(|edit| apply(edit, &mut header, &mut layout, &key));
    let result = results.last().unwrap();
    (header.bytes().to_vec(), result)
}

#[test]
fn a_pushed_tag_inherits_vid_and_priority_and_keeps_the_drop_eligible_bit_to_the_old_one() {
    let (bytes, result) = edited(&tagged_udp(), &[Edit::PushVlan { tpid: 0x8100 }]);
    assert_eq!(result, Ok(4));
    assert_eq!(bytes[12..22], [0x81, 0x00, 0xa0, 0x05, 0x88, 0xa8, 0xb0, 0x05, 0x08, 0x00]);
    let set = [Edit::set(HeaderField::VlanVid, 7), Edit::set(HeaderField::VlanPcp, 1)];
    let (bytes, _) = edited(&tagged_udp(), &set);
    assert_eq!(bytes[14..16], [0x30, 0x07]);
}

#[test]
fn a_ttl_of_one_is_not_decremented() {
    let (bytes, result) = edited(&tagged_udp(), &[Edit::DecTtl]);
    assert_eq!((bytes, result), (tagged_udp(), Err(EditError::TtlExpired)));
}

#[test]
fn a_udp_checksum_of_zero_stays() {
    let (bytes, result) = edited(
        &tagged_udp(),
        &[Edit::set(HeaderField::Ipv4Dst, 9), Edit::set(HeaderField::L4Dst, 9)],
    );
    assert_eq!((result, &bytes[44..46]), (Ok(0), &[0, 0][..]));
}

#[test]
fn addresses_stay_where_the_checksum_over_them_cannot_be_found() {
    // TCP whose header is longer than the packet.
    let mut ipv4 = vec![2; 12];
    ipv4.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    ipv4.extend([0, 80, 0, 81, 0, 0, 0, 0, 0, 0, 0, 0, 0x60, 0x12, 0, 0, 0, 0, 0, 0]);
    let (bytes, result) = edited(&ipv4, &[Edit::set(HeaderField::Ipv4Src, 9)]);
    assert_eq!((&bytes, result), (&ipv4, Err(EditError::Malformed)));
    // An extension header that is longer than the packet.
    let mut ipv6 = vec![2; 12];
    ipv6.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 60, 64]);
    ipv6.extend([1; 32]);
    ipv6.extend([17, 9, 1, 4, 0, 0, 0, 0, 0, 53, 0, 54, 0, 8, 1, 1]);
    let (bytes, result) = edited(&ipv6, &[Edit::set(HeaderField::Ipv6Src, 9)]);
    assert_eq!((&bytes, result), (&ipv6, Err(EditError::Malformed)));
    // What needs no checksum is changed.
    assert_eq!(edited(&ipv4, &[Edit::DecTtl]).1, Ok(0));
    assert_eq!(edited(&ipv6, &[Edit::set(HeaderField::IpDscp, 1)]).1, Ok(0));
}

#[test]
fn a_third_tag_stays_hidden_after_a_pop() {
    let mut frame = vec![2; 12];
    for tci in 1..=3 {
        frame.extend([0x81, 0x00, 0, tci]);
    }
    frame.extend([0x08, 0x06]);
    let (bytes, result) = edited(&frame, &[Edit::PopVlan]);
    assert_eq!((result, bytes.len()), (Ok(-4), frame.len() - 4));
    assert_eq!(bytes[12..16], [0x81, 0x00, 0, 2]);
    let Parsed { mut key, .. } = parse(&frame, frame.len() as u32, PORT);
    apply_to_key(&Edit::PopVlan, &mut key).unwrap();
    assert_eq!((key.vlan_tci, key.inner_vlan_tci), (VLAN_PRESENT | 2, 0));
    assert_eq!(key.eth_type, 0x8100);
}
