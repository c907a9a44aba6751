//! What is encoded decodes to the same; what is printed parses to the same; and nothing that
//! comes off a wire or a keyboard panics.

mod common;

use proptest::prelude::*;
use tollgate_openflow::message::HEADER_BYTES;
use tollgate_openflow::multipart::{FlowStats, MultipartReply};
use tollgate_openflow::text::{
    FlowFormat, NoNames, PortNames, PortTable, format_flow, format_match, parse_flow,
    parse_flow_line, parse_flow_stats_request,
};
use tollgate_openflow::{FlowCommand, Header, Message};

/// A decoder's answer to these bytes; that it comes at all is what is tested.
fn decode(bytes: &[u8]) -> Option<Message> {
    Message::decode(bytes).ok().map(|(_, message)| message)
}

/// Puts version, type and true length over the start of random bytes, so that they get past the
/// header.
fn with_header(mut bytes: Vec<u8>, message_type: u8) -> Vec<u8> {
    bytes.resize(bytes.len().max(HEADER_BYTES), 0);
    let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
    bytes[..4].copy_from_slice(&[4, message_type, length[0], length[1]]);
    bytes
}

fn assert_reads_back(flow: &FlowStats, names: &dyn PortNames) {
    let text = format_flow(flow, names, FlowFormat { stats: true });
    let parsed = parse_flow(&text, FlowCommand::Add, names)
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(parsed.matcher, flow.matcher, "{text}");
    assert_eq!(parsed.instructions, flow.instructions, "{text}");
    assert_eq!(
        (parsed.table_id, parsed.priority, parsed.cookie, parsed.flags),
        (flow.table_id, flow.priority, flow.cookie, flow.flags),
        "{text}"
    );
    assert_eq!(
        (parsed.idle_timeout_s, parsed.hard_timeout_s),
        (flow.idle_timeout_s, flow.hard_timeout_s),
        "{text}"
    );
}

/// A name that fills its field has no room for the zero at its end: it came back shorter than it was.
#[test]
fn a_port_name_without_an_end_is_cut_when_it_is_read() {
    let mut message = vec![0; 80];
    message[32..48].fill(b'x');
    let framed = with_header(message, 12);
    let message = decode(&framed).unwrap();
    assert_eq!(decode(&message.encode(0)), Some(message));
}

proptest! {
    #[test]
    fn every_message_decodes_to_what_was_encoded(message in common::message(), xid: u32) {
        let bytes = message.encode(xid);
        let (header, decoded) = Message::decode(&bytes).unwrap();
        prop_assert_eq!(decoded, message);
        prop_assert_eq!(header.xid, xid);
        prop_assert_eq!(usize::from(header.length), bytes.len());
        prop_assert_eq!(Header::decode(*bytes.first_chunk().unwrap()), Ok(header));
    }

    #[test]
    fn every_multipart_reply_decodes_to_what_was_encoded(
        reply in common::multipart_reply(),
        more: bool,
    ) {
        let message = Message::MultipartReply { reply, more };
        prop_assert_eq!(decode(&message.encode(1)), Some(message));
    }

    #[test]
    fn random_bodies_never_panic_and_what_decodes_encodes_to_its_like(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        message_type in 0..32_u8,
    ) {
        decode(&bytes);
        let framed = with_header(bytes, message_type);
        if let Some(message) = decode(&framed) {
            prop_assert_eq!(decode(&message.encode(0)), Some(message));
        }
    }

    #[test]
    fn damaged_messages_never_panic_and_what_decodes_encodes_to_its_like(
        message in common::message(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let mut bytes = message.encode(1);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        decode(&bytes);
        let message_type = bytes.get(1).copied().unwrap_or(0);
        if let Some(message) = decode(&with_header(bytes, message_type)) {
            prop_assert_eq!(decode(&message.encode(0)), Some(message));
        }
    }

    #[test]
    fn a_decoded_match_has_all_prerequisites(flow in common::flow_mod()) {
        let bytes = Message::FlowMod(Box::new(flow)).encode(0);
        let Some(Message::FlowMod(decoded)) = decode(&bytes) else { panic!() };
        prop_assert!(common::has_all_prerequisites(&decoded.matcher));
    }

    #[test]
    fn a_printed_flow_parses_to_the_same_flow(flow in common::flow_stats()) {
        assert_reads_back(&flow, &NoNames);
    }

    #[test]
    fn a_printed_match_selects_what_it_printed(matcher in common::a_match()) {
        let text = format_match(&matcher, tollgate_openflow::flow_mod::DEFAULT_PRIORITY, &NoNames);
        let request = parse_flow_stats_request(&text, &NoNames).unwrap();
        prop_assert_eq!(request.matcher, matcher);
    }

    #[test]
    fn port_names_of_any_characters_read_back(
        flow in common::flow_stats(),
        names in proptest::collection::vec("[ -~\u{e4}]{1,15}", 20),
    ) {
        let named = names.iter().zip(1..).map(|(name, port_no)| {
            let name = name.replace('#', "x");
            tollgate_openflow::port::PortDesc { port_no, name, ..Default::default() }
        });
        let mut named: Vec<_> = named.collect();
        named.sort_by(|a, b| a.name.cmp(&b.name));
        named.dedup_by(|a, b| a.name == b.name);
        assert_reads_back(&flow, &PortTable::new(&named));
    }

    #[test]
    fn random_text_never_panics(text in "\\PC{0,80}", rest in "[a-z0-9_=:,.()\"/>*+|-]{0,60}") {
        for text in [&text, &rest, &format!("ip,{rest},actions={text}"), &format!("actions={rest}")] {
            let _ = parse_flow_line(text, FlowCommand::Add, &NoNames);
            let _ = parse_flow(text, FlowCommand::Delete, &NoNames);
            let _ = parse_flow_stats_request(text, &NoNames);
        }
    }

    #[test]
    fn damaged_flow_text_never_panics(
        flow in common::flow_stats(),
        at in any::<prop::sample::Index>(),
        with in "[ -~]{0,3}",
    ) {
        let mut text: Vec<char> =
            format_flow(&flow, &NoNames, FlowFormat { stats: true }).chars().collect();
        let at = at.index(text.len());
        text.splice(at..=at, with.chars());
        let _ = parse_flow_line(&String::from_iter(text), FlowCommand::Add, &NoNames);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn long_replies_are_cut_into_messages_that_add_up(
        flows in proptest::collection::vec(common::flow_stats(), 20),
        repeat in 30..60_usize,
        more: bool,
    ) {
        let flows: Vec<FlowStats> = flows.iter().cycle().take(20 * repeat).cloned().collect();
        let reply = MultipartReply::Flow(flows.clone());
        let bytes = Message::MultipartReply { reply, more }.encode(7);
        let (mut rest, mut joined, mut parts) = (&bytes[..], Vec::new(), 0);
        while !rest.is_empty() {
            let header = Header::decode(*rest.first_chunk().unwrap()).unwrap();
            let (part, after) = rest.split_at(header.length.into());
            rest = after;
            parts += 1;
            match Message::decode(part).unwrap() {
                (header, Message::MultipartReply { reply: MultipartReply::Flow(part), more: m }) => {
                    prop_assert_eq!(header.xid, 7);
                    prop_assert_eq!(m, !rest.is_empty() || more);
                    joined.extend(part);
                }
                other => panic!("{other:?}"),
            }
        }
        prop_assert!(parts > 1);
        prop_assert_eq!(joined, flows);
    }
}
