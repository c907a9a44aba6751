//! Bounds on what flows, stations and cached decisions may take, each with its reason.

/// OpenFlow tables of a bridge, as many as Open vSwitch has. One without rules costs two counters.
pub const TABLES: u8 = 254;

/// Rules of one table: a million, the scale the switch is measured at, at about 1 KiB each.
pub const RULES_PER_TABLE: usize = 1 << 20;

/// Rules changed before the tables' lock is given up, in commands that are about many: some 100 us.
pub const RULES_PER_CHUNK: usize = 256;

/// Rules that were added to a table since the last round and that every cached decision is compared
/// with one by one. With more, walking the decisions again is cheaper.
pub const ADDITIONS_COMPARED: usize = 16;

/// Timers of rules that are gone, beyond as many as there are of those that are not.
pub const TIMERS_SLACK: usize = 64;

/// Timers that may turn out to have been put off while the rule to be evicted is looked for.
pub const TIMERS_LOOKED_AT: usize = 1024;

/// Descriptions of what rules do that may be dead, beyond as many as there are of the others.
pub const BEHAVIOURS_SLACK: usize = 64;

/// Meters of a bridge: one for each of its ports' addresses, some hundred bytes each.
pub const METERS_PER_BRIDGE: usize = 1 << 16;

/// Stations a bridge remembers: what OVS defaults to (`mac-table-size`).
pub const FDB_STATIONS: usize = 8192;

/// How long a silent station is remembered (IEEE 802.1Q-2018, table 8-6: 300 s).
pub const FDB_AGEING_MS: u64 = 300_000;

/// Steps of one packet's walk (edits and outputs): floods to every port of the switch fit, and a
/// walk's time is bounded.
pub const WALK_STEPS: usize = tollgate_datapath::limits::MAX_OPS;

/// Resubmits inside each other that do not lead forwards, as in Open vSwitch (`MAX_DEPTH`).
pub const RESUBMIT_DEPTH: usize = 64;

/// Look-ups in one walk, as in Open vSwitch (`MAX_RESUBMITS`).
pub const RESUBMITS: usize = 4096;

/// Actions executed in one walk: sixteen for each of so many look-ups take some milliseconds.
pub const WALK_ACTIONS: usize = 16 * RESUBMITS;

/// A cached decision that no packet has used for so long is dropped (OVS: `max-idle`, 10 s).
pub const MEGAFLOW_IDLE_MS: u64 = 10_000;

/// How often counters are collected from cached decisions: idle timeouts are in seconds.
pub const SWEEP_INTERVAL_MS: u64 = 1000;

/// Cached decisions that one tenant may have on all PMDs together, a quarter of what a PMD holds by
/// default. Beyond it packets are still forwarded, each by a walk.
pub const MEGAFLOWS_PER_TENANT: usize = 16 * 1024;

/// Cached decisions looked at before the lock is given up: some 100 us.
pub const SHADOW_CHUNK: usize = 1024;

/// Decisions that are cached nowhere, forgotten with every walk: more than a walk adds.
pub const FORGET_PER_WALK: usize = 2;

/// Flows whose last answer is remembered for the packets that follow close behind: those of one
/// tenant that may wait at once.
pub const RECENT_ANSWERS: usize = tollgate_datapath::limits::PENDING_FLOWS;

/// One turn of the slow path, about ten walks: a tenant with one miss waits at most so long for
/// each tenant ahead of it.
pub const SLOW_PATH_QUANTUM_CYCLES: u64 = 50_000;

/// Controllers' packets that wait for the slow path; their connections wait beyond that.
pub const ERRANDS_WAITING: usize = 256;

/// Controllers' packets that are sent between two turns of tenants: about as many walks as half a
/// turn has, so that controllers get a third of the slow path at most while tenants want it.
pub const ERRANDS_PER_ROUND: usize = 4;

/// From so long a lap on, the slow path asks the kernel whether it had the CPU all the time: below it
/// the question, a system call, costs as much as what could be told apart.
pub const LONG_LAP_CYCLES: u64 = 2 * SLOW_PATH_QUANTUM_CYCLES;

/// How often the slow path looks for new work while it has some: looking costs a little for every
/// tenant there is.
pub const LOOK_INTERVAL_CYCLES: u64 = 250_000;

/// Longest sleep of the slow path. Misses wake it; what PMDs give back does not, and they take no
/// more orders when it piles up.
pub const SLOW_PATH_SLEEP_MS: u64 = 10;

/// Shortest time between two rounds of telling PMDs what is stale, unless somebody waits for one:
/// a flood of moving stations must not become a flood of mail.
pub const ROUND_INTERVAL_MS: u64 = 2;

/// The same after a round that took long itself: a decision that has become stale is used no longer
/// than that and one more round.
pub const ROUND_INTERVAL_MAX_MS: u64 = 100;
