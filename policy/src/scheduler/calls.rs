//! The calls that a PMD makes while it runs, each noted when a recording is on.

use crate::list::copy_prefix;
use crate::recording::{Ended, Event, Recording};
use crate::tenant::TenantIndex;

use super::{Scheduler, Turn};

impl Scheduler {
    /// Says that a tenant has work; repeating it costs little and changes nothing. For the tenant
    /// whose turn it is, `done` decides.
    #[inline]
    pub fn wake(&mut self, tenant: TenantIndex, now_cycles: u64) {
        self.note(|| Event::Wake { tenant, now_cycles });
        self.join_waiting(tenant, now_cycles);
    }

    /// The next turn; `None` only when nobody has work. Every turn is ended by `done`.
    #[inline]
    pub fn next(&mut self, now_cycles: u64) -> Option<Turn> {
        let Some(turn) = self.begin_turn() else {
            if self.end_busy_period() {
                self.note(|| Event::Rest { now_cycles });
            }
            return None;
        };
        if self.recording.is_some() {
            let credit_cycles = self.credit_cycles(turn.tenant);
            self.note(|| Event::Turn { turn, credit_cycles, now_cycles });
        }
        Some(turn)
    }

    /// Charges cycles that were spent for a tenant, in its turn or not, and issues the same to the
    /// tenants with work by weight, as far as the clock may move. The system account has no credit
    /// and issues nothing.
    #[inline]
    pub fn charge(&mut self, tenant: TenantIndex, cycles: u64, now_cycles: u64) {
        self.note(|| Event::Charge { tenant, cycles, now_cycles });
        self.charge_and_issue(tenant, cycles, now_cycles);
    }

    /// Ends a turn, after its charges. For a tenant that waits, `has_more_work = false` says that
    /// its work has gone (its rings were stopped); for one without work, `true` wakes it.
    #[inline]
    pub fn done(&mut self, tenant: TenantIndex, has_more_work: bool, now_cycles: u64) {
        self.note(|| Event::Done { tenant, has_more_work, now_cycles });
        self.end_turn(tenant, has_more_work, now_cycles);
    }

    /// Adds what a coordinator has granted a tenant since the last call, up to its cap; one that
    /// waits and is funded by it gets its turn. Without effect for zero or less, and when credit is
    /// issued locally.
    #[inline]
    pub fn refill_grant(&mut self, tenant: TenantIndex, cycles: i64) {
        self.note(|| Event::Grant { tenant, cycles });
        self.add_grant(tenant, cycles);
    }

    /// Notes all calls from here on, until the recording is full or settings change. What it held
    /// is forgotten. Allocates nothing and frees nothing.
    ///
    /// # Errors
    /// Hands the recording back when one is on already, or when it was made for another number of
    /// tenants.
    pub fn start_recording(&mut self, mut recording: Box<Recording>) -> Result<(), Box<Recording>> {
        if self.recording.is_some() || !recording.begin(self) {
            return Err(recording);
        }
        self.recording = Some(recording);
        Ok(())
    }

    /// Ends the recording that is on, and hands it out.
    pub fn stop_recording(&mut self) -> Option<Box<Recording>> {
        self.recording.take()
    }

    #[inline]
    fn note(&mut self, event: impl FnOnce() -> Event) {
        if self.recording.is_some() {
            self.note_recorded(event());
        }
    }

    /// Out of the way of those that run without a recording.
    #[cold]
    fn note_recorded(&mut self, event: Event) {
        if let Some(recording) = &mut self.recording {
            recording.note(event);
        }
    }

    /// A replay has the settings of the start only.
    pub(super) fn settings_changed(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.end(Ended::Settings);
        }
    }

    /// Becomes what another is, its recording apart; `false` when that has another number of
    /// tenants. Allocates nothing, and takes as long as the other has had tenants.
    pub(crate) fn copy_from(&mut self, other: &Self) -> bool {
        if self.slots.len() != other.slots.len() {
            return false;
        }
        self.config = other.config;
        self.protection = other.protection;
        self.clock.clone_from(&other.clock);
        let end = usize::from(self.slots_end.max(other.slots_end));
        copy_prefix(&mut self.slots, &other.slots, end);
        self.ready.copy_from(&other.ready, end);
        self.slots_end = other.slots_end.max(self.slots_end);
        self.busy_tenants = other.busy_tenants;
        self.busy_until_cycles = other.busy_until_cycles;
        self.funded_turns_total = other.funded_turns_total;
        self.parked_total = other.parked_total;
        true
    }
}
