//! The interpreter of instructions and action lists (OpenFlow 1.3.5, sections 5.1 and 5.9).

use std::sync::Arc;

use tollgate_classifier::ExtraKey;
use tollgate_datapath::{Meter, Op};
use tollgate_frame::DropReason;
use tollgate_openflow::event::{OFPR_ACTION, OFPR_INVALID_TTL, OFPR_NO_MATCH};
use tollgate_openflow::field::Prerequisite;
use tollgate_openflow::port::OFPPC_NO_PACKET_IN;
use tollgate_openflow::subfield::SubField;
use tollgate_openflow::{Action, Field};
use tollgate_packet::edit::{Edit, EditError};
use tollgate_packet::{FlowKey, FlowMask, FlowMatch};

use super::super::bridge::{Bridge, PortInfo};
use super::super::fdb::{Fdb, Station};
use super::super::fields;
use super::super::limits::{RESUBMIT_DEPTH, RESUBMITS, WALK_ACTIONS, WALK_STEPS};
use super::super::matching::header_field;
use super::super::program::{ActionSet, Item, Step};
use super::super::rule::Rule;
use super::super::tracker::{Glimpse, Tracker};
use super::record::Record;
use super::{Dependencies, Ingress, Punt, Visit, Walk, index_number, visible, with_port};

/// What a controller is told where there is no rule.
const NO_COOKIE: u64 = u64::MAX;

/// The TPID of a tag that no action gave one (IEEE 802.1Q-2018, table 9-1).
const TPID_CUSTOMER: u16 = 0x8100;
/// All bits of a VLAN id.
const VLAN_ID: u128 = 0xfff;

/// One walk under way.
pub(super) struct Machine<'a> {
    pub(super) bridge: &'a Bridge,
    pub(super) fdb: &'a Fdb,
    pub(super) ingress: Ingress<'a>,
    pub(super) tracker: Tracker,
    extra: ExtraKey,
    actions: ActionSet<'a>,
    stack: Vec<Frame<'a>>,
    /// Look-ups, and actions executed, so far.
    resubmits: usize,
    executed: usize,
    ops: Vec<Op>,
    meters: Vec<Arc<Meter>>,
    pub(super) drop_reason: DropReason,
    /// Nothing more happens to the packet.
    ended: bool,
    visits: Vec<(Visit, Option<Glimpse>)>,
    pub(super) dependencies: Dependencies,
    pub(super) learned: Vec<(Station, u32)>,
    pub(super) asked: Vec<(Station, Option<u32>)>,
    punts: Vec<Punt>,
    record: &'a mut Record,
}

/// A list of actions under way, and what comes after it.
struct Frame<'a> {
    list: List<'a>,
    next: usize,
    /// Whose instructions these are.
    rule: Option<&'a Rule>,
    table: u8,
    /// What a controller is told of a copy that is sent from here.
    cookie: u64,
    /// Resubmits to the same or an earlier table that led here.
    depth: usize,
    /// Where the record of it is.
    entry: usize,
}

enum List<'a> {
    /// Apply-Actions of a rule.
    OfRule(&'a [Step], &'a [Action]),
    /// An action set or a packet-out.
    Own(Vec<Item<'a>>),
}

impl<'a> Frame<'a> {
    fn advance(&mut self) -> Option<Item<'a>> {
        let at = self.next;
        self.next += 1;
        match &self.list {
            List::OfRule(steps, actions) => {
                Some(Item { step: *steps.get(at)?, action: actions.get(at)? })
            }
            List::Own(items) => items.get(at).copied(),
        }
    }
}

impl<'a> Machine<'a> {
    pub(super) fn new(
        bridge: &'a Bridge,
        fdb: &'a Fdb,
        ingress: Ingress<'a>,
        tracker: Tracker,
        extra: ExtraKey,
        record: &'a mut Record,
    ) -> Self {
        Self {
            bridge,
            fdb,
            ingress,
            tracker,
            extra,
            actions: ActionSet::default(),
            stack: Vec::new(),
            resubmits: 0,
            executed: 0,
            ops: Vec::new(),
            meters: Vec::new(),
            drop_reason: DropReason::RuleDrop,
            ended: false,
            visits: Vec::new(),
            dependencies: Dependencies::default(),
            learned: Vec::new(),
            asked: Vec::new(),
            punts: Vec::new(),
            record,
        }
    }

    /// From table 0 to the end.
    pub(super) fn run_tables(&mut self) {
        if self.enter(0, None, 0, 0) {
            self.run();
        } else {
            self.missed();
        }
        self.run_action_set();
    }

    /// A list that is no rule's.
    pub(super) fn run_list(&mut self, list: Vec<Item<'a>>) {
        self.push_list(list, NO_COOKIE);
        self.run();
        self.run_action_set();
    }

    /// At the end of the pipeline (section 5.10). What it writes to the set leads nowhere. A copy
    /// for a controller is the first rule's, as in Open vSwitch.
    fn run_action_set(&mut self) {
        let set = self.actions.take();
        if !self.ended && !set.is_empty() {
            let first = self.visits.first().and_then(|(visit, _)| visit.rule.as_ref());
            self.push_list(set, first.map_or(NO_COOKIE, |rule| rule.cookie));
            self.run();
        }
    }

