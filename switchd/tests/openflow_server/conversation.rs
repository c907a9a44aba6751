//! The OpenFlow server's conversation, against raw bytes and against Debian's `ovs-ofctl`: every
//! request is answered or refused, and nothing but nonsense for a stream ends a connection.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate_openflow::group::{GroupCommand, GroupFeatures, GroupMod, OFPG_ALL};
use tollgate_openflow::message::{Hello, SwitchConfig};
use tollgate_openflow::meter::{
    MeterBand, MeterBandKind, MeterCommand, MeterConfig, MeterMod, OFPM_ALL, OFPMF_KBPS,
};
use tollgate_openflow::multipart::{FlowStatsRequest, MultipartReply, MultipartRequest};
use tollgate_openflow::packet_out::PacketOut;
use tollgate_openflow::port::{OFP_NO_BUFFER, OFPP_ANY};
use tollgate_openflow::port_mod::PortMod;
use tollgate_openflow::queue::OFPQ_ALL;
use tollgate_openflow::{Actions, ErrorCode, FlowCommand, FlowMod, Message};
use tollgate_switchd::limits::MAX_OPENFLOW_CONNECTIONS;
use tollgate_switchd::openflow::Bridge as _;

use crate::peer::text;
use crate::server::{Client, Server};

fn hello(version: u8, bitmap: Option<u32>) -> Vec<u8> {
    let mut bytes = Message::Hello(Hello { versions: bitmap }).encode(1);
    bytes[0] = version;
    bytes
}

#[test]
fn version_1_3_is_agreed_on_or_the_reason_is_told() {
    let server = Server::start();
    let bits =
        |versions: &[u32]| Some(versions.iter().fold(0, |bits, version| bits | 1 << version));
    for good in [
        hello(4, None),
        hello(6, None),
        hello(4, bits(&[4])),
        hello(6, bits(&[1, 2, 3, 4, 5, 6])),
        hello(1, bits(&[4])),
    ] {
        let mut client = server.connect();
        client.send_bytes(&good);
        client.assert_alive();
    }
    for bad in [hello(1, None), hello(6, bits(&[1, 2, 3, 5, 6])), hello(3, bits(&[1, 3]))] {
        let mut client = server.connect();
        client.send_bytes(&bad);
        let (_, error) = client.error();
        assert_eq!(error.code, ErrorCode::OFPHFC_INCOMPATIBLE);
        assert!(String::from_utf8_lossy(&error.data).contains("1.3"));
        client.assert_closed();
    }
    let mut client = server.connect();
    client.send(5, &Message::FeaturesRequest);
    assert_eq!(client.error().1.code, ErrorCode::OFPHFC_INCOMPATIBLE);
    client.assert_closed();
}

#[test]
fn what_is_not_supported_is_refused_and_the_connection_stays() {
    let server = Server::start();
    let mut client = server.greeted();
    let unknown = |message_type, body: &[u8]| {
        Message::Unknown { message_type, body: body.to_vec() }.encode(7)
    };
    let mut old_version = Message::BarrierRequest.encode(7);
    old_version[0] = 1;
    let mut strange_multipart = Message::MultipartRequest(MultipartRequest::Desc).encode(7);
    strange_multipart[8..10].copy_from_slice(&99_u16.to_be_bytes());
    let mut in_parts = Message::MultipartRequest(MultipartRequest::Desc).encode(7);
    in_parts[11] = 1;
    let mut truncated = Message::FlowMod(Box::new(FlowMod::new(FlowCommand::Add))).encode(7);
    truncated.truncate(40);
    truncated[3] = 40;
    let refused_flow =
        Message::FlowMod(Box::new(FlowMod { priority: 666, ..FlowMod::new(FlowCommand::Add) }));
    let features = server.bridge.table_features();
    let cases = [
        (unknown(200, b"?"), ErrorCode::OFPBRC_BAD_TYPE),
        // OFPT_TABLE_MOD and OFPT_QUEUE_GET_CONFIG_REQUEST.
        (unknown(17, &[0; 8]), ErrorCode::OFPBRC_BAD_TYPE),
        (unknown(22, &[0; 8]), ErrorCode::OFPBRC_BAD_TYPE),
        (unknown(4, &[0; 8]), ErrorCode::OFPBRC_BAD_EXPERIMENTER),
        (Message::BarrierReply.encode(7), ErrorCode::OFPBRC_BAD_TYPE),
        (old_version, ErrorCode::OFPBRC_BAD_VERSION),
        (strange_multipart, ErrorCode::OFPBRC_BAD_MULTIPART),
        (in_parts, ErrorCode::OFPBRC_MULTIPART_BUFFER_OVERFLOW),
        (truncated, ErrorCode::OFPBRC_BAD_LEN),
        (refused_flow.encode(7), ErrorCode::OFPFMFC_TABLE_FULL),
        (
            Message::SetConfig(SwitchConfig { flags: 1, miss_send_len: 0 }).encode(7),
            ErrorCode::OFPSCFC_BAD_FLAGS,
        ),
        (
            Message::MultipartRequest(MultipartRequest::PortStats { port_no: 9 }).encode(7),
            ErrorCode::OFPBRC_BAD_PORT,
        ),
        (
            Message::MultipartRequest(MultipartRequest::TableFeatures(features)).encode(7),
            ErrorCode::OFPTFFC_EPERM,
        ),
    ];
    for (request, code) in cases {
        client.send_bytes(&request);
        let (xid, error) = client.error();
        assert_eq!((xid, error.code), (7, code), "{request:?}");
        assert!(request.starts_with(&error.data) && error.data.len() >= request.len().min(64));
        client.assert_alive();
    }
    // An error is not answered: two switches could go on for ever.
    client.send(8, &Message::error(ErrorCode::OFPBRC_BAD_TYPE, b""));
    client.assert_alive();
}

