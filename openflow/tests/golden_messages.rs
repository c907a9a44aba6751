//! Messages of all types, recorded between Debian's `ovs-ofctl -O OpenFlow13` 3.1 and Open vSwitch
//! 3.1, and one client that asked for roles and events.
//!
//! `golden/messages.tsv` has a line per message: its bytes, and what `ovs-ofctl ofp-print` makes of
//! it, with `\n` for a newline.

use tollgate_openflow::multipart::MultipartReply;
use tollgate_openflow::text::{
    NoNames, format_aggregate, format_desc, format_features, format_flow_removed,
    format_meter_config, format_meter_features, format_meter_stats, format_packet_in,
    format_port_desc, format_port_stats, format_port_status, format_queue_stats,
    format_switch_config, reply_heading,
};
use tollgate_openflow::{Header, Message};

fn recorded() -> impl Iterator<Item = (Vec<u8>, String)> {
    include_str!("golden/messages.tsv").lines().map(|line| {
        let (bytes, text) = line.split_once('\t').unwrap();
        (unhex(bytes), text.replace("\\n", "\n"))
    })
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn recorded_messages_decode_and_encode_to_the_same_bytes() {
    let mut types = std::collections::BTreeSet::new();
    for (bytes, text) in recorded() {
        let (header, message) =
            Message::decode(&bytes).unwrap_or_else(|error| panic!("{text}: {error}"));
        types.insert(header.message_type);
        // Only the version in a HELLO's bitmap is ours to choose.
        assert_eq!(message.encode(header.xid), bytes, "{text}");
    }
    // All but TABLE_MOD and the queues' configuration.
    let all: Vec<u8> = (0..30).filter(|kind| ![14, 17, 22, 23].contains(kind)).collect();
    assert_eq!(types.into_iter().collect::<Vec<_>>(), all);
}

/// What we print for a message, if it is one that `ofctl` prints.
fn printed(header: &Header, message: &Message) -> Option<String> {
    let heading = |name: &str| reply_heading(name, header.xid, false);
    Some(match message {
        Message::FeaturesReply(features) => {
            heading("OFPT_FEATURES_REPLY") + &format_features(features)
        }
        Message::GetConfigReply(config) => {
            heading("OFPT_GET_CONFIG_REPLY") + &format_switch_config(config)
        }
        Message::PacketIn(packet) => {
            heading("OFPT_PACKET_IN") + &format_packet_in(packet, &NoNames)
        }
        Message::FlowRemoved(flow) => {
            heading("OFPT_FLOW_REMOVED") + &format_flow_removed(flow, &NoNames)
        }
        Message::PortStatus(status) => heading("OFPT_PORT_STATUS") + &format_port_status(status),
        Message::MultipartReply { reply, .. } => match reply {
            MultipartReply::Desc(desc) => heading("OFPST_DESC reply") + "\n" + &format_desc(desc),
            MultipartReply::Aggregate(sum) => {
                heading("OFPST_AGGREGATE reply") + &format_aggregate(sum)
            }
            MultipartReply::PortStats(ports) => {
                let lines: String =
                    ports.iter().map(|port| format_port_stats(port, &NoNames)).collect();
                format!("{} {} ports\n{lines}", heading("OFPST_PORT reply"), ports.len())
            }
            MultipartReply::PortDesc(ports) => {
                let mut ports = ports.clone();
                ports.sort_by_key(|port| port.port_no);
                let lines: String = ports.iter().map(format_port_desc).collect();
                heading("OFPST_PORT_DESC reply") + "\n" + &lines
            }
            MultipartReply::Queue(queues) => {
                let lines: String =
                    queues.iter().map(|queue| format_queue_stats(queue, &NoNames)).collect();
                format!("{} {} queues\n{lines}", heading("OFPST_QUEUE reply"), queues.len())
            }
            MultipartReply::Meter(meters) => {
                let meters: Vec<String> = meters.iter().map(format_meter_stats).collect();
                heading("OFPST_METER reply") + "\n" + &meters.join("\n")
            }
            MultipartReply::MeterConfig(meters) => {
                let meters: Vec<String> = meters.iter().map(format_meter_config).collect();
                heading("OFPST_METER_CONFIG reply") + "\n" + &meters.join("\n")
            }
            MultipartReply::MeterFeatures(features) => {
                heading("OFPST_METER_FEATURES reply") + "\n" + &format_meter_features(features)
            }
            _ => return None,
        },
        _ => return None,
    })
}

#[test]
fn recorded_messages_print_as_ovs_ofctl_prints_them() {
    let mut seen = 0;
    for (bytes, text) in recorded() {
        let (header, message) = Message::decode(&bytes).unwrap();
        let Some(ours) = printed(&header, &message) else { continue };
        // Of a packet the first line: the frame is ofctl's to print.
        let theirs = match message {
            Message::PacketIn(_) => text.lines().next().unwrap(),
            _ => &text,
        };
        assert_eq!(ours.trim_end(), theirs);
        seen += 1;
    }
    assert!(seen > 20, "{seen}");
}
