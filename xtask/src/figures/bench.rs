//! The switches, and one run on one of them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use indicatif::ProgressBar;
use rustix::process::{geteuid, setpriority_process};
use serde_json::json;

use super::adversary::{Adversary, Flows, SMALL_BYTES};
use crate::cycles::Cycles;
use crate::generator::{Load, Mode, Outcome, Pair};
use crate::interrupt::Interrupt;
use crate::machine::Cores;
use crate::ovs::Ovs;
use crate::subject::{Cost, OvsDpdk, Subject, Tollgate};
use crate::threads;

/// Neighbours that can be there at once.
pub(super) const NEIGHBOURS: usize = 32;

/// The victim's name, as tenant and as pair.
pub(super) const VICTIM: &str = "victim";

/// Round trips that the victim intends to make each second.
pub(super) const VICTIM_RATE: u32 = 10_000;

/// Stands for a network card.
pub(super) const UPLINK: &str = "up";

/// Whose its own packets would be.
pub(super) const WIRE: &str = "wire";

/// Costs are read so much after the beginning of the measured time, and again after half of it: on a
/// busy machine reading takes long, and must be over before the load is.
const MARGIN: Duration = Duration::from_millis(200);

/// Of ports that only listen: rings and buffers as small as do, for there are many.
const LISTENER_KEYS: &str = "ring=256,rx=256";

/// Runs begun for one that counts.
const ATTEMPTS: usize = 3;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) repetitions: u32,
    /// Unmeasured time at the start of each run.
    pub(super) warm_up: Duration,
    /// Time of one run.
    pub(super) measured: Duration,
    /// Changes of protection while the switch runs.
    pub(super) toggles: u32,
    /// For how long the daemon's threads are held.
    pub(super) held: Duration,
}

impl Plan {
    /// Repetitions of each point of a curve: its neighbours vouch for it too.
    pub(super) fn curve_repetitions(&self) -> u32 {
        self.repetitions.div_ceil(2)
    }
}

/// On what a run is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Variant {
    Off,
    On,
    Ovs,
}

impl Variant {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Off => "protection off",
            Self::On => "protection on",
            Self::Ovs => "OVS-DPDK",
        }
    }
}

/// What a run showed.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) outcome: Outcome,
    /// Of the loaded PMD; ours only.
    pub(super) cycles: Option<Cycles>,
    /// Of both tenants together; where it was asked for.
    pub(super) cost: Option<Cost>,
}

/// Both switches, with their ports; one has the core at a time.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) ours: Tollgate,
    theirs: Option<OvsDpdk>,
    pub(super) cores: Cores,
    pub(super) interrupt: Interrupt,
    pub(super) plan: Plan,
    /// Where figures go.
    pub(super) out: PathBuf,
}

/// The sending and the receiving port of a neighbour.
pub(super) fn neighbour_ports(number: usize) -> [String; 2] {
    [format!("a{number}"), format!("b{number}")]
}

/// Every port of neighbours, and the uplink: where a neighbour's broadcast goes but for its own.
pub(super) fn ports_but_victims() -> impl Iterator<Item = String> {
    (0..NEIGHBOURS).flat_map(neighbour_ports).chain([UPLINK.to_owned()])
}

/// A neighbour's name, as tenant and as pair.
pub(super) fn neighbour(number: usize) -> String {
    format!("adversary{number}")
}

impl Bench {
    pub(super) fn start(
        cores: Cores,
        interrupt: Interrupt,
        plan: Plan,
        out: PathBuf,
    ) -> anyhow::Result<Self> {
        let mut ours = Tollgate::start(cores)?;
        let mut theirs = match Ovs::available() {
            Ok(()) => Some(OvsDpdk::start(cores)?),
            Err(_) => None,
        };
        let subjects = [&mut ours as &mut dyn Subject].into_iter();
        for subject in subjects.chain(theirs.as_mut().map(|ovs| ovs as &mut dyn Subject)) {
            for port in ["v0", "v1"] {
                subject.add_port(port, VICTIM)?;
            }
            for number in 0..NEIGHBOURS {
                for port in neighbour_ports(number) {
                    subject.add_port(&port, &neighbour(number))?;
                }
            }
            subject.add_uplink(UPLINK, WIRE)?;
            subject.pause()?;
        }
        // This thread shares its core with a generator at nice -20: behind it, what is asked of the
        // switch would be asked a second late. Without root it stays as it is.
        let _ = setpriority_process(None, -20);
        Ok(Self { ours, theirs, cores, interrupt, plan, out })
    }

    /// Every variant that can be measured here.
    pub(super) fn variants(&self) -> Vec<Variant> {
        let all = [Variant::Off, Variant::On, Variant::Ovs];
        all.into_iter()
            .filter(|variant| *variant != Variant::Ovs || self.theirs.is_some())
            .collect()
    }

