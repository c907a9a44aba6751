//! Messages recorded between Debian's `ovs-ofctl -O OpenFlow13` 3.1 and Open vSwitch 3.1.
//!
//! `golden/flows.tsv` has a line per flow: the text given to `add-flow`, the flow-mod that
//! `ovs-ofctl` sent for it, what `dump-flows --names --no-stats` and `dump-flows --no-names` (from
//! the match on) printed, and the switch's flow statistics reply.

use tollgate_openflow::multipart::{FlowStats, MultipartReply};
use tollgate_openflow::port::PortDesc;
use tollgate_openflow::text::{FlowFormat, NoNames, PortTable, format_flow, parse_flow};
use tollgate_openflow::{FlowCommand, Message};

struct Recorded {
    flow_mod: Vec<u8>,
    reply: Vec<u8>,
    text: &'static str,
    printed_by_name: &'static str,
    printed_by_number: &'static str,
}

fn recorded() -> impl Iterator<Item = Recorded> {
    include_str!("golden/flows.tsv").lines().map(|line| {
        let columns: Vec<&str> = line.split('\t').collect();
        let [text, flow_mod, printed_by_name, printed_by_number, reply] = columns[..] else {
            panic!("columns: {line}")
        };
        Recorded {
            flow_mod: unhex(flow_mod),
            reply: unhex(reply),
            text,
            printed_by_name,
            printed_by_number,
        }
    })
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn recorded_flow_mods_decode_and_encode_to_the_same_bytes() {
    let mut seen = 0;
    for flow in recorded() {
        let (header, message) = Message::decode(&flow.flow_mod)
            .unwrap_or_else(|error| panic!("{}: {error}", flow.text));
        assert!(matches!(message, Message::FlowMod(_)), "{}", flow.text);
        assert_eq!(message.encode(header.xid), flow.flow_mod, "{}", flow.text);
        seen += 1;
    }
    assert!(seen > 100);
}

#[test]
fn recorded_flow_statistics_decode_and_encode_to_the_same_bytes() {
    for flow in recorded() {
        let (header, message) =
            Message::decode(&flow.reply).unwrap_or_else(|error| panic!("{}: {error}", flow.text));
        let Message::MultipartReply { reply: MultipartReply::Flow(flows), more: false } = &message
        else {
            panic!("{}: {message:?}", flow.text)
        };
        assert_eq!(flows.len(), 1, "{}", flow.text);
        assert_eq!(message.encode(header.xid), flow.reply, "{}", flow.text);
    }
}

/// The bridge that the recordings were made on.
fn ports() -> PortTable {
    let port =
        |port_no, name: &str| PortDesc { port_no, name: name.to_owned(), ..PortDesc::default() };
    PortTable::new(&[port(1, "p1"), port(2, "p2"), port(3, "vm-3")])
}

impl Recorded {
    fn flow(&self) -> FlowStats {
        match Message::decode(&self.reply) {
            Ok((_, Message::MultipartReply { reply: MultipartReply::Flow(mut flows), .. })) => {
                flows.remove(0)
            }
            other => panic!("{}: {other:?}", self.text),
        }
    }
}

#[test]
fn recorded_texts_parse_to_the_flow_mods_that_ovs_ofctl_sent() {
    for flow in recorded() {
        let parsed = parse_flow(flow.text, FlowCommand::Add, &ports())
            .unwrap_or_else(|error| panic!("{}: {error}", flow.text));
        let (header, sent) = Message::decode(&flow.flow_mod).unwrap();
        let parsed = Message::FlowMod(Box::new(parsed));
        assert_eq!(parsed, sent, "{}", flow.text);
        assert_eq!(parsed.encode(header.xid), flow.flow_mod, "{}", flow.text);
    }
}

#[test]
fn recorded_flows_print_as_dump_flows_printed_them() {
    for flow in recorded() {
        let stats = flow.flow();
        let by_name = format_flow(&stats, &ports(), FlowFormat { stats: false });
        assert_eq!(format!(" {by_name}"), flow.printed_by_name, "{}", flow.text);
        let by_number = format_flow(&stats, &NoNames, FlowFormat { stats: true });
        let (_, rest) = by_number.split_once("n_bytes=0, ").unwrap();
        assert_eq!(rest, flow.printed_by_number, "{}", flow.text);
    }
}

#[test]
fn a_dumped_flow_reads_back_as_the_same_flow() {
    for flow in recorded() {
        let stats = flow.flow();
        let printed = format_flow(&stats, &ports(), FlowFormat { stats: true });
        let parsed = parse_flow(&printed, FlowCommand::Add, &ports())
            .unwrap_or_else(|error| panic!("{printed}: {error}"));
        assert_eq!(parsed.matcher, stats.matcher, "{printed}");
        assert_eq!(parsed.instructions, stats.instructions, "{printed}");
        assert_eq!(
            (parsed.table_id, parsed.priority, parsed.cookie, parsed.flags),
            (stats.table_id, stats.priority, stats.cookie, stats.flags),
            "{printed}"
        );
        assert_eq!(
            (parsed.idle_timeout_s, parsed.hard_timeout_s),
            (stats.idle_timeout_s, stats.hard_timeout_s),
            "{printed}"
        );
    }
}
