//! Commands over JSON-RPC.

mod flows;
mod pcap;
mod pmd;
mod pmd_trace;
mod stages;
mod top;
mod trace;
mod value;
mod view;

use serde_json::{Map, Value, json};

use crate::cli::{
    BridgeCommand, Cli, ControllerCommand, FdbCommand, Kind, ManageCommand, Mode, PmdCommand,
    PortAdd, PortCommand, ProtectionCommand, SchedulerCommand, TenantCommand,
};
use crate::{output, rpc};

/// A method of the switch, its parameters, and how its result reads for humans.
struct Call {
    method: &'static str,
    params: Value,
    view: fn(&Value) -> String,
}

impl Call {
    fn new(method: &'static str, params: Value, view: fn(&Value) -> String) -> Call {
        Call { method, params, view }
    }
}

/// Runs one command.
pub(crate) fn run(cli: &Cli, command: &ManageCommand) -> anyhow::Result<()> {
    use ManageCommand as C;
    let Call { method, params, view } = match command {
        C::Trace(trace) => return trace::run(cli, trace),
        C::Pmd(PmdCommand::Trace(command)) => return pmd_trace::run(cli, command),
        C::Top(top) => return top::run(cli, top),
        C::Bridge(command) => bridge(command),
        C::Port(command) => port(command),
        C::Tenant(command) => tenant(command),
        C::Protection(ProtectionCommand::Get) => {
            Call::new("protection_get", json!({}), view::protection)
        }
        C::Protection(command) => {
            let enabled = matches!(command, ProtectionCommand::On);
            Call::new("protection_set", json!({ "enabled": enabled }), view::nothing)
        }
        C::Scheduler(command) => scheduler(command),
        C::Pmd(PmdCommand::Stats) => Call::new("pmd_stats", json!({}), pmd::stats),
        C::Pmd(PmdCommand::Stages { pmd, seconds }) => {
            let seconds = Some((*seconds).into());
            let params = present([("pmd", pmd.map(Value::from)), ("seconds", seconds)]);
            Call::new("pmd_stages", params, stages::stages)
        }
        C::DumpMegaflows { bridge } => Call::new(
            "megaflow_list",
            present([("bridge", bridge.clone().map(Value::from))]),
            flows::megaflows,
        ),
        C::Fdb(FdbCommand::Show { bridge }) => {
            Call::new("fdb_list", json!({ "bridge": bridge }), flows::fdb)
        }
        C::Fdb(FdbCommand::Flush { bridge }) => {
            Call::new("fdb_flush", json!({ "bridge": bridge }), flows::flushed)
        }
        C::Controller(command) => controller(command),
        C::Version => Call::new("version", json!({}), view::version),
    };
    let result = rpc::call(&cli.run_dir, method, params)?;
    let text = if cli.json { format!("{result:#}\n") } else { view(&result) };
    Ok(output::print(&text)?)
}

fn bridge(command: &BridgeCommand) -> Call {
    match command {
        BridgeCommand::Add { name } => {
            Call::new("bridge_add", json!({ "name": name }), view::nothing)
        }
        BridgeCommand::Remove { name } => {
            Call::new("bridge_remove", json!({ "name": name }), view::nothing)
        }
        BridgeCommand::List => Call::new("bridge_list", json!({}), view::bridges),
    }
}

fn port(command: &PortCommand) -> Call {
    match command {
        PortCommand::Add(add) => Call::new("port_add", port_add(add), view::nothing),
        PortCommand::Remove { bridge, name } => {
            Call::new("port_remove", json!({ "bridge": bridge, "name": name }), view::nothing)
        }
        PortCommand::List { bridge } => Call::new(
            "port_list",
            present([("bridge", bridge.clone().map(Value::from))]),
            view::ports,
        ),
        PortCommand::Get { bridge, name } => {
            Call::new("port_get", json!({ "bridge": bridge, "name": name }), view::port)
        }
    }
}