    fn push_list(&mut self, list: Vec<Item<'a>>, cookie: u64) {
        let entry = self.record.begin(0, None, None);
        let list = List::Own(list);
        self.stack.push(Frame { list, next: 0, rule: None, table: 0, cookie, depth: 0, entry });
    }

    fn run(&mut self) {
        while !self.ended
            && let Some(frame) = self.stack.last_mut()
        {
            let entry = frame.entry;
            match frame.advance() {
                Some(item) => {
                    self.record.action(entry, item.action);
                    self.execute(item.step);
                }
                None => self.list_ended(),
            }
        }
        self.stack.clear();
    }

    /// The instructions that follow Apply-Actions.
    fn list_ended(&mut self) {
        let Some(frame) = self.stack.pop() else { return };
        let Some(rule) = frame.rule else { return };
        self.record.instructions(frame.entry, rule, true);
        let program = rule.program();
        if program.clear {
            self.actions.clear();
        }
        let written = rule.behaviour.instructions.write_actions();
        for (step, action) in program.write.iter().zip(written) {
            self.actions.write(Item { step: *step, action });
        }
        if let Some((value, mask)) = program.metadata {
            fields::write_extra(Field::Metadata, value.into(), mask.into(), &mut self.extra);
        }
        let outermost = self.stack.is_empty();
        if let Some(next) = program.goto_table
            && !self.enter(next, None, frame.depth, 0)
            && outermost
        {
            self.missed();
        }
    }

    /// A table miss in the pipeline itself: the packet is dropped, and its action set with it
    /// (section 5.4).
    fn missed(&mut self) {
        if !self.ended {
            self.end(DropReason::NoRule);
        }
    }

    /// Looks the packet up in a table, as if it had come in by another port perhaps, and begins
    /// what the rule says. Says whether there is a rule.
    fn enter(&mut self, table: u8, in_port: Option<u32>, depth: usize, deepens: usize) -> bool {
        if self.resubmits >= RESUBMITS || depth >= RESUBMIT_DEPTH {
            self.fail();
            return false;
        }
        self.resubmits += 1;
        let rule = self.look_up(table, in_port);
        let entry = self.record.begin(self.stack.len(), Some(table), rule);
        let Some(rule) = rule else { return false };
        let list = List::OfRule(&rule.program().apply, rule.behaviour.instructions.apply_actions());
        self.record.instructions(entry, rule, false);
        let (cookie, depth) = (rule.cookie, depth + deepens);
        self.stack.push(Frame { list, next: 0, rule: Some(rule), table, cookie, depth, entry });
        if let Some(meter) = rule.program().meter {
            self.meter(meter);
        }
        true
    }

