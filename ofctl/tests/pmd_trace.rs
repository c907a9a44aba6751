//! `pmd trace`: recordings that are read, kept and checked against the simulator's scheduler.

mod support;

use std::path::Path;

use serde_json::{Value, json};
use support::rpc::serve;
use support::{Outcome, command, ofctl, ofctl_with_input};
use tempfile::tempdir;
use tollgate_policy::{Recording, Scheduler, SchedulerConfig, TenantIndex, Weight};

/// Three tenants with more work than the core can do, as a switch gives it away.
fn recorded() -> Value {
    let mut scheduler = Scheduler::new(SchedulerConfig::default(), 8).unwrap();
    for (tenant, thousandths) in [(1, 1000), (2, 2000), (3, 500)] {
        let weight = Weight::from_thousandths(thousandths).unwrap();
        scheduler.tenant_add(TenantIndex(tenant), weight).unwrap();
        scheduler.wake(TenantIndex(tenant), 0);
    }
    let recording = Box::new(Recording::new(8, 300).unwrap());
    assert!(scheduler.start_recording(recording).is_ok());
    for now in (1..=120).map(|turn| turn * 5000) {
        let turn = scheduler.next(now - 5000).unwrap();
        scheduler.charge(turn.tenant, 5000, now);
        scheduler.done(turn.tenant, true, now);
    }
    let recording = scheduler.stop_recording().unwrap();
    json!({
        "pmd": 0, "tsc_hz": 1_000_000_000, "tenants": {"1": "web", "2": "db"},
        "recording": *recording,
    })
}

fn check(dir: &Path, options: &[&str], trace: &str) -> Outcome {
    let path = dir.join("trace.json");
    std::fs::write(&path, trace).unwrap();
    ofctl(dir, &[options, &["pmd", "trace", "check", path.to_str().unwrap()]].concat())
}

#[test]
fn a_recording_that_replays_is_said_to_agree() {
    let dir = tempdir().unwrap();
    let trace = format!("{:#}", recorded());
    let text = check(dir.path(), &[], &trace).success();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("pmd 0: 300 events in 0.50 ms, until it was full; 100 turns, "),
        "{text}"
    );
    let row = |name: &str| {
        let line = lines.iter().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("web")[3..], ["29.00", "%"]);
    assert_eq!(row("db")[3..], ["54.00", "%"]);
    assert_eq!(row("tenant 3")[4..], ["17.00", "%"], "one without a name has its number");
    assert_eq!(lines.last(), Some(&"the replay agrees on all 100 turns"));
    let piped = ofctl_with_input(dir.path(), &["pmd", "trace", "check", "-"], &trace).success();
    assert_eq!(piped, text);
    let json: Value =
        serde_json::from_str(&check(dir.path(), &["--json"], &trace).success()).unwrap();
    assert_eq!((&json["agrees"], &json["turns"]), (&json!(true), &json!(100)));
}

#[test]
fn a_recording_that_was_tampered_with_disagrees_and_the_event_is_named() {
    let dir = tempdir().unwrap();
    let mut trace = recorded();
    let events = trace["recording"]["events"].as_array_mut().unwrap();
    let at = events.iter().rposition(|event| event.as_str().unwrap().contains(" turn 2 "));
    let at = at.expect("a turn of the second tenant");
    let (before, credit) = events[at].as_str().unwrap().rsplit_once(' ').unwrap();
    let credit: i64 = credit.parse().unwrap();
    let tampered = format!("{before} {}", credit + 1);
    events[at] = tampered.into();
    let outcome = check(dir.path(), &[], &trace.to_string());
    assert_eq!(outcome.code, Some(1));
    let wanted = format!(
        "event {at}: recorded db's turn in debt, budget 5000, credit {}; replayed db's turn in debt, budget 5000, credit {credit}\n",
        credit + 1
    );
    assert!(outcome.out.ends_with(&wanted), "{}", outcome.out);
    let said = format!("the replay disagrees on 1 of 100 turns, first at event {at}\n");
    assert!(outcome.err.ends_with(&said), "{}", outcome.err);
    let outcome = check(dir.path(), &["--json"], &trace.to_string());
    let json: Value = serde_json::from_str(&outcome.out).unwrap();
    assert_eq!((outcome.code, &json["agrees"]), (Some(1), &json!(false)));
    let first = &json["differences"][0];
    assert_eq!(first["event"], at);
    assert_eq!(first["recorded"]["credit_cycles"], credit + 1);
    assert_eq!(first["replayed"]["credit_cycles"], credit);

    // A charge that was left out shows at the next turn that it decides.
    let mut trace = recorded();
    let events = trace["recording"]["events"].as_array_mut().unwrap();
    assert!(events.remove(31).as_str().unwrap().contains("charge"));
    let outcome = check(dir.path(), &[], &trace.to_string());
    assert!(outcome.err.contains("first at event 3"), "{}", outcome.err);
}

