//! A rule's instructions, compiled: what a walk executes.

use tollgate_openflow::subfield::SubField;
use tollgate_openflow::{Action, Field};

/// Where an output action points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// An OpenFlow port number, whether or not the port is there at the moment.
    Port(u32),
    /// The port that the packet came from.
    InPort,
    /// FLOOD and ALL: every port but the one that the packet came from. (They differ by a port's
    /// no-flood bit, which OpenFlow 1.3 has no more.)
    Flood,
    /// Forwarding by learned addresses.
    Normal,
    /// The first table; in packet-outs only.
    Table,
}

/// One action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Does nothing, but has its place in the list.
    Note,
    /// Sets bits of a field, if the packet has it.
    Set {
        field: Field,
        value: u128,
        mask: u128,
    },
    /// Copies bits from one field to another, if the packet has both.
    Move {
        src: SubField,
        dst: SubField,
    },
    PushVlan {
        tpid: u16,
    },
    PopVlan,
    DecTtl,
    Output(Target),
    /// A copy for controllers.
    Controller {
        controller_id: u16,
        reason: u8,
    },
    /// Another look-up, after which the list goes on.
    Resubmit {
        in_port: Option<u32>,
        table: Option<u8>,
    },
}

/// The instructions of one rule, executed in this order (OpenFlow 1.3.5, section 5.9). The steps of
/// a list stand as its actions do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Program {
    /// Meter.
    pub(super) meter: Option<u32>,
    /// Apply-Actions.
    pub(super) apply: Box<[Step]>,
    /// Clear-Actions.
    pub(super) clear: bool,
    /// Write-Actions.
    pub(super) write: Box<[Step]>,
    /// Write-Metadata: value and mask.
    pub(super) metadata: Option<(u64, u64)>,
    /// Goto-Table.
    pub(super) goto_table: Option<u8>,
}

/// A step with the action that it comes from, for whoever asks what was done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'a> {
    pub(super) step: Step,
    pub(super) action: &'a Action,
}

/// The action set that a packet carries from table to table (OpenFlow 1.3.5, section 5.10).
#[derive(Clone, Debug, Default)]
pub(super) struct ActionSet<'a> {
    pop: Option<Item<'a>>,
    push: Option<Item<'a>>,
    decrement: Option<Item<'a>>,
    /// All of them, in the order in which they were written: a move may read what another one set.
    set: Vec<Item<'a>>,
    output: Option<Item<'a>>,
    /// What happens if there is no output.
    resubmit: Option<Item<'a>>,
}

impl<'a> ActionSet<'a> {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn write(&mut self, item: Item<'a>) {
        match item.step {
            Step::Output(_) | Step::Controller { .. } => self.output = Some(item),
            Step::Resubmit { .. } => self.resubmit = Some(item),
            Step::PopVlan => self.pop = Some(item),
            Step::PushVlan { .. } => self.push = Some(item),
            Step::DecTtl => self.decrement = Some(item),
            Step::Set { .. } | Step::Move { .. } => self.set.push(item),
            Step::Note => {}
        }
    }

    /// The actions in the order of their execution. Without an output the set does nothing that
    /// could be seen.
    pub(super) fn take(&mut self) -> Vec<Item<'a>> {
        let Self { pop, push, decrement, set, output, resubmit } = std::mem::take(self);
        let Some(last) = output.or(resubmit) else { return Vec::new() };
        let edits = pop.into_iter().chain(push).chain(decrement).chain(set);
        edits.chain([last]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(steps: &[Step]) -> Vec<Step> {
        let mut set = ActionSet::default();
        for step in steps {
            set.write(Item { step: *step, action: &Action::PopVlan });
        }
        set.take().iter().map(|item| item.step).collect()
    }

    #[test]
    fn the_action_set_keeps_the_last_of_each_kind_and_orders_them() {
        let set = |field, value| Step::Set { field, value, mask: 0xff };
        let resubmit = Step::Resubmit { in_port: None, table: Some(3) };
        let edits = [set(Field::EthDst, 1), set(Field::EthSrc, 2), set(Field::EthDst, 3)];
        assert_eq!(written(&edits), []);
        let all = [
            &edits[..],
            &[
                Step::Output(Target::Port(1)),
                Step::DecTtl,
                Step::PushVlan { tpid: 0x8100 },
                Step::PopVlan,
                Step::PushVlan { tpid: 0x88a8 },
                Step::Output(Target::Flood),
                resubmit,
            ],
        ]
        .concat();
        let [dst, src, dst_again] = edits;
        assert_eq!(
            written(&all),
            [
                Step::PopVlan,
                Step::PushVlan { tpid: 0x88a8 },
                Step::DecTtl,
                dst,
                src,
                dst_again,
                Step::Output(Target::Flood),
            ]
        );
        assert_eq!(written(&[resubmit, dst]), [dst, resubmit]);
    }
}
