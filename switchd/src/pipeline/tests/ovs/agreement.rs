//! The same flows and frames: the same frames leave by the same ports, and the same is counted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use proptest::option::weighted;
use proptest::prelude::*;
use proptest::test_runner::TestError;
use tollgate_openflow::event::PacketIn;
use tollgate_openflow::text::{NoNames, format_match};
use tollgate_openflow::{FlowCommand, FlowMod, Match};

use super::super::rules::PORTS;
use super::super::sim::{Sent, Sim, try_parsed};
use super::excuses::excuse;
use super::flow_mods::essences;
use super::flows::{Flow, TABLES, any_flow};
use super::peer::{Caching, Ovs, hex};
use super::runner;
use super::wild::{Packet, any_packet};
use crate::pipeline::events::{Event, PacketInEvent};

const CASES: u32 = 3000;

/// Flows and packets.
#[derive(Clone, Debug)]
struct Case {
    flows: Vec<Flow>,
    /// What flows of the lowest priority do in every table, if there are any.
    floor: Option<&'static str>,
    packets: Vec<Option<Packet>>,
    /// Open vSwitch gets the flows from `ovs-ofctl`, which reads the text itself.
    by_ofctl: bool,
}

fn any_case() -> impl Strategy<Value = Case> {
    let flows = prop::collection::vec(any_flow(), 1..=20);
    // A vector of options can be shrunk from within.
    let packets = prop::collection::vec(weighted(0.99, any_packet()), 8);
    let floor =
        weighted(0.8, prop::sample::select(&["drop", "normal", "output:1", "controller:60"][..]));
    (flows, floor, packets, prop::bool::weighted(0.1))
        .prop_map(|(flows, floor, packets, by_ofctl)| Case { flows, floor, packets, by_ofctl })
}

impl Case {
    /// Each flow above the floor has a priority of its own, from 1.
    fn lines(&self) -> Vec<String> {
        let lines = (1..).zip(&self.flows).map(|(priority, flow)| flow.text(priority));
        let floor = |actions| {
            (0..TABLES).map(move |table| format!("table={table},priority=0,actions={actions}"))
        };
        lines.chain(self.floor.into_iter().flat_map(floor)).collect()
    }

    fn packets(&self) -> impl Iterator<Item = (u32, Vec<u8>)> {
        self.packets.iter().flatten().map(|packet| (packet.ofport, packet.build()))
    }
}

/// Commands that repeat the case.
impl Display for Case {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.lines()
            .iter()
            .try_for_each(|line| writeln!(f, "ovs-ofctl -O OpenFlow13 add-flow br0 '{line}'"))?;
        self.packets().try_for_each(|(ofport, frame)| {
            writeln!(f, "ovs-appctl netdev-dummy/receive p{ofport} {}", hex(&frame))
        })
    }
}

/// What became of a packet: frames by the port that sends them, in order, and what a controller
/// got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outcome {
    ports: BTreeMap<u32, Vec<String>>,
    controller: Vec<String>,
}

impl Outcome {
    fn new(sent: Vec<Sent>, controller: Vec<String>) -> Self {
        let mut ports: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for (ofport, frame) in sent {
            ports.entry(ofport).or_default().push(hex(&frame));
        }
        Self { ports, controller }
    }

    fn of_sim(sim: &mut Sim, ofport: u32, frame: &[u8]) -> Self {
        sim.events();
        let sent = sim.send(ofport, frame);
        let heard = sim.events().into_iter().filter_map(|event| match event {
            Event::PacketIn(heard) => Some(heard),
            _ => None,
        });
        let heard = heard.map(|heard| {
            let PacketInEvent { reason, table_id, cookie, matcher, data, .. } = heard;
            copy(reason as u8, table_id, cookie, &matcher, &data)
        });
        let heard = heard.collect();
        Self::new(sent, heard)
    }

    fn of_ovs(ovs: &mut Ovs, ofport: u32, frame: &[u8]) -> Self {
        let (sent, heard) = ovs.send(ofport, frame);
        let heard = heard.iter().map(|heard| {
            let PacketIn { reason, table_id, cookie, matcher, data, .. } = heard;
            copy(*reason, *table_id, *cookie, matcher, data)
        });
        Self::new(sent, heard.collect())
    }
}

fn copy(reason: u8, table: u8, cookie: u64, matcher: &Match, data: &[u8]) -> String {
    let matcher = format_match(matcher, 0, &NoNames);
    format!("reason {reason}, table {table}, cookie {cookie:#x}, {matcher}: {}", hex(data))
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (port, frames) in &self.ports {
            frames.iter().try_for_each(|frame| writeln!(f, "  out of port {port}: {frame}"))?;
        }
        self.controller.iter().try_for_each(|copy| writeln!(f, "  to the controller: {copy}"))
    }
}

/// Packets and bytes of each flow, by its table and priority; look-ups and matches of each table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    flows: BTreeMap<(u8, u16), (u64, u64)>,
    tables: BTreeMap<u8, (u64, u64)>,
}

impl Counts {
    fn of_sim(sim: &Sim) -> Self {
        let flows = sim.flows();
        let flows =
            flows.iter().map(|f| ((f.table_id, f.priority), (f.packet_count, f.byte_count)));
        let tables = sim.core.table_stats(sim.bridge).unwrap();
        let tables = tables.iter().filter(|table| table.table_id < TABLES);
        let tables = tables.map(|t| (t.table_id, (t.lookup_count, t.matched_count)));
        Self { flows: flows.collect(), tables: tables.collect() }
    }

