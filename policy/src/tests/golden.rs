//! Tables that are reviewed: what the simulator finds, compared to the last digit with what was
//! committed. After a change that is meant, `TOLLGATE_GOLDEN=write cargo test -p tollgate-policy`
//! writes them anew.

use std::fmt::Write as _;
use std::path::Path;

use super::{A, B, weight};
use crate::limits::COORDINATOR_CAP_CYCLES;
use crate::sim::sweep::{Case, HEADING};
use crate::sim::{
    Arrivals, Figures, Sender, Simulation, StreamSpec, TenantSpec, Trace, disagreements,
};
use crate::{Refill, RxOverrun, SchedulerConfig, TenantKnobs, Weight};

const TSC_HZ: u64 = 2_500_000_000;

fn compare(name: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden").join(name);
    if std::env::var_os("TOLLGATE_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, table).unwrap();
    }
    let committed = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    for (line, (is, was)) in (1..).zip(table.lines().zip(committed.lines())) {
        assert_eq!(is, was, "{name}, line {line}");
    }
    assert_eq!(table.lines().count(), committed.lines().count(), "lines of {name}");
}

fn weights(texts: &[&str]) -> Vec<Weight> {
    texts.iter().map(|text| weight(text)).collect()
}

fn table(cases: impl IntoIterator<Item = Case>) -> String {
    let mut table = format!("{HEADING}\n");
    for case in cases {
        let row = case.run().unwrap();
        if row.case.config.refill == Refill::Local {
            let error = row.share_error_thousandths.unwrap_or(0.0);
            assert!(error <= 10.0, "shares are off by more than 1 %: {row}");
        }
        writeln!(table, "{row}").unwrap();
    }
    table
}

/// Weights x load x frame cost x tenants.
#[test]
fn golden_sweep_of_one_pmd() {
    let mut cases = Vec::new();
    for texts in [&["1"][..], &["8"], &["1.71", "1"], &["1", "2", "4", "8"]] {
        for load_percent in [50, 100, 400] {
            // A thousand tenants at one cost only, for the time it takes.
            let crowds = [(150, 2), (150, 33), (900, 2), (900, 33), (900, 1000), (20_000, 2)];
            for (cost_cycles, tenants) in crowds.into_iter().chain([(20_000, 33)]) {
                cases.push(Case {
                    config: SchedulerConfig::default(),
                    weights: weights(texts),
                    tenants,
                    pmds: 1,
                    load_percent,
                    cost_cycles,
                });
            }
        }
    }
    compare("sweep.txt", &table(cases));
}

/// 1 to 64 PMDs.
#[test]
fn golden_sweep_of_many_pmds() {
    let case = |pmds, tenants| Case {
        config: SchedulerConfig::default(),
        weights: weights(&["1", "1.71", "4"]),
        tenants,
        pmds,
        load_percent: 400,
        cost_cycles: 2000,
    };
    let sizes = [(1, 4), (2, 4), (8, 4), (64, 4), (2, 100), (8, 100), (64, 100), (2, 1000)];
    compare("pmds.txt", &table(sizes.map(|(pmds, tenants)| case(pmds, tenants))));
}

/// The refill of the paper beside ours: as many adversaries, and the same among registered tenants
/// that do nothing.
#[test]
fn golden_local_and_coordinated_refill() {
    let local =
        SchedulerConfig { cap_cycles: COORDINATOR_CAP_CYCLES, ..SchedulerConfig::default() };
    let mut cases = Vec::new();
    for config in [local, SchedulerConfig::coordinated(TSC_HZ)] {
        for tenants in [2, 9, 33] {
            for cost_cycles in [150, 20_000] {
                for texts in [&["1"][..], &["1", "2", "4", "8"]] {
                    let weights = weights(texts);
                    let load_percent = 400;
                    let pmds = 1;
                    cases.push(Case { config, weights, tenants, pmds, load_percent, cost_cycles });
                }
            }
        }
    }
    compare("refill.txt", &table(cases));
}

