//! Time protection works: each promise on the real daemon, by its own counters and by what the guests
//! count. No test asserts wall-clock time; `cargo xtask figures` measures.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

mod books;
mod costs;
#[path = "../hostile/guest.rs"]
#[allow(dead_code)]
mod guest;
mod latency;
mod preempted;
mod recorded;
mod scene;
mod shares;
mod storms;
mod survival;
mod uplink;

/// The tests, each by the name that SPECIFICATION.md gives it.
macro_rules! promises {
    ($($name:ident: $test:path;)*) => {
        $(#[test]
        fn $name() -> anyhow::Result<()> {
            $test()
        })*
    };
}

promises! {
    closure: shares::closure;
    share: shares::share;
    share_is_of_cycles_not_of_turns: shares::share_is_of_cycles_not_of_turns;
    share_under_either_refill: shares::share_under_either_refill;
    tail: latency::tail;
    waking_tenant: latency::waking_tenant;
    storms_paid_by_sender: storms::storms_paid_by_sender;
    slow_guest: storms::slow_guest;
    hostile_ring: storms::hostile_ring;
    daemon_held: survival::daemon_held;
    debt_survives: survival::debt_survives;
    preemption_is_nobodys: preempted::preemption_is_nobodys;
    uplink_flood: uplink::uplink_flood;
    trace_replays: recorded::trace_replays;
    idle_ports: costs::idle_ports;
    overhead: costs::overhead;
    stats_harmless: costs::stats_harmless;
}
