//! The commands of `ovs-ofctl`.

use clap::Subcommand;

/// Commands over OpenFlow.
#[derive(Debug, Subcommand)]
pub(crate) enum FlowCommand {
    /// Add a flow, replacing one of the same match and priority
    AddFlow {
        bridge: String,
        /// For example: in_port=vm1,actions=output:vm2; or - for flows on standard input
        flow: String,
    },
    /// Add the flows of a file, one a line; nothing is sent if a line cannot be understood
    AddFlows {
        bridge: String,
        /// File, or - for standard input
        file: String,
    },
    /// Change the actions of the flows that match
    ModFlows {
        bridge: String,
        /// A flow, or - for flows on standard input
        flow: String,
    },
    /// Delete the flows that match, or all
    DelFlows {
        bridge: String,
        /// What to match, or - for standard input
        flow: Option<String>,
    },
    /// Make the flows those of a file: add and change what differs, delete the rest
    ReplaceFlows {
        bridge: String,
        /// File, or - for standard input
        file: String,
    },
    /// Print the flows that two bridges or files do not have in common; exit status 2 if any
    DiffFlows {
        /// A file of flows, or a bridge
        source1: String,
        /// A file of flows, or a bridge
        source2: String,
    },
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
    /// Change the configuration of a port
    ModPort {
        bridge: String,
        port: String,
        /// up, down, [no-]receive, [no-]forward or [no-]packet-in
        change: String,
    },
    /// Send packets: in_port=PORT,packet=HEX,actions=ACTIONS, or PORT ACTIONS HEX...
    #[command(
        override_usage = "ofctl packet-out BRIDGE in_port=PORT,packet=HEX,actions=ACTIONS\n       \
                                ofctl packet-out BRIDGE PORT ACTIONS HEX..."
    )]
    PacketOut {
        bridge: String,
        #[arg(required = true)]
        packet: Vec<String>,
    },
    /// Print packets, removed flows and changed ports as the switch reports them
    ///
    /// (To standard output; ovs-ofctl writes them to standard error.)
    Monitor {
        bridge: String,
        /// Bytes of a packet that are sent at most; default: as the switch has it
        #[arg(value_name = "MISS_LEN")]
        options: Vec<String>,
    },
    /// Print the counters of the queues
    QueueStats { bridge: String, port: Option<String>, queue: Option<String> },
    /// Print the groups
    DumpGroups { bridge: String },
    /// Add a meter
    AddMeter {
        bridge: String,
        /// For example: meter=1,kbps,burst,bands=type=drop,rate=1000,burst_size=100
        meter: String,
    },
    /// Change a meter
    ModMeter { bridge: String, meter: String },
    /// Delete a meter, or all
    #[command(alias = "del-meters")]
    DelMeter {
        bridge: String,
        /// meter=ID
        meter: Option<String>,
    },
    /// Print a meter, or all
    #[command(alias = "dump-meter")]
    DumpMeters { bridge: String, meter: Option<String> },
    /// Print the counters of a meter, or of all
    MeterStats { bridge: String, meter: Option<String> },
    /// Print what meters the switch can have
    MeterFeatures { bridge: String },
    /// Say whether the bridge answers
    Probe { bridge: String },
    /// Measure how long the bridge takes to answer, ten times
    Ping {
        bridge: String,
        /// Bytes to send along
        #[arg(default_value_t = 64)]
        bytes: u16,
    },
}
