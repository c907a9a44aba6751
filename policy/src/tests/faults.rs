//! The faults found in earlier implementations of time protection, as far as they are policy; each
//! must not be in ours. Numbers are those of the list of faults in the project's notes.

use super::{A, B, C, config, index, scheduler, turn, weight};
use crate::sim::{Arrivals, Received, Sender, Simulation, StreamSpec, TenantSpec};
use crate::{
    Account, Backoff, Books, Scheduler, SchedulerConfig, TenantIndex, TenantKnobs, Weight,
};

fn saturating(cost_cycles: u64) -> TenantSpec {
    TenantSpec { weight: Weight::ONE, cost_cycles, arrivals: Arrivals::Saturating }
}

/// Fault 1: Work that carries no payload was free.
#[test]
fn f01_a_turn_that_is_charged_nothing_is_not_free() {
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

/// Fault 6: Of a packet with several outputs (a tunnel, a bond, a mirror) only the last one was
/// charged, or none. Whoever is named is charged, each its part, in one turn of somebody else.
#[test]
fn f06_the_parts_of_one_packet_are_charged_to_several() {
    let mut s = scheduler(&["1", "1", "1"]);
    let mut books = Books::new(4);
    for tenant in [A, B, C] {
        s.wake(tenant, 0);
    }
    assert_eq!(s.next(0).unwrap().tenant, A);
    let before = [A, B, C].map(|tenant| s.credit_cycles(tenant));
    let parts = [(A, 900), (B, 700), (B, 300), (C, 2500)];
    for (payer, cycles) in parts {
        s.charge(payer, cycles, 0);
        books.charge(Account::Tenant(payer), cycles);
    }
    s.done(A, true, 0);
    for ((tenant, before), paid) in [A, B, C].into_iter().zip(before).zip([900, 1000, 2500]) {
        assert_eq!(before - s.credit_cycles(tenant), paid);
        assert_eq!(books.of(Account::Tenant(tenant)), paid as u64);
    }
    assert_eq!(books.tenants_total(), 4400);
}

/// Fault 7: The owner of a received packet was known only at its last output, so a tenant in debt
/// had all its passes through the tables first. Where the owner is configured, they are saved.
#[test]
fn f07_a_configured_owner_in_debt_is_dropped_before_classification() {
    let received = |early, drop_cycles| {
        let silent = TenantSpec { arrivals: Arrivals::Silent, ..saturating(1) };
        let mut simulation = Simulation::new(config(), vec![saturating(900), silent]).unwrap();
        simulation.add_stream(StreamSpec {
            owner: B,
            parse_cycles: 80,
            // Four passes.
            classify_cycles: 1800,
            deliver_cycles: 200,
            ecn_capable: false,
            early,
            sender: Sender::OpenLoop { period_cycles: 1000 },
        });
        simulation.run(50_000_000);
        let b = simulation.outcome(B);
        let Received { delivered, dropped, .. } = b.received;
        assert_eq!(b.cycles, delivered * 2080 + dropped * drop_cycles);
        (delivered, dropped, simulation.share(A))
    };
    let (delivered, dropped, share) = received(true, 80);
    assert!(dropped > 30_000 && (share - 0.5).abs() < 0.01, "{dropped} {share}");
    // When all are classified first, that alone takes more than B's share, and it receives nothing.
    let (delivered_late, ..) = received(false, 80 + 1800);
    assert!(delivered > 10_000 && delivered_late < 100, "{delivered} {delivered_late}");
}

fn knobs() -> TenantKnobs {
    TenantKnobs::new(&SchedulerConfig::default())
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

/// Fault 11: Polling nothing was charged to nobody, and a boost was to make up for it. It is in the
/// books; it takes nobody's credit; and of many idle queues only a few are polled in a turn.
#[test]
fn f11_idle_queues_cost_a_bounded_part_of_the_time_and_nobodys_credit() {
    let mut s = scheduler(&["1", "1"]);
    let mut books = Books::new(3);
    let before = (s.credit_cycles(A), s.credit_cycles(B));
    let mut backoff = Backoff::new(1000, 250_000);
    (0..1000).for_each(|queue| backoff.emptied(queue, 0));
    let (mut now, mut looks) = (0, 0u64);
    while now < 600_000_000 {
        now += 5000;
        let counted = now > 500_000_000;
        backoff.scan(now, |_, ()| {
            looks += u64::from(counted);
            false
        });
        books.charge(Account::Idle, 5000);
        assert_eq!(s.next(now), None);
    }
    assert_eq!(books.total(), now);
    assert_eq!((s.credit_cycles(A), s.credit_cycles(B)), before);
    // 1000 queues x 400 times the bound, and an eighth more; every turn they would be 20 000 000.
    assert!((400_000..480_000).contains(&looks), "{looks} looks");
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

/// Fault 13: Budgets were read, compared with the cap and written in separate steps by two threads, so
/// that a charge in between was lost. The PMD alone writes its credits; a coordinator's grants come
/// as an amount, and however grants and charges interleave, nothing of either is lost.
#[test]
fn f13_grants_and_charges_interleave_without_loss() {
    let mut s = Scheduler::new(SchedulerConfig::coordinated(2_500_000_000), 3).unwrap();
    s.tenant_add(A, Weight::ONE).unwrap();
    s.charge(A, 15_000, 0);
    // No step reaches the cap or the floor, so only the sums count.
    let (mut granted, mut charged) = (0, 0);
    for step in 0..10_000u64 {
        let (grant, charge) = (step * 7919 % 613, step * 104_729 % 617);
        if (granted + grant) - charged < 15_000 {
            s.refill_grant(A, grant as i64);
            granted += grant;
        }
        if granted >= charged + charge {
            s.charge(A, charge, 0);
            charged += charge;
        }
        assert_eq!(s.credit_cycles(A), granted as i64 - charged as i64);
    }
    assert!(granted > 1_000_000 && charged > 1_000_000);
}

/// Fault 14: A descheduled thread's lost time was charged to whoever ran.
#[test]
fn f14_stolen_time_is_in_the_books_and_nobodys_debt() {
    let mut books = Books::new(3);
    books.charge(Account::Stolen, 5_000_000);
    books.charge(Account::Tenant(A), 700);
    assert_eq!((books.tenants_total(), books.total()), (700, 5_000_700));
}

/// Fault 15: Tables and queues to the slow path were shared without a budget. What one tenant uses of
/// its set-ups is not taken from another's, and each has quotas of the tables with known ends.
#[test]
fn f15_set_ups_and_tables_are_budgeted_by_tenant() {
    let tsc_hz = 2_500_000_000;
    let rate =
        |setups_per_second| TenantKnobs { setups_per_second, ..knobs() }.setup_bucket(tsc_hz);
    let (mut flood, mut victim) = (rate(1000), rate(1000));
    let mut flooded = 0;
    for ms in 0..1000 {
        let now = ms * (tsc_hz / 1000);
        flooded += (0..1000).filter(|_| flood.take(now)).count();
        assert!(victim.take(now), "the victim stays within its own rate");
    }
    assert!((1000..1150).contains(&flooded), "{flooded}");
    for endless in [
        TenantKnobs { megaflows: u64::MAX, ..knobs() },
        TenantKnobs { subtables: u64::MAX, ..knobs() },
        TenantKnobs { arena_bytes: u64::MAX, ..knobs() },
        TenantKnobs { exact_entries: u64::MAX, ..knobs() },
    ] {
        assert!(endless.validate(&SchedulerConfig::default()).is_err());
    }
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

/// Empty tasks: a class whose task turned out to have nothing to do stayed first in line, or went
/// ahead of those that waited.
#[test]
fn empty_tasks_gain_no_place_and_no_time() {
    let mut s = scheduler(&["1", "1"]);
    s.wake(B, 0);
    assert_eq!(turn(&mut s, 5000, true), Some(B));
    let mut got = [0u64; 3];
    for _ in 0..100_000 {
        // A says that it has work, and never has.
        s.wake(A, 0);
        let runs = s.next(0).unwrap().tenant;
        if runs == B {
            s.charge(B, 1000, 0);
        }
        s.done(runs, runs == B, 0);
        got[runs.slot()] += 1;
    }
    // An empty turn counts 50 cycles: by cost they share alike.
    let (empty, real) = (got[1] as f64 * 50.0, got[2] as f64 * 1000.0);
    assert!((empty / real - 1.0).abs() < 0.01, "{got:?}");
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
