//! What a running PMD's scheduler is told and says can be recorded, and the simulator's says the same.
#![allow(missing_docs, missing_debug_implementations)]

mod bench_switch;

use std::time::Duration;

use bench_switch::{BenchSwitch, Rules, config};
use tollgate_datapath::{ControlError, Op};
use tollgate_frame::DropReason;
use tollgate_guest::generator::{Generator, Phase};
use tollgate_guest::pair::PairConfig;
use tollgate_packet::PortIndex;
use tollgate_policy::limits::RECORDED_EVENTS_MAX;
use tollgate_policy::{Ended, Recording, TenantIndex};

/// Ports 0 and 1 are connected, 2 and 3, and so on. What ports 0, 2 and 4 send
/// costs most of a turn.
fn rules() -> Rules {
    Box::new(|miss| {
        let out = Op::Output(PortIndex(miss.port.0 ^ 1));
        let ops = match miss.port.0 {
            0 | 2 | 4 => vec![Op::Burn(3000), out],
            _ => vec![out],
        };
        (ops, DropReason::RuleDrop)
    })
}

/// Three that send flat out, and one that makes requests, one after the other.
fn phase() -> Phase {
    let pairs = vec![
        PairConfig::stream("a", "p0", "p1"),
        PairConfig::stream("b", "p2", "p3"),
        PairConfig::stream("c", "p4", "p5"),
        PairConfig::rpc("interactive", "p6", "p7", 5000.0),
    ];
    Phase::new("load", Duration::from_millis(300), pairs)
}

/// Records under that load, again if need be, until the recording is full and shows all of them at
/// work, funded and in debt: how much they get done depends on what else the machine does.
fn recorded(switch: &BenchSwitch, guests: &mut Generator) -> Recording {
    for _ in 0..50 {
        switch.datapath.recording_start(0, RECORDED_EVENTS_MAX).unwrap();
        guests.run(&phase()).unwrap();
        let recording = switch.datapath.recording_read(0).unwrap();
        let replay = recording.replay();
        let turns = |tenant: TenantIndex| replay.recorded_turns.get(&tenant).copied().unwrap_or(0);
        let all_worked = [0, 2, 4, 6].iter().all(|port| turns(switch.tenants[*port]) > 50);
        let kinds = [replay.slack_turns, replay.turns - replay.slack_turns];
        if recording.ended() == Some(Ended::Full) && all_worked && kinds.iter().all(|n| *n > 50) {
            return recording;
        }
    }
    panic!("it never happened");
}

#[test]
fn what_a_running_pmd_records_replays_without_a_difference() {
    let switch = BenchSwitch::start(&config(), &[1.0, 1.0, 3.0, 1.0, 0.5, 1.0, 2.0, 1.0], rules());
    let mut guests = switch.attach(|_| ());
    let recording = recorded(&switch, &mut guests);
    assert_eq!(recording.events().len() as u64, RECORDED_EVENTS_MAX);
    let replay = recording.replay();
    assert!(replay.agrees(), "{} turns: {:?}", replay.differing_turns, replay.differences);
    drop(guests);
    switch.stop();
}

#[test]
fn a_pmd_has_one_recording_at_a_time_and_gives_it_back_once() {
    let switch = BenchSwitch::start(&config(), &[1.0; 2], rules());
    let datapath = &switch.datapath;
    let read = |pmd| datapath.recording_read(pmd).map(|recording| recording.ended());
    assert_eq!(read(0), Err(ControlError::NotRecording(0)));
    assert_eq!(read(1), Err(ControlError::NoSuchPmd(1)));
    assert_eq!(datapath.recording_start(1, 10), Err(ControlError::NoSuchPmd(1)));
    for events in [0, RECORDED_EVENTS_MAX + 1] {
        let error = datapath.recording_start(0, events).unwrap_err();
        assert!(error.to_string().contains("events is"), "{error}");
    }
    assert_eq!(read(0), Err(ControlError::NotRecording(0)), "none of those has begun");
    datapath.recording_start(0, 10).unwrap();
    assert_eq!(datapath.recording_start(0, 10), Err(ControlError::Recording(0)));
    assert_eq!(read(0), Ok(None), "stopped, for nothing was sent");
    assert_eq!(read(0), Err(ControlError::NotRecording(0)));
    switch.stop();
}
