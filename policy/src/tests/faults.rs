//! The faults found in earlier implementations of time protection, as far as they are policy; each
//! must not be in ours. Numbers are those of the list of faults in the project's notes.

use super::{A, B, C, config, index, scheduler, turn, weight};
use crate::sim::{Arrivals, Simulation, TenantSpec};
use crate::{Account, Books, Scheduler, TenantIndex, Weight};

fn saturating(cost_cycles: u64) -> TenantSpec {
    TenantSpec { weight: Weight::ONE, cost_cycles, arrivals: Arrivals::Saturating }
}

/// Fault 1 and 11: Work that carries no payload, and turns that find nothing, were free.
#[test]
fn f01_f11_a_turn_that_is_charged_nothing_is_not_free() {
    let mut s = scheduler(&["1", "1"]);
    s.wake(A, 0);
    s.wake(B, 0);
    s.charge(B, 100_000, 0);
    // A's turns are all empty. If they were free, B would stay in debt for ever.
    let turns = (0..10_000).find(|_| {
        let turn = s.next(0).unwrap();
        s.done(turn.tenant, true, 0);
        turn.tenant == B
    });
    assert!(turns.is_some(), "empty turns hold the clock still");
}

/// Fault 2: The time of a phase was divided by bytes, so small packets paid less.
#[test]
fn f02_cost_counts_and_not_packets() {
    let mut simulation =
        Simulation::new(config(), vec![saturating(100), saturating(10_000)]).unwrap();
    simulation.run(200_000_000);
    assert!((simulation.share(A) - 0.5).abs() < 0.005, "{}", simulation.share(A));
    let (small, large) = (simulation.outcome(A).packets, simulation.outcome(B).packets);
    assert!((99.0..101.0).contains(&(small as f64 / large as f64)), "{small} {large}");
}

/// Fault 3: Transmission was charged within the poll's time and once more by itself.
#[test]
fn f03_every_cycle_is_charged_once() {
    let specs = vec![saturating(700), saturating(33_000)];
    let mut simulation = Simulation::new(config(), specs).unwrap().with_turn_overhead_cycles(90);
    simulation.run(10_000_000);
    assert_eq!(simulation.books.total(), simulation.now_cycles());
    for tenant in [A, B] {
        let in_books = simulation.books.of(Account::Tenant(tenant));
        assert_eq!(in_books, simulation.outcome(tenant).cycles);
    }
}

/// Fault 4: One tenant's misses were divided among those whose packets hit.
#[test]
fn f04_the_misses_of_one_are_not_the_debt_of_another() {
    let mut s = scheduler(&["1", "1"]);
    s.wake(A, 0);
    s.wake(B, 0);
    let runs = s.next(0).unwrap().tenant;
    assert_eq!(runs, A);
    let before = s.credit_cycles(B);
    // 31 misses of 100 us each in A's turn, one hit of B's beside them.
    s.charge(A, 31 * 250_000, 0);
    s.charge(B, 500, 0);
    s.done(A, true, 0);
    assert!(s.credit_cycles(B) >= before - 500);
    assert!(s.in_debt(A) && !s.in_debt(B));
}

/// Fault 5: Packets that a rule drops have no output, hence no owner, and were free. What
/// a tenant costs while it has no work of its own counts.
#[test]
fn f05_cost_without_a_turn_is_charged() {
    let mut s = scheduler(&["1", "1"]);
    s.wake(B, 0);
    let before = s.credit_cycles(A);
    s.charge(A, 15_000, 0);
    assert!(s.credit_cycles(A) <= before - 7_000, "{}", s.credit_cycles(A));
    s.charge(A, 60_000, 0);
    assert!(s.in_debt(A));
    s.wake(A, 0);
    assert_eq!(turn(&mut s, 1000, true), Some(B));
}