    fn look_up(&mut self, table: u8, in_port: Option<u32>) -> Option<&'a Arc<Rule>> {
        let (key, glimpse) = self.tracker.seen_from(in_port);
        // Bits that are known already narrow the decision no further.
        let mut looked_at = self.tracker.known();
        let rules = self.bridge.table(table);
        let rule = rules.and_then(|rules| rules.lookup(&key, &self.extra, &mut looked_at));
        self.tracker.look(&looked_at);
        let extra = (self.extra != ExtraKey::ZERO).then(|| Box::new(self.extra));
        self.visits.push((Visit { table, rule: rule.cloned(), extra, edited: None }, glimpse));
        rule
    }

    fn execute(&mut self, step: Step) {
        self.executed += 1;
        if self.executed > WALK_ACTIONS {
            return self.fail();
        }
        match step {
            Step::Note => {}
            Step::Set { field, value, mask } => self.set(field, value, mask),
            Step::Move { src, dst } => self.copy(src, dst),
            Step::PushVlan { tpid } => self.edit(Edit::PushVlan { tpid }),
            Step::PopVlan => self.edit(Edit::PopVlan),
            Step::DecTtl => self.edit(Edit::DecTtl),
            Step::Output(target) => self.output(target),
            Step::Controller { controller_id, reason } => self.punt(controller_id, reason),
            Step::Resubmit { in_port, table } => self.resubmit(in_port, table),
        }
    }

    pub(super) fn resubmit(&mut self, in_port: Option<u32>, table: Option<u8>) {
        let (present, depth) = self.stack.last().map_or((0, 0), |frame| (frame.table, frame.depth));
        let table = table.unwrap_or(present);
        // A way that only leads forwards is bounded by the number of tables.
        self.enter(table, in_port, depth, usize::from(table <= present));
    }

    /// Whether the packet has what a field needs; the walk then depends on that.
    fn has(&mut self, prerequisite: Prerequisite) -> bool {
        self.tracker.look(&fields::telling_bits(prerequisite));
        fields::is_met(prerequisite, self.tracker.key())
    }

    fn set(&mut self, field: Field, value: u128, mask: u128) {
        if fields::write_extra(field, value, mask, &mut self.extra) {
            return;
        }
        if field == Field::InPort {
            let in_port = self.tracker.key().in_port;
            let mask = mask as u32;
            return self.tracker.set_in_port((in_port & !mask) | (value as u32 & mask));
        }
        // A whole VLAN id for a packet without a tag (an action set pops first) gives it one, as in
        // Open vSwitch.
        if field == Field::VlanVid && mask & VLAN_ID == VLAN_ID && !self.has(Prerequisite::Vlan) {
            self.edit(Edit::PushVlan { tpid: TPID_CUSTOMER });
        }
        // What is not there stays as it is, as in Open vSwitch.
        if self.has(fields::needed_to_write(field))
            && let Some(field) = header_field(field)
        {
            self.edit(Edit::Set { field, value, mask });
        }
    }

    /// Copies bits. The destination becomes a constant, so what is copied is looked at.
    fn copy(&mut self, src: SubField, dst: SubField) {
        let present = self.has(fields::needed_to_write(dst.field()))
            && self.has(src.field().info().prerequisite);
        if !present {
            return;
        }
        self.tracker.look(&FlowMask(fields::place(src.field(), src.mask())));
        let value = fields::read(src.field(), self.tracker.key(), &self.extra);
        let bits = (value & src.mask()) >> src.offset();
        self.set(dst.field(), bits << dst.offset(), dst.mask());
    }

    pub(super) fn edit(&mut self, edit: Edit) {
        match self.tracker.edit(&edit) {
            Ok(()) => self.push(Op::Edit(edit)),
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
            // An expired packet goes no further (section 5.12), except to a controller that cares.
            Err(EditError::TtlExpired) => {
                self.punt(0, OFPR_INVALID_TTL);
                self.end(DropReason::TtlExpired);
            }
            // Nor does one that would leave with the wrong tag or checksum.
            Err(_) => self.end(DropReason::EditFailed),
        }
    }

    /// A copy of the packet as it is now for controllers.
    pub(super) fn punt(&mut self, controller_id: u16, reason: u8) {
        let frame = self.stack.last();
        let rule = frame.and_then(|frame| frame.rule);
        let reason = match reason {
            OFPR_ACTION if rule.is_some_and(Rule::is_table_miss) => OFPR_NO_MATCH,
            reason => reason,
        };
        let unwanted = |port: &PortInfo| port.config & OFPPC_NO_PACKET_IN != 0;
        if reason == OFPR_NO_MATCH && self.ingress.port.is_some_and(unwanted) {
            return;
        }
        let edits = self.ops.iter().filter_map(|op| match op {
            Op::Edit(edit) => Some(*edit),
            _ => None,
        });
        self.punts.push(Punt {
            reason,
            table: frame.map_or(0, |frame| frame.table),
            cookie: frame.map_or(NO_COOKIE, |frame| frame.cookie),
            controller_id,
            in_port: self.tracker.key().in_port,
            extra: self.extra,
            edits: edits.collect(),
        });
        // One copy comes to the slow path however many controllers are to have it.
        if !self.ops.contains(&Op::Punt) {
            self.push(Op::Punt);
        }
    }

    fn meter(&mut self, id: u32) {
        let Some(meter) = self.bridge.meters.get(id) else {
            // The rules that use a meter go with it.
            return self.end(DropReason::Meter);
        };
        let known = self.meters.iter().position(|known| Arc::ptr_eq(known, meter));
        let place = known.unwrap_or_else(|| {
            self.meters.push(Arc::clone(meter));
            self.dependencies.meters.push(id);
            self.meters.len() - 1
        });
        match u8::try_from(place) {
            Ok(place) => self.push(Op::Meter(place)),
            Err(_) => self.fail(),
        }
    }

    pub(super) fn push(&mut self, op: Op) {
        if self.ops.len() >= WALK_STEPS {
            self.fail();
        } else if !self.ended {
            self.ops.push(op);
        }
    }

    /// The tables ask for more than a packet may cost: it is dropped, whatever was decided already.
    fn fail(&mut self) {
        self.ops.clear();
        self.punts.clear();
        self.learned.clear();
        self.end(DropReason::TooManySteps);
    }

    pub(super) fn end(&mut self, reason: DropReason) {
        self.drop_reason = reason;
        self.ended = true;
    }

    pub(super) fn finish(self, packet: &FlowKey) -> Walk {
        let looked_at = self.tracker.looked_at();
        let visits = self.visits.into_iter().map(|(mut visit, glimpse)| {
            visit.edited = glimpse.map(|glimpse| Box::new(glimpse.known(looked_at)));
            visit
        });
        let mut matcher = FlowMatch::new(packet, looked_at);
        matcher = with_port(&matcher, index_number(self.ingress));
        Walk {
            matcher,
            ops: visible(self.ops),
            meters: self.meters,
            drop_reason: self.drop_reason,
            visits: visits.collect(),
            dependencies: self.dependencies,
            learned: self.learned,
            asked: self.asked,
            punts: self.punts,
            last_key: *self.tracker.key(),
            last_extra: self.extra,
        }
    }
}