#[test]
fn what_is_no_recording_is_refused_with_the_reason() {
    let dir = tempdir().unwrap();
    let good = recorded();
    let with = |pointer: &str, value: Value| {
        let mut trace = good.clone();
        *trace.pointer_mut(pointer).unwrap() = value;
        trace.to_string()
    };
    for (trace, wanted) in [
        (String::new(), "EOF while parsing"),
        ("[]".to_owned(), "no recording of a scheduler"),
        ("{\"pmd\": 0}".to_owned(), "missing field `tsc_hz`"),
        (with("/tenants", json!({"web": 1})), "invalid"),
        (with("/recording/events/7", json!("1 nap 3")), "\"1 nap 3\" is no event"),
        (with("/recording/start/max_tenants", json!(2)), "outside this scheduler's table"),
        (with("/recording/start/quantum_cycles", json!(0)), "quantum_cycles is 0"),
        (with("/recording/events", json!([])), "no turn was recorded"),
        (good.to_string() + &" ".repeat(65 << 20), "longer than 67108864 bytes"),
    ] {
        let failure = check(dir.path(), &[], &trace).failure();
        assert!(failure.contains(wanted), "{wanted}: {failure}");
        assert!(failure.contains("trace.json"), "the file is named: {failure}");
    }
    let failure = ofctl(dir.path(), &["pmd", "trace", "check", "nowhere"]).failure();
    assert!(failure.contains("nowhere: No such file"), "{failure}");
}

#[test]
fn a_recording_is_read_into_a_file_and_summed_up() {
    let dir = tempdir().unwrap();
    let trace = recorded();
    let requests = serve(dir.path(), json!({"result": trace}));
    let path = dir.path().join("kept.json");
    std::fs::write(&path, "x".repeat(1 << 20)).unwrap();
    let path = path.to_str().unwrap();
    let text = ofctl(dir.path(), &["pmd", "trace", "read", "0", "-o", path]).success();
    assert!(text.starts_with("pmd 0: 300 events in 0.50 ms, until it was full"), "{text}");
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(kept, trace);
    ofctl(dir.path(), &["pmd", "trace", "check", path]).success();
    // A file that cannot be had is found out while the switch still has the recording.
    let asked = requests.lock().unwrap().len();
    let failure = ofctl(dir.path(), &["pmd", "trace", "read", "0", "-o", "/nowhere/x"]).failure();
    assert!(failure.contains("/nowhere/x: No such file"), "{failure}");
    assert_eq!(requests.lock().unwrap().len(), asked);
    let output = command(dir.path(), &["pmd", "trace", "read", "0", "-o", "/dev/null"]).output();
    assert!(output.unwrap().status.success());
}

#[test]
fn a_refusal_leaves_the_file_as_it_was() {
    let dir = tempdir().unwrap();
    serve(dir.path(), json!({"error": {"code": -1, "message": "PMD 0 records nothing"}}));
    let path = dir.path().join("kept.json");
    std::fs::write(&path, "earlier").unwrap();
    let failure =
        ofctl(dir.path(), &["pmd", "trace", "read", "0", "-o", path.to_str().unwrap()]).failure();
    assert_eq!(failure, "ofctl: PMD 0 records nothing");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "earlier");
}