#[test]
fn a_length_below_the_header_is_refused_and_ends_the_connection() {
    let server = Server::start();
    let mut client = server.greeted();
    client.send_bytes(&[4, 20, 0, 4, 0, 0, 0, 3]);
    assert_eq!(client.error().1.code, ErrorCode::OFPBRC_BAD_LEN);
    client.assert_closed();
}

#[test]
fn requests_are_answered_in_order_and_barriers_reach_the_bridge() {
    let server = Server::start();
    let mut client = server.greeted();
    let mut bytes = Vec::new();
    for xid in 0..1000 {
        bytes.extend(Message::BarrierRequest.encode(xid));
    }
    client.send_bytes(&bytes);
    for xid in 0..1000 {
        assert_eq!(client.receive(), (xid, Message::BarrierReply));
    }
    assert_eq!(server.bridge.barriers.load(Ordering::SeqCst), 1000);

    client.send(1, &Message::SetConfig(SwitchConfig { flags: 0, miss_send_len: 128 }));
    client.send(2, &Message::GetConfigRequest);
    let config = SwitchConfig { flags: 0, miss_send_len: 128 };
    assert_eq!(client.receive(), (2, Message::GetConfigReply(config)));
    client.send(3, &Message::MultipartRequest(MultipartRequest::PortStats { port_no: OFPP_ANY }));
    match client.receive() {
        (3, Message::MultipartReply { reply: MultipartReply::PortStats(ports), more: false }) => {
            assert_eq!(ports.len(), 2);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn packets_ports_and_meters_reach_the_bridge_and_its_refusals_the_client() {
    let server = Server::start();
    let mut client = server.greeted();
    let packet = |in_port| PacketOut {
        buffer_id: OFP_NO_BUFFER,
        in_port,
        actions: Actions::default(),
        data: vec![7; 60],
    };
    let port = |port_no| PortMod { port_no, hw_addr: [1; 6], config: 1, mask: 1, advertise: 0 };
    let band = MeterBand { kind: MeterBandKind::Drop, rate: 1000, burst_size: 10 };
    let meter = |meter_id| MeterMod {
        command: MeterCommand::Add,
        flags: OFPMF_KBPS,
        meter_id,
        bands: vec![band],
    };
    for number in [1, 666] {
        client.send(4, &Message::PacketOut(Box::new(packet(number))));
        client.send(5, &Message::PortMod(port(number)));
        client.send(6, &Message::MeterMod(Box::new(meter(number))));
        if number == 666 {
            let refusals = [(); 3].map(|()| client.error()).map(|(xid, error)| (xid, error.code));
            let expected = [
                (4, ErrorCode::OFPBRC_BAD_PORT),
                (5, ErrorCode::OFPPMFC_BAD_PORT),
                (6, ErrorCode::OFPMMFC_METER_EXISTS),
            ];
            assert_eq!(refusals, expected);
        }
        client.assert_alive();
    }
    assert_eq!(*server.bridge.packets.lock().unwrap(), [packet(1)]);
    assert_eq!(*server.bridge.port_mods.lock().unwrap(), [port(1)]);
    let config = MeterConfig { meter_id: 1, flags: OFPMF_KBPS, bands: vec![band] };
    assert_eq!(*server.bridge.meters.lock().unwrap(), std::slice::from_ref(&config));

    let mut ask = |request| {
        client.send(9, &Message::MultipartRequest(request));
        match client.receive() {
            (9, Message::MultipartReply { reply, more: false }) => Ok(reply),
            (9, Message::Error(error)) => Err(error.code),
            other => panic!("{other:?}"),
        }
    };
    use MultipartRequest as Ask;
    let configs = Ok(MultipartReply::MeterConfig(vec![config]));
    assert_eq!(ask(Ask::MeterConfig { meter_id: OFPM_ALL }), configs);
    let unknown = Err(ErrorCode::OFPMMFC_UNKNOWN_METER);
    assert_eq!(ask(Ask::MeterConfig { meter_id: 2 }), unknown);
    assert!(
        matches!(ask(Ask::Meter { meter_id: 1 }), Ok(MultipartReply::Meter(all)) if all.len() == 1)
    );
    assert_eq!(ask(Ask::Meter { meter_id: 2 }), unknown);
    let features = ask(Ask::MeterFeatures);
    assert!(matches!(features, Ok(MultipartReply::MeterFeatures(f)) if f.max_meter == 7));
}

#[test]
fn there_are_no_groups_and_no_queues_and_it_is_said() {
    let server = Server::start();
    let mut client = server.greeted();
    let queues = |port_no, queue_id| MultipartRequest::Queue { port_no, queue_id };
    let empty = [
        (queues(OFPP_ANY, OFPQ_ALL), MultipartReply::Queue(vec![])),
        (queues(1, OFPQ_ALL), MultipartReply::Queue(vec![])),
        (MultipartRequest::Group { group_id: OFPG_ALL }, MultipartReply::Group(vec![])),
        (MultipartRequest::GroupDesc, MultipartReply::GroupDesc(vec![])),
        (MultipartRequest::GroupFeatures, MultipartReply::GroupFeatures(GroupFeatures::default())),
    ];
    for (request, reply) in empty {
        client.send(3, &Message::MultipartRequest(request));
        assert_eq!(client.receive(), (3, Message::MultipartReply { reply, more: false }));
    }
    let group = |command| {
        let buckets = Vec::new();
        Message::GroupMod(Box::new(GroupMod { command, group_type: 0, group_id: 1, buckets }))
    };
    for (request, code) in [
        (Message::MultipartRequest(queues(9, OFPQ_ALL)), ErrorCode::OFPQOFC_BAD_PORT),
        (Message::MultipartRequest(queues(1, 0)), ErrorCode::OFPQOFC_BAD_QUEUE),
        (group(GroupCommand::Add), ErrorCode::OFPGMFC_BAD_TYPE),
        (group(GroupCommand::Modify), ErrorCode::OFPGMFC_UNKNOWN_GROUP),
    ] {
        client.send(4, &request);
        assert_eq!(client.error().1.code, code, "{request:?}");
    }
    // To delete what is not there is no error.
    client.send(5, &group(GroupCommand::Delete));
    client.assert_alive();
}

#[test]
fn a_large_dump_comes_in_parts_and_a_slow_reader_holds_up_nobody() {
    let server = Server::start();
    let mut client = server.greeted();
    let flows: usize = 5000;
    let add: Vec<u8> = (0..flows)
        .flat_map(|flow| {
            let cookie = flow as u64;
            let add = FlowMod { cookie, ..FlowMod::new(FlowCommand::Add) };
            Message::FlowMod(Box::new(add)).encode(1)
        })
        .collect();
    client.send_bytes(&add);
    client.assert_alive();
    let dump = Message::MultipartRequest(MultipartRequest::Flow(FlowStatsRequest::default()));
    client.send(5, &dump);
    // Nobody reads yet, and others are served.
    server.greeted();

    let (mut cookies, mut parts) = (Vec::new(), 0);
    loop {
        let (xid, message) = client.receive();
        let Message::MultipartReply { reply: MultipartReply::Flow(part), more } = message else {
            panic!("{message:?}");
        };
        assert_eq!(xid, 5);
        cookies.extend(part.iter().map(|flow| flow.cookie));
        parts += 1;
        if !more {
            break;
        }
    }
    assert!(parts > 4, "{parts}");
    assert_eq!(cookies, (0..flows as u64).collect::<Vec<_>>());
    client.assert_alive();
}

#[test]
fn answers_that_had_to_wait_come_whole_and_in_order() {
    let server = Server::start();
    let mut client = server.greeted();
    let count = 400;
    let data = |xid: u32| vec![xid as u8; 8000 + xid as usize];
    let mut writer = client.0.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for xid in 0..count {
                let request = Message::EchoRequest(data(xid)).encode(xid);
                writer.write_all(&request).unwrap();
            }
        });
        // Most likely the answers fill every buffer meanwhile, and one has left in part.
        std::thread::sleep(Duration::from_millis(300));
        for xid in 0..count {
            assert_eq!(client.receive(), (xid, Message::EchoReply(data(xid))));
        }
    });
}

