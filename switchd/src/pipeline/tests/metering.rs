//! Meters: which packets pass them, who uses them, and what becomes of those who do.

use tollgate_datapath::Op;
use tollgate_frame::DropReason;
use tollgate_openflow::ErrorCode;
use tollgate_openflow::meter::{
    MeterBand, MeterBandKind, MeterCommand, MeterMod, OFPM_ALL, OFPMF_BURST, OFPMF_KBPS,
    OFPMF_PKTPS,
};

use super::frames::Frame;
use super::sim::{Sim, key_of};
use crate::pipeline::events::{Event, FlowRemovedReason};
use crate::pipeline::meters::meter_features;

fn meter(command: MeterCommand, meter_id: u32, rate: u32) -> MeterMod {
    let bands = vec![MeterBand { kind: MeterBandKind::Drop, rate, burst_size: 5 }];
    MeterMod { command, flags: OFPMF_PKTPS | OFPMF_BURST, meter_id, bands }
}

fn changed(sim: &Sim, request: &MeterMod) -> Result<(), ErrorCode> {
    let outcome = sim.core.meter_mod(sim.bridge, request);
    sim.core.tell_pmds();
    outcome.map_err(|error| error.code)
}

#[test]
fn a_rule_with_a_meter_passes_its_packets_through_it() {
    let mut sim = Sim::new(3);
    changed(&sim, &meter(MeterCommand::Add, 7, 10)).unwrap();
    changed(&sim, &meter(MeterCommand::Add, 8, 10)).unwrap();
    sim.add("actions=meter:7,output:2,goto_table:1");
    sim.add("table=1,actions=meter:8,set_field:02:00:00:00:00:09->eth_src,output:3,resubmit(,2)");
    sim.add("table=2,actions=meter:7");
    sim.send(1, &Frame::udp(1, 2).build());
    let [megaflow] = &sim.pmd.megaflows()[..] else { panic!("one decision") };
    let steps: Vec<_> = megaflow.ops.iter().filter(|op| !matches!(op, Op::Edit(_))).collect();
    assert!(
        matches!(
            steps[..],
            [Op::Meter(0), Op::Output(_), Op::Meter(1), Op::Output(_), Op::Meter(0)]
        ),
        "{steps:?}"
    );
    assert_eq!(megaflow.meters.len(), 2);
    let flows = |sim: &Sim| {
        let stats = sim.core.meter_stats(sim.bridge, OFPM_ALL).unwrap();
        stats.iter().map(|meter| (meter.meter_id, meter.flow_count)).collect::<Vec<_>>()
    };
    assert_eq!(flows(&sim), [(7, 2), (8, 1)]);
    sim.add("table=2,actions=drop");
    assert_eq!(flows(&sim), [(7, 1), (8, 1)]);
    sim.flow_mod(&super::sim::parsed(tollgate_openflow::FlowCommand::Modify, "actions=meter:8"));
    assert_eq!(flows(&sim), [(7, 0), (8, 2)]);
}

#[test]
fn a_meter_that_is_changed_is_another_one() {
    let mut sim = Sim::new(2);
    changed(&sim, &meter(MeterCommand::Add, 7, 10)).unwrap();
    sim.add("in_port=1,actions=meter:7,output:2");
    sim.add("in_port=2,actions=output:1");
    sim.send(1, &Frame::udp(1, 2).build());
    sim.send(2, &Frame::udp(2, 1).build());
    changed(&sim, &meter(MeterCommand::Modify, 7, 99)).unwrap();
    assert_eq!(sim.pmd.megaflows().len(), 1, "and only who passes it is asked again");
    let config = sim.core.meter_configs(sim.bridge, 7).unwrap();
    assert_eq!((config[0].bands[0].rate, config[0].meter_id), (99, 7));
    assert_eq!(sim.core.meter_stats(sim.bridge, 7).unwrap()[0].flow_count, 1);
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).build()), [2]);
}

