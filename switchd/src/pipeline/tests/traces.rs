//! Traces: what would become of a packet, told as it happens and without any consequence.

use proptest::prelude::*;
use tollgate_packet::{FlowKey, MacAddr};
use tollgate_policy::TenantIndex;

use super::frames::{Frame, any_frame};
use super::rules::{PORTS, any_place, any_wishes};
use super::sim::Sim;
use crate::pipeline::compose::compose;
use crate::pipeline::describe::key_of;
use crate::pipeline::trace::{Trace, TraceError, TraceRequest};
use tollgate_openflow::FlowCommand;

proptest! {
    /// A packet that is composed from the key of another one has that key.
    #[test]
    fn a_composed_frame_has_the_fields_it_was_composed_from(frame in any_frame()) {
        let mut bytes = frame.build();
        if frame.tags.len() > 2 {
            // What is behind two tags is not in the key.
            bytes.drain(12..16);
        }
        let key = key_of(&bytes);
        prop_assert_eq!(key_of(&compose(&key)), key);
    }

    /// The bytes of a trace are those of the packet.
    #[test]
    fn a_trace_foresees_what_is_sent(
        rules in prop::collection::vec((any_place(), any_wishes()), 1..16),
        frames in prop::collection::vec((1..=PORTS, any_frame()), 1..6),
    ) {
        let mut sim = Sim::new(PORTS);
        for (priority, (place, wishes)) in (1..).zip(&rules) {
            sim.flow_mod(&place.flow_mod(FlowCommand::Add, priority, wishes));
        }
        for (ofport, frame) in &frames {
            let bytes = frame.build();
            let request = TraceRequest::Frame { in_port: ofport.to_string(), bytes: bytes.clone() };
            let trace = sim.core.trace(sim.bridge, &request).unwrap();
            let outputs = trace.outputs.iter().map(|o| (o.port.clone(), o.bytes.clone()));
            let sent = sim.send(*ofport, &bytes);
            let sent: Vec<_> = sent.into_iter().map(|(port, b)| (format!("p{port}"), b)).collect();
            prop_assert_eq!(outputs.collect::<Vec<_>>(), sent);
        }
    }
}

#[test]
fn neighbour_discovery_is_composed_with_its_addresses() {
    for (kind, sha, tha) in [(135, 7, 0), (136, 0, 9), (135, 0, 0)] {
        let key = FlowKey {
            eth_type: 0x86dd,
            ip_proto: 58,
            l4_src: kind,
            nd_target: [5; 16],
            arp_sha: MacAddr([0, 0, 0, 0, 0, sha]),
            arp_tha: MacAddr([0, 0, 0, 0, 0, tha]),
            ..FlowKey::ZERO
        };
        assert_eq!(key_of(&compose(&key)), key);
    }
}

fn traced(sim: &Sim, flow: &str) -> Trace {
    sim.core.trace(sim.bridge, &TraceRequest::Flow(flow.to_owned())).unwrap()
}

#[test]
fn a_trace_tells_the_walk_table_by_table() {
    let sim = Sim::new(3);
    sim.add("cookie=0x1,priority=10,ip,actions=resubmit(,2),dec_ttl,goto_table:1");
    sim.add("table=1,cookie=0x2,priority=7,ip,nw_dst=10.0.0.0/24,actions=write_actions(output:2)");
    sim.add("table=2,cookie=0x3,actions=set_field:0x5->reg3,resubmit(,3),note:01.02.03.04.05.06");
    let trace = traced(&sim, "in_port=p1,tcp,nw_dst=10.0.0.2,tp_dst=80");
    let told: Vec<_> = trace
        .steps
        .iter()
        .map(|s| (s.depth, s.table, s.rule.as_deref(), s.cookie, s.actions.join(" ")))
        .collect();
    assert_eq!(
        told,
        [
            (0, Some(0), Some("priority=10,ip"), 1, "resubmit(,2) dec_ttl goto_table:1".to_owned()),
            (
                1,
                Some(2),
                Some(""),
                3,
                "set_field:0x5->reg3 resubmit(,3) note:01.02.03.04.05.06".to_owned()
            ),
            (2, Some(3), None, 0, String::new()),
            (
                0,
                Some(1),
                Some("priority=7,ip,nw_dst=10.0.0.0/24"),
                2,
                "write_actions(output:p2)".to_owned()
            ),
            (0, None, None, 0, "output:p2".to_owned()),
        ]
    );
    assert_eq!(trace.datapath_actions, ["dec_ttl", "output:p2"]);
    assert_eq!(trace.megaflow, "ip,in_port=p1,nw_dst=10.0.0.0/24,nw_ttl=64");
    assert_eq!(
        trace.final_flow,
        "tcp,reg3=0x5,in_port=p1,vlan_tci=0x0000/0x1fff,dl_src=02:00:00:00:00:01,\
         dl_dst=02:00:00:00:00:02,nw_src=0.0.0.0,nw_dst=10.0.0.2,nw_tos=0,nw_ecn=0,nw_ttl=63,\
         nw_frag=no,tp_src=0,tp_dst=80,tcp_flags=0"
    );
    assert_eq!((trace.verdict.as_str(), trace.owner), ("sent to 1 port", TenantIndex(1)));
    let [output] = &trace.outputs[..] else { panic!("one output") };
    assert_eq!((output.port.as_str(), output.bytes[14 + 8]), ("p2", 63));
}

