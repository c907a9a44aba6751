//! Traces as text, and what is said when the wire and the simulation disagree.

use super::{A, B, index, weight};
use crate::SchedulerConfig;
use crate::sim::{Figures, RecordedPacket, Simulation, Trace, disagreements};
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_trace_survives_its_text(
        packets in prop::collection::vec((0u64..5000, 1u16..100, 1u64..100_000), 0..50)
    ) {
        let mut trace = Trace::default();
        let mut time_cycles = 0;
        for (gap, tenant, cost_cycles) in packets {
            time_cycles += gap;
            trace.push(index(tenant), RecordedPacket { time_cycles, cost_cycles });
        }
        prop_assert_eq!(trace.to_string().parse::<Trace>(), Ok(trace));
    }
}

#[test]
fn comments_headings_and_spaces_are_passed_over() {
    let text = "# from the wire\n\ntime_cycles,tenant,cost_cycles\r\n 5 , 1, 700\n5,2,900";
    let trace: Trace = text.parse().unwrap();
    let packets: Vec<_> = trace.packets().collect();
    let packet = |cost_cycles| RecordedPacket { time_cycles: 5, cost_cycles };
    assert_eq!(packets, [(A, packet(700)), (B, packet(900))]);
}

#[test]
fn a_wrong_line_is_named_with_what_is_wrong() {
    let cases = [
        ("1,1", "line 2: 2 columns; there must be 3: time_cycles,tenant,cost_cycles"),
        ("1,1,1,1", "line 2: 4 columns; there must be 3: time_cycles,tenant,cost_cycles"),
        (
            "x,1,1",
            "line 2: time_cycles is \"x\"; it must be a number from 0 to 9223372036854775807",
        ),
        ("1,0,1", "line 2: tenant is \"0\"; it must be a number from 1 to 65534"),
        ("1,65535,1", "line 2: tenant is \"65535\"; it must be a number from 1 to 65534"),
        ("1,1,0", "line 2: cost_cycles is \"0\"; it must be a number from 1 to 1073741824"),
        ("1,1,-4", "line 2: cost_cycles is \"-4\"; it must be a number from 1 to 1073741824"),
        ("0,1,1", "line 2: time_cycles is 0, before the packet above it (1)"),
    ];
    for (line, message) in cases {
        let error = format!("1,1,1\n{line}\n").parse::<Trace>().unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let long = format!("1,1,{}", "9".repeat(1 << 20));
    assert!(long.parse::<Trace>().unwrap_err().to_string().len() < 200);
}

#[test]
fn a_replay_serves_what_was_recorded_when_it_came() {
    let trace: Trace = "0,1,700\n50000,1,800\n50000,2,300\n90000,3,1".parse().unwrap();
    let specs = trace.specs(&[weight("1"), weight("2")]);
    let mut simulation = Simulation::new(SchedulerConfig::default(), specs).unwrap();
    simulation.run(100_000);
    let (a, b) = (simulation.outcome(A), simulation.outcome(B));
    assert_eq!((a.packets, a.cycles, b.packets, b.cycles), (2, 1500, 1, 300));
    let mut sojourns = [a.sojourn_cycles, b.sojourn_cycles].concat();
    sojourns.sort_unstable();
    // Alone, then two at once in either order.
    assert!(sojourns == [700, 800, 1100] || sojourns == [300, 700, 1100], "{sojourns:?}");
}

#[test]
fn disagreements_name_tenant_figure_and_both_values() {
    let trace: Trace = "0,1,700\n50000,2,700".parse().unwrap();
    let specs = trace.specs(&[weight("1"), weight("1")]);
    let mut simulation = Simulation::new(SchedulerConfig::default(), specs).unwrap();
    simulation.run(100_000);
    let own = [A, B].map(|tenant| Figures::of(&simulation, tenant));
    assert_eq!(disagreements(&simulation, &own, 0.0), []);
    let slow = Figures { sojourn_p99_cycles: 800, ..own[1] };
    assert_eq!(disagreements(&simulation, &[own[0], slow], 0.13), []);
    let found = disagreements(&simulation, &[own[0], slow], 0.12);
    let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        ["tenant 2: sojourn_p99_cycles is 800.000 on the wire and 700.000 simulated"]
    );
}