    /// Tables count on from case to case.
    fn of_ovs(ovs: &mut Ovs, before: &Counts) -> Self {
        let flows = ovs.flows();
        let flows =
            flows.iter().map(|f| ((f.table_id, f.priority), (f.packet_count, f.byte_count)));
        let tables = ovs.tables();
        let tables = tables.iter().filter(|table| table.table_id < TABLES);
        let tables = tables.map(|table| {
            let (lookups, matches) =
                before.tables.get(&table.table_id).copied().unwrap_or_default();
            (table.table_id, (table.lookup_count - lookups, table.matched_count - matches))
        });
        Self { flows: flows.collect(), tables: tables.collect() }
    }
}

impl Display for Counts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for ((table, priority), (packets, bytes)) in &self.flows {
            writeln!(f, "  {table}, priority {priority}: {packets} packets, {bytes} bytes")?;
        }
        for (table, (lookups, matches)) in &self.tables {
            writeln!(f, "  table {table}: {lookups} looked up, {matches} matched")?;
        }
        Ok(())
    }
}

/// What happened in all cases of a run.
#[derive(Debug, Default)]
struct Totals {
    packets: usize,
    sent: usize,
    /// For the controller.
    copies: usize,
    excused: BTreeMap<&'static str, usize>,
}

impl Totals {
    /// What is compared is most of it, and does something.
    fn check(&self) {
        #[allow(clippy::print_stdout, reason = "what a longer run has found")]
        {
            println!("{self:#?}");
        }
        let excused: usize = self.excused.values().sum();
        assert!(self.packets > 4 * excused && self.sent > self.packets && self.copies > 0);
    }
}

struct Duel {
    ovs: Ovs,
    totals: Totals,
}

impl Duel {
    fn run(&mut self, case: &Case) -> Result<(), String> {
        self.ovs.clear();
        let before = Counts::of_ovs(&mut self.ovs, &Counts::default());
        let mut sim = Sim::new(PORTS);
        self.add_flows(&sim, case)?;
        let (ours, theirs) = (essences(&sim.flows()), essences(&self.ovs.flows()));
        if ours != theirs {
            return Err(format!("flows are stored differently\nhere: {ours:#?}\nOVS: {theirs:#?}"));
        }
        let flows = case.lines();
        for (ofport, frame) in case.packets() {
            if let Some(reason) = excuse(&sim, &flows, ofport, &frame) {
                *self.totals.excused.entry(reason).or_default() += 1;
            } else {
                self.packet(&mut sim, ofport, &frame)?;
            }
        }
        let (ours, theirs) = (Counts::of_sim(&sim), Counts::of_ovs(&mut self.ovs, &before));
        if ours != theirs {
            return Err(format!("counters differ\nhere:\n{ours}OVS:\n{theirs}"));
        }
        Ok(())
    }

    fn add_flows(&mut self, sim: &Sim, case: &Case) -> Result<(), String> {
        let lines = case.lines();
        let flow_mods: Result<Vec<FlowMod>, String> =
            lines.iter().map(|line| try_parsed(FlowCommand::Add, line)).collect();
        let flow_mods = flow_mods?;
        let add = |flow_mod| sim.core.flow_mod(sim.bridge, flow_mod).map_err(|error| error.code);
        let ours: Vec<_> = flow_mods.iter().map(add).collect();
        sim.core.tell_pmds();
        if case.by_ofctl && ours.iter().all(Result::is_ok) {
            return self.ovs.add_flows(&lines.join("\n"));
        }
        let theirs = self.ovs.flow_mods(&flow_mods);
        let differing = lines.iter().zip(ours.iter().zip(&theirs)).find(|(_, (o, t))| o != t);
        match differing {
            None => Ok(()),
            Some((line, (ours, theirs))) => Err(format!("{line}\nhere: {ours:?}\nOVS: {theirs:?}")),
        }
    }

    fn packet(&mut self, sim: &mut Sim, ofport: u32, frame: &[u8]) -> Result<(), String> {
        let ours = Outcome::of_sim(sim, ofport, frame);
        let theirs = Outcome::of_ovs(&mut self.ovs, ofport, frame);
        self.totals.packets += 1;
        self.totals.sent += ours.ports.values().map(Vec::len).sum::<usize>();
        self.totals.copies += ours.controller.len();
        if ours == theirs {
            return Ok(());
        }
        Err(format!("into port {ofport}: {}\nhere:\n{ours}OVS:\n{theirs}", hex(frame)))
    }
}

#[test]
fn the_same_frames_leave_and_the_same_is_counted_as_in_ovs() {
    let Some(ovs) = Ovs::start(Caching::Off) else { return };
    let duel = RefCell::new(Duel { ovs, totals: Totals::default() });
    let outcome = runner(CASES)
        .run(&any_case(), |case| duel.borrow_mut().run(&case).map_err(TestCaseError::fail));
    let totals = duel.into_inner().totals;
    match outcome {
        Ok(()) => totals.check(),
        Err(TestError::Fail(why, case)) => panic!("{why}\n{case}"),
        Err(error) => panic!("{error}"),
    }
}
