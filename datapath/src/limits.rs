//! Bounds on what a PMD keeps and on what one turn may do.

use std::time::Duration;

/// Tenants of one switch. Every PMD has an account for each, so this bounds its tables; a host has
/// at most some hundreds of VMs.
pub const MAX_TENANTS: usize = 1024;

/// Ports of one switch, the width of every PMD's port table.
pub const MAX_PORTS: usize = 1024;

/// Receive (and transmit) rings of one port: the queue pairs that are offered.
pub const MAX_QUEUE_PAIRS: usize = 8;

/// Packets of one task.
pub const TASK_PACKETS: usize = 32;

/// How long the slow path looks away between two looks for misses while they come: long enough that
/// [`MISSES_PER_NAP`] are there at the next look, within these bounds. The upper one is how long the
/// first packet of one of many new flows of a tenant may wait; a tenant with few is not kept waiting
/// ([`QUIET_LANE_CYCLES`]).
pub const NAP_MIN: Duration = Duration::from_micros(50);

/// See [`NAP_MIN`].
pub const NAP_MAX: Duration = Duration::from_micros(500);

/// Misses among whom the price of a nap is divided. Measured in a virtual machine, where a timer is
/// dear: 35 000 cycles, ten times a walk.
pub const MISSES_PER_NAP: usize = 8;

/// A tenant's miss ends a nap if there was none of its before for so long, about a millisecond: it is
/// decided at once, whatever others send.
pub const QUIET_LANE_CYCLES: u64 = 2_500_000;

/// How often, at most, a PMD ends a nap: some 10 000 cycles for each, 4 % of a core.
pub const NAP_ROUSED_EVERY_CYCLES: u64 = 250_000;

/// After so long without a miss the slow path sleeps until it is woken.
pub const NAPS_FOR: Duration = Duration::from_millis(5);

/// Packets of a task whose look-ups are dear, if what follows them is not: a core has some ten cache
/// misses under way at once.
pub const OVERLAPPING_PACKETS: u64 = 8;

/// From so many megaflows on they are not in a core's own caches (an entry takes two lines, and as
/// many what it points to), and are asked for ahead.
pub const LARGE_CACHE_MEGAFLOWS: usize = 2048;

/// Packets to one port, one after the other, that are copied there at once; fewer among others are
/// listed first, so that each port's copies are made together.
pub const SHORT_RUN_PACKETS: usize = 4;

/// Copies that wait for delivery before they are written out. Twice a task's packets, so that a
/// unicast burst is delivered in one go and a mirror in few.
pub const PENDING_OUTPUTS: usize = 64;

/// Header snapshots of one task, for action lists that edit between outputs. When they are used
/// up, what is pending is delivered and they are free again.
pub const HEADER_SNAPSHOTS: usize = 32;

/// Payload bytes that wait for delivery before the clock is looked at: one copy of 16 KiB takes
/// about a quantum.
pub const PENDING_BYTES: u64 = 16 * 1024;

/// Actions of one packet after which the clock is looked at, what they output being delivered:
/// together they take less than a quantum.
pub const OPS_PER_LOOK: usize = 16;

/// Mail taken per turn, of either kind, unless `system`'s slice of it is used up before. Each item is
/// bounded work.
pub const MAIL_PER_TURN: usize = 4;

/// Mail that may wait; the sender waits beyond it.
pub const MAILBOX_SLOTS: usize = 256;

/// Discards of mail that wait for the control side, which takes them while it sends and waits.
pub const DISCARD_SLOTS: usize = 1024;

/// Stale megaflows named in one piece of mail, the only such piece of a turn: forgetting one costs a
/// few cache misses, all of them together less than a quantum.
pub const STALE_PER_MAIL: usize = 16;

/// Flows of one tenant that may have packets in the slow path at once.
pub const PENDING_FLOWS: usize = 1024;

/// Slots looked at for a pending flow.
pub const PENDING_PROBES: usize = 8;

/// Answers of the slow path that wait for one tenant, and so its packets in the slow path: the slow
/// path never waits. An arena of 256 KiB holds half as many of the smallest.
pub const REPLY_SLOTS: usize = 4096;

/// Frames, and bytes of them, that a PMD keeps for each lane while the slow path decides: those of the
/// smallest that come while it naps, without taking more than a core's own caches hold. Others come back
/// with their answers.
pub const KEPT_FRAMES: usize = 256;

/// See [`KEPT_FRAMES`].
pub const KEPT_BYTES: usize = 32 * 1024;

/// Slow-path answers sent in one task.
pub const REPLIES_PER_TASK: usize = 8;

/// Bytes of frames on their way from one PMD to another.
pub const HANDOFF_BYTES: usize = 1024 * 1024;

/// Frames of other PMDs that are delivered per turn: the share of a turn that, like a NIC's, is
/// spent before the owner of the work is known.
pub const HANDOFFS_PER_TURN: usize = 16;