/// Fault 8: Tenants in debt ran only in loops in which no packet at all came, and every idle port
/// diluted the shares.
#[test]
fn f08_slack_needs_no_idle_core_and_idle_tenants_dilute_nothing() {
    let trickle = Arrivals::Every { period_cycles: 20_000, packets: 1, first_cycles: 0 };
    let mut specs = vec![
        TenantSpec { weight: Weight::ONE, cost_cycles: 500, arrivals: trickle },
        saturating(900),
    ];
    let silent =
        TenantSpec { weight: weight("1000"), cost_cycles: 500, arrivals: Arrivals::Silent };
    specs.extend(std::iter::repeat_n(silent, 1000));
    let mut simulation = Simulation::new(config(), specs).unwrap();
    simulation.run(50_000_000);
    // A uses its 2.5 % and B all the rest: nothing is idle.
    assert_eq!(simulation.books.of(Account::Idle), 0);
    assert!(simulation.share(B) > 0.97, "{}", simulation.share(B));
}

/// Fault 9: Adding a port, a rebalance, or a guest's toggling of its queues gave full credit to all.
#[test]
fn f09_debt_survives_whatever_is_reconfigured() {
    let mut s = Scheduler::new(config(), 5).unwrap();
    for tenant in [A, B] {
        s.tenant_add(tenant, Weight::ONE).unwrap();
    }
    s.wake(A, 0);
    s.wake(B, 0);
    s.charge(A, 500_000, 0);
    let owed = s.credit_cycles(A);
    assert!(owed < -400_000);
    s.tenant_add(C, weight("8")).unwrap();
    s.set_weight(A, weight("4")).unwrap();
    s.set_weight(B, weight("2")).unwrap();
    // Its rings stop and start again.
    s.done(A, false, 0);
    s.wake(A, 0);
    s.set_protection(false);
    s.set_protection(true);
    s.tenant_remove(C).unwrap();
    assert!(s.tenant_add(A, Weight::ONE).is_err());
    assert_eq!(s.credit_cycles(A), owed);
    assert_eq!(turn(&mut s, 100, true), Some(B));
}

/// Fault 10: The budget was looked at once a loop, so a tenant with many queues had a burst of each.
#[test]
fn f10_a_tenant_in_debt_has_no_further_turn_while_a_funded_one_waits() {
    let mut s = scheduler(&["1", "1"]);
    s.wake(A, 0);
    s.wake(B, 0);
    assert_eq!(turn(&mut s, 50_000, true), Some(A));
    // Another of A's queues reports work.
    s.wake(A, 0);
    for _ in 0..4 {
        assert_eq!(turn(&mut s, 5000, true), Some(B));
    }
}

/// Fault 12: A refresh took deep debt for great wealth, and one tenant's full purse cut the share of
/// those after it in the loop.
#[test]
fn f12_deep_debt_is_repaid_to_the_last_cycle_and_order_does_not_matter() {
    for order in [[A, B, C], [C, B, A], [B, C, A]] {
        let mut s = scheduler(&["1", "1", "1"]);
        for tenant in order {
            s.wake(tenant, 0);
        }
        s.charge(A, 620_000, 0);
        // A is ahead by 620 000 cycles, so that is what each of the others gets before it runs.
        let mut others_cycles = 0;
        while turn(&mut s, 1000, true) != Some(A) {
            others_cycles += 1000;
        }
        assert!((1_239_000..=1_242_000).contains(&others_cycles), "{order:?}: {others_cycles}");
    }
}

/// Fault 14: A descheduled thread's lost time was charged to whoever ran.
#[test]
fn f14_stolen_time_is_in_the_books_and_nobodys_debt() {
    let mut books = Books::new(3);
    books.charge(Account::Stolen, 5_000_000);
    books.charge(Account::Tenant(A), 700);
    assert_eq!((books.tenants_total(), books.total()), (700, 5_000_700));
}