#[test]
fn a_trace_has_no_consequence() {
    let mut sim = Sim::new(3);
    sim.add("priority=5,actions=NORMAL,CONTROLLER:65535");
    let trace = traced(&sim, "in_port=2,dl_src=02:00:00:00:00:07,dl_dst=02:00:00:00:00:01");
    assert_eq!(trace.verdict, "sent to 2 ports, copied to the controller");
    assert_eq!(sim.core.shadow().len(), 0);
    assert_eq!(sim.flows()[0].packet_count, 0);
    assert!(
        sim.events().iter().all(|event| matches!(event, crate::pipeline::Event::PortStatus(_)))
    );
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 7).build()), [2, 3], "it taught nothing");
}

#[test]
fn a_trace_that_cannot_be_says_why() {
    let sim = Sim::new(1);
    let refused =
        |flow: &str| sim.core.trace(sim.bridge, &TraceRequest::Flow(flow.to_owned())).unwrap_err();
    assert_eq!(refused("tcp"), TraceError::NoInPort);
    assert_eq!(refused("in_port=7,tcp"), TraceError::NoPort("7".to_owned()));
    assert!(matches!(refused("in_port=1,tp_dst=80"), TraceError::Flow(_)));
    assert!(matches!(refused("in_port=1,udp6,dl_vlan=0x1fff"), TraceError::Flow(_)));
    let bytes = vec![0; 13];
    let request = TraceRequest::Frame { in_port: "p1".to_owned(), bytes };
    assert_eq!(sim.core.trace(sim.bridge, &request), Err(TraceError::Length(13)));
    let request = TraceRequest::Frame { in_port: "p9".to_owned(), bytes: vec![0; 60] };
    let error = sim.core.trace(sim.bridge, &request).unwrap_err();
    assert_eq!(error.to_string(), "the bridge has no port \"p9\"");
}

#[test]
fn cached_decisions_and_stations_are_listed() {
    let mut sim = Sim::new(3);
    sim.add("priority=5,in_port=1,actions=NORMAL");
    sim.add("priority=5,in_port=2,ip,actions=set_field:10.0.0.9->ip_dst,output:3");
    sim.send(1, &Frame::udp(4, 5).tagged(7).build());
    sim.send(2, &Frame::udp(1, 2).build());
    sim.send(3, &Frame::udp(1, 2).build());
    sim.advance_ms(3000);
    let (mut megaflows, more) = sim.core.megaflows(Some(sim.bridge), 10);
    megaflows.sort_by_key(|megaflow| megaflow.port.clone());
    assert!(!more);
    let listed: Vec<_> =
        megaflows.iter().map(|m| (m.port.as_str(), m.actions.join(","), m.packets)).collect();
    assert_eq!(
        listed,
        [
            ("p1", "output:p2,output:p3".to_owned(), 1),
            ("p2", "set_field:10.0.0.9->ip_dst,output:p3".to_owned(), 1),
            ("p3", String::new(), 1),
        ]
    );
    assert!(megaflows[1].matched.starts_with("ip,in_port=p2"), "{}", megaflows[1].matched);
    assert_eq!(megaflows[2].drop_reason.map(|reason| reason.as_str()), Some("no_rule"));
    assert_eq!(megaflows[0].drop_reason, None);
    assert!(megaflows.iter().all(|megaflow| megaflow.idle_ms == 3000));
    assert!(sim.core.megaflows(None, 2).1);
    let stations = sim.core.stations(sim.bridge).unwrap();
    let stations: Vec<_> =
        stations.iter().map(|s| (s.port.as_str(), s.vlan, s.mac.0[5], s.age_ms)).collect();
    assert_eq!(stations, [("p1", 7, 4, 3000)]);
    assert_eq!(sim.core.forget_stations(sim.bridge), Some(1));
    assert_eq!(sim.core.stations(sim.bridge).unwrap(), []);
    sim.core.tell_pmds();
    assert_eq!(sim.pmd.megaflows().len(), 2, "what rested on the station went");
}