    pub(super) fn progress(runs: usize, what: &str) -> anyhow::Result<ProgressBar> {
        let style = indicatif::ProgressStyle::with_template("{prefix:10} [{bar:40}] {msg}")?;
        let bar = ProgressBar::new(runs as u64).with_style(style.progress_chars("=> "));
        Ok(bar.with_prefix(what.to_owned()))
    }

    pub(super) fn subject(&mut self, variant: Variant) -> anyhow::Result<&mut dyn Subject> {
        match variant {
            Variant::Off | Variant::On => Ok(&mut self.ours),
            Variant::Ovs => Ok(self.theirs.as_mut().context("no OVS-DPDK")?),
        }
    }

    /// Measures the victim, at `victim_rate` round trips a second (0: not there), beside neighbours.
    pub(super) fn run(
        &mut self,
        variant: Variant,
        victim_rate: u32,
        neighbours: &[Adversary],
    ) -> anyhow::Result<Run> {
        let victim = (victim_rate > 0).then_some(Mode::RoundTrips(victim_rate));
        self.run_with(variant, victim, neighbours, false)
    }

    /// The same with round trips, and with the counters of the whole run: read before and after it,
    /// because a generator on the management's core may keep an answer back for longer than it lasts.
    ///
    /// Three want the two cores: what decides on flows beside the PMD gives way to the generator once
    /// flows are decided on, of either switch, or the latency would be that of a generator kept waiting.
    pub(super) fn run_whole(
        &mut self,
        variant: Variant,
        victim_rate: u32,
        neighbours: &[Adversary],
    ) -> anyhow::Result<Run> {
        self.interrupt.check()?;
        self.subject(variant)?.resume()?;
        self.prepare(variant, neighbours)?;
        let victim = Some(Mode::RoundTrips(victim_rate));
        let load = self.load(variant, victim, neighbours, self.plan.measured)?;
        let before = self.cycles(variant)?;
        let warm_up = load.warm_up;
        let running = load.start()?;
        self.interrupt.sleep(warm_up, |_| ())?;
        self.give_way(variant, true)?;
        let outcome = running.finish()?;
        self.give_way(variant, false)?;
        let after = self.cycles(variant)?;
        self.subject(variant)?.pause()?;
        check_victim(&outcome)?;
        let cycles = after.zip(before).map(|(after, before)| after.since(&before));
        Ok(Run { outcome, cycles, cost: None })
    }

    /// The same with a victim of any kind, and with what a packet costs on average if `with_cost`.
    pub(super) fn run_with(
        &mut self,
        variant: Variant,
        victim: Option<Mode>,
        neighbours: &[Adversary],
        with_cost: bool,
    ) -> anyhow::Result<Run> {
        let mut attempt = 1;
        loop {
            let (run, in_time) = self.attempt(variant, victim, neighbours, with_cost)?;
            match in_time {
                true => return Ok(run),
                // The load itself was as it should be; its cost is not known.
                false if attempt == ATTEMPTS => return Ok(Run { cycles: None, cost: None, ..run }),
                false => attempt += 1,
            }
        }
    }

    /// And whether the counters were read before the end of the load: what the rings still held after
    /// it is as much for each tenant, whatever its weight.
    fn attempt(
        &mut self,
        variant: Variant,
        victim: Option<Mode>,
        neighbours: &[Adversary],
        with_cost: bool,
    ) -> anyhow::Result<(Run, bool)> {
        self.interrupt.check()?;
        self.subject(variant)?.resume()?;
        self.prepare(variant, neighbours)?;
        let load = self.load(variant, victim, neighbours, self.plan.measured)?;
        let running = load.start()?;
        self.interrupt.sleep(self.plan.warm_up + MARGIN, |_| ())?;
        let before = self.cycles(variant)?;
        if with_cost {
            self.subject(variant)?.begin()?;
        }
        self.interrupt.sleep(self.plan.measured / 2, |_| ())?;
        let after = self.cycles(variant)?;
        let cost = if with_cost { Some(self.subject(variant)?.cost()?) } else { None };
        let read_tsc = tollgate_accel::tsc::now();
        let outcome = running.finish()?;
        self.subject(variant)?.pause()?;
        let measured_cycles = self.plan.measured.as_secs_f64() * outcome.tsc_hz as f64;
        let in_time = read_tsc <= outcome.start_tsc + measured_cycles as u64;
        if victim.is_some() {
            check_victim(&outcome)?;
        }
        let cycles = after.zip(before).map(|(after, before)| after.since(&before));
        Ok((Run { outcome, cycles, cost }, in_time))
    }

