//! Messages recorded between Debian's `ovs-ofctl -O OpenFlow13` 3.1 and Open vSwitch 3.1.
//!
//! `golden/flows.tsv` has a line per flow: the text given to `add-flow`, the flow-mod that
//! `ovs-ofctl` sent for it, what `dump-flows --names --no-stats` and `dump-flows --no-names` (from
//! the match on) printed, and the switch's flow statistics reply.

use tollgate_openflow::Message;
use tollgate_openflow::multipart::MultipartReply;

struct Recorded {
    flow_mod: Vec<u8>,
    reply: Vec<u8>,
    text: &'static str,
}

fn recorded() -> impl Iterator<Item = Recorded> {
    include_str!("golden/flows.tsv").lines().map(|line| {
        let columns: Vec<&str> = line.split('\t').collect();
        let [text, flow_mod, _, _, reply] = columns[..] else { panic!("columns: {line}") };
        Recorded { text, flow_mod: unhex(flow_mod), reply: unhex(reply) }
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
