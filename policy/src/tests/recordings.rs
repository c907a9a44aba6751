//! What is recorded replays without a difference, from any start.

use proptest::prelude::*;

use super::{A, B, C, config, index, weight};
use crate::{Ended, Event, Recording, Scheduler, SchedulerConfig};

const TENANTS: u16 = 6;

pub(super) fn scheduler(config: SchedulerConfig) -> Scheduler {
    let mut scheduler = Scheduler::new(config, TENANTS).unwrap();
    for (tenant, text) in [(A, "1"), (B, "2"), (C, "4"), (index(4), "0.5")] {
        scheduler.tenant_add(tenant, weight(text)).unwrap();
    }
    scheduler
}

pub(super) fn recording(events_max: u64) -> Box<Recording> {
    Box::new(Recording::new(TENANTS, events_max).unwrap())
}

/// A few turns: who wakes first, what the turn costs, and whether it leaves work.
pub(super) fn live(scheduler: &mut Scheduler, now: &mut u64, steps: &[(u16, u64, bool)]) {
    for (waking, cycles, has_more) in steps {
        scheduler.wake(index(*waking), *now);
        *now += 100;
        let Some(turn) = scheduler.next(*now) else { continue };
        *now += cycles;
        scheduler.charge(turn.tenant, *cycles, *now);
        scheduler.charge(index(*waking), 70, *now);
        scheduler.refill_grant(index(*waking), 3000);
        scheduler.done(turn.tenant, *has_more, *now);
        // Now and then all of it is done, and the core rests.
        while cycles % 7 == 3
            && let Some(turn) = scheduler.next(*now)
        {
            *now += 500;
            scheduler.charge(turn.tenant, 500, *now);
            scheduler.done(turn.tenant, false, *now);
        }
    }
}

pub(super) fn steps() -> impl Strategy<Value = Vec<(u16, u64, bool)>> {
    prop::collection::vec((1u16..5, 0u64..9000, any::<bool>()), 0..200)
}

proptest! {
    #[test]
    fn what_is_recorded_replays_without_a_difference(
        before in steps(), during in steps(), coordinated: bool, protection: bool
    ) {
        let knobs = if coordinated { SchedulerConfig::coordinated(1 << 31) } else { config() };
        let mut scheduler = scheduler(knobs);
        scheduler.set_protection(protection);
        let mut now = 0;
        live(&mut scheduler, &mut now, &before);
        prop_assert!(scheduler.start_recording(recording(10_000)).is_ok());
        live(&mut scheduler, &mut now, &during);
        let recording = scheduler.stop_recording().unwrap();
        prop_assert_eq!(recording.ended(), None);
        let replay = recording.replay();
        prop_assert!(replay.agrees(), "{:?}", replay.differences);
        prop_assert_eq!(replay.turn_share_difference(), 0.0);
    }
}

fn saturated() -> Box<Recording> {
    let mut scheduler = scheduler(config());
    let mut now = 0;
    let steps: Vec<_> = (0..900u16).map(|step| (step % 3 + 1, 5000, true)).collect();
    assert!(scheduler.start_recording(recording(10_000)).is_ok());
    live(&mut scheduler, &mut now, &steps);
    scheduler.stop_recording().unwrap()
}

#[test]
fn one_altered_charge_is_found_and_where() {
    let mut recording = saturated();
    assert!(recording.replay().agrees());
    let is_charge = |event: &Event| matches!(event, Event::Charge { tenant, .. } if *tenant == C);
    let at = 600 + recording.events()[600..].iter().position(is_charge).unwrap();
    let Event::Charge { cycles, .. } = &mut recording.events_mut()[at] else { unreachable!() };
    *cycles += 200_000;
    let replay = recording.replay();
    assert!(replay.differences[0].event > at);
    assert!(replay.turn_share_difference() > 0.01, "{}", replay.turn_share_difference());
}

#[test]
fn a_full_recording_says_so_and_what_it_holds_replays() {
    let mut scheduler = scheduler(config());
    assert!(scheduler.start_recording(recording(50)).is_ok());
    assert!(scheduler.start_recording(recording(50)).is_err(), "one is on");
    live(&mut scheduler, &mut 0, &[(1, 700, true); 100]);
    let recording = scheduler.stop_recording().unwrap();
    assert_eq!((recording.events().len(), recording.ended()), (50, Some(Ended::Full)));
    assert!(recording.replay().agrees());
}

#[test]
fn a_change_of_settings_ends_a_recording() {
    let mut scheduler = scheduler(config());
    assert!(scheduler.start_recording(recording(50)).is_ok());
    scheduler.set_weight(A, weight("3")).unwrap();
    live(&mut scheduler, &mut 0, &[(1, 700, true)]);
    let recording = scheduler.stop_recording().unwrap();
    assert_eq!((recording.events().len(), recording.ended()), (0, Some(Ended::Settings)));
}

#[test]
fn a_recording_for_another_number_of_tenants_is_handed_back() {
    let other = Box::new(Recording::new(TENANTS + 1, 50).unwrap());
    assert!(scheduler(config()).start_recording(other).is_err());
}
