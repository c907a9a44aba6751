//! Recordings as they are written down and read back, by friends and by others.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::config;
use super::recordings::{live, recording, scheduler, steps};
use crate::limits::RECORDED_EVENTS_MAX;
use crate::{Event, Recording, SchedulerConfig, Turn};

fn recorded(
    config: SchedulerConfig,
    before: &[(u16, u64, bool)],
    during: &[(u16, u64, bool)],
) -> Box<Recording> {
    let mut scheduler = scheduler(config);
    let mut now = 0;
    live(&mut scheduler, &mut now, before);
    assert!(scheduler.start_recording(recording(10_000)).is_ok());
    live(&mut scheduler, &mut now, during);
    scheduler.stop_recording().unwrap()
}

fn read(value: &Value) -> Result<Recording, String> {
    serde_json::from_str(&value.to_string()).map_err(|error| error.to_string())
}

/// Every number, truth value and text of a JSON value, in order.
fn leaves(value: &mut Value) -> Vec<&mut Value> {
    match value {
        Value::Array(values) => values.iter_mut().flat_map(leaves).collect(),
        Value::Object(values) => values.values_mut().flat_map(leaves).collect(),
        leaf => vec![leaf],
    }
}

/// A number, or a virtual time, that something may break on.
fn odd_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0u64..8).prop_map(Value::from),
        any::<u128>().prop_map(|time| time.to_string().into()),
        (0u128..1 << 121).prop_map(|time| time.to_string().into()),
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
    ]
}

/// Any call on a few tenants, at any time and of any size.
fn odd_event() -> impl Strategy<Value = Event> {
    (0..6u8, 0u16..7, any::<u64>(), any::<i64>(), any::<u64>(), any::<bool>()).prop_map(
        |(kind, tenant, cycles, credit_cycles, now_cycles, flag)| {
            let tenant = crate::TenantIndex(tenant);
            let turn = Turn { tenant, budget_cycles: cycles, slack: flag };
            match kind {
                0 => Event::Wake { tenant, now_cycles },
                1 => Event::Turn { turn, credit_cycles, now_cycles },
                2 => Event::Charge { tenant, cycles, now_cycles },
                3 => Event::Rest { now_cycles },
                4 => Event::Done { tenant, has_more_work: flag, now_cycles },
                _ => Event::Grant { tenant, cycles: credit_cycles },
            }
        },
    )
}

proptest! {
    #[test]
    fn a_recording_survives_being_written_down(
        before in steps(), during in steps(), coordinated: bool
    ) {
        let knobs = if coordinated { SchedulerConfig::coordinated(1 << 31) } else { config() };
        let recording = recorded(knobs, &before, &during);
        let written = serde_json::to_value(&recording).unwrap();
        let read = read(&written).unwrap();
        prop_assert_eq!(read.events(), recording.events());
        prop_assert_eq!(serde_json::to_value(&read).unwrap(), written);
        let replay = read.replay();
        prop_assert!(replay.agrees(), "{:?}", replay.differences);
        prop_assert_eq!(replay, recording.replay());
    }

    /// Whatever a file says, it is refused or replayed.
    #[test]
    fn no_file_breaks_a_replay(
        during in steps(),
        coordinated: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), odd_value()), 0..6),
        events in prop::collection::vec(odd_event(), 0..100),
    ) {
        let knobs = if coordinated { SchedulerConfig::coordinated(1 << 31) } else { config() };
        let recording = recorded(knobs, &during, &during);
        let mut written = serde_json::to_value(&recording).unwrap();
        for (at, odd) in &changes {
            let mut leaves = leaves(&mut written["start"]);
            let at = at.index(leaves.len());
            *leaves[at] = odd.clone();
        }
        let added = events.iter().map(|event| Value::from(event.to_string()));
        written["events"].as_array_mut().unwrap().extend(added);
        if let Ok(read) = read(&written) {
            prop_assert!(read.replay().turns >= recording.replay().turns);
        }
    }

    #[test]
    fn an_event_survives_its_text(event in odd_event()) {
        prop_assert_eq!(event.to_string().parse(), Ok(event));
    }
}

