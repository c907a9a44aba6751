//! The switches, and one run on one of them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use indicatif::ProgressBar;
use serde_json::json;

use super::adversary::{Adversary, SMALL_BYTES};
use crate::cycles::Cycles;
use crate::generator::{Load, Mode, Outcome, Pair};
use crate::interrupt::Interrupt;
use crate::machine::Cores;
use crate::ovs::Ovs;
use crate::subject::{OvsDpdk, Subject, Tollgate};

/// Neighbours that can be there at once.
pub(super) const NEIGHBOURS: usize = 32;

/// The victim's name, as tenant and as pair.
pub(super) const VICTIM: &str = "victim";

/// Round trips that the victim intends to make each second.
pub(super) const VICTIM_RATE: u32 = 10_000;

/// Unmeasured time at the start of each run.
const WARM_UP: Duration = Duration::from_secs(1);

/// Costs are read so much after the beginning and before the end of the measured time.
const MARGIN: Duration = Duration::from_millis(200);

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) repetitions: u32,
    /// Time of one run.
    pub(super) measured: Duration,
    /// Changes of protection while the switch runs.
    pub(super) toggles: u32,
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
}

/// Both switches, with their ports; one has the core at a time.
#[derive(Debug)]
pub(super) struct Bench {
    ours: Tollgate,
    theirs: Option<OvsDpdk>,
    cores: Cores,
    interrupt: Interrupt,
    pub(super) plan: Plan,
    /// Where figures go.
    pub(super) out: PathBuf,
}

/// The sending and the receiving port of a neighbour.
fn neighbour_ports(number: usize) -> [String; 2] {
    [format!("a{number}"), format!("b{number}")]
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
            subject.pause()?;
        }
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

    fn subject(&mut self, variant: Variant) -> anyhow::Result<&mut dyn Subject> {
        match variant {
            Variant::Off | Variant::On => Ok(&mut self.ours),
            Variant::Ovs => Ok(self.theirs.as_mut().context("no OVS-DPDK")?),
        }
    }

    /// Measures the victim, at `victim_rate` round trips a second (0: not there), beside `count`
    /// neighbours of one kind.
    pub(super) fn run(
        &mut self,
        variant: Variant,
        victim_rate: u32,
        neighbours: &[Adversary],
    ) -> anyhow::Result<Run> {
        self.interrupt.check()?;
        self.subject(variant)?.resume()?;
        self.prepare(variant, neighbours)?;
        let load = self.load(variant, victim_rate, neighbours, self.plan.measured)?;
        let running = load.start()?;
        self.interrupt.sleep(WARM_UP + MARGIN, |_| ())?;
        let before = self.cycles(variant)?;
        self.interrupt.sleep(self.plan.measured - 2 * MARGIN, |_| ())?;
        let after = self.cycles(variant)?;
        let outcome = running.finish()?;
        self.subject(variant)?.pause()?;
        if victim_rate > 0 {
            let victim = outcome.pair(VICTIM)?;
            ensure!(victim.corrupted + victim.misdelivered == 0, "frames were harmed: {victim:?}");
        }
        Ok(Run { outcome, cycles: after.zip(before).map(|(after, before)| after.since(&before)) })
    }

    /// Flows, weights and protection.
    fn prepare(&mut self, variant: Variant, neighbours: &[Adversary]) -> anyhow::Result<()> {
        let mut flows = vec![
            "in_port=v0,actions=output:v1".to_owned(),
            "in_port=v1,actions=output:v0".to_owned(),
        ];
        for (number, adversary) in neighbours.iter().enumerate() {
            let [from, to] = neighbour_ports(number);
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

    fn load(
        &mut self,
        variant: Variant,
        victim_rate: u32,
        neighbours: &[Adversary],
        measured: Duration,
    ) -> anyhow::Result<Load> {
        let core = self.cores.peers;
        let subject = self.subject(variant)?;
        let mut pairs = Vec::new();
        if victim_rate > 0 {
            pairs.push(Pair {
                ports: ["v0".to_owned(), "v1".to_owned()],
                sockets: [subject.socket("v0")?, subject.socket("v1")?],
                ..Pair::new(VICTIM, Mode::RoundTrips(victim_rate), SMALL_BYTES)
            });
        }
        for (number, adversary) in neighbours.iter().enumerate() {
            let [from, to] = neighbour_ports(number);
            pairs.push(Pair {
                sockets: [subject.socket(&from)?, subject.socket(&to)?],
                ports: [from, to],
                keys: adversary.keys,
                port_keys: adversary.port_keys,
                ..Pair::new(&neighbour(number), adversary.mode, adversary.frame_bytes)
            });
        }
        Ok(Load { pairs, warm_up: WARM_UP, measured, interval: Duration::from_millis(50), core })
    }

    fn cycles(&self, variant: Variant) -> anyhow::Result<Option<Cycles>> {
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
        let mut load = self.load(Variant::Off, victim_rate, neighbours, measured)?;
        load.interval = interval;
        let running = load.start()?;
        let mut client = self.ours.switch().rpc()?;
        let mut changes = Vec::new();
        let began = std::time::Instant::now();
        for number in 0.. {
            self.interrupt.check()?;
            if began.elapsed() > WARM_UP + measured {
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
