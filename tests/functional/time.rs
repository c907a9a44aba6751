//! Who pays: the books close, and weights decide who gets a busy core.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use rustix::process::setpriority_process;
use serde_json::json;
use tollgate_guest::generator::pin_to_core;
use tollgate_guest::port::PortConfig;

use proving_ground::lab::{Lab, count, udp};

/// Cycles of load that a share is taken over: some hundred thousand turns.
const WINDOW_CYCLES: u64 = 500_000_000;

/// Entries of a sender's ring: so many frames wait that neither runs dry while the other core's
/// thread, which refills them, is kept from running for some milliseconds.
const BACKLOG: u16 = 32768;

/// Two senders, each a tenant, whose frames are all work and no delivery: rewritten and sent so many
/// times to a port that has no guest. So only the PMD decides how many it takes of each.
fn busy_lab(copies: [u8; 2]) -> anyhow::Result<Lab> {
    let mut lab = Lab::new(&[])?;
    lab.switch.add_port("sink", "sink")?;
    for (sender, copies) in SENDERS.into_iter().zip(copies) {
        lab.attach(sender, |config| PortConfig {
            ring_size: BACKLOG,
            tx_frame_bytes: 128,
            rx_buffer_bytes: 128,
            ..config
        })?;
        let work = (1..=copies).map(|copy| format!("set_field:10.0.9.{copy}->ip_dst,output:sink"));
        let work = work.collect::<Vec<_>>().join(",");
        lab.switch.add_flows(&[&format!("ip,in_port={sender},actions={work}")])?;
        // Cached before the load begins, which leaves the slow path little time.
        lab.deliver(sender, &frame())?;
        lab.deliver(sender, &frame())?;
    }
    // PMD and sender would otherwise take turns on one core while the other is free. Not before the
    // daemon's start, for it would inherit this. Where there is only one core, it is shared; without
    // root, the priority stays as it is.
    let _ = pin_to_core(1);
    let _ = setpriority_process(None, -20);
    Ok(lab)
}

/// What both send.
fn frame() -> Vec<u8> {
    udp(1, 2, 7, 20)
}

const SENDERS: [&str; 2] = ["a", "b"];

/// Keeps both senders' rings filled until the tenants' accounts have grown by a window; returns what the
/// accounts grew by, and the frames that were taken of each. A window in which a ring came near to
/// running dry says nothing of shares and is begun anew.
fn measure(lab: &mut Lab) -> anyhow::Result<(Accounts, [u64; 2])> {
    for _ in 0..ATTEMPTS {
        refill(lab)?;
        let (before, taken_before) = (Accounts::read(lab)?, taken(lab)?);
        while waiting(lab)?.into_iter().all(|frames| frames > BACKLOG_MIN) {
            let (grown, after) = (Accounts::read(lab)?.since(&before), taken(lab)?);
            if grown.busy() >= WINDOW_CYCLES {
                return Ok((grown, [after[0] - taken_before[0], after[1] - taken_before[1]]));
            }
            refill(lab)?;
        }
    }
    bail!("the senders ran dry in each of {ATTEMPTS} windows: this machine is too busy to tell")
}

/// Windows begun before giving up.
const ATTEMPTS: usize = 50;

/// Fewer frames than this may be gone before they are looked at again.
const BACKLOG_MIN: u64 = 1000;

/// Fills both rings, at most once over.
fn refill(lab: &mut Lab) -> anyhow::Result<()> {
    let frame = frame();
    for sender in SENDERS {
        let port = lab.port(sender)?;
        for _ in 0..BACKLOG {
            if !port.send(&frame, 1) {
                break;
            }
        }
    }
    Ok(())
}

/// Frames in each sender's ring that the switch has not taken.
fn waiting(lab: &mut Lab) -> anyhow::Result<[u64; 2]> {
    let taken = taken(lab)?;
    let mut waiting = [0; 2];
    for ((sender, taken), waiting) in SENDERS.into_iter().zip(taken).zip(&mut waiting) {
        *waiting = lab.port(sender)?.tx_counters().frames - taken;
    }
    Ok(waiting)
}

/// Frames that the switch has taken from each sender.
fn taken(lab: &Lab) -> anyhow::Result<[u64; 2]> {
    let of = |name| anyhow::Ok(count(&lab.counters(name)?, "rx_packets"));
    Ok([of(SENDERS[0])?, of(SENDERS[1])?])
}

