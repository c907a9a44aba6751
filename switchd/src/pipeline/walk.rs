//! One packet's way through a bridge's tables, and the decision that it teaches.
//!
//! A walk changes nothing: what it would teach the forwarding database is in its result. So the
//! same function decides misses, serves as the oracle of tests, and can explain a decision.

use std::sync::Arc;

use tollgate_classifier::ExtraKey;
use tollgate_datapath::Op;
use tollgate_frame::DropReason;
use tollgate_packet::edit::{Edit, EditError};
use tollgate_packet::key::VLAN_PRESENT;
use tollgate_packet::{FlowKey, FlowMask, FlowMatch, MacAddr};

use super::bridge::{Bridge, PortInfo};
use super::fdb::{Fdb, Station};
use super::limits::WALK_STEPS;
use super::program::{ActionSet, Step, Target};
use super::rule::Rule;
use super::tracker::{Glimpse, Tracker};

/// A look-up in one table.
#[derive(Clone, Debug)]
pub(super) struct Visit {
    pub(super) table: u8,
    /// What was found; `None` is a table miss.
    pub(super) rule: Option<Arc<Rule>>,
    /// The pipeline fields as the table saw them, if any was set by then.
    pub(super) extra: Option<Box<ExtraKey>>,
    /// The packet as the table saw it, if edits had changed it by then.
    pub(super) edited: Option<Box<FlowMatch>>,
}

/// What a walk asked of the bridge besides its rules: when the answer changes, so may the decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Dependencies {
    /// Stations looked up or learned.
    pub(super) stations: Vec<Station>,
    /// Ports named by outputs.
    pub(super) ofports: Vec<u32>,
    /// The list of all ports.
    pub(super) flooded: bool,
}

/// A decision and the packets it is good for.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    /// `in_port` holds the datapath's [`PortIndex`], exact.
    pub(super) matcher: FlowMatch,
    pub(super) ops: Vec<Op>,
    /// Why nothing is sent, if nothing is.
    pub(super) drop_reason: DropReason,
    pub(super) visits: Vec<Visit>,
    pub(super) dependencies: Dependencies,
    /// Stations that the packet shows to be behind its port.
    pub(super) learned: Vec<Station>,
}

/// Walks the packet `key` (whose `in_port` does not matter) that entered through `ingress`.
pub(super) fn walk(bridge: &Bridge, fdb: &Fdb, ingress: &PortInfo, key: &FlowKey) -> Walk {
    walk_knowing(bridge, fdb, ingress, key, INGRESS)
}

/// Walks a packet of an earlier decision again. What that decision has looked at costs nothing now,
/// so the walk looks at other bits only if it has to.
pub(super) fn walk_again(
    bridge: &Bridge,
    fdb: &Fdb,
    ingress: &PortInfo,
    decision: &FlowMatch,
) -> Walk {
    walk_knowing(bridge, fdb, ingress, decision.key(), *decision.mask() | INGRESS)
}

/// Every decision is about one ingress port.
const INGRESS: FlowMask = FlowMask(FlowKey { in_port: u32::MAX, ..FlowKey::ZERO });

/// A walk for which some bits of the packet are known from the start.
fn walk_knowing(
    bridge: &Bridge,
    fdb: &Fdb,
    ingress: &PortInfo,
    key: &FlowKey,
    known: FlowMask,
) -> Walk {
    let packet = FlowKey { in_port: ingress.ofport, ..*key };
    let mut walker = Walker {
        bridge,
        fdb,
        ingress,
        tracker: Tracker::new(packet, known),
        ops: Vec::new(),
        drop_reason: DropReason::RuleDrop,
        ended: false,
        visits: Vec::new(),
        dependencies: Dependencies::default(),
        learned: Vec::new(),
    };
    walker.tables();
    walker.finish(&packet)
}

struct Walker<'a> {
    bridge: &'a Bridge,
    fdb: &'a Fdb,
    ingress: &'a PortInfo,
    tracker: Tracker,
    ops: Vec<Op>,
    drop_reason: DropReason,
    /// An action ended the packet's processing.
    ended: bool,
    visits: Vec<(Visit, Option<Glimpse>)>,
    dependencies: Dependencies,
    learned: Vec<Station>,
}

