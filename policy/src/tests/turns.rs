//! Who runs next, case by case.

use super::{A, B, C, scheduler, turn, weight};
use crate::{SchedulerConfig, TenantIndex, Turn};

#[test]
fn nobody_with_work_means_no_turn() {
    let mut s = scheduler(&["1"]);
    assert_eq!(s.next(0), None);
    s.wake(A, 0);
    assert_eq!(turn(&mut s, 100, false), Some(A));
    assert_eq!(s.next(0), None);
}

#[test]
fn a_turn_has_one_quantum_whatever_the_weight_or_credit() {
    let quantum_cycles = SchedulerConfig::default().quantum_cycles;
    let mut s = scheduler(&["0.001", "1000"]);
    s.wake(A, 0);
    s.wake(B, 0);
    s.charge(A, 19_999, 0);
    assert_eq!(s.credit_cycles(A), 1);
    for _ in 0..2 {
        assert_eq!(s.next(0).unwrap().budget_cycles, quantum_cycles);
    }
}

#[test]
fn a_newly_woken_tenant_runs_before_one_that_had_a_turn() {
    let mut s = scheduler(&["1", "1"]);
    s.wake(B, 0);
    assert_eq!(turn(&mut s, 5000, true), Some(B));
    s.wake(A, 0);
    assert_eq!(turn(&mut s, 500, false), Some(A));
    assert_eq!(turn(&mut s, 5000, true), Some(B));
}

#[test]
fn flapping_passes_a_waiting_funded_tenant_for_one_quantum_in_all() {
    let mut s = scheduler(&["1", "1"]);
    s.wake(B, 0);
    assert_eq!(turn(&mut s, 100, true), Some(B));
    // B waits all the while and A's turns cost 2000: the quantum of 5000 is used up by three.
    let budgets: Vec<u64> = (0..3)
        .map(|_| {
            s.wake(A, 0);
            let turn = s.next(0).unwrap();
            assert_eq!(turn.tenant, A);
            s.charge(A, 2000, 0);
            s.done(A, false, 0);
            turn.budget_cycles
        })
        .collect();
    assert_eq!(budgets, [5000, 3000, 1000]);
    s.wake(A, 0);
    assert_eq!(turn(&mut s, 100, true), Some(B));
    assert_eq!(turn(&mut s, 100, false), Some(A));
    // B had its turn, so A may pass again: for what is left of a quantum since its second wake,
    // after which it used 4100.
    s.wake(A, 0);
    assert_eq!(s.next(0).unwrap(), Turn { tenant: A, budget_cycles: 900, slack: false });
}

#[test]
fn a_tenant_in_debt_waits_while_a_funded_one_has_work_and_runs_when_none_has() {
    let mut s = scheduler(&["1", "1"]);
    s.wake(A, 0);
    s.wake(B, 0);
    assert_eq!(turn(&mut s, 100_000, true), Some(A));
    assert!(s.in_debt(A) && s.any_funded_with_work());
    assert_eq!(turn(&mut s, 1000, true), Some(B));
    assert_eq!(turn(&mut s, 1000, false), Some(B));
    assert!(!s.any_funded_with_work());
    let slack = s.next(0).unwrap();
    assert_eq!((slack.tenant, slack.slack), (A, true));
    let counters = s.counters(A);
    assert_eq!((counters.funded_turns, counters.slack_turns, counters.gated_turns), (1, 1, 2));
    assert_eq!(s.counters(B).funded_turns, 2);
}

#[test]
fn without_a_funded_one_the_least_indebted_by_weight_runs() {
    let mut s = scheduler(&["1", "4", "1"]);
    for tenant in [A, B, C] {
        s.wake(tenant, 0);
    }
    // Debts of about 30 000, 80 000 and 40 000: by weight, B owes the least.
    s.charge(A, 50_000, 0);
    s.charge(B, 100_000, 0);
    s.charge(C, 60_000, 0);
    while s.any_funded_with_work() {
        turn(&mut s, 5000, true);
    }
    let order: Vec<_> = (0..3).map(|_| s.next(0).unwrap().tenant).collect();
    assert_eq!(order, [B, A, C]);
}

#[test]
fn a_removed_tenant_takes_no_turn_wherever_it_stood() {
    for stand in 0..5 {
        let mut s = scheduler(&["1", "1"]);
        s.wake(B, 0);
        match stand {
            0 => {}
            1 => s.wake(A, 0),
            2 => s.charge(A, 100, 0),
            3 => {
                s.wake(A, 0);
                s.charge(A, 100_000, 0);
            }
            _ => {
                s.wake(A, 0);
                assert_eq!(turn(&mut s, 1000, true), Some(B));
                assert_eq!(s.next(0).unwrap().tenant, A);
            }
        }
        s.tenant_remove(A).unwrap();
        s.done(A, true, 0);
        s.charge(A, 5000, 0);
        s.wake(A, 0);
        for _ in 0..3 {
            assert_eq!(turn(&mut s, 5000, true), Some(B), "stand {stand}");
        }
        assert_eq!(turn(&mut s, 5000, false), Some(B));
        assert_eq!(s.next(0), None);
    }
}

#[test]
fn work_that_goes_away_is_not_run() {
    let mut s = scheduler(&["1", "1"]);
    s.wake(A, 0);
    s.wake(B, 0);
    s.done(A, false, 0);
    assert_eq!(turn(&mut s, 100, false), Some(B));
    assert_eq!(s.next(0), None);
}

#[test]
fn protection_off_is_round_robin_and_back_on_gates_again() {
    let mut s = scheduler(&["1", "1", "8"]);
    for tenant in [A, B, C] {
        s.wake(tenant, 0);
    }
    s.charge(A, 100_000, 0);
    s.set_protection(false);
    assert!(!s.any_funded_with_work());
    let mut order = Vec::new();
    for _ in 0..6 {
        let turn = s.next(0).unwrap();
        assert_eq!((turn.budget_cycles, turn.slack), (u64::MAX, false));
        s.charge(turn.tenant, 1000, 0);
        s.done(turn.tenant, true, 0);
        order.push(turn.tenant);
    }
    assert_eq!(order, [B, C, A, B, C, A]);
    assert!(s.in_debt(A));
    s.set_protection(true);
    for _ in 0..4 {
        assert_ne!(turn(&mut s, 1000, true), Some(A));
    }
}

#[test]
fn the_system_account_is_not_part_of_the_clock() {
    let mut s = scheduler(&["1", "1"]);
    s.wake(A, 0);
    s.charge(A, 7000, 0);
    let before = (s.credit_cycles(A), s.credit_cycles(B));
    s.charge(TenantIndex::SYSTEM, 1_000_000, 0);
    s.wake(TenantIndex::SYSTEM, 0);
    assert_eq!((s.credit_cycles(A), s.credit_cycles(B)), before);
    assert_eq!(turn(&mut s, 100, false), Some(A));
    assert_eq!(s.next(0), None);
}

#[test]
fn a_weight_changed_while_in_debt_changes_the_place_in_line() {
    let mut s = scheduler(&["1", "1", "1"]);
    for tenant in [A, B, C] {
        s.wake(tenant, 0);
    }
    s.charge(A, 60_000, 0);
    s.charge(B, 50_000, 0);
    s.set_weight(A, weight("10")).unwrap();
    while s.any_funded_with_work() {
        turn(&mut s, 5000, false);
    }
    assert_eq!(s.next(0).unwrap().tenant, A);
}
