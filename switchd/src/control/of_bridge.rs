//! A bridge as OpenFlow sees it: flows from the pipeline, ports from the registry.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tollgate_datapath::PortSnapshot;
use tollgate_openflow::message::{Features, OFPC_FLOW_STATS, OFPC_PORT_STATS, OFPC_TABLE_STATS};
use tollgate_openflow::meter::{MeterConfig, MeterFeatures, MeterMod, MeterStats};
use tollgate_openflow::multipart::{
    AggregateStats, COUNTER_UNSUPPORTED, DescStats, FlowStats, FlowStatsRequest, PortStats,
    TableStats,
};
use tollgate_openflow::packet_out::PacketOut;
use tollgate_openflow::port::{OFPPS_LINK_DOWN, OFPPS_LIVE, PortDesc};
use tollgate_openflow::port_mod::PortMod;
use tollgate_openflow::table_features::TableFeatures;
use tollgate_openflow::{ErrorCode, FlowMod};

use super::registry::{PortEntry, Registry};
use crate::identity::HostIdentity;
use crate::openflow::{Bridge, FlowCursor};
use crate::pipeline::{BridgeId, FlowDump, FlowError, Pipeline, PortInfo};

#[derive(Debug)]
pub(super) struct OpenFlowBridge {
    name: String,
    id: BridgeId,
    datapath_id: u64,
    host: HostIdentity,
    pipeline: Arc<Pipeline>,
    registry: Arc<RwLock<Registry>>,
}

impl OpenFlowBridge {
    pub(super) fn new(
        name: &str,
        id: BridgeId,
        datapath_id: u64,
        host: HostIdentity,
        pipeline: Arc<Pipeline>,
        registry: Arc<RwLock<Registry>>,
    ) -> Self {
        Self { name: name.to_owned(), id, datapath_id, host, pipeline, registry }
    }

    fn registry(&self) -> RwLockReadGuard<'_, Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn describe(&self, name: &str, port_no: u32, up: bool) -> PortDesc {
        PortDesc {
            port_no,
            hw_addr: self.host.mac(name),
            name: name.to_owned(),
            state: if up { OFPPS_LIVE } else { OFPPS_LINK_DOWN },
            ..PortDesc::default()
        }
    }

    /// `describe` of each port, by number.
    fn by_number<T>(&self, describe: impl Fn(&str, &PortEntry) -> T) -> Vec<T> {
        let registry = self.registry();
        let mut ports: Vec<_> = registry.ports_of(&self.name).collect();
        ports.sort_unstable_by_key(|(_, port)| port.ofport);
        ports.into_iter().map(|(name, port)| describe(name, port)).collect()
    }
}

impl FlowCursor for FlowDump {
    fn next(&mut self, count: usize) -> Vec<FlowStats> {
        self.next_flows(count)
    }
}

impl Bridge for OpenFlowBridge {
    fn name(&self) -> &str {
        &self.name
    }

    fn features(&self) -> Features {
        Features {
            datapath_id: self.datapath_id,
            n_buffers: 0,
            n_tables: crate::pipeline::limits::TABLES,
            auxiliary_id: 0,
            capabilities: OFPC_FLOW_STATS | OFPC_TABLE_STATS | OFPC_PORT_STATS,
        }
    }

    fn description(&self) -> DescStats {
        DescStats {
            mfr_desc: "Tollgate".to_owned(),
            hw_desc: "vhost-user".to_owned(),
            sw_desc: format!("switchd {}", env!("CARGO_PKG_VERSION")),
            serial_num: "None".to_owned(),
            dp_desc: self.name.clone(),
        }
    }

    fn ports(&self) -> Vec<PortDesc> {
        let config = self.pipeline.ports(self.id);
        let config = |ofport| config.iter().find(|p| p.ofport == ofport).map_or(0, |p| p.config);
        self.by_number(|name, port| PortDesc {
            config: config(port.ofport),
            ..self.describe(name, port.ofport, port.attachment.is_up())
        })
    }

