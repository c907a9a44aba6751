//! A rule's instructions, compiled: what a walk executes.

use tollgate_packet::edit::Edit;

/// Where an output action points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// An OpenFlow port number, whether or not the port is there at the moment.
    Port(u32),
    /// The port that the packet came from.
    InPort,
    /// FLOOD and ALL: every port but the one that the packet came from.
    Flood,
    /// Forwarding by learned addresses.
    Normal,
}

/// One action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Edit(Edit),
    Output(Target),
}

/// The instructions of one rule, executed in this order (OpenFlow 1.3.5, section 5.9).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Program {
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

/// The action set that a packet carries from table to table (OpenFlow 1.3.5, section 5.10): one
/// action of each kind, the last one written.
#[derive(Clone, Debug, Default)]
pub(super) struct ActionSet {
    pop: Option<Edit>,
    push: Option<Edit>,
    decrement: Option<Edit>,
    /// Of one field there may be several that set different bits.
    set: Vec<Edit>,
    output: Option<Target>,
}

impl ActionSet {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn write(&mut self, step: &Step) {
        match step {
            Step::Output(target) => self.output = Some(*target),
            Step::Edit(edit @ Edit::PopVlan) => self.pop = Some(*edit),
            Step::Edit(edit @ Edit::PushVlan { .. }) => self.push = Some(*edit),
            Step::Edit(edit @ Edit::DecTtl) => self.decrement = Some(*edit),
            Step::Edit(edit) => {
                self.set.retain(|earlier| !replaces(edit, earlier));
                self.set.push(*edit);
            }
        }
    }

    /// The actions in the order of their execution. Without an output the set does nothing that
    /// could be seen.
    pub(super) fn steps(&self) -> Vec<Step> {
        let Some(target) = self.output else { return Vec::new() };
        let edits = self.pop.iter().chain(&self.push).chain(&self.decrement).chain(&self.set);
        edits.map(|edit| Step::Edit(*edit)).chain([Step::Output(target)]).collect()
    }
}

/// Whether nothing remains to be seen of `earlier` after `edit`.
fn replaces(edit: &Edit, earlier: &Edit) -> bool {
    match (edit, earlier) {
        (
            Edit::Set { field, mask, .. },
            Edit::Set { field: earlier_field, mask: earlier_mask, .. },
        ) => field == earlier_field && earlier_mask & !mask == 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use tollgate_packet::HeaderField;

    use super::*;

    #[test]
    fn the_action_set_keeps_the_last_of_each_kind_and_orders_them() {
        let mut set = ActionSet::default();
        set.write(&Step::Edit(Edit::set(HeaderField::EthDst, 1)));
        assert_eq!(set.steps(), []);
        set.write(&Step::Output(Target::Port(1)));
        set.write(&Step::Edit(Edit::set(HeaderField::EthSrc, 2)));
        set.write(&Step::Edit(Edit::set(HeaderField::EthDst, 3)));
        set.write(&Step::Edit(Edit::PushVlan { tpid: 0x8100 }));
        set.write(&Step::Edit(Edit::PopVlan));
        set.write(&Step::Output(Target::Flood));
        assert_eq!(
            set.steps(),
            [
                Step::Edit(Edit::PopVlan),
                Step::Edit(Edit::PushVlan { tpid: 0x8100 }),
                Step::Edit(Edit::set(HeaderField::EthSrc, 2)),
                Step::Edit(Edit::set(HeaderField::EthDst, 3)),
                Step::Output(Target::Flood),
            ]
        );
        set.clear();
        assert_eq!(set.steps(), []);
    }
}
