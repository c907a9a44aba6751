//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::limits::WEIGHTS;

/// Controls a running Tollgate switch.
///
/// Flow commands have ovs-ofctl's verbs, grammar and output. BRIDGE is the name of a bridge, or
/// unix:PATH for the OpenFlow socket of any switch.
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

    /// Print JSON (bridge, port, tenant, protection, pmd, version)
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

/// Only what JSON can carry and the switch can take: NaN and infinity would go out as null, which
/// is no weight at all.
fn parse_weight(text: &str) -> Result<f64, String> {
    let weight: Option<f64> = text.parse().ok();
    weight.filter(|weight| WEIGHTS.contains(weight)).ok_or_else(|| {
        format!("a weight is a number from {} to {}", WEIGHTS.start(), WEIGHTS.end())
    })
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    OpenFlow(FlowCommand),
    #[command(flatten)]
    Manage(ManageCommand),
}

/// Commands over OpenFlow.
#[derive(Debug, Subcommand)]
pub(crate) enum FlowCommand {
    /// Add a flow, replacing one of the same match and priority
    AddFlow {
        bridge: String,
        /// For example: in_port=vm1,actions=output:vm2
        flow: String,
    },
    /// Add the flows of a file, one a line; nothing is sent if a line cannot be understood
    AddFlows {
        bridge: String,
        /// File, or - for standard input
        file: String,
    },
    /// Change the actions of the flows that match
    ModFlows { bridge: String, flow: String },
    /// Delete the flows that match, or all
    DelFlows { bridge: String, flow: Option<String> },
    /// Print the flows that match, or all
    DumpFlows { bridge: String, flow: Option<String> },
    /// Print the summed counters of the flows that match
    DumpAggregate { bridge: String, flow: Option<String> },
    /// Print what the switch is, and its ports
    Show { bridge: String },
    /// Print the counters of the ports, or of one
    DumpPorts { bridge: String, port: Option<String> },
    /// Print the ports, or one
    DumpPortsDesc { bridge: String, port: Option<String> },
    /// Print who made the switch
    DumpDesc { bridge: String },
    /// Print the counters of the tables
    DumpTables { bridge: String },
    /// Say whether the bridge answers
    Probe { bridge: String },
}

/// Commands over JSON-RPC.
#[derive(Debug, Subcommand)]
pub(crate) enum ManageCommand {
    /// Bridges
    #[command(subcommand)]
    Bridge(BridgeCommand),
    /// Ports
    #[command(subcommand)]
    Port(PortCommand),
    /// Tenants and their weights
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// The scheduler's gate
    #[command(subcommand)]
    Protection(ProtectionCommand),
    /// The polling cores
    #[command(subcommand)]
    Pmd(PmdCommand),
    /// Versions of this program and of the switch
    Version,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BridgeCommand {
    /// Create a bridge
    Add { name: String },
    /// Remove a bridge and its ports
    #[command(visible_alias = "del")]
    Remove { name: String },
    /// List the bridges
    List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PortCommand {
    /// Create a vhost-user port
    Add(PortAdd),
    /// Remove a port
    #[command(visible_alias = "del")]
    Remove { bridge: String, name: String },
    /// List the ports, of one bridge or of all
    List { bridge: Option<String> },
}

#[derive(Args, Debug)]
pub(crate) struct PortAdd {
    pub(crate) bridge: String,
    pub(crate) name: String,
    /// Tenant that pays for it; default: one of the port's name
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Who listens on the socket: this switch, or the virtual machine monitor
    #[arg(long, value_enum)]
    pub(crate) mode: Option<Mode>,
    /// Path of the socket; default: vhost/NAME in the run directory
    #[arg(long)]
    pub(crate) socket: Option<PathBuf>,
    /// OpenFlow port number; default: the next free one
    #[arg(long)]
    pub(crate) ofport: Option<u32>,
    /// Queue pairs offered, at most 8
    #[arg(long)]
    pub(crate) queue_pairs: Option<u16>,
    /// Polling core that serves it, counted from 0; default: the switch chooses
    #[arg(long)]
    pub(crate) pmd: Option<u16>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Mode {
    Listen,
    Connect,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Create a tenant or change its weight and limits; acts at once
    Set {
        name: String,
        /// Share of a busy core relative to other tenants, 0.001 to 1000
        // (A value may begin with a hyphen so that -1 and -inf are refused for what they are.)
        #[arg(long, allow_hyphen_values = true, value_parser = parse_weight)]
        weight: Option<f64>,
        /// Copies of its packets that OpenFlow controllers are sent per second, at most
        #[arg(long)]
        controller_pps: Option<u32>,
    },
    /// Show one tenant
    Get { name: String },
    /// Forget a tenant that has no ports
    #[command(visible_alias = "del")]
    Remove { name: String },
    /// List the tenants
    List,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum ProtectionCommand {
    /// Hold tenants to their shares
    On,
    /// Serve whoever has work; the accounting goes on
    Off,
    /// Say which it is
    Get,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum PmdCommand {
    /// Where the cycles of each polling core went
    Stats,
}
