//! The two switches, and one run on one of them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use super::other::Other;
use super::row::{ENTRIES, Kind, Row, ports};
use crate::generator::{Load, Mode, Pair};
use crate::interrupt::Interrupt;
use crate::machine::{self, Cores};
use crate::subject::{Cost, OvsDpdk, Subject, Tollgate};

/// Costs are read so much after the beginning and before the end of the measured time.
const MARGIN: Duration = Duration::from_millis(250);

/// Time by which, for each pair, the first packets may be noticed late: while many ports attach, the
/// daemon answers late.
const NOTICE: Duration = Duration::from_millis(60);

/// How long a generator may take to attach: OVS sets its PMD up anew for every port of it.
const ATTACH_LIMIT: Duration = Duration::from_secs(25);

/// A cache is warm when so small a part of the packets misses it.
pub(super) const WARM: f64 = 0.001;

/// How often that is looked at, and how often in a row it must be so.
const LOOK: Duration = Duration::from_millis(400);
const LOOKS: usize = 2;

/// Intervals of which the typical quantiles are taken: hundreds of round trips each.
const INTERVAL: Duration = Duration::from_millis(50);

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) pairs: u32,
    pub(super) warm_up: Duration,
    pub(super) measured: Duration,
}

/// One run of one row on one switch. What a row does not measure is NaN.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) row: &'static str,
    pub(super) pair: u32,
    pub(super) switch: &'static str,
    pub(super) generator: &'static str,
    pub(super) mpps: f64,
    pub(super) cycles_per_packet: f64,
    pub(super) packets_per_burst: f64,
    pub(super) pmd_busy_percent: f64,
    pub(super) generator_busy_percent: f64,
    /// Of the packets, in percent: those that were no cache's.
    pub(super) uncached_percent: f64,
    pub(super) cycles_per_miss: f64,
    pub(super) cycles_per_miss_with_slow_path: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Of the intended frames.
    pub(super) completed_percent: f64,
    /// How late the generator's one thread may be: 99th percentile, and once at worst.
    pub(super) generator_loop_p99_us: f64,
    pub(super) generator_loop_max_us: f64,
    /// One way from core to core just before the run.
    pub(super) core_to_core_cycles: f64,
}

impl Sample {
    /// Nothing measured.
    pub(super) const EMPTY: Self = Self {
        row: "",
        pair: 0,
        switch: "",
        generator: "",
        mpps: f64::NAN,
        cycles_per_packet: f64::NAN,
        packets_per_burst: f64::NAN,
        pmd_busy_percent: f64::NAN,
        generator_busy_percent: f64::NAN,
        uncached_percent: f64::NAN,
        cycles_per_miss: f64::NAN,
        cycles_per_miss_with_slow_path: f64::NAN,
        p50_us: f64::NAN,
        p99_us: f64::NAN,
        completed_percent: f64::NAN,
        generator_loop_p99_us: f64::NAN,
        generator_loop_max_us: f64::NAN,
        core_to_core_cycles: f64::NAN,
    };
}

/// What a generator saw.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) mpps: f64,
    pub(super) busy_percent: f64,
    pub(super) completed_percent: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) loop_p99_us: f64,
    pub(super) loop_max_us: f64,
}

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Switch {
    Ours,
    Theirs,
}

/// Both switches; one has the core at a time.
#[derive(Debug)]
pub(super) struct Bench {
    ours: Option<Tollgate>,
    /// Entries of its caches.
    entries: usize,
    theirs: OvsDpdk,
    /// Pairs of ports that each has.
    pairs: [usize; 2],
    cores: Cores,
    interrupt: Interrupt,
    plan: Plan,
}

/// A configuration whose caches hold so many flows of one tenant.
fn sections(entries: usize) -> String {
    if entries == ENTRIES {
        return String::new();
    }
    format!(
        "[cache]\nexact_entries = {entries}\nmegaflows = {entries}\nmegaflows_per_tenant = {entries}\n\
         [tenants.v0]\nsetups_per_second = 10000000\narena_bytes = 4194304\n"
    )
}

impl Bench {
    pub(super) fn start(cores: Cores, interrupt: Interrupt, plan: Plan) -> anyhow::Result<Self> {
        let mut theirs = OvsDpdk::start(cores)?;
        theirs.pause()?;
        Ok(Self { ours: None, entries: 0, theirs, pairs: [0; 2], cores, interrupt, plan })
    }