/// The accounts of the one PMD, in cycles.
#[derive(Debug, Clone, Default)]
struct Accounts {
    elapsed: u64,
    idle: u64,
    system: u64,
    stolen: u64,
    tenants: BTreeMap<String, u64>,
}

impl Accounts {
    fn read(lab: &Lab) -> anyhow::Result<Self> {
        let stats = lab.switch.call("pmd_stats", json!({}))?;
        let pmd = &stats["pmds"][0];
        let number = |key: &str| pmd[key].as_u64().with_context(|| format!("no {key} in {pmd}"));
        let tenants = pmd["tenants"].as_object().with_context(|| format!("no tenants in {pmd}"))?;
        Ok(Self {
            elapsed: number("elapsed_cycles")?,
            idle: number("idle_cycles")?,
            system: number("system_cycles")?,
            stolen: number("stolen_cycles")?,
            tenants: tenants
                .iter()
                .map(|(name, cycles)| (name.clone(), cycles.as_u64().unwrap_or_default()))
                .collect(),
        })
    }

    fn since(&self, before: &Self) -> Self {
        let tenant = |(name, cycles): (&String, &u64)| {
            (name.clone(), cycles - before.tenants.get(name).copied().unwrap_or_default())
        };
        Self {
            elapsed: self.elapsed - before.elapsed,
            idle: self.idle - before.idle,
            system: self.system - before.system,
            stolen: self.stolen - before.stolen,
            tenants: self.tenants.iter().map(tenant).collect(),
        }
    }

    fn of(&self, tenant: &str) -> u64 {
        self.tenants.get(tenant).copied().unwrap_or_default()
    }

    /// The first sender's part of what both were charged.
    fn share(&self) -> f64 {
        let [a, b] = SENDERS.map(|sender| self.of(sender) as f64);
        a / (a + b)
    }

    fn busy(&self) -> u64 {
        self.tenants.values().sum()
    }
}

fn within(got: f64, wanted: f64, tolerance: f64) -> bool {
    (got - wanted).abs() <= tolerance
}

#[test]
fn the_books_close_under_load() -> anyhow::Result<()> {
    let mut lab = busy_lab([4, 4])?;
    let (grown, _) = measure(&mut lab)?;
    let booked = grown.busy() + grown.idle + grown.system + grown.stolen;
    let ratio = booked as f64 / grown.elapsed as f64;
    ensure!(within(ratio, 1.0, 0.01), "{ratio:.4} of the elapsed cycles are booked: {grown:?}");
    lab.switch.stop()
}

#[test]
fn weights_share_a_busy_core_and_act_at_once() -> anyhow::Result<()> {
    let mut lab = busy_lab([4, 4])?;
    for (weight_a, weight_b) in [(1.0, 1.0), (1.0, 3.0), (1.71, 1.0)] {
        for (tenant, weight) in SENDERS.into_iter().zip([weight_a, weight_b]) {
            lab.switch.call("tenant_set", json!({"tenant": tenant, "weight": weight}))?;
        }
        let (grown, frames) = measure(&mut lab)?;
        let wanted = weight_a / (weight_a + weight_b);
        let cycles = grown.share();
        ensure!(within(cycles, wanted, 0.01), "{weight_a}:{weight_b}: {cycles:.4} in {grown:?}");
        // Not by our own books alone: frames of equal cost must show the same.
        let packets = frames[0] as f64 / (frames[0] + frames[1]) as f64;
        ensure!(within(packets, wanted, 0.03), "{weight_a}:{weight_b}: {packets:.4} of {frames:?}");
    }
    lab.switch.stop()
}

#[test]
fn protection_shares_cycles_and_without_it_tenants_share_turns() -> anyhow::Result<()> {
    // b's frames cost a multiple of a's.
    let mut lab = busy_lab([1, 16])?;
    lab.switch.call("protection_set", json!({"enabled": false}))?;
    let (off, frames) = measure(&mut lab)?;
    let packets = frames[0] as f64 / (frames[0] + frames[1]) as f64;
    ensure!(within(packets, 0.5, 0.03), "turn by turn each gets as many frames: {frames:?}");
    ensure!(off.share() < 0.4, "and the dear tenant more of the core: {off:?}");
    lab.switch.call("protection_set", json!({"enabled": true}))?;
    let (on, _) = measure(&mut lab)?;
    ensure!(within(on.share(), 0.5, 0.01), "protected, each gets its share: {on:?}");
    lab.switch.stop()
}