/// Things on their way back from a PMD. A PMD takes nothing that it could not give back.
pub const RETURN_SLOTS: usize = 8192;

/// Actions compiled into one megaflow: a flood to every port with a few edits.
pub const MAX_OPS: usize = MAX_PORTS + 64;

/// Quick services: a queue that gave fewer frames than this is left alone for
/// [`SMALL_SERVICE_REST_CYCLES`], because polling it at once makes the index line bounce between
/// two cores (measured: 1.3 times the rate of one-frame publishers, and lower round trips).
pub const SMALL_SERVICE_PACKETS: usize = 8;

/// See [`SMALL_SERVICE_PACKETS`].
pub const SMALL_SERVICE_REST_CYCLES: u64 = 1000;

/// How late a ring that was silent for a thousand times as long may be seen. A hundred such rings
/// then cost a core less than 2 % (40 cycles for a look, which misses the cache).
pub const QUIET_RING_LATE_US: u64 = 100;

/// How long a tenant that has no packets still has its part of the exact-match table kept for it: a
/// second's pause must not cost it its entries.
pub const EXACT_ACTIVE_MS: u64 = 1000;

/// Entries of the exact-match table that the owner who has too many gives up per housekeeping: a
/// cache miss or two each.
pub const EXACT_TRIM: usize = 64;

/// Looks that a turn without work spends on quiet rings beyond those that are due: an idle core sees
/// a waking one within some microseconds, and what else comes waits for a few looks only.
pub const SPARE_LOOKS_PER_TURN: usize = 4;

/// Tasks for one whose stages are timed, while somebody asks, on average: a dozen readings of the clock
/// (some 30 cycles each) in such a task then make a packet less than one cycle dearer. The gaps are
/// random, or of tenants that take turns always the same one might be met.
pub const STAGE_SAMPLE_TASKS: u32 = 16;

/// How long a ring is left alone when its next packet must wait for earlier ones of its flow to come
/// back from the slow path, which takes tens of microseconds.
pub const WAIT_FOR_ANSWERS_CYCLES: u64 = 5000;

/// A gap between two readings of the clock that is looked into: below it a descheduled thread
/// and slow memory cannot be told apart at a bearable price.
pub const LONG_GAP_US: u64 = 50;

/// How often a PMD does what need not be done every turn.
pub const HOUSEKEEPING_US: u64 = 1000;

/// Tenants that one turn of housekeeping looks after, each some cache misses.
pub const HOUSEKEEPING_TENANTS_PER_TURN: usize = 8;

/// Ports of one tenant: a VM with more cards than PCI slots is a mistake.
pub const MAX_PORTS_PER_TENANT: usize = 32;

/// Rings of one tenant that one PMD polls.
pub const MAX_RINGS_PER_TENANT: usize = MAX_PORTS_PER_TENANT * MAX_QUEUE_PAIRS;

/// Bands of one meter (Open vSwitch's userspace datapath has as many): each packet draws on each.
pub const MAX_METER_BANDS: usize = 8;

/// Times that a PMD tries to draw on a meter or limit before it takes it for exceeded. A failed
/// try means that another PMD has drawn on it, so the rate is used up about then anyway.
pub const TAKE_ATTEMPTS: usize = 16;

/// Copies for controllers that a tenant may cause per second, unless it is set: what Open vSwitch
/// recommends (`controller_rate_limit`). One costs the slow path a walk and a message.
pub const DEFAULT_PUNT_PPS: u32 = 1000;

/// Tenants whose grants a turn takes in under a coordinator, each a cache line that another core has
/// written: some microseconds at most.
pub const GRANTS_PER_TURN: usize = 32;

/// Shortest wait for which the coordinator sleeps. The kernel wakes it up to 50 us late (timer
/// slack); below this it spins, and costs a core.
pub const COORDINATOR_SLEEP_MIN_US: u64 = 50;

/// Part of a second's copies for controllers that may come at once: a quarter, as Open vSwitch's
/// `controller_burst_limit`.
pub const PUNT_BURST_DIVISOR: u32 = 4;

/// Bytes of copies for controllers that one tenant may have queued on one PMD, apart from its
/// misses so that neither starves the other: the default burst of small frames, or 7 jumbo ones.
pub const PUNT_ARENA_BYTES: usize = 64 * 1024;

/// Frames of PACKET_OUT that wait for one tenant on one PMD; more are refused, and the controller
/// is told.
pub const INJECTION_SLOTS: usize = 256;

/// Injected frames carried out in one task.
pub const INJECTIONS_PER_TASK: usize = 4;

/// After an injected frame that belongs to no tenant, and that no gate could hold back, the PMD
/// takes no other for so many times as long as it took: a tenth of the core at most.
pub const PORTLESS_REST_FACTOR: u64 = 9;