/// A tenant that sends now and then, beside one that packets are sent to.
fn beside_a_receiver(
    rx_overrun: RxOverrun,
    mark_depth_cycles: u64,
    sender: Sender,
    early: bool,
) -> Simulation {
    let config = SchedulerConfig::default();
    let requests = Arrivals::Every { period_cycles: 50_000, packets: 1, first_cycles: 77 };
    let sending = Arrivals::Saturating;
    let specs = vec![
        TenantSpec { weight: Weight::ONE, cost_cycles: 800, arrivals: requests },
        TenantSpec { weight: Weight::ONE, cost_cycles: 600, arrivals: Arrivals::Silent },
        TenantSpec { weight: Weight::ONE, cost_cycles: 900, arrivals: sending },
    ];
    let mut simulation = Simulation::new(config, specs).unwrap().with_turn_overhead_cycles(60);
    let knobs = TenantKnobs { rx_overrun, mark_depth_cycles, ..TenantKnobs::new(&config) };
    simulation.scheduler.set_knobs(B, &knobs).unwrap();
    simulation.add_stream(StreamSpec {
        owner: B,
        parse_cycles: 90,
        classify_cycles: 200,
        deliver_cycles: 300,
        ecn_capable: true,
        early,
        sender,
    });
    simulation
}

/// What rx_overrun does to a flood that does not listen and to a sender that does (the marks and
/// drops of the latter over the depth of marking are the paper's figure 13).
#[test]
fn golden_received_packets() {
    let mut table = String::from(
        "sender     owner rx_overrun     depth | delivered  marked dropped    lost B-share% | A: p50   p99 wait-max\n",
    );
    // To fetch and classify takes 290 cycles of 500: more than the share of B, if all are.
    let flood = Sender::OpenLoop { period_cycles: 500 };
    let listening = Sender::Adaptive { round_cycles: 50_000 };
    let early = [true, false].map(|early| (flood, RxOverrun::Drop, 0, early));
    let modes = RxOverrun::ALL.map(|overrun| (listening, overrun, 0, false));
    let others = [RxOverrun::Mark, RxOverrun::MarkThenDrop, RxOverrun::None];
    let others = others.map(|overrun| (flood, overrun, 20_000, true));
    let depths = [1250, 2500, 5000, 10_000, 20_000, 80_000]
        .map(|depth| (listening, RxOverrun::MarkThenDrop, depth, false));
    let scenes = early.into_iter().chain(others).chain(modes).chain(depths);
    for (sender, overrun, depth, early) in scenes {
        let mut simulation = beside_a_receiver(overrun, depth, sender, early);
        simulation.run(5_000_000);
        simulation.reset_outcomes();
        simulation.run(100_000_000);
        let (victim, received) = (simulation.outcome(A), simulation.outcome(B).received);
        let kind = if sender == flood { "flood" } else { "listening" };
        let known = if early { "early" } else { "late" };
        writeln!(
            table,
            "{kind:<10} {known:<5} {overrun:<14} {depth:>5} | {:>9} {:>7} {:>7} {:>7} {:>8.2} | {:>6} {:>5} {:>8}",
            received.delivered,
            received.marked,
            received.dropped,
            received.lost,
            simulation.share(B) * 100.0,
            victim.sojourn_quantile_cycles(0.5),
            victim.sojourn_quantile_cycles(0.99),
            victim.wait_cycles_max,
        )
        .unwrap();
    }
    compare("received.txt", &table);
}

/// A recorded trace, by several weights.
#[test]
fn golden_replay() {
    let trace: Trace = include_str!("golden/trace.csv").parse().unwrap();
    let mut table = String::from("weights  tenant | packets  cycles share%    p50    p99\n");
    for texts in [["1", "1", "1"], ["4", "1", "1"], ["1", "1", "0.1"]] {
        let specs = trace.specs(&weights(&texts));
        let mut simulation = Simulation::new(SchedulerConfig::default(), specs).unwrap();
        simulation.run(2_000_000);
        for tenant in [A, B, super::C] {
            let (figures, outcome) = (Figures::of(&simulation, tenant), simulation.outcome(tenant));
            assert_eq!(disagreements(&simulation, &[figures], 0.0), []);
            writeln!(
                table,
                "{:<10} {:>4} | {:>7} {:>7} {:>6.2} {:>6} {:>6}",
                texts.join(":"),
                tenant.0,
                outcome.packets,
                outcome.cycles,
                figures.share * 100.0,
                figures.sojourn_p50_cycles,
                figures.sojourn_p99_cycles,
            )
            .unwrap();
        }
    }
    compare("replay.txt", &table);
}
