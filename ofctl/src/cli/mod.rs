//! The command line.

mod flow;
mod manage;
pub(crate) mod unsupported;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use self::flow::FlowCommand;
pub(crate) use self::manage::{
    BridgeCommand, ControllerCommand, FdbCommand, Kind, ManageCommand, Mode, PmdCommand,
    PmdTraceCommand, PortAdd, PortCommand, ProtectionCommand, SchedulerCommand, TenantCommand, Top,
    Trace,
};

/// Controls a running Tollgate switch.
///
/// Flow commands have ovs-ofctl's verbs, grammar and output. For them BRIDGE is the name of a bridge,
/// or of any switch that speaks OpenFlow 1.3 unix:PATH or tcp:HOST[:PORT].
#[derive(Debug, Parser)]
#[command(name = "ofctl", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// Directory of the switch's sockets [env: TOLLGATE_RUNDIR] [default: /run/tollgate]
    // (Not clap's `env`: usage lines would show the option as required where the variable is set.)
    #[arg(
        long,
        global = true,
        default_value_os_t = default_run_dir(),
        hide_default_value = true,
        value_name = "DIR"
    )]
    pub(crate) run_dir: PathBuf,

    /// Give up after this many seconds
    #[arg(short, long = "timeout", global = true, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout_s: Option<u64>,

    /// Print JSON (commands that are not ovs-ofctl's)
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) flow_options: FlowOptions,

    #[command(subcommand)]
    pub(crate) command: Command,
}

fn default_run_dir() -> PathBuf {
    match std::env::var_os("TOLLGATE_RUNDIR") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => PathBuf::from("/run/tollgate"),
    }
}

/// Options that ovs-ofctl takes before or after its verbs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Flow command options")]
pub(crate) struct FlowOptions {
    /// OpenFlow versions to use; must include OpenFlow13
    #[arg(short = 'O', long, global = true, value_name = "VERSIONS", default_value = "OpenFlow13", value_parser = parse_protocols)]
    pub(crate) protocols: String,

    /// mod-flows, del-flows: only the flow of exactly this match and priority
    #[arg(long, global = true)]
    pub(crate) strict: bool,

    /// add-, mod-, del- and replace-flows: all together or nothing, as one bundle
    #[arg(long, global = true)]
    pub(crate) bundle: bool,

    /// replace-flows: add also what is there already
    #[arg(long, global = true)]
    pub(crate) readd: bool,

    /// Print port names (default on a terminal)
    #[arg(long, global = true, overrides_with = "no_names")]
    pub(crate) names: bool,

    /// Neither print nor accept port names
    #[arg(long, global = true)]
    pub(crate) no_names: bool,

    /// dump-flows: no counters, no durations
    #[arg(long, global = true, conflicts_with = "stats")]
    pub(crate) no_stats: bool,

    /// dump-flows: counters and durations (the default)
    #[arg(long, global = true, hide = true)]
    pub(crate) stats: bool,

    /// dump-flows: sort by priority, or by a field
    #[arg(long, global = true, value_name = "FIELD", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) sort: Option<String>,

    /// dump-flows: sort in descending order
    #[arg(long, global = true, value_name = "FIELD", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with = "sort")]
    pub(crate) rsort: Option<String>,
}

fn parse_protocols(text: &str) -> Result<String, String> {
    if text.split(',').any(|version| version.trim().eq_ignore_ascii_case("OpenFlow13")) {
        Ok(text.to_owned())
    } else {
        Err("this program speaks OpenFlow13".to_owned())
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    OpenFlow(FlowCommand),
    #[command(flatten)]
    Manage(ManageCommand),
}
