//! Real messages, damaged, do no harm to the decoder. PROPTEST_CASES says how many are tried;
//! `cargo xtask fuzz` tries them for as long as one likes.

mod common;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use tollgate_openflow::message::HEADER_BYTES;
use tollgate_openflow::{Header, Message};

/// Flow-mods and statistics as `ovs-ofctl` and Open vSwitch sent them, and messages of all types.
fn seed() -> impl Strategy<Value = Vec<u8>> {
    let recorded: Vec<_> = include_str!("golden/flows.tsv")
        .lines()
        .flat_map(|line| line.split('\t'))
        .filter_map(unhex)
        .filter(|bytes| bytes.starts_with(&[4]) && bytes.len() >= HEADER_BYTES)
        .collect();
    assert!(recorded.len() > 200, "{} recorded messages", recorded.len());
    prop_oneof![select(recorded), common::message().prop_map(|message| message.encode(1))]
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()).collect()
}

#[derive(Clone, Debug)]
enum Damage {
    Byte(Index, u8),
    /// Lengths, types and counts lie: a 16-bit word is a little larger or smaller, or extreme.
    Word(Index, i16),
    Extreme(Index, u16),
    Cut(Index),
    /// A part comes twice.
    Repeat(Index, Index),
    /// A part of another message comes instead.
    Splice(Index, Index, Vec<u8>),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<Index>;
    prop_oneof![
        3 => (at(), any::<u8>()).prop_map(|(at, value)| Damage::Byte(at, value)),
        3 => (at(), -16..=16i16).prop_map(|(at, by)| Damage::Word(at, by)),
        1 => (at(), select(&[0u16, 1, 7, 0x7fff, 0xffff][..]))
            .prop_map(|(at, value)| Damage::Extreme(at, value)),
        1 => at().prop_map(Damage::Cut),
        1 => (at(), at()).prop_map(|(from, to)| Damage::Repeat(from, to)),
        1 => (at(), at(), seed()).prop_map(|(at, from, other)| Damage::Splice(at, from, other)),
    ]
}

impl Damage {
    fn inflict(self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let place = |at: Index| at.index(bytes.len());
        match self {
            Self::Byte(at, value) => {
                let at = place(at);
                bytes[at] = value;
            }
            Self::Word(at, by) => {
                let at = place(at);
                if let Some(word) = bytes[at..].first_chunk_mut() {
                    *word = u16::from_be_bytes(*word).wrapping_add_signed(by).to_be_bytes();
                }
            }
            Self::Extreme(at, value) => {
                let at = place(at);
                if let Some(word) = bytes[at..].first_chunk_mut() {
                    *word = value.to_be_bytes();
                }
            }
            Self::Cut(at) => bytes.truncate(at.index(bytes.len())),
            Self::Repeat(from, to) => {
                let (from, to) = (place(from), place(to));
                let part = bytes[from.min(to)..from.max(to)].to_vec();
                bytes.splice(to..to, part);
            }
            Self::Splice(at, from, other) => {
                let at = place(at);
                bytes.truncate(at);
                bytes.extend(&other[from.index(other.len())..]);
            }
        }
    }
}

/// Says in the header how long the message is, so that a decoder gets further.
fn with_true_length(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(usize::from(u16::MAX));
    let len = bytes.len() as u16;
    if let Some(header) = bytes.first_chunk_mut::<4>() {
        header[0] = 4;
        header[2..].copy_from_slice(&len.to_be_bytes());
    }
    bytes
}

/// Decodes, and encodes and decodes what came of it. Names that are not UTF-8 are read as something
/// else, so the message is the same from the second time on.
fn decode(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Some(header) = bytes.first_chunk() {
        let _ = Header::decode(*header);
    }
    let decoded = Message::decode(bytes);
    prop_assert_eq!(&Message::decode(bytes), &decoded);
    let Ok((header, message)) = decoded else { return Ok(()) };
    let again = |message: &Message| Message::decode(&message.encode(header.xid)).map(|two| two.1);
    let once = again(&message);
    prop_assert!(once.is_ok(), "{once:?}, once it was {message:?} of {bytes:02x?}");
    if let Ok(once) = once {
        prop_assert_eq!(again(&once), Ok(once), "{:02x?}", bytes);
    }
    Ok(())
}

proptest! {
    #[test]
    fn damaged_messages_are_refused_or_read_but_never_panic(
        mut bytes in seed(),
        damages in vec(damage(), 0..6),
    ) {
        for damage in damages {
            damage.inflict(&mut bytes);
        }
        decode(&bytes)?;
        decode(&with_true_length(bytes))?;
    }
}