impl Walker<'_> {
    /// From table 0 onwards; only Goto-Table leads on, and only forwards.
    fn tables(&mut self) {
        let mut actions = ActionSet::default();
        let mut extra = ExtraKey::default();
        let mut next = Some(0);
        while let Some(table) = next.take() {
            let Some(rule) = self.visit(table, extra) else {
                self.drop_reason = DropReason::NoRule;
                return;
            };
            let program = rule.program();
            self.steps(&program.apply);
            if self.ended {
                return;
            }
            if program.clear {
                actions.clear();
            }
            program.write.iter().for_each(|step| actions.write(step));
            if let Some((value, mask)) = program.metadata {
                extra.metadata = (extra.metadata & !mask) | (value & mask);
            }
            next = program.goto_table.filter(|next| *next > table);
        }
        self.steps(&actions.steps());
    }

    fn visit(&mut self, table: u8, extra: ExtraKey) -> Option<Arc<Rule>> {
        // Bits that are known already narrow the decision no further.
        let mut looked_at = self.tracker.known();
        let rules = self.bridge.table(table);
        let rule = rules
            .and_then(|rules| rules.lookup(self.tracker.key(), &extra, &mut looked_at))
            .cloned();
        let glimpse = self.tracker.glimpse();
        self.tracker.look(&looked_at);
        let extra = (extra != ExtraKey::ZERO).then(|| Box::new(extra));
        self.visits.push((Visit { table, rule: rule.clone(), extra, edited: None }, glimpse));
        rule
    }

    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            if self.ended {
                return;
            }
            match step {
                Step::Edit(edit) => self.edit(edit),
                Step::Output(target) => self.output(*target),
            }
        }
    }

    fn edit(&mut self, edit: &Edit) {
        match self.tracker.edit(edit) {
            Ok(()) => self.push(Op::Edit(*edit)),
            // Setting a field that this packet does not have (the ports of a later fragment) leaves
            // it as it is.
            Err(
                EditError::NotIpv4
                | EditError::NotIpv6
                | EditError::NotIp
                | EditError::NotArp
                | EditError::NoPorts
                | EditError::NotIcmp
                | EditError::NoNdField
                | EditError::NoVlanTag,
            ) => {}
            // An expired packet goes no further (OpenFlow 1.3.5, section 5.12), nor does one that
            // would leave with the wrong tag or checksum.
            Err(_) => self.end(DropReason::EditFailed),
        }
    }

    fn output(&mut self, target: Target) {
        match target {
            Target::Port(ofport) => {
                self.dependencies.ofports.push(ofport);
                self.send(ofport);
            }
            Target::InPort => self.push(Op::Output(self.ingress.index)),
            Target::Flood => self.flood(),
            Target::Normal => self.normal(),
        }
    }

    /// To one port; never back where the packet came from (OpenFlow 1.3.5, section 4.5: that takes
    /// IN_PORT).
    fn send(&mut self, ofport: u32) {
        if ofport == self.ingress.ofport {
            self.drop_reason = DropReason::TxSelf;
        } else if let Some(port) = self.bridge.port(ofport) {
            self.push(Op::Output(port.index));
        } else {
            self.drop_reason = DropReason::NoSuchPort;
        }
    }

    fn flood(&mut self) {
        self.dependencies.flooded = true;
        let bridge = self.bridge;
        self.drop_reason = DropReason::NoSuchPort;
        for port in bridge.ports().filter(|port| port.ofport != self.ingress.ofport) {
            self.push(Op::Output(port.index));
        }
    }

    /// Forwards as a learning bridge does (IEEE 802.1Q-2018, 8.6 and 8.7), independently per VLAN.
    fn normal(&mut self) {
        self.tracker.look_at_stations();
        let key = *self.tracker.key();
        if is_link_local(key.eth_dst) {
            self.drop_reason = DropReason::RuleDrop;
            return;
        }
        let tagged = key.vlan_tci & VLAN_PRESENT != 0;
        let vlan = if tagged { key.vlan_tci & 0x0fff } else { 0 };
        let source = Station { vlan, mac: key.eth_src };
        if !source.mac.is_multicast() {
            self.dependencies.stations.push(source);
            self.learned.push(source);
        }
        let destination = Station { vlan, mac: key.eth_dst };
        if destination.mac.is_multicast() {
            return self.flood();
        }
        self.dependencies.stations.push(destination);
        match self.locate(destination) {
            Some(ofport) => self.send(ofport),
            None => self.flood(),
        }
    }

    /// Where a station is, with what this very packet teaches taken in.
    fn locate(&self, station: Station) -> Option<u32> {
        let here = self.learned.contains(&station).then_some(self.ingress.ofport);
        here.or_else(|| self.fdb.lookup(station))
    }

    fn push(&mut self, op: Op) {
        if self.ops.len() >= WALK_STEPS {
            self.ops.clear();
            self.end(DropReason::EditFailed);
        } else if !self.ended {
            self.ops.push(op);
        }
    }

    fn end(&mut self, reason: DropReason) {
        self.drop_reason = reason;
        self.ended = true;
    }

    fn finish(mut self, packet: &FlowKey) -> Walk {
        // Edits after the last output change what nobody sees.
        let seen = self.ops.iter().rposition(|op| matches!(op, Op::Output(_)));
        self.ops.truncate(seen.map_or(0, |last| last + 1));
        let looked_at = self.tracker.looked_at();
        let visits = self.visits.into_iter().map(|(mut visit, glimpse)| {
            visit.edited = glimpse.map(|glimpse| Box::new(glimpse.known(looked_at)));
            visit
        });
        Walk {
            matcher: with_port(&FlowMatch::new(packet, looked_at), u32::from(self.ingress.index.0)),
            ops: self.ops,
            drop_reason: self.drop_reason,
            visits: visits.collect(),
            dependencies: self.dependencies,
            learned: self.learned,
        }
    }
}

/// `matcher` with another number of its port: OpenFlow's and the datapath's differ.
pub(super) fn with_port(matcher: &FlowMatch, in_port: u32) -> FlowMatch {
    FlowMatch::new(&FlowKey { in_port, ..*matcher.key() }, *matcher.mask())
}

/// The group addresses that no bridge forwards (IEEE 802.1Q-2018, table 8-1).
fn is_link_local(mac: MacAddr) -> bool {
    let [a, b, c, d, e, last] = mac.0;
    [a, b, c, d, e] == [0x01, 0x80, 0xc2, 0, 0] && last <= 0x0f
}
