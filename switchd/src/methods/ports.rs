//! `port_*`

use std::path::Path;

use serde_json::{Map, Value, json};
use tollgate_packet::MacAddr;

use super::{Outcome, done};
use crate::config::{MAX_QUEUE_PAIRS, PortConfig, PortMode, check_mac, check_socket_path};
use crate::control::{PortSummary, Switch};
use crate::limits::MAX_OFPORT;
use crate::names::{check_name, check_tenant_name};
use crate::rpc::{Params, RpcError, refused_value};

pub(super) fn add(switch: &Switch, mut params: Params) -> Outcome {
    let port = new_port(switch, &mut params)?;
    params.finish()?;
    let ofport = switch.port_add(&port)?;
    Ok(json!({ "ofport": ofport }))
}

fn new_port(switch: &Switch, params: &mut Params) -> Result<PortConfig, RpcError> {
    let bridge = params.text("bridge")?;
    let name = params.text("name")?;
    check_name(&name).map_err(|reason| refused_value("name", reason))?;
    let socket = params.optional_text("socket")?;
    if let Some(socket) = &socket {
        check_socket_path(Path::new(socket)).map_err(|reason| refused_value("socket", reason))?;
    }
    let mode = match params.optional_text("mode")?.as_deref() {
        None | Some("listen") => PortMode::Listen,
        Some("connect") => PortMode::Connect,
        Some(_) => return Err(refused_value("mode", "must be \"listen\" or \"connect\"")),
    };
    let tenant = params.optional_text("tenant")?;
    if let Some(tenant) = &tenant {
        check_tenant_name(tenant).map_err(|reason| refused_value("tenant", reason))?;
    }
    let ofport = params.optional_integer("ofport", 1..=MAX_OFPORT)?;
    let queue_pairs = params.optional_integer("queue_pairs", 1..=MAX_QUEUE_PAIRS)?.unwrap_or(1);
    let last_pmd = switch.datapath().pmd_count().saturating_sub(1) as u64;
    let pmd = params.optional_integer("pmd", 0..=last_pmd)?.map(|pmd| pmd as usize);
    let uplink = params.optional_boolean("uplink")?.unwrap_or(false);
    let mac = params.optional_text("mac")?.map(|text| text.parse::<MacAddr>()).transpose();
    let mac = mac.map_err(|reason| refused_value("mac", reason))?;
    if let Some(mac) = mac {
        check_mac(mac, uplink).map_err(|reason| refused_value("mac", reason))?;
    }
    let socket = socket.map(Into::into);
    Ok(PortConfig { bridge, name, socket, mode, tenant, ofport, queue_pairs, pmd, uplink, mac })
}

pub(super) fn remove(switch: &Switch, mut params: Params) -> Outcome {
    let bridge = params.text("bridge")?;
    let name = params.text("name")?;
    params.finish()?;
    switch.port_remove(&bridge, &name)?;
    done()
}

pub(super) fn list(switch: &Switch, mut params: Params) -> Outcome {
    let bridge = params.optional_text("bridge")?;
    params.finish()?;
    Ok(switch.ports(bridge.as_deref())?.iter().map(describe).collect())
}

fn describe(port: &PortSummary) -> Value {
    let counters = &port.counters;
    let rings = rings(port);
    let quarantined = rings.iter().find_map(|ring| ring["fault"].as_str().map(str::to_owned));
    let drops: Map<String, Value> = counters
        .drops
        .iter()
        .map(|(reason, count)| (reason.as_str().to_owned(), (*count).into()))
        .collect();
    json!({
        "bridge": port.bridge,
        "name": port.name,
        "ofport": port.ofport,
        "tenant": port.tenant,
        "pmd": port.pmd,
        "socket": port.socket.to_string_lossy(),
        "mode": port.mode.as_str(),
        "queue_pairs": port.queue_pairs,
        "uplink": port.uplink,
        "mac": port.mac.map(|mac| mac.to_string()),
        "connected": port.status.is_connected(),
        "state": state(port, quarantined.is_some()),
        "error": quarantined.or_else(|| port.status.last_error()),
        "rings": rings,
        "features": port.status.features().names(),
        "memory_regions": port.status.memory_regions(),
        "sessions": port.status.sessions(),
        "session_errors": port.status.session_errors(),
        "quarantines": port.status.quarantines(),
        "rx_packets": counters.rx_packets,
        "rx_bytes": counters.rx_bytes,
        "tx_packets": counters.tx_packets,
        "tx_bytes": counters.tx_bytes,
        "forwarded": counters.forwarded,
        "drops": drops,
        "tx_drops": counters.tx_drops,
        "clones": counters.clones,
        "injected": counters.injected,
        "queued": counters.queued,
        "consumed": counters.consumed,
    })
}

fn state(port: &PortSummary, quarantined: bool) -> &'static str {
    if !port.status.is_connected() {
        "disconnected"
    } else if quarantined {
        "quarantined"
    } else if port.status.rings_started().is_empty() {
        "connected"
    } else {
        "running"
    }
}

/// The rings that run or are quarantined.
fn rings(port: &PortSummary) -> Vec<Value> {
    (0..MAX_QUEUE_PAIRS * 2)
        .filter_map(|index| {
            let started = port.status.is_started(index);
            let fault = port.status.fault(index);
            (started || fault.is_some()).then(|| {
                json!({
                    "index": index,
                    // As the guest's driver calls them: it transmits on odd virtqueues.
                    "direction": if index % 2 == 0 { "to_guest" } else { "from_guest" },
                    "started": started,
                    "fault": fault.map(|fault| fault.as_str()),
                })
            })
        })
        .collect()
}