#[test]
fn half_messages_and_many_connections_leave_the_server_answering() {
    let server = Server::start();
    let held: Vec<Client> = (0..MAX_OPENFLOW_CONNECTIONS - 1)
        .map(|_| {
            let mut client = server.connect();
            client.send_bytes(&[4, 0, 0xff]);
            client
        })
        .collect();
    server.greeted().assert_alive();
    drop(held);
    for _ in 0..200 {
        let _ = UnixStream::connect(&server.path).unwrap();
    }
    let answered = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        UnixStream::connect(&server.path).unwrap().read(&mut [0; 8]).is_ok_and(|read| read > 0)
    });
    assert!(answered);
}

#[test]
fn ovs_ofctl_understands_every_answer() {
    let server = Server::start();
    let Some(show) = server.ovs_ofctl("show", &[]) else { return };
    let show = text(&show);
    assert!(show.contains("dpid:0000000000000abc") && show.contains("1(vm1)"), "{show}");
    let run = |verb, rest: &[&str]| text(&server.ovs_ofctl(verb, rest).unwrap());
    run("probe", &[]);
    assert!(run("dump-desc", &[]).contains("Tollgate"));
    assert!(run("dump-ports", &[]).contains("rx pkts=7"));
    let one_port = run("dump-ports", &["--names", "vm2"]);
    assert!(one_port.contains("vm2") && !one_port.contains("vm1"), "{one_port}");
    assert!(run("dump-tables", &[]).contains("table 1"));
    run("dump-table-features", &[]);

    run("add-flow", &["in_port=vm1,priority=5,actions=output:vm2"]);
    run("add-flow", &["--no-names", "in_port=2,actions=drop"]);
    assert_eq!(server.bridge.barriers.load(Ordering::SeqCst), 2);
    let dump = run("dump-flows", &["--no-names", "--no-stats"]);
    assert!(dump.contains(" priority=5,in_port=1 actions=output:2"), "{dump}");
    let filtered = run("dump-flows", &["--names", "in_port=vm1"]);
    assert!(filtered.contains("in_port=vm1"), "{filtered}");
    assert!(run("dump-aggregate", &[]).contains("flow_count=2"));

    let refused = server.ovs_ofctl("add-flow", &["priority=666,actions=drop"]).unwrap();
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("OFPFMFC_TABLE_FULL"));
}

#[test]
fn a_thousand_flows_through_ovs_ofctl() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("flows");
    let flows: String = (0..1000)
        .map(|flow| {
            format!(
                "in_port=1,dl_dst=02:00:00:00:{:02x}:{:02x},actions=2\n",
                flow / 256,
                flow % 256
            )
        })
        .collect();
    std::fs::write(&file, flows).unwrap();
    let Some(added) = server.ovs_ofctl("add-flows", &[file.to_str().unwrap()]) else { return };
    text(&added);
    let dump = text(&server.ovs_ofctl("dump-flows", &[]).unwrap());
    assert_eq!(dump.lines().filter(|line| line.contains("dl_dst=")).count(), 1000);
}
