//! What becomes of received packets whose owner is over its share.

use super::{A, B, scheduler, turn};
use crate::{RxOverrun, Scheduler, SchedulerConfig, Stage, TenantKnobs, Verdict};

/// The scheduler's default: so much is not held against anybody.
const QUANTUM_CYCLES: u64 = 5000;

/// B in debt by this much, with its rule, and A waiting with credit.
fn indebted(rx_overrun: RxOverrun, mark_depth_cycles: u64, debt_cycles: u64) -> Scheduler {
    let mut s = scheduler(&["1", "1"]);
    let knobs = TenantKnobs {
        rx_overrun,
        mark_depth_cycles,
        ..TenantKnobs::new(&SchedulerConfig::default())
    };
    s.set_knobs(B, &knobs).unwrap();
    s.wake(A, 0);
    let credit_cycles = u64::try_from(s.credit_cycles(B)).unwrap();
    s.charge(B, credit_cycles + debt_cycles, 0);
    assert_eq!(s.credit_cycles(B), -(debt_cycles as i64));
    s
}

/// For packets that can be marked and for others, early and late.
fn verdicts(s: &Scheduler) -> [Verdict; 4] {
    [
        s.verdict(B, Stage::Early, true),
        s.verdict(B, Stage::Early, false),
        s.verdict(B, Stage::PostAttribution, true),
        s.verdict(B, Stage::PostAttribution, false),
    ]
}

#[test]
fn each_rule_does_what_its_name_says() {
    use Verdict::{Deliver, Drop, Mark};
    let cases = [
        (RxOverrun::Drop, QUANTUM_CYCLES - 1, [Deliver; 4]),
        (RxOverrun::Drop, QUANTUM_CYCLES, [Drop, Drop, Drop, Drop]),
        (RxOverrun::Mark, QUANTUM_CYCLES - 1, [Deliver; 4]),
        (RxOverrun::Mark, QUANTUM_CYCLES, [Deliver, Deliver, Mark, Deliver]),
        (RxOverrun::Mark, 900_000, [Deliver, Deliver, Mark, Deliver]),
        (RxOverrun::MarkThenDrop, 9999, [Deliver, Drop, Mark, Drop]),
        (RxOverrun::MarkThenDrop, 10_000, [Drop, Drop, Drop, Drop]),
        (RxOverrun::None, 900_000, [Deliver; 4]),
    ];
    for (overrun, debt_cycles, expected) in cases {
        let s = indebted(overrun, 10_000, debt_cycles);
        assert_eq!(verdicts(&s), expected, "{overrun}, {debt_cycles}");
    }
}

#[test]
fn an_idle_core_drops_nothing_and_marks_nothing() {
    for overrun in RxOverrun::ALL {
        let mut s = indebted(overrun, 10_000, 500_000);
        assert_eq!(turn(&mut s, 100, false), Some(A));
        assert_eq!(verdicts(&s), [Verdict::Deliver; 4], "{overrun}");
    }
}

#[test]
fn a_funded_owner_and_one_without_protection_lose_nothing() {
    for overrun in RxOverrun::ALL {
        let mut s = indebted(overrun, 0, 0);
        s.set_protection(false);
        assert_eq!(verdicts(&s), [Verdict::Deliver; 4], "{overrun}");
        s.set_protection(true);
        assert_eq!(s.verdict(A, Stage::PostAttribution, false), Verdict::Deliver);
    }
}

/// B is received for in every round while A waits, and takes more of the core than A; but each round
/// ends with the core idle, too short for all to be forgotten.
#[test]
fn who_is_received_for_while_another_waits_loses_nothing_on_a_core_with_time_to_spare() {
    let mut s = scheduler(&["1", "1"]);
    let round_cycles = SchedulerConfig::default().horizon_cycles / 10;
    for round in 0..1000 {
        let now = round * round_cycles;
        s.wake(A, now);
        for _ in 0..4 {
            let verdict = s.verdict(B, Stage::PostAttribution, false);
            assert_eq!(verdict, Verdict::Deliver, "round {round}");
            s.charge(B, 1000, now);
        }
        assert_eq!(turn(&mut s, 500, false), Some(A));
        assert_eq!(s.next(now), None);
    }
}

#[test]
fn with_no_depth_marking_is_dropping() {
    assert_eq!(verdicts(&indebted(RxOverrun::MarkThenDrop, 0, QUANTUM_CYCLES)), [Verdict::Drop; 4]);
}

#[test]
fn names_are_read_as_they_are_written() {
    for overrun in RxOverrun::ALL {
        assert_eq!(overrun.to_string().parse(), Ok(overrun));
    }
    for text in ["", "Drop", "mark_then_drop", "nonesuch"] {
        let error = text.parse::<RxOverrun>().unwrap_err().to_string();
        for overrun in RxOverrun::ALL {
            assert!(error.contains(&format!("\"{overrun}\"")), "{error}");
        }
        assert!(error.starts_with("rx_overrun is"), "{error}");
    }
    let endless = "x".repeat(1 << 20);
    assert!(endless.parse::<RxOverrun>().unwrap_err().to_string().len() < 200);
}
