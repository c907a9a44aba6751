//! `top`: who uses the cores, over an interval.

mod figures;
mod histogram;
mod view;

use std::io::{IsTerminal, stdout};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use self::figures::Figures;
use crate::cli::{Cli, Top};
use crate::{output, rpc};

/// Begins a fresh screen (ECMA-48: cursor home, erase all).
const CLEAR: &str = "\x1b[H\x1b[2J";

/// What the switch counts, at one moment.
#[derive(Debug)]
struct Sample {
    pmd_stats: Value,
    port_list: Value,
}

impl Sample {
    fn take(run_dir: &Path) -> anyhow::Result<Sample> {
        let pmd_stats = rpc::call(run_dir, "pmd_stats", json!({}))?;
        let port_list = rpc::call(run_dir, "port_list", json!({}))?;
        Ok(Sample { pmd_stats, port_list })
    }
}

/// Prints the figures of one interval after the other: the same screen again on a terminal, else one
/// table (or one line of JSON) below the other.
pub(super) fn run(cli: &Cli, top: &Top) -> anyhow::Result<()> {
    let clear = if stdout().is_terminal() && !cli.json { CLEAR } else { "" };
    let mut before = Sample::take(&cli.run_dir)?;
    let mut shown = 0;
    while top.count.is_none_or(|count| shown < count) {
        sleep(Duration::from_secs_f64(top.interval_s));
        let after = Sample::take(&cli.run_dir)?;
        let figures = Figures::between(&before, &after);
        let gap = if shown > 0 && clear.is_empty() { "\n" } else { "" };
        output::print(&match cli.json {
            true => format!("{}\n", view::json(&figures)),
            false => format!("{clear}{gap}{}", view::table(&figures)),
        })?;
        before = after;
        shown += 1;
    }
    Ok(())
}
