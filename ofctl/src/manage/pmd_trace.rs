//! `pmd trace`: what a scheduler was told and said, and whether the simulator's says the same.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write, stdin};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate_policy::{Difference, Ended, Recording, Replay, TenantIndex, Turn};

use super::present;
use super::value::text;
use crate::cli::{Cli, PmdTraceCommand};
use crate::limits::TRACE_FILE_MAX_BYTES;
use crate::output::Align::{Left, Right};
use crate::output::{print, table};
use crate::rpc;

/// Runs one command.
pub(super) fn run(cli: &Cli, command: &PmdTraceCommand) -> anyhow::Result<()> {
    match command {
        PmdTraceCommand::Start { pmd, events } => start(cli, *pmd, *events),
        PmdTraceCommand::Read { pmd, output } => read(cli, *pmd, output.as_deref()),
        PmdTraceCommand::Check { file } => check(cli, file),
    }
}

fn start(cli: &Cli, pmd: u16, events: Option<u64>) -> anyhow::Result<()> {
    let params = present([("pmd", Some(pmd.into())), ("events", events.map(Value::from))]);
    let result = rpc::call(&cli.run_dir, "pmd_trace_start", params)?;
    let said = || format!("pmd {pmd} records up to {} events\n", text(&result, "events"));
    Ok(print(&if cli.json { format!("{result:#}\n") } else { said() })?)
}

fn read(cli: &Cli, pmd: u16, output: Option<&Path>) -> anyhow::Result<()> {
    // The switch gives it away once, so it must be known before that it can be kept; what the file
    // holds stays there until then.
    let open = |path| File::options().create(true).truncate(false).write(true).open(path);
    let file = output.map(|path| open(path).with_context(|| path.display().to_string()));
    let file = file.transpose()?;
    let result = rpc::call(&cli.run_dir, "pmd_trace_read", json!({ "pmd": pmd }))?;
    if let (Some(file), Some(path)) = (file, output) {
        keep(file, &format!("{result:#}\n")).with_context(|| path.display().to_string())?;
    }
    if cli.json {
        return Ok(print(&format!("{result:#}\n"))?);
    }
    let trace: Trace = serde_json::from_value(result).context("what the switch has recorded")?;
    Ok(print(&summary(&trace, &trace.recording.replay()))?)
}

/// Writes the file anew; a pipe or a device has no length to cut.
fn keep(mut file: File, text: &str) -> std::io::Result<()> {
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(text.as_bytes())
}

fn check(cli: &Cli, path: &Path) -> anyhow::Result<()> {
    let name = path.display();
    let trace = load(path).with_context(|| name.to_string())?;
    let replay = trace.recording.replay();
    ensure!(replay.turns > 0, "{name}: no turn was recorded, so there is nothing to compare");
    let text = if cli.json {
        format!("{:#}\n", verdict(&trace, &replay))
    } else {
        let differences = replay.differences.iter().map(|one| describe(&trace, one));
        summary(&trace, &replay) + &differences.collect::<String>()
    };
    print(&text)?;
    match replay.differences.first() {
        None if cli.json => Ok(()),
        None => Ok(print(&format!("the replay agrees on all {} turns\n", replay.turns))?),
        Some(first) => bail!(
            "the replay disagrees on {} of {} turns, first at event {}",
            replay.differing_turns,
            replay.turns,
            first.event
        ),
    }
}

fn load(path: &Path) -> anyhow::Result<Trace> {
    let mut text = String::new();
    let most = TRACE_FILE_MAX_BYTES + 1;
    if path == Path::new("-") {
        stdin().take(most).read_to_string(&mut text)?;
    } else {
        File::open(path)?.take(most).read_to_string(&mut text)?;
    }
    ensure!(text.len() < most as usize, "longer than {TRACE_FILE_MAX_BYTES} bytes");
    serde_json::from_str(&text).context("no recording of a scheduler")
}

/// What `pmd_trace_read` gives.
#[derive(Debug, Deserialize)]
struct Trace {
    pmd: u64,
    tsc_hz: u64,
    /// Names, as of when it was read.
    tenants: BTreeMap<u16, String>,
    recording: Recording,
}

impl Trace {
    fn name(&self, tenant: TenantIndex) -> String {
        self.tenants.get(&tenant.0).cloned().unwrap_or_else(|| format!("tenant {}", tenant.0))
    }
}

fn summary(trace: &Trace, replay: &Replay) -> String {
    let recording = &trace.recording;
    let ended = match recording.ended() {
        Some(Ended::Full) => "it was full",
        Some(Ended::Settings) => "a tenant, a knob or the protection was changed",
        None => "it was read",
    };
    let span_ms = recording.span_cycles() as f64 * 1000.0 / trace.tsc_hz.max(1) as f64;
    let rows = replay.recorded_turns.iter().map(|(tenant, turns)| {
        vec![
            trace.name(*tenant),
            turns.to_string(),
            replay.cycles.get(tenant).copied().unwrap_or(0).to_string(),
            format!("{:.2} %", 100.0 * replay.share(*tenant)),
        ]
    });
    let columns = [("TENANT", Left), ("TURNS", Right), ("CYCLES", Right), ("OF-CHARGED", Right)];
    format!(
        "pmd {}: {} events in {span_ms:.2} ms, until {ended}; {} turns, {} of them in debt\n{}",
        trace.pmd,
        recording.events().len(),
        replay.turns,
        replay.slack_turns,
        table(&columns, rows.collect(), "no turns")
    )
}

/// A disagreement in one line.
fn describe(trace: &Trace, difference: &Difference) -> String {
    let side = |side: &Option<(Turn, i64)>| match side {
        None => "nobody's turn".to_owned(),
        Some((turn, credit_cycles)) => format!(
            "{}'s turn {}, budget {}, credit {credit_cycles}",
            trace.name(turn.tenant),
            if turn.slack { "in debt" } else { "funded" },
            turn.budget_cycles
        ),
    };
    format!(
        "event {}: recorded {}; replayed {}\n",
        difference.event,
        side(&difference.recorded),
        side(&difference.replayed)
    )
}

/// The same for programs.
fn verdict(trace: &Trace, replay: &Replay) -> Value {
    let side = |side: &Option<(Turn, i64)>| {
        side.map(|(turn, credit_cycles)| {
            json!({
                "tenant": trace.name(turn.tenant),
                "slack": turn.slack,
                "budget_cycles": turn.budget_cycles,
                "credit_cycles": credit_cycles,
            })
        })
    };
    let differences = replay.differences.iter().map(|difference| {
        json!({
            "event": difference.event,
            "recorded": side(&difference.recorded),
            "replayed": side(&difference.replayed),
        })
    });
    json!({
        "agrees": replay.agrees(),
        "turns": replay.turns,
        "differing_turns": replay.differing_turns,
        "turn_share_difference": replay.turn_share_difference(),
        "differences": differences.collect::<Vec<_>>(),
    })
}
