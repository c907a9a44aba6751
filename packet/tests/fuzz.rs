//! No bytes and no edits do harm. PROPTEST_CASES says how many are tried; `cargo xtask fuzz` tries
//! them for as long as one likes.

mod common;

use common::edits::{apply_all, edit};
use common::{PORT, damaged, noise};
use proptest::collection::vec;
use proptest::prelude::*;
use tollgate_packet::edit::{apply, apply_to_key, prerequisites};
use tollgate_packet::limits::HEADER_COPY_BYTES;
use tollgate_packet::parse::parse;
use tollgate_packet::{FLOW_WORDS, FlowKey, HeaderBuf, Layout, Parsed};

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![6 => damaged(), 2 => noise(), 1 => vec(any::<u8>(), 0..300)]
}

/// Words without meaning, and words of mostly zeros.
fn any_key() -> impl Strategy<Value = FlowKey> {
    (any::<[u64; FLOW_WORDS]>(), any::<u16>()).prop_map(|(words, kept)| {
        let mut key = FlowKey::default();
        for (at, (to, from)) in key.words_mut().iter_mut().zip(words).enumerate() {
            *to = if kept >> at & 1 == 1 { from } else { 0 };
        }
        key
    })
}

fn parse_copy(frame: &[u8], copied: usize) -> Parsed {
    parse(&frame[..copied.min(frame.len())], frame.len() as u32, PORT)
}

proptest! {
    #[test]
    fn parsing_is_a_function_of_the_copy_and_the_length(
        bytes in bytes(),
        frame_len in prop_oneof![0..400u32, any::<u32>()],
    ) {
        let parsed = parse(&bytes, frame_len, PORT);
        prop_assert_eq!(parse(&bytes.clone(), frame_len, PORT), parsed);
        let Layout { l3_offset, l4_offset, vlan_tags } = parsed.layout;
        let readable = bytes.len().min(frame_len as usize);
        prop_assert!(usize::from(l4_offset.max(l3_offset)) <= readable);
        prop_assert!(l4_offset == 0 || (14..l4_offset).contains(&l3_offset));
        prop_assert!(vlan_tags <= 2);
        // Bytes that no frame has are not read.
        let frame = &bytes[..readable];
        prop_assert_eq!(parse(frame, frame_len, PORT), parsed);
    }

    /// A header beyond the copy counts as truncated: what is read from a longer copy is what is
    /// read from a shorter one, and more.
    #[test]
    fn a_longer_copy_only_adds(bytes in bytes(), short in 0..300usize, long in 0..300usize) {
        let (short, long) = (short.min(long), short.max(long));
        let (some, more) = (parse_copy(&bytes, short), parse_copy(&bytes, long));
        if some.layout.l4_offset != 0 {
            prop_assert_eq!(some.layout, more.layout);
            let key = FlowKey { nd_target: [0; 16], ..some.key };
            let full = FlowKey {
                nd_target: [0; 16],
                arp_sha: key.arp_sha,
                arp_tha: key.arp_tha,
                ..more.key
            };
            prop_assert_eq!(key, full);
        } else if some.layout.l3_offset != 0 {
            prop_assert_eq!(some.layout.l3_offset, more.layout.l3_offset);
            prop_assert_eq!((some.key.ip_src, some.key.ip_dst), (more.key.ip_src, more.key.ip_dst));
            prop_assert_eq!((some.key.l4_src, some.key.l4_dst, some.key.tcp_flags), (0, 0, 0));
            prop_assert!([0, more.key.ip_proto].contains(&some.key.ip_proto));
        } else {
            let beyond = (some.key.ip_proto, some.key.ip_frag, some.key.ip_ttl, some.key.ip_src);
            prop_assert_eq!(beyond, (0, 0, 0, [0; 16]));
            prop_assert!(some.layout.vlan_tags <= more.layout.vlan_tags);
        }
        if bytes.len() <= HEADER_COPY_BYTES {
            let whole = parse(&bytes, bytes.len() as u32, PORT);
            prop_assert_eq!(parse_copy(&bytes, HEADER_COPY_BYTES), whole);
        }
    }

    #[test]
    fn edits_of_anything_succeed_alike_in_bytes_and_key_or_change_nothing(
        bytes in bytes(),
        edits in vec(edit(), 1..12),
    ) {
        apply_all(&bytes, &edits);
    }

    /// Not what a caller may do, but no reason to panic either.
    #[test]
    fn edits_with_another_packets_key_do_no_harm(
        bytes in bytes(),
        other in any_key(),
        edits in vec(edit(), 1..12),
    ) {
        let mut header = HeaderBuf::from_frame(&bytes);
        let mut layout = parse_copy(&bytes, header.len()).layout;
        let mut key = other;
        for edit in edits {
            let before = (header.bytes().to_vec(), layout);
            match apply(&edit, &mut header, &mut layout, &other) {
                Ok(grown) => {
                    prop_assert_eq!(header.len() as i32, before.0.len() as i32 + grown);
                }
                Err(_) => prop_assert_eq!((header.bytes().to_vec(), layout), before),
            }
            let unchanged = key;
            if apply_to_key(&edit, &mut key).is_err() {
                prop_assert_eq!(key, unchanged);
            }
            prerequisites(&edit);
        }
    }
}