#[test]
fn a_state_that_no_scheduler_is_in_is_refused_with_what_is_wrong() {
    let steps: Vec<_> = (0..40u16).map(|step| (step % 3 + 1, 5000, true)).collect();
    let written = serde_json::to_value(recorded(config(), &steps, &steps)).unwrap();
    assert_eq!(written["start"]["debt"].as_array().map(Vec::len), Some(3), "all wait in debt");
    let late = (1u128 << 121).to_string();
    for (at, value, wanted) in [
        ("/start/max_tenants", json!(2), "tenant index 2 is outside"),
        ("/start/tenants/1/tenant", json!(1), "tenant 1 exists already"),
        ("/start/tenants/1/tenant", json!(0), "tenant 0 is the system account"),
        ("/start/tenants/0/weight_thousandths", json!(0), "tenant 1: a weight is"),
        ("/start/tenants/0/cap_cycles", json!(1), "tenant 1: cap_cycles is 1; it must be"),
        ("/start/tenants/0/floor_cycles", json!(1u64 << 40), "tenant 1: floor_cycles is"),
        ("/start/tenants/0/credit_scaled", json!(i64::MAX), "credit_scaled"),
        ("/start/tenants/0/settled_at", json!(late), "settled_at is later"),
        ("/start/tenants/0/emptied_at", json!(1u64 << 40), "emptied_at"),
        ("/start/tenants/0/colour", json!(1), "unknown field `colour`"),
        ("/start/virtual_time", json!(late), "virtual_time is later"),
        ("/start/furthest_tag", json!(late), "furthest_tag is later"),
        ("/start/virtual_time", json!("soon"), "a virtual time is"),
        ("/start/quantum_cycles", json!(0), "quantum_cycles is 0; it must be"),
        ("/start/joined_total", json!(u64::MAX), "joined_total is"),
        ("/start/parked_total", json!(u64::MAX), "parked_total is"),
        ("/start/new_list", json!([5]), "tenant 5 cannot wait in new_list"),
        ("/start/new_list", json!([1]), "tenant 1 cannot wait in debt"),
        ("/start/old_list", json!([[1, 1u64 << 40]]), "old_list is"),
        (
            "/start/tenants/0/running",
            json!({"charged": true, "slack": false}),
            "tenant 1 cannot wait",
        ),
        ("/events/0", json!("120 sleep 3"), "\"120 sleep 3\" is no event"),
        ("/events/0", json!("120 wake 99999"), "is no event"),
        ("/events/0", json!(7), "invalid type"),
        ("/ended", json!("bored"), "unknown variant `bored`"),
    ] {
        let mut damaged = written.clone();
        let (parent, name) = at.rsplit_once('/').unwrap();
        match damaged.pointer_mut(parent).unwrap() {
            Value::Object(members) => _ = members.insert(name.to_owned(), value),
            values => values[name.parse::<usize>().unwrap()] = value,
        }
        let error = read(&damaged).map(|_| at).unwrap_err();
        assert!(error.contains(wanted), "{at}: {error}");
    }
    let two_turns = |turn: &mut Value| turn["running"] = json!({"charged": true, "slack": false});
    let mut damaged = written;
    damaged["start"]["debt"] = json!([]);
    damaged["start"]["tenants"].as_array_mut().unwrap().iter_mut().take(2).for_each(two_turns);
    let error = read(&damaged).map(|_| ()).unwrap_err();
    assert!(error.contains("tenants 1 and 2 both have the turn"), "{error}");
}

#[test]
fn a_recording_has_room_for_some_events_and_not_for_any_number() {
    for events in [0, RECORDED_EVENTS_MAX + 1, u64::MAX] {
        let error = Recording::new(4, events).map(|_| ()).unwrap_err().to_string();
        let wanted = format!("events is {events}; it must be 1 to {RECORDED_EVENTS_MAX}");
        assert_eq!(error, wanted);
    }
    let mut written = serde_json::to_value(recorded(config(), &[], &[])).unwrap();
    written["events"] = vec!["1 wake 1"; RECORDED_EVENTS_MAX as usize + 1].into();
    let error = read(&written).map(|_| ()).unwrap_err();
    assert!(error.contains("number of events is 131073; it must be 0 to 131072"), "{error}");
}