    fn subject(&mut self, switch: Switch) -> anyhow::Result<&mut dyn Subject> {
        match switch {
            Switch::Ours => Ok(self.ours.as_mut().context("no Tollgate")?),
            Switch::Theirs => Ok(&mut self.theirs),
        }
    }

    /// Ports, flows and caches of both for a row.
    pub(super) fn prepare(&mut self, row: &Row) -> anyhow::Result<()> {
        if self.ours.is_none() || self.entries != row.entries {
            // One at a time: there is one core for it.
            self.ours = None;
            self.ours = Some(Tollgate::start_with(self.cores, &sections(row.entries))?);
            self.entries = row.entries;
            self.pairs[Switch::Ours as usize] = 0;
            self.subject(Switch::Ours)?.pause()?;
        }
        for switch in [Switch::Ours, Switch::Theirs] {
            self.interrupt.check()?;
            let there = self.pairs[switch as usize];
            let subject = self.subject(switch)?;
            subject.resume()?;
            for port in (there..row.pairs).flat_map(ports) {
                subject.add_port(&port, &port)?;
            }
            subject.set_exact_match(row.exact_match)?;
            subject.set_flows(&row.rules())?;
            subject.hold_flows(row.holds_flows())?;
            subject.pause()?;
            self.pairs[switch as usize] = there.max(row.pairs);
        }
        Ok(())
    }

    /// Measures a row once.
    pub(super) fn run(
        &mut self,
        switch: Switch,
        row: &Row,
        pair: u32,
        other: Option<&Other>,
    ) -> anyhow::Result<Sample> {
        self.interrupt.check()?;
        let core_to_core = machine::core_to_core_cycles(self.cores.pmd, self.cores.peers);
        self.subject(switch)?.resume()?;
        if row.kind == Kind::Misses {
            // What an earlier run has left would be found.
            self.subject(switch)?.set_flows(&row.rules())?;
        }
        if let Some(limit) = row.warming_limit() {
            self.warm(switch, row, limit)?;
        }
        let (seen, cost) = match other {
            None => self.by_ours(switch, row)?,
            Some(other) => self.by_other(switch, row, other)?,
        };
        self.subject(switch)?.pause()?;
        let miss = |figure: f64| if row.kind == Kind::Misses { figure } else { f64::NAN };
        let packet = |figure: f64| if row.kind == Kind::Throughput { figure } else { f64::NAN };
        let trip = |figure: f64| if row.kind == Kind::RoundTrips { figure } else { f64::NAN };
        let slow_path = cost.slow_path.as_secs_f64() * machine::tsc_hz()? / cost.misses;
        Ok(Sample {
            row: row.name,
            pair,
            switch: self.subject(switch)?.name(),
            generator: other.map_or("tollgate-guest", |_| "other"),
            mpps: packet(seen.mpps),
            cycles_per_packet: packet(cost.cycles_per_packet),
            packets_per_burst: cost.packets_per_burst,
            pmd_busy_percent: cost.busy_percent,
            generator_busy_percent: seen.busy_percent,
            uncached_percent: 100.0 * cost.uncached,
            cycles_per_miss: miss(cost.cycles_per_miss),
            cycles_per_miss_with_slow_path: miss(cost.cycles_per_miss + slow_path),
            p50_us: trip(seen.p50_us),
            p99_us: trip(seen.p99_us),
            completed_percent: seen.completed_percent,
            generator_loop_p99_us: seen.loop_p99_us,
            generator_loop_max_us: seen.loop_max_us,
            core_to_core_cycles: core_to_core.unwrap_or(f64::NAN),
        })
    }

    /// Sends every flow of the row until the switch has cached them, or `limit` is over: then the
    /// sample says what part was not.
    fn warm(&mut self, switch: Switch, row: &Row, limit: Duration) -> anyhow::Result<()> {
        let mut load = self.load(switch, row, &row.warming_keys(), limit)?;
        load.warm_up = Duration::ZERO;
        let mut running = load.start()?;
        let mut warm = 0;
        for _ in 0..limit.as_millis() / LOOK.as_millis() {
            self.subject(switch)?.begin()?;
            self.interrupt.sleep(LOOK, |_| ())?;
            ensure!(running.is_running()?, "the generator ended while caches were filled");
            // Before the generator has attached there is nothing to go by.
            let cost = self.subject(switch)?.cost();
            let is_warm = cost.is_ok_and(|cost| cost.uncached < WARM / 2.0);
            warm = if is_warm { warm + 1 } else { 0 };
            if warm == LOOKS {
                break;
            }
        }
        Ok(())
    }

