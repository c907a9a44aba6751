//! Edits, and their application in all ways at once.

use proptest::prelude::*;
use proptest::sample::select;
use tollgate_packet::edit::{apply, apply_to_key};
use tollgate_packet::parse::parse;
use tollgate_packet::{Edit, EditError, HeaderBuf, HeaderField, Parsed};

use super::PORT;

pub(crate) fn edit() -> impl Strategy<Value = Edit> {
    let set = (select(&HeaderField::ALL[..]), any::<u128>(), mask());
    prop_oneof![
        20 => set.prop_map(|(field, value, mask)| Edit::Set { field, value, mask }),
        3 => select(&[0x8100, 0x88a8, 0x8100, 0x88a8, 0x9100][..])
            .prop_map(|tpid| Edit::PushVlan { tpid }),
        1 => Just(Edit::PopVlan),
        1 => Just(Edit::DecTtl),
    ]
}

fn mask() -> impl Strategy<Value = u128> {
    prop_oneof![Just(u128::MAX), any::<u128>(), Just(0)]
}

/// Applies the edits that are legal, in all three ways, and compares them after each one. Returns
/// the header and by how much the frame grew.
pub(crate) fn apply_all(bytes: &[u8], edits: &[Edit]) -> (HeaderBuf, i32) {
    let mut header = HeaderBuf::from_frame(bytes);
    let Parsed { key: original, mut layout } = parse(header.bytes(), bytes.len() as u32, PORT);
    let (mut key, mut grown, mut retyped) = (original, 0, false);
    for edit in edits {
        let hides_a_third_tag = layout.vlan_tags == 2
            && matches!(original.eth_type, 0x8100 | 0x88a8)
            && *edit == Edit::PopVlan;
        if hides_a_third_tag {
            continue;
        }
        let before = (header.bytes().to_vec(), layout);
        let on_key = apply_to_key(edit, &mut key.clone());
        match apply(edit, &mut header, &mut layout, &original) {
            Ok(growth) => {
                assert_eq!(apply_to_key(edit, &mut key), Ok(()));
                grown += growth;
                let frame_len = (bytes.len() as i32 + grown) as u32;
                let mut parsed = parse(header.bytes(), frame_len, PORT);
                // Another type of message has other fields, but a key keeps those it has.
                retyped |= matches!(
                    edit,
                    Edit::Set { field: HeaderField::IcmpType | HeaderField::IcmpCode, .. }
                );
                if retyped {
                    parsed.key.nd_target = key.nd_target;
                    (parsed.key.arp_sha, parsed.key.arp_tha) = (key.arp_sha, key.arp_tha);
                }
                assert_eq!(parsed, Parsed { key, layout }, "after {edit:?}");
            }
            Err(error) => {
                assert_eq!((header.bytes().to_vec(), layout), before, "after {edit:?}");
                // Only the bytes tell that a header is malformed.
                let is_malformed = error == EditError::Malformed;
                assert!(is_malformed || on_key == Err(error), "{edit:?}: {error}, {on_key:?}");
            }
        }
    }
    (header, grown)
}
