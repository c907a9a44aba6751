//! What a configuration must hold beyond its types.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::path::Path;

use tollgate_nic::NicError;
use tollgate_packet::MacAddr;

use super::locate::{KeyPath, Step};
use super::{Config, FailMode, MAX_QUEUE_PAIRS, NOMINAL_TSC_HZ, PortConfig, PortKind, PortMode};
use crate::limits::{MAX_BRIDGES, MAX_CONTROLLERS, MAX_OFPORT, MAX_SOCKET_PATH_BYTES};
use crate::names::{check_name, check_tenant_name};
use crate::pipeline::limits::RULES_PER_TABLE;

const EXACT_ENTRIES: RangeInclusive<usize> = 64..=1 << 24;
const MEGAFLOWS: RangeInclusive<usize> = 64..=1 << 22;
const MEGAFLOWS_PER_TENANT: RangeInclusive<usize> = 1..=1 << 22;
const SUBTABLES: RangeInclusive<usize> = 64..=32768;
const NICE: RangeInclusive<i32> = -20..=19;
const MAX_PMDS: usize = 64;

type Found = Vec<(KeyPath, String)>;

macro_rules! path {
    ($($step:expr),+) => { KeyPath(vec![$(Step::from($step)),+]) };
}

/// Everything that is wrong with `config`: the key and what would be right.
pub(super) fn problems(config: &Config) -> Found {
    let mut found = Found::new();
    check_pmds(config, &mut found);
    check_scheduler(config, &mut found);
    check_sizes(config, &mut found);
    check_dpdk(config, &mut found);
    check_tenants(config, &mut found);
    check_bridges(config, &mut found);
    check_ports(config, &mut found);
    found
}

fn check_pmds(config: &Config, found: &mut Found) {
    let cores = &config.pmd.cores;
    if cores.len() > MAX_PMDS {
        found.push((path!("pmd", "cores"), format!("at most {MAX_PMDS} cores")));
    }
    let mut seen = HashSet::new();
    for (index, core) in cores.iter().enumerate() {
        if !seen.insert(core) {
            found.push((path!("pmd", "cores", index), format!("core {core} is listed twice")));
        }
    }
}

fn check_scheduler(config: &Config, found: &mut Found) {
    let Err(error) = config.scheduler.check() else { return };
    found.push((path!("scheduler", error.knob), error.to_string()));
}

fn check_sizes(config: &Config, found: &mut Found) {
    let cache = &config.cache;
    let sizes = [
        ("exact_entries", cache.exact_entries, EXACT_ENTRIES),
        ("megaflows", cache.megaflows, MEGAFLOWS),
        ("subtables", cache.subtables, SUBTABLES),
    ];
    let per_tenant = cache.megaflows_per_tenant;
    let per_tenant = per_tenant.map(|value| ("megaflows_per_tenant", value, MEGAFLOWS_PER_TENANT));
    for (key, value, allowed) in sizes.into_iter().chain(per_tenant) {
        if !allowed.contains(&value) {
            found.push((path!("cache", key), range(&allowed, &value)));
        }
    }
    if let Some(nice) = config.slow_path.nice.filter(|nice| !NICE.contains(nice)) {
        found.push((path!("slow_path", "nice"), range(&NICE, &nice)));
    }
}

fn check_dpdk(config: &Config, found: &mut Found) {
    let Some(dpdk) = &config.dpdk else { return };
    if !cfg!(feature = "dpdk") {
        found.push((path!("dpdk"), NicError::NotBuilt.to_string()));
    }
    for (index, argument) in dpdk.eal_args.iter().enumerate() {
        if argument.contains('\0') {
            let message = "an argument cannot contain a zero byte".to_owned();
            found.push((path!("dpdk", "eal_args", index), message));
        }
    }
}

fn check_tenants(config: &Config, found: &mut Found) {
    let scheduler = config.scheduler.policy(NOMINAL_TSC_HZ);
    for (name, tenant) in &config.tenants {
        if let Err(message) = check_tenant_name(name) {
            found.push((path!("tenants", name.as_str()), message));
        }
        // The scheduler's own knobs are complained about where they stand.
        if scheduler.validate().is_ok()
            && let Err(error) = tenant.settings().knobs(&scheduler)
        {
            found.push((path!("tenants", name.as_str(), error.knob), error.to_string()));
        }
    }
}