/// Fault 16: A receiver that is slow made the sender pay, or whoever shared the batch.
#[test]
fn f16_a_slow_receiver_pays_in_the_senders_turn() {
    let mut s = scheduler(&["1", "1", "1"]);
    for tenant in [A, B, C] {
        s.wake(tenant, 0);
    }
    assert_eq!(s.next(0).unwrap().tenant, A);
    let sender = s.credit_cycles(A);
    s.charge(B, 200_000, 0);
    s.done(A, true, 0);
    assert!(s.credit_cycles(A) >= sender - 50 && s.in_debt(B));
    assert_eq!(turn(&mut s, 1000, true), Some(C));
    assert_eq!(turn(&mut s, 1000, true), Some(A));
    assert_eq!(turn(&mut s, 1000, true), Some(C));
}

/// Idle class waking: a class that slept for long came back with the clock of long ago and held
/// the core until it had caught up.
#[test]
fn a_class_that_slept_does_not_come_back_with_an_old_clock() {
    let mut s = scheduler(&["1", "1"]);
    s.wake(B, 0);
    for _ in 0..100_000 {
        turn(&mut s, 5000, true);
    }
    s.wake(A, 0);
    let first_of_b = (0..).find(|_| turn(&mut s, 5000, true) == Some(B)).unwrap();
    assert!(first_of_b <= 6, "A ran {first_of_b} turns before B got one");
}

/// Integer strides: weights that do not divide a large constant were rounded, and the error grew.
#[test]
fn strides_do_not_round() {
    let mut s = scheduler(&["0.999", "1000", "333.333"]);
    let mut got = [0u64; 4];
    for tenant in [A, B, C] {
        s.wake(tenant, 0);
    }
    for _ in 0..3_000_000 {
        let tenant = s.next(0).unwrap().tenant;
        s.charge(tenant, 997, 0);
        s.done(tenant, true, 0);
        got[tenant.slot()] += 997;
    }
    let total: u64 = got.iter().sum();
    for (tenant, thousandths) in [(1, 999.0), (2, 1_000_000.0), (3, 333_333.0)] {
        let entitled = total as f64 * thousandths / 1_334_332.0;
        let error_cycles = (got[tenant] as f64 - entitled).abs();
        assert!(error_cycles < 50_000.0, "tenant {tenant}: {error_cycles} cycles off");
    }
}

/// Receiving costs time without a turn. A tenant whose received packets are dropped when it must
/// yield gets its share against one that only sends, and an idle core drops nothing.
#[test]
fn receiving_and_sending_share_by_weight() {
    for (weights, entitled) in [(["1", "1", "1"], 0.5), (["1", "3", "1"], 0.75)] {
        let mut s = scheduler(&weights);
        let (receiver, sender, bystander) = (A, B, C);
        s.charge(receiver, 500_000, 0);
        assert!(!s.must_yield(receiver), "nobody waits");
        s.wake(sender, 0);
        let (mut received, mut sent) = (0u64, 0u64);
        for round in 0..200_000u64 {
            if !s.must_yield(receiver) {
                s.charge(receiver, 9000, 0);
                received += 9000;
            }
            // Somebody interactive whose share is left unused most of the time.
            if round % 50 == 0 {
                s.wake(bystander, 0);
            }
            let turn = s.next(0).unwrap();
            s.charge(turn.tenant, 3000, 0);
            s.done(turn.tenant, turn.tenant == sender, 0);
            sent += if turn.tenant == sender { 3000 } else { 0 };
        }
        let share = sent as f64 / (sent + received) as f64;
        assert!((share - entitled).abs() < 0.01, "{weights:?}: {share}");
    }
}

/// A tenant that is not listed, or was removed, cannot be charged into somebody else's place.
#[test]
fn charges_to_strangers_change_nothing() {
    let mut s = scheduler(&["1", "1"]);
    s.wake(A, 0);
    let before = (s.credit_cycles(A), s.credit_cycles(B));
    for stranger in [TenantIndex::SYSTEM, index(3), index(u16::MAX)] {
        s.charge(stranger, 123_456, 0);
        s.wake(stranger, 0);
        s.done(stranger, true, 0);
        assert_eq!(s.credit_cycles(stranger), 0);
    }
    assert_eq!((s.credit_cycles(A), s.credit_cycles(B)), before);
    assert_eq!(turn(&mut s, 100, false), Some(A));
    assert_eq!(s.next(0), None);
}