fn port_add(add: &PortAdd) -> Value {
    let mode = add.mode.map(|mode| match mode {
        Mode::Listen => "listen",
        Mode::Connect => "connect",
    });
    let kind = add.kind.map(|kind| match kind {
        Kind::VhostUser => "vhost-user",
        Kind::Dpdk => "dpdk",
    });
    let socket = add.socket.as_ref().map(|path| path.to_string_lossy().into_owned());
    present([
        ("bridge", Some(add.bridge.clone().into())),
        ("name", Some(add.name.clone().into())),
        ("tenant", add.tenant.clone().map(Value::from)),
        ("mode", mode.map(Value::from)),
        ("socket", socket.map(Value::from)),
        ("ofport", add.ofport.map(Value::from)),
        ("queue_pairs", add.queue_pairs.map(Value::from)),
        ("pmd", add.pmd.map(Value::from)),
        ("uplink", add.uplink.then_some(true.into())),
        ("mac", add.mac.clone().map(Value::from)),
        ("type", kind.map(Value::from)),
        ("devargs", add.devargs.clone().map(Value::from)),
        ("queues", add.queues.map(Value::from)),
        ("mtu", add.mtu.map(Value::from)),
        ("promiscuous", add.promiscuous.map(Value::from)),
    ])
}

fn tenant(command: &TenantCommand) -> Call {
    match command {
        TenantCommand::Set { name, weight, controller_pps, knobs } => {
            let params = present([
                ("tenant", Some(name.clone().into())),
                ("weight", weight.map(Value::from)),
                ("controller_pps", controller_pps.map(Value::from)),
                ("cap_cycles", knobs.cap_cycles.map(Value::from)),
                ("floor_cycles", knobs.floor_cycles.map(Value::from)),
                ("rx_overrun", knobs.rx_overrun.clone().map(Value::from)),
                ("mark_depth_cycles", knobs.mark_depth_cycles.map(Value::from)),
                ("setups_per_second", knobs.setups_per_second.map(Value::from)),
                ("megaflows", knobs.megaflows.map(Value::from)),
                ("subtables", knobs.subtables.map(Value::from)),
                ("arena_bytes", knobs.arena_bytes.map(Value::from)),
                ("exact_entries", knobs.exact_entries.map(Value::from)),
            ]);
            Call::new("tenant_set", params, view::tenant_set)
        }
        TenantCommand::Get { name } => {
            Call::new("tenant_get", json!({ "tenant": name }), view::tenant)
        }
        TenantCommand::Remove { name } => {
            Call::new("tenant_remove", json!({ "tenant": name }), view::nothing)
        }
        TenantCommand::List => Call::new("tenant_list", json!({}), view::tenants),
    }
}

fn scheduler(command: &SchedulerCommand) -> Call {
    match command {
        SchedulerCommand::Get => Call::new("scheduler_get", json!({}), view::scheduler),
        SchedulerCommand::Set(knobs) => {
            let params = present([
                ("refill", knobs.refill.clone().map(Value::from)),
                ("period_us", knobs.period_us.map(Value::from)),
                ("boost", knobs.boost.map(Value::from)),
                ("quantum_cycles", knobs.quantum_cycles.map(Value::from)),
                ("cap_cycles", knobs.cap_cycles.map(Value::from)),
                ("floor_cycles", knobs.floor_cycles.map(Value::from)),
                ("horizon_cycles", knobs.horizon_cycles.map(Value::from)),
            ]);
            Call::new("scheduler_set", params, view::nothing)
        }
    }
}

fn controller(command: &ControllerCommand) -> Call {
    let set = |bridge: &str, targets: &[String]| {
        let params = json!({ "bridge": bridge, "targets": targets });
        Call::new("controller_set", params, view::nothing)
    };
    match command {
        ControllerCommand::Set { bridge, targets } => set(bridge, targets),
        ControllerCommand::Del { bridge } => set(bridge, &[]),
        ControllerCommand::Get { bridge } => {
            Call::new("controller_get", json!({ "bridge": bridge }), view::controllers)
        }
    }
}

/// Parameters without those that were not given: the switch has the defaults.
fn present<const N: usize>(params: [(&str, Option<Value>); N]) -> Value {
    let given = params.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(Map::from_iter(given))
}