fn check_bridges(config: &Config, found: &mut Found) {
    if config.bridges.len() > MAX_BRIDGES {
        found.push((path!("bridges"), format!("at most {MAX_BRIDGES} bridges")));
    }
    let mut seen = HashSet::new();
    for (index, bridge) in config.bridges.iter().enumerate() {
        let path = path!("bridges", index, "name");
        if let Err(message) = check_name(&bridge.name) {
            found.push((path, message));
        } else if !seen.insert(bridge.name.as_str()) {
            found.push((path, format!("another bridge is called {:?}", bridge.name)));
        }
        if bridge.controllers.len() > MAX_CONTROLLERS {
            let path = path!("bridges", index, "controllers");
            found.push((path, format!("at most {MAX_CONTROLLERS} controllers")));
        }
        if !(1..=RULES_PER_TABLE).contains(&bridge.flows_per_table) {
            let path = path!("bridges", index, "flows_per_table");
            found.push((path, format!("must be 1 to {RULES_PER_TABLE}")));
        }
        if bridge.fail_mode == FailMode::Standalone {
            let message = "\"standalone\" is not implemented, only \"secure\": without a controller the \
                           flows stay as they are (a flow with actions=NORMAL makes a learning switch)";
            found.push((path!("bridges", index, "fail_mode"), message.to_owned()));
        }
    }
}

fn check_ports(config: &Config, found: &mut Found) {
    let bridges: HashSet<&str> = config.bridges.iter().map(|bridge| bridge.name.as_str()).collect();
    let mut names = HashSet::new();
    let mut numbers = HashSet::new();
    for (index, port) in config.ports.iter().enumerate() {
        let mut refuse = |key: &str, message| found.push((path!("ports", index, key), message));
        if let Err(message) = check_name(&port.name) {
            refuse("name", message);
        } else if !names.insert(port.name.as_str()) {
            refuse("name", format!("another port is called {:?}", port.name));
        } else if bridges.contains(port.name.as_str()) {
            refuse("name", format!("a bridge is called {:?}", port.name));
        }
        if !bridges.contains(port.bridge.as_str()) {
            let message = format!("no bridge {:?}: list it under [[bridges]]", port.bridge);
            refuse("bridge", message);
        }
        if let Some(ofport) = port.ofport.filter(|_| {
            port.ofport.is_some_and(|ofport| !numbers.insert((port.bridge.as_str(), ofport)))
        }) {
            refuse("ofport", format!("another port of the bridge has number {ofport}"));
        }
        check_port_values(config, port, &mut refuse);
    }
}

fn check_port_values(config: &Config, port: &PortConfig, refuse: &mut impl FnMut(&str, String)) {
    if let Some(ofport) = port.ofport.filter(|ofport| !(1..=MAX_OFPORT).contains(ofport)) {
        refuse("ofport", range(&(1..=MAX_OFPORT), &ofport));
    }
    if !(1..=MAX_QUEUE_PAIRS).contains(&port.queue_pairs) {
        refuse("queue_pairs", range(&(1..=MAX_QUEUE_PAIRS), &port.queue_pairs));
    }
    if let Err((key, message)) = check_kind(port) {
        refuse(key, message);
    }
    if port.kind == PortKind::Dpdk && cfg!(feature = "dpdk") && config.dpdk.is_none() {
        refuse("type", NEEDS_DPDK.to_owned());
    }
    if let Some(Err(message)) = port.mac.map(|mac| check_mac(mac, port.is_uplink())) {
        refuse("mac", message);
    }
    if let Some(Err(message)) = port.tenant.as_deref().map(check_tenant_name) {
        refuse("tenant", message);
    }
    if let Some(Err(message)) = port.socket.as_deref().map(check_socket_path) {
        refuse("socket", message);
    }
    let pmds = config.pmd.cores.len().max(1);
    if let Some(pmd) = port.pmd.filter(|pmd| *pmd >= pmds) {
        refuse("pmd", format!("there is no PMD {pmd}: `pmd.cores` makes PMD 0 to {}", pmds - 1));
    }
}

