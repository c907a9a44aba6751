//! The commands over JSON-RPC.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

use crate::limits::{STAGES_SECONDS, TOP_INTERVALS_S, WEIGHTS};

/// Only what JSON can carry and the switch can take: NaN and infinity would go out as null, which
/// is no weight at all.
fn parse_weight(text: &str) -> Result<f64, String> {
    let weight: Option<f64> = text.parse().ok();
    weight.filter(|weight| WEIGHTS.contains(weight)).ok_or_else(|| {
        format!("a weight is a number from {} to {}", WEIGHTS.start(), WEIGHTS.end())
    })
}

fn parse_interval(text: &str) -> Result<f64, String> {
    let interval_s: Option<f64> = text.parse().ok();
    interval_s.filter(|interval_s| TOP_INTERVALS_S.contains(interval_s)).ok_or_else(|| {
        let (least, most) = TOP_INTERVALS_S.into_inner();
        format!("an interval is a number of seconds from {least} to {most}")
    })
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: Option<f64> = text.parse().ok();
    seconds.filter(|seconds| STAGES_SECONDS.contains(seconds)).ok_or_else(|| {
        let (least, most) = STAGES_SECONDS.into_inner();
        format!("it is a number of seconds from {least} to {most}")
    })
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
    /// The scheduler's knobs
    #[command(subcommand)]
    Scheduler(SchedulerCommand),
    /// The polling cores
    #[command(subcommand)]
    Pmd(PmdCommand),
    /// Who uses the polling cores: shares, credit, waits and drops, again and again
    ///
    /// With --json, one object on a line for each interval.
    Top(Top),
    /// Follow a packet through the tables, and say what becomes of it and who pays
    #[command(override_usage = "ofctl trace BRIDGE FLOW\n       \
                                ofctl trace BRIDGE --in-port PORT HEX\n       \
                                ofctl trace BRIDGE --in-port PORT --pcap FILE")]
    Trace(Trace),
    /// Print the cached decisions, of one bridge or of all
    DumpMegaflows { bridge: Option<String> },
    /// What a bridge has learned about where addresses are
    #[command(subcommand)]
    Fdb(FdbCommand),
    /// Where a bridge looks for its controllers
    #[command(subcommand)]
    Controller(ControllerCommand),
    /// Versions of this program and of the switch
    Version,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BridgeCommand {
    /// Create a bridge
    Add { name: String },
    /// Remove a bridge that has no ports any more
    #[command(visible_alias = "del")]
    Remove { name: String },
    /// List the bridges
    List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PortCommand {
    /// Create a port: of a guest (vhost-user), or of a network card (dpdk)
    Add(PortAdd),
    /// Remove a port
    #[command(visible_alias = "del")]
    Remove { bridge: String, name: String },
    /// List the ports, of one bridge or of all
    List { bridge: Option<String> },
    /// All that is known of a port, and its network card's own counters
    Get { bridge: String, name: String },
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
    /// It stands for a network card: packets from it are charged to the tenants that they are for
    #[arg(long)]
    pub(crate) uplink: bool,
    /// Ethernet address of the guest behind it, by which packets from an uplink are known to be for
    /// its tenant
    #[arg(long)]
    pub(crate) mac: Option<String>,
    /// What is behind it; default: vhost-user
    #[arg(long = "type", value_enum)]
    pub(crate) kind: Option<Kind>,
    /// The network card: a PCI address, or a virtual device of DPDK with its arguments
    #[arg(long)]
    pub(crate) devargs: Option<String>,
    /// Receive queues of the card, at most 8; default: 1
    #[arg(long)]
    pub(crate) queues: Option<u16>,
    /// MTU of the card in bytes; default: its own
    #[arg(long)]
    pub(crate) mtu: Option<u16>,
    /// Whether the card takes frames for other stations; default: true
    #[arg(long)]
    pub(crate) promiscuous: Option<bool>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Kind {
    VhostUser,
    Dpdk,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Mode {
    Listen,
    Connect,
}

/// What else is set for a tenant; the switch knows the ranges.
#[derive(Clone, Debug, Args)]
pub(crate) struct TenantKnobs {
    /// Most credit it may hold, in cycles
    #[arg(long)]
    pub(crate) cap_cycles: Option<u64>,
    /// Most of its debt that is remembered, in cycles
    #[arg(long)]
    pub(crate) floor_cycles: Option<u64>,
    /// What becomes of packets received for it while it is over its share: drop, mark,
    /// mark-then-drop or none
    #[arg(long)]
    pub(crate) rx_overrun: Option<String>,
    /// With mark-then-drop: in how much debt dropping begins, in cycles
    #[arg(long)]
    pub(crate) mark_depth_cycles: Option<u64>,
    /// New flows per second that the slow path decides for it
    #[arg(long)]
    pub(crate) setups_per_second: Option<u64>,
    /// Megaflows that it may have
    #[arg(long)]
    pub(crate) megaflows: Option<u64>,
    /// Pairs of ingress port and mask among them
    #[arg(long)]
    pub(crate) subtables: Option<u64>,
    /// Bytes of its packets that may wait for the slow path, on each PMD
    #[arg(long)]
    pub(crate) arena_bytes: Option<u64>,
    /// Entries that it may have in each PMD's exact-match table
    #[arg(long)]
    pub(crate) exact_entries: Option<u64>,
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
        #[command(flatten)]
        knobs: TenantKnobs,
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

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SchedulerCommand {
    /// Change knobs; acts at once, and those not given stay
    Set(SchedulerKnobs),
    /// Show every knob in force
    Get,
}

/// The switch knows the ranges.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct SchedulerKnobs {
    /// Who gives tenants credit: local (the polling cores) or coordinator (a thread, for comparison)
    #[arg(long)]
    pub(crate) refill: Option<String>,
    /// Under a coordinator: microseconds from one grant to the next, 1 to 100000; below 50 its
    /// thread spins
    #[arg(long)]
    pub(crate) period_us: Option<u64>,
    /// Under a coordinator: part of the elapsed time that is given out, 0.001 to 2
    #[arg(long)]
    pub(crate) boost: Option<f64>,
    /// What one turn of a tenant may cost
    #[arg(long)]
    pub(crate) quantum_cycles: Option<u64>,
    /// Most credit of a tenant that has no cap of its own
    #[arg(long)]
    pub(crate) cap_cycles: Option<u64>,
    /// Most remembered debt of a tenant that has no floor of its own
    #[arg(long)]
    pub(crate) floor_cycles: Option<u64>,
    /// How long a core must be idle before all debts are forgotten
    #[arg(long)]
    pub(crate) horizon_cycles: Option<u64>,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PmdCommand {
    /// Where the cycles of each polling core went
    Stats,
    /// Where the cycles of a packet go, stage by stage, timed on the running switch
    Stages {
        /// Polling core, counted from 0; default: all
        #[arg(allow_hyphen_values = true)]
        pmd: Option<u16>,
        /// Seconds for which some of the tasks are timed, 0.1 to 30
        #[arg(long, value_name = "N", default_value = "1", allow_hyphen_values = true, value_parser = parse_seconds)]
        seconds: f64,
    },
    /// What a polling core's scheduler is told and says: record it, and see whether the simulator's
    /// says the same
    #[command(subcommand)]
    Trace(PmdTraceCommand),
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PmdTraceCommand {
    /// Start to record
    ///
    /// The recording ends when it is full, when it is read, or when a tenant, a knob or the protection
    /// is changed.
    Start {
        /// Polling core, counted from 0
        pmd: u16,
        /// Most events to record, some five for each turn, at most 131072; default: 65536
        #[arg(long, value_name = "N")]
        events: Option<u64>,
    },
    /// End the recording and take it: a summary, or with --json all of it
    Read {
        /// Polling core, counted from 0
        pmd: u16,
        /// Write all of it to this file, beside the summary
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Put a recording to the simulator's scheduler, and say where the two disagree
    Check {
        /// What `read` has written; - is standard input
        file: PathBuf,
    },
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Top {
    /// Seconds from one table to the next, 0.1 to 3600
    #[arg(short, long = "interval", value_name = "S", default_value = "1", allow_hyphen_values = true, value_parser = parse_interval)]
    pub(crate) interval_s: f64,
    /// End after so many tables
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

#[derive(Args, Debug)]
#[command(
    override_usage = "ofctl trace [OPTIONS] <BRIDGE> <FLOW | HEX --in-port PORT | --pcap FILE --in-port PORT>"
)]
#[command(group = ArgGroup::new("what").required(true).args(["packet", "pcap"]))]
pub(crate) struct Trace {
    pub(crate) bridge: String,
    /// A flow as in a match (in_port=vm1,tcp,nw_dst=10.0.0.2), or a frame in hexadecimal
    #[arg(value_name = "FLOW|HEX")]
    pub(crate) packet: Option<String>,
    /// Trace every packet of a capture file
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Port that the frame comes in by, a name or a number; a flow names it itself
    #[arg(long, value_name = "PORT")]
    pub(crate) in_port: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FdbCommand {
    /// List the addresses
    Show { bridge: String },
    /// Forget the addresses
    Flush { bridge: String },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ControllerCommand {
    /// Set the controllers: ptcp:PORT[:HOST] and punix:PATH listen, tcp:HOST:PORT and unix:PATH
    /// connect
    Set {
        bridge: String,
        #[arg(required = true)]
        targets: Vec<String>,
    },
    /// List the controllers
    Get { bridge: String },
    /// Have no controllers any more
    Del { bridge: String },
}