#[test]
fn rules_go_with_their_meter() {
    let sim = Sim::new(2);
    for id in [1, 2, 3] {
        changed(&sim, &meter(MeterCommand::Add, id, 10)).unwrap();
    }
    sim.add("priority=1,send_flow_rem,actions=meter:1,output:2");
    sim.add("table=9,priority=2,actions=meter:2,output:2");
    sim.add("priority=3,actions=meter:3,output:2");
    sim.add("priority=4,actions=output:2");
    let priorities = |sim: &Sim| sim.flows().iter().map(|flow| flow.priority).collect::<Vec<_>>();
    sim.events();
    assert_eq!(changed(&sim, &meter(MeterCommand::Delete, 1, 0)), Ok(()));
    assert_eq!(priorities(&sim), [4, 3, 2]);
    let [Event::FlowRemoved(removed)] = &sim.events()[..] else { panic!("one event") };
    assert_eq!(removed.reason, FlowRemovedReason::MeterDelete);
    assert_eq!(changed(&sim, &meter(MeterCommand::Delete, 1, 0)), Ok(()), "gone is gone");
    assert_eq!(changed(&sim, &meter(MeterCommand::Delete, OFPM_ALL, 0)), Ok(()));
    assert_eq!(priorities(&sim), [4]);
    assert_eq!(sim.core.meter_configs(sim.bridge, OFPM_ALL).unwrap(), []);
}

#[test]
fn a_meter_that_cannot_be_is_refused() {
    let sim = Sim::new(2);
    let add = |id| meter(MeterCommand::Add, id, 10);
    assert_eq!(changed(&sim, &add(1)), Ok(()));
    let kind = MeterBandKind::DscpRemark { prec_level: 1 };
    let remark = MeterBand { kind, rate: 1, burst_size: 1 };
    let bands = vec![remark; usize::from(meter_features().max_bands) + 1];
    for (request, code) in [
        (add(1), ErrorCode::OFPMMFC_METER_EXISTS),
        (add(0), ErrorCode::OFPMMFC_INVALID_METER),
        (add(0xffff_0001), ErrorCode::OFPMMFC_INVALID_METER),
        (add(OFPM_ALL), ErrorCode::OFPMMFC_INVALID_METER),
        (meter(MeterCommand::Modify, 2, 10), ErrorCode::OFPMMFC_UNKNOWN_METER),
        (MeterMod { flags: OFPMF_KBPS | OFPMF_PKTPS, ..add(2) }, ErrorCode::OFPMMFC_BAD_FLAGS),
        (MeterMod { bands: vec![remark], ..add(2) }, ErrorCode::OFPMMFC_BAD_BAND),
        (MeterMod { bands, ..add(2) }, ErrorCode::OFPMMFC_OUT_OF_BANDS),
    ] {
        assert_eq!(changed(&sim, &request), Err(code), "{request:?}");
    }
    let unknown = sim.core.meter_stats(sim.bridge, 5).unwrap_err();
    assert_eq!(unknown.code, ErrorCode::OFPMMFC_UNKNOWN_METER);
    assert_eq!(sim.core.meter_configs(sim.bridge, OFPM_ALL).unwrap().len(), 1);
}

/// A copy for a controller that stands behind a meter is sent only if the packet passes. Every
/// packet asks, so no decision can be cached.
#[test]
fn copies_behind_a_meter_are_metered() {
    let mut sim = Sim::new(2);
    changed(&sim, &meter(MeterCommand::Add, 7, 10)).unwrap();
    sim.add("actions=output:2,goto_table:1");
    sim.add("table=1,actions=meter:7,CONTROLLER,output:2");
    sim.events();
    let frame = Frame::udp(1, 2).build();
    let mut told = 0;
    let mut reached = 0;
    for _ in 0..20 {
        reached += sim.send(1, &frame).len();
        told += sim.events().len();
    }
    // A burst of five, and nothing for ten packets a second when no time passes.
    assert_eq!((told, reached), (5, 20 + 5));
    assert_eq!(sim.pmd.megaflows().len(), 0);
    let stats = &sim.core.meter_stats(sim.bridge, 7).unwrap()[0];
    assert_eq!((stats.packet_in_count, stats.bands[0].packet_count), (20, 15));
    sim.advance_ms(1000);
    sim.send(1, &frame);
    assert_eq!(sim.events().len(), 1);
    let mut walked = sim.fresh_walk(1, &key_of(1, &frame));
    walked.meters.clear();
    walked.pass_meters(64, 1);
    assert_eq!((walked.drop_reason, walked.punts.len()), (DropReason::Meter, 0));
}
