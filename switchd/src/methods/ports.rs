//! `port_*`

use std::path::Path;

use serde_json::{Map, Value, json};
use tollgate_nic::limits::{MAX_QUEUES, MTU};
use tollgate_packet::MacAddr;
use tollgate_vhost::PortStatus;

use super::{Outcome, done};
use crate::config::{
    MAX_QUEUE_PAIRS, PortConfig, PortKind, PortMode, check_kind, check_mac, check_socket_path,
};
use crate::control::{AttachmentSummary, CardSummary, PortSummary, Switch};
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
    let uplink = params.optional_boolean("uplink")?;
    let mac = params.optional_text("mac")?.map(|text| text.parse::<MacAddr>()).transpose();
    let mac = mac.map_err(|reason| refused_value("mac", reason))?;
    if let Some(mac) = mac {
        check_mac(mac, uplink == Some(true)).map_err(|reason| refused_value("mac", reason))?;
    }
    let kind = match params.optional_text("type")?.as_deref() {
        None | Some("vhost-user") => PortKind::VhostUser,
        Some("dpdk") => PortKind::Dpdk,
        Some(_) => return Err(refused_value("type", "must be \"vhost-user\" or \"dpdk\"")),
    };
    let port = PortConfig {
        bridge,
        name,
        kind,
        socket: socket.map(Into::into),
        mode,
        tenant,
        ofport,
        queue_pairs,
        pmd,
        uplink,
        mac,
        devargs: params.optional_text("devargs")?,
        queues: params.optional_integer("queues", 1..=MAX_QUEUES)?,
        mtu: params.optional_integer("mtu", MTU)?,
        promiscuous: params.optional_boolean("promiscuous")?,
    };
    check_kind(&port).map_err(|(key, reason)| refused_value(key, reason))?;
    Ok(port)
}

pub(super) fn remove(switch: &Switch, mut params: Params) -> Outcome {
    let bridge = params.text("bridge")?;
    let name = params.text("name")?;
    params.finish()?;
    switch.port_remove(&bridge, &name)?;
    done()
}

pub(super) fn get(switch: &Switch, mut params: Params) -> Outcome {
    let bridge = params.text("bridge")?;
    let name = params.text("name")?;
    params.finish()?;
    let (port, xstats) = switch.port(&bridge, &name)?;
    let mut described = members(describe(&port));
    if !xstats.is_empty() {
        let xstats = xstats.into_iter().map(|(name, value)| (name, value.into()));
        described.insert("xstats".to_owned(), Value::Object(xstats.collect()));
    }
    Ok(described.into())
}

pub(super) fn list(switch: &Switch, mut params: Params) -> Outcome {
    let bridge = params.optional_text("bridge")?;
    params.finish()?;
    Ok(switch.ports(bridge.as_deref())?.iter().map(describe).collect())
}

fn describe(port: &PortSummary) -> Value {
    let mut described = common(port);
    let of_its_kind = match &port.attachment {
        AttachmentSummary::Guest { socket, mode, queue_pairs, status } => {
            guest(port, &socket.to_string_lossy(), *mode, *queue_pairs, status)
        }
        AttachmentSummary::Card(card) => describe_card(card),
    };
    described.extend(of_its_kind);
    described.into()
}

fn common(port: &PortSummary) -> Map<String, Value> {
    let counters = &port.counters;
    let drops: Map<String, Value> = counters
        .drops
        .iter()
        .map(|(reason, count)| (reason.as_str().to_owned(), (*count).into()))
        .collect();
    members(json!({
        "bridge": port.bridge,
        "name": port.name,
        "ofport": port.ofport,
        "tenant": port.tenant,
        "pmd": port.pmd,
        "uplink": port.uplink,
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
    }))
}

fn guest(
    port: &PortSummary,
    socket: &str,
    mode: PortMode,
    queue_pairs: u16,
    status: &PortStatus,
) -> Map<String, Value> {
    let rings = rings(status);
    let quarantined = rings.iter().find_map(|ring| ring["fault"].as_str().map(str::to_owned));
    members(json!({
        "type": PortKind::VhostUser.as_str(),
        "socket": socket,
        "mode": mode.as_str(),
        "queue_pairs": queue_pairs,
        "mac": port.mac.map(|mac| mac.to_string()),
        "connected": status.is_connected(),
        "state": state(status, quarantined.is_some()),
        "error": quarantined.or_else(|| status.last_error()),
        "rings": rings,
        "features": status.features().names(),
        "memory_regions": status.memory_regions(),
        "sessions": status.sessions(),
        "session_errors": status.session_errors(),
        "quarantines": status.quarantines(),
    }))
}

fn describe_card(card: &CardSummary) -> Map<String, Value> {
    members(json!({
        "type": PortKind::Dpdk.as_str(),
        "devargs": card.devargs,
        "driver": card.driver,
        "queues": card.queues,
        "mtu": card.mtu,
        "promiscuous": card.promiscuous,
        "mac": card.mac.map(|mac| mac.to_string()),
        "connected": card.link.is_up,
        "state": if card.link.is_up { "up" } else { "down" },
        "speed_mbps": card.link.speed_mbps,
        "full_duplex": card.link.is_full_duplex,
        "mbufs_in_use": card.mbufs_in_use,
    }))
}

fn members(object: Value) -> Map<String, Value> {
    match object {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

fn state(status: &PortStatus, quarantined: bool) -> &'static str {
    if !status.is_connected() {
        "disconnected"
    } else if quarantined {
        "quarantined"
    } else if status.rings_started().is_empty() {
        "connected"
    } else {
        "running"
    }
}

/// The rings that run or are quarantined.
fn rings(status: &PortStatus) -> Vec<Value> {
    (0..MAX_QUEUE_PAIRS * 2)
        .filter_map(|index| {
            let started = status.is_started(index);
            let fault = status.fault(index);
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