    fn load(
        &mut self,
        switch: Switch,
        row: &Row,
        keys: &[String],
        measured: Duration,
    ) -> anyhow::Result<Load> {
        let mode = match row.kind {
            Kind::Throughput => Mode::FlatOut,
            Kind::RoundTrips => Mode::RoundTrips(row.rate()),
            Kind::Misses => Mode::Stream(row.rate()),
        };
        let mut keys = keys.to_vec();
        keys.extend((!row.keeps_frames()).then(|| "verify=0".to_owned()));
        let (core, warm_up) = (self.cores.peers, self.plan.warm_up);
        let subject = self.subject(switch)?;
        let mut pairs = Vec::new();
        for number in 0..row.pairs {
            let ports = ports(number);
            let [from, to] = &ports;
            pairs.push(Pair {
                sockets: [subject.socket(from)?, subject.socket(to)?],
                ports,
                keys: keys.join(","),
                port_keys: row.port_keys(),
                ..Pair::new(&format!("pair{number}"), mode, row.frame_bytes)
            });
        }
        Ok(Load { pairs, listeners: Vec::new(), warm_up, measured, interval: INTERVAL, core })
    }

    fn by_ours(&mut self, switch: Switch, row: &Row) -> anyhow::Result<(Seen, Cost)> {
        let measured = self.plan.measured;
        let mut load = self.load(switch, row, &row.pair_keys(), measured)?;
        load.warm_up += NOTICE * row.pairs as u32;
        let running = load.start()?;
        self.await_traffic(switch)?;
        self.interrupt.sleep(self.plan.warm_up + MARGIN, |_| ())?;
        let cost = self.cost(switch, measured - 2 * MARGIN)?;
        let outcome = running.finish()?;
        let mut mpps = 0.0;
        for pair in &load.pairs {
            let pair = outcome.pair(&pair.name)?;
            let harmed = pair.corrupted + pair.misdelivered;
            ensure!(harmed == 0, "{} delivered wrongly: {pair:?}", self.subject(switch)?.name());
            mpps += pair.rx_mpps;
        }
        let first = outcome.pair("pair0")?;
        let seen = Seen {
            mpps,
            busy_percent: outcome.busy_percent(),
            completed_percent: first.completed_percent,
            p50_us: first.typical_us(|times| times.p50).unwrap_or(f64::NAN),
            p99_us: first.typical_us(|times| times.p99).unwrap_or(f64::NAN),
            loop_p99_us: outcome.loop_p99_us(),
            loop_max_us: outcome.loop_us.map_or(f64::NAN, |times| times.max),
        };
        Ok((seen, cost))
    }

    /// Waits for the first packets: the generator's warm-up begins then.
    fn await_traffic(&mut self, switch: Switch) -> anyhow::Result<()> {
        let deadline = Instant::now() + ATTACH_LIMIT;
        while Instant::now() < deadline {
            // A switch that forwarded nothing has no cost per packet.
            let cost = self.cost(switch, Duration::from_millis(10));
            if cost.is_ok_and(|cost| cost.cycles_per_packet.is_finite()) {
                return Ok(());
            }
            self.interrupt.check()?;
        }
        bail!("{}: no packet within {ATTACH_LIMIT:?}", self.subject(switch)?.name())
    }

    fn by_other(
        &mut self,
        switch: Switch,
        row: &Row,
        other: &Other,
    ) -> anyhow::Result<(Seen, Cost)> {
        let [from, to] = ports(0);
        let subject = self.subject(switch)?;
        let sockets: [PathBuf; 2] = [subject.socket(&from)?, subject.socket(&to)?];
        let (core, plan) = (self.cores.peers, self.plan);
        let mut running = other.start(row, &sockets, core, plan)?;
        running.await_measuring()?;
        self.interrupt.sleep(MARGIN, |_| ())?;
        let cost = self.cost(switch, plan.measured - 2 * MARGIN)?;
        Ok((running.finish()?, cost))
    }

    fn cost(&mut self, switch: Switch, time: Duration) -> anyhow::Result<Cost> {
        self.subject(switch)?.begin()?;
        self.interrupt.sleep(time, |_| ())?;
        self.subject(switch)?.cost()
    }
}
