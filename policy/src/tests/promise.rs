//! The promise on waiting, with everything that a core does: turns, received packets, and what the
//! switch spends on itself.

use super::{any_weight, config, index};
use crate::sim::{Arrivals, Sender, Simulation, StreamSpec, TenantSpec};
use crate::{RxOverrun, TenantKnobs};
use proptest::prelude::*;

const TENANTS: u16 = 7;

fn arrivals() -> impl Strategy<Value = Arrivals> {
    prop_oneof![
        2 => Just(Arrivals::Saturating),
        2 => (2000u64..400_000, 1u32..5, 0u64..100_000).prop_map(
            |(period_cycles, packets, first_cycles)| Arrivals::Every {
                period_cycles,
                packets,
                first_cycles
            }
        ),
        1 => (1u64..60_000, 1u64..200_000)
            .prop_map(|(on_cycles, off_cycles)| Arrivals::OnOff { on_cycles, off_cycles }),
        1 => Just(Arrivals::Silent),
    ]
}

fn spec() -> impl Strategy<Value = TenantSpec> {
    let cost = prop_oneof![100u64..2000, 100u64..40_000];
    (any_weight(), cost, arrivals()).prop_map(|(weight, cost_cycles, arrivals)| TenantSpec {
        weight,
        cost_cycles,
        arrivals,
    })
}

fn stream() -> impl Strategy<Value = StreamSpec> {
    let sender = prop_oneof![
        (200u64..20_000).prop_map(|period_cycles| Sender::OpenLoop { period_cycles }),
        (20_000u64..200_000).prop_map(|round_cycles| Sender::Adaptive { round_cycles }),
    ];
    let bits = (any::<bool>(), any::<bool>());
    (1..=TENANTS, 20u64..200, 50u64..1500, 50u64..1500, bits, sender).prop_map(
        |(owner, parse_cycles, classify_cycles, deliver_cycles, (ecn_capable, early), sender)| {
            StreamSpec {
                owner: index(owner),
                parse_cycles,
                classify_cycles,
                deliver_cycles,
                ecn_capable,
                early,
                sender,
            }
        },
    )
}

fn cost_cycles(stream: &StreamSpec) -> u64 {
    stream.parse_cycles + stream.classify_cycles + stream.deliver_cycles
}

/// A tenant that waits with credit: since when, and the turns that others have had meanwhile.
#[derive(Clone, Copy)]
struct Wait {
    since_cycles: u64,
    turns: u64,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    /// A funded tenant with work waits for the task, the received packets and the housekeeping that
    /// are under way, for at most one quantum (and what its last packet runs over) of each other
    /// tenant, and for the received packets and housekeeping between those turns. However many are
    /// in debt.
    #[test]
    fn a_funded_tenant_never_waits_longer_than_promised(
        specs in prop::collection::vec(spec(), usize::from(TENANTS)),
        streams in prop::collection::vec(stream(), 0..4),
        overruns in prop::collection::vec(prop::sample::select(RxOverrun::ALL.as_slice()), 7),
        overhead_cycles in 0u64..500,
    ) {
        let quantum_cycles = config().quantum_cycles;
        let simulation = Simulation::new(config(), specs.clone()).unwrap();
        let mut simulation = simulation.with_turn_overhead_cycles(overhead_cycles);
        for (t, (spec, rx_overrun)) in (1..).zip(specs.iter().zip(overruns)) {
            let knobs = TenantKnobs { weight: spec.weight, rx_overrun, ..TenantKnobs::new(&config()) };
            simulation.scheduler.set_knobs(index(t), &knobs).unwrap();
        }
        streams.iter().for_each(|stream| simulation.add_stream(*stream));
        let rx_most = streams.iter().map(cost_cycles).max().unwrap_or(0);
        let task_cycles = |t: u16| quantum_cycles + specs[usize::from(t - 1)].cost_cycles;
        let mut waits = [None::<Wait>; TENANTS as usize + 1];
        while simulation.now_cycles() < 4_000_000 {
            let begun_cycles = simulation.now_cycles();
            let ran = simulation.step(4_000_000);
            for t in 1..=TENANTS {
                let wait = &mut waits[usize::from(t)];
                if ran == Some(index(t)) {
                    *wait = None;
                }
                let in_debt = simulation.scheduler.in_debt(index(t));
                let Some(since_cycles) = simulation.waits_since_cycles(index(t)).filter(|_| !in_debt)
                else {
                    *wait = None;
                    continue;
                };
                // From when it came, if that was in this step; else from the end of the step in
                // which it was funded again.
                let now_cycles = simulation.now_cycles();
                let since_cycles = if since_cycles >= begun_cycles { since_cycles } else { now_cycles };
                let wait = wait.get_or_insert(Wait { since_cycles, turns: 0 });
                wait.turns += u64::from(ran.is_some() && ran != Some(index(t)));
                let others = (1..=TENANTS).filter(|other| *other != t).map(task_cycles);
                let between = quantum_cycles + rx_most + overhead_cycles;
                let under_way = others.clone().max().unwrap_or(0);
                let promised = under_way + others.sum::<u64>() + (wait.turns + 1) * between;
                let waited = now_cycles - wait.since_cycles;
                prop_assert!(waited <= promised, "{t} waits {waited}, promised {promised}");
            }
            let longest = simulation.longest;
            prop_assert!(longest.rx_cycles <= quantum_cycles + rx_most);
            prop_assert_eq!(simulation.books.total(), simulation.now_cycles());
        }
    }
}