/// Why a port of DPDK is refused where DPDK was not initialised.
pub(crate) const NEEDS_DPDK: &str = "\"dpdk\" needs a section [dpdk] in the configuration file (with \
                                     eal_args, or empty): DPDK is initialised at the start";

/// Checks that a port has the keys of its type and no others.
///
/// # Errors
/// The offending key, and what is wrong with it.
pub fn check_kind(port: &PortConfig) -> Result<(), (&'static str, String)> {
    let vhost_user = [
        ("socket", port.socket.is_some()),
        ("mode", port.mode != PortMode::default()),
        ("queue_pairs", port.queue_pairs != 1),
        ("mac", port.mac.is_some()),
    ];
    let dpdk = [
        ("devargs", port.devargs.is_some()),
        ("queues", port.queues.is_some()),
        ("mtu", port.mtu.is_some()),
        ("promiscuous", port.promiscuous.is_some()),
    ];
    let (others, kind) = match port.kind {
        PortKind::VhostUser => (dpdk, PortKind::Dpdk),
        PortKind::Dpdk => (vhost_user, PortKind::VhostUser),
    };
    if let Some((key, _)) = others.into_iter().find(|(_, is_set)| *is_set) {
        let (kind, own) = (kind.as_str(), port.kind.as_str());
        return Err((key, format!("only a port of type {kind:?} has it, and this is {own:?}")));
    }
    if port.kind == PortKind::VhostUser {
        return Ok(());
    }
    if !cfg!(feature = "dpdk") {
        return Err(("type", NicError::NotBuilt.to_string()));
    }
    if port.devargs.as_ref().is_none_or(|devargs| devargs.is_empty() || devargs.contains('\0')) {
        let message = "must name the device: a PCI address as \"0000:3b:00.0\", or a virtual device \
                       as \"net_af_packet0,iface=eth1\"";
        return Err(("devargs", message.to_owned()));
    }
    let queues = 1..=tollgate_nic::limits::MAX_QUEUES;
    if let Some(asked) = port.queues.filter(|asked| !queues.contains(asked)) {
        return Err(("queues", range(&queues, &asked)));
    }
    if let Some(asked) = port.mtu.filter(|asked| !tollgate_nic::limits::MTU.contains(asked)) {
        return Err(("mtu", range(&tollgate_nic::limits::MTU, &asked)));
    }
    if port.uplink == Some(false) {
        let message = "a port of type \"dpdk\" is an uplink: what it receives is charged to the \
                       tenants that it is for";
        return Err(("uplink", message.to_owned()));
    }
    Ok(())
}

/// Checks that `mac` can be the address of the guest behind a port.
///
/// # Errors
/// What an address must be, to follow after the name of the offending key.
pub fn check_mac(mac: MacAddr, uplink: bool) -> Result<(), String> {
    if uplink {
        Err("an uplink has many stations behind it: give the guests' ports their addresses"
            .to_owned())
    } else if mac.is_multicast() || mac == MacAddr::default() {
        Err(format!("{mac} is not the address of one station"))
    } else {
        Ok(())
    }
}

/// Checks that `path` can name a unix socket.
///
/// # Errors
/// What a path must be, to follow after the name of the offending key.
pub fn check_socket_path(path: &Path) -> Result<(), String> {
    let bytes = path.as_os_str().len();
    if !path.is_absolute() {
        Err(format!(
            "{} must be an absolute path",
            crate::names::shortened(&path.to_string_lossy())
        ))
    } else if bytes > MAX_SOCKET_PATH_BYTES {
        Err(format!(
            "{bytes} bytes are too long for a socket path: at most {MAX_SOCKET_PATH_BYTES}"
        ))
    } else if path.as_os_str().as_encoded_bytes().contains(&0) {
        Err("a path cannot contain a zero byte".to_owned())
    } else {
        Ok(())
    }
}

fn range<T: std::fmt::Display>(allowed: &RangeInclusive<T>, value: &T) -> String {
    format!("must be from {} to {}, not {value}", allowed.start(), allowed.end())
}