    /// Flows, weights and protection.
    pub(super) fn prepare(
        &mut self,
        variant: Variant,
        neighbours: &[Adversary],
    ) -> anyhow::Result<()> {
        let mut flows = vec![
            "in_port=v0,actions=output:v1".to_owned(),
            "in_port=v1,actions=output:v0".to_owned(),
        ];
        for (number, adversary) in neighbours.iter().enumerate() {
            let [from, to] = adversary.ports(number);
            flows.extend(adversary.flows(&from, &to, variant == Variant::Ovs));
        }
        self.subject(variant)?.set_flows(&flows)?;
        if variant == Variant::Ovs {
            return Ok(());
        }
        let switch = self.ours.switch();
        switch.call("protection_set", json!({"enabled": variant == Variant::On}))?;
        for (number, adversary) in neighbours.iter().enumerate() {
            let weight = json!({"tenant": neighbour(number), "weight": adversary.weight});
            switch.call("tenant_set", weight)?;
        }
        Ok(())
    }

    pub(super) fn load(
        &mut self,
        variant: Variant,
        victim: Option<Mode>,
        neighbours: &[Adversary],
        measured: Duration,
    ) -> anyhow::Result<Load> {
        let core = self.cores.peers;
        let warm_ups = neighbours.iter().map(Adversary::warm_up);
        let warm_up = warm_ups.max().unwrap_or_default().max(self.plan.warm_up);
        let subject = self.subject(variant)?;
        let mut pairs = Vec::new();
        if let Some(mode) = victim {
            pairs.push(Pair {
                ports: ["v0".to_owned(), "v1".to_owned()],
                sockets: [subject.socket("v0")?, subject.socket("v1")?],
                ..Pair::new(VICTIM, mode, SMALL_BYTES)
            });
        }
        for (number, adversary) in neighbours.iter().enumerate() {
            let [from, to] = adversary.ports(number);
            pairs.push(Pair {
                sockets: [subject.socket(&from)?, subject.socket(&to)?],
                ports: [from, to],
                keys: adversary.keys.to_owned(),
                port_keys: adversary.port_keys,
                ..Pair::new(&neighbour(number), adversary.mode, adversary.frame_bytes)
            });
        }
        let mut listeners = Vec::new();
        if neighbours.iter().any(|adversary| matches!(adversary.flows, Flows::Broadcast)) {
            let is_free = |port: &String| !pairs.iter().any(|pair| pair.ports.contains(port));
            for port in ports_but_victims().filter(is_free) {
                let socket = subject.socket(&port)?;
                listeners.push((port, socket, LISTENER_KEYS));
            }
        }
        let interval = Duration::from_millis(50);
        Ok(Load { pairs, listeners, warm_up, measured, interval, core })
    }

    /// Whether the threads of a switch that do not poll are the least important of all, or as important
    /// as the generator. Without root they stay as they are.
    fn give_way(&mut self, variant: Variant, yes: bool) -> anyhow::Result<()> {
        if !geteuid().is_root() {
            return Ok(());
        }
        let pid = self.subject(variant)?.pid();
        threads::set_nice(pid, "pmd", if yes { 19 } else { -20 })
    }

    pub(super) fn cycles(&self, variant: Variant) -> anyhow::Result<Option<Cycles>> {
        if variant == Variant::Ovs {
            return Ok(None);
        }
        Cycles::read(&self.ours.switch().call("pmd_stats", json!({}))?).map(Some)
    }

    /// A run on ours in which protection changes every `slot`; returns the outcome and when it was
    /// set to what, by the cycle counter.
    pub(super) fn toggled(
        &mut self,
        victim_rate: u32,
        neighbours: &[Adversary],
        slot: Duration,
        interval: Duration,
    ) -> anyhow::Result<(Outcome, Vec<(u64, bool)>)> {
        self.subject(Variant::Off)?.resume()?;
        self.prepare(Variant::Off, neighbours)?;
        let measured = slot * self.plan.toggles;
        let victim = (victim_rate > 0).then_some(Mode::RoundTrips(victim_rate));
        let mut load = self.load(Variant::Off, victim, neighbours, measured)?;
        load.interval = interval;
        let running = load.start()?;
        let mut client = self.ours.switch().rpc()?;
        let mut changes = Vec::new();
        let began = std::time::Instant::now();
        for number in 0.. {
            self.interrupt.check()?;
            if began.elapsed() > self.plan.warm_up + measured {
                break;
            }
            let enabled = number % 2 == 1;
            client.call("protection_set", json!({"enabled": enabled}))?;
            changes.push((tollgate_accel::tsc::now(), enabled));
            std::thread::sleep(slot);
        }
        let outcome = running.finish()?;
        self.subject(Variant::Off)?.pause()?;
        Ok((outcome, changes))
    }
}

fn check_victim(outcome: &Outcome) -> anyhow::Result<()> {
    let victim = outcome.pair(VICTIM)?;
    ensure!(victim.corrupted + victim.misdelivered == 0, "frames were harmed: {victim:?}");
    Ok(())
}