    fn port_desc(&self, port: &PortInfo) -> PortDesc {
        let registry = self.registry();
        let entry = registry.ports.get(&port.name).filter(|entry| entry.bridge == self.name);
        let up = entry.is_some_and(|entry| entry.attachment.is_up());
        PortDesc { config: port.config, ..self.describe(&port.name, port.ofport, up) }
    }

    fn port_stats(&self) -> Vec<PortStats> {
        self.by_number(|_, port| {
            let counters = port.handle.counters();
            PortStats { duration: port.added.elapsed(), ..stats(port.ofport, &counters) }
        })
    }

    fn flow_mods(&self, flow_mods: &[FlowMod]) -> Vec<Result<(), FlowError>> {
        self.pipeline.flow_mods(self.id, flow_mods)
    }

    fn barrier(&self) {
        self.pipeline.barrier();
    }

    fn flow_mods_atomic(
        &self,
        flow_mods: &mut dyn Iterator<Item = FlowMod>,
    ) -> Result<(), (usize, FlowError)> {
        self.pipeline.bundle(self.id, flow_mods)
    }

    fn packet_out(&self, packet: &PacketOut) -> Result<(), FlowError> {
        self.pipeline.packet_out(self.id, packet)
    }

    fn port_mod(&self, port_mod: &PortMod) -> Result<(), FlowError> {
        let named = |name: &str, port: &PortEntry| (port.ofport, self.host.mac(name));
        let ports = self.by_number(named);
        let address = ports.iter().find(|(number, _)| *number == port_mod.port_no);
        if address.is_some_and(|(_, address)| *address != port_mod.hw_addr) {
            let (code, detail) = (ErrorCode::OFPPMFC_BAD_HW_ADDR, "the port has another address");
            return Err(FlowError { code, detail });
        }
        self.pipeline.port_mod(self.id, port_mod)
    }

    fn meter_mod(&self, meter_mod: &MeterMod) -> Result<(), FlowError> {
        self.pipeline.meter_mod(self.id, meter_mod)
    }

    fn meters(&self, meter_id: u32) -> Result<Vec<MeterConfig>, FlowError> {
        self.pipeline.meter_configs(self.id, meter_id)
    }

    fn meter_stats(&self, meter_id: u32) -> Result<Vec<MeterStats>, FlowError> {
        self.pipeline.meter_stats(self.id, meter_id)
    }

    fn meter_features(&self) -> MeterFeatures {
        crate::pipeline::meter_features()
    }

    fn flows(&self, request: &FlowStatsRequest) -> Result<Box<dyn FlowCursor>, FlowError> {
        Ok(Box::new(self.pipeline.flow_dump(self.id, request)?))
    }

    fn aggregate(&self, request: &FlowStatsRequest) -> Result<AggregateStats, FlowError> {
        self.pipeline.aggregate(self.id, request)
    }

    fn tables(&self) -> Vec<TableStats> {
        // Fails only when the bridge is being removed, and this connection with it.
        self.pipeline.table_stats(self.id).unwrap_or_default()
    }

    fn table_features(&self) -> Vec<TableFeatures> {
        self.pipeline.table_features(self.id)
    }
}

/// Errors of a wire do not exist here: they print as `?` rather than as an honest-looking zero.
fn stats(port_no: u32, counters: &PortSnapshot) -> PortStats {
    PortStats {
        port_no,
        rx_packets: counters.rx_packets,
        tx_packets: counters.tx_packets,
        rx_bytes: counters.rx_bytes,
        tx_bytes: counters.tx_bytes,
        rx_dropped: counters
            .drops
            .iter()
            .filter(|(reason, _)| !reason.is_egress())
            .map(|(_, count)| count)
            .sum(),
        tx_dropped: counters.tx_drops,
        rx_frame_err: COUNTER_UNSUPPORTED,
        rx_over_err: COUNTER_UNSUPPORTED,
        rx_crc_err: COUNTER_UNSUPPORTED,
        collisions: COUNTER_UNSUPPORTED,
        rx_errors: COUNTER_UNSUPPORTED,
        tx_errors: COUNTER_UNSUPPORTED,
        ..PortStats::default()
    }
}
