//! OpenFlow 1.3, for controllers and for tools like `ofctl` and `ovs-ofctl`.
//!
//! ```text
//! RUNDIR/BRIDGE.mgmt -+                    +-> session: messages -> bridge -> answers -+
//! punix: ptcp:       -+-> connection (task)                                            +-> peer (bounded
//! tcp: unix: (kept up)+                    +<- writer <--------------------------------+     queue)
//!                          pipeline's events -> hub -> audience of the bridge ---------+
//! ```
//!
//! A connection has messages carried out on a thread that may block, as many at a time as one read
//! brought. Whoever does not read what he asked for is asked for nothing more; whoever does not
//! read events loses them. Neither holds up another connection, the slow path or a PMD.

mod bundles;
mod connection;
mod controllers;
mod dump;
mod hub;
mod notify;
mod peer;
mod recording;
mod requests;
mod roles;
mod server;
mod session;
mod socket;
mod stream;
mod target;
mod timing;
mod worker;

use tollgate_openflow::FlowMod;
use tollgate_openflow::message::Features;
use tollgate_openflow::meter::{MeterConfig, MeterFeatures, MeterMod, MeterStats};
use tollgate_openflow::multipart::{
    AggregateStats, DescStats, FlowStats, FlowStatsRequest, PortStats, TableStats,
};
use tollgate_openflow::packet_out::PacketOut;
use tollgate_openflow::port::PortDesc;
use tollgate_openflow::port_mod::PortMod;
use tollgate_openflow::table_features::TableFeatures;

use crate::pipeline::{FlowError, PortInfo};

pub use controllers::{ControllerSummary, LinkState, ListenError};
pub use hub::{Audience, EventHub};
pub use roles::Role;
pub use server::BridgeServer;
pub use target::Target;
pub use timing::Timing;

/// A bridge as its OpenFlow clients see it. Calls may block, unless noted otherwise.
pub trait Bridge: Send + Sync + 'static {
    /// Its name. Does not block.
    fn name(&self) -> &str;

    /// What it is.
    fn features(&self) -> Features;

    /// Who made it.
    fn description(&self) -> DescStats;

    /// Its ports, by number.
    fn ports(&self) -> Vec<PortDesc>;

    /// A port of it, which may be gone, as PORT_STATUS tells of it. Does not block.
    fn port_desc(&self, port: &PortInfo) -> PortDesc;

    /// Its ports' counters, by number.
    fn port_stats(&self) -> Vec<PortStats>;

    /// Changes the tables, in this order. One that is refused does not keep the others from being
    /// carried out.
    ///
    /// # Errors
    /// For each, what goes into the OFPT_ERROR.
    fn flow_mods(&self, flow_mods: &[FlowMod]) -> Vec<Result<(), FlowError>>;

    /// Changes the tables, in this order, by all of the flow-mods or by none.
    ///
    /// # Errors
    /// The position of the one that is refused, and what goes into the OFPT_ERROR.
    fn flow_mods_atomic(
        &self,
        flow_mods: &mut dyn Iterator<Item = FlowMod>,
    ) -> Result<(), (usize, FlowError)>;

    /// Sends a packet.
    ///
    /// # Errors
    /// What goes into the OFPT_ERROR.
    fn packet_out(&self, packet: &PacketOut) -> Result<(), FlowError>;

    /// Configures a port.
    ///
    /// # Errors
    /// What goes into the OFPT_ERROR.
    fn port_mod(&self, port_mod: &PortMod) -> Result<(), FlowError>;

    /// Changes the meters.
    ///
    /// # Errors
    /// What goes into the OFPT_ERROR.
    fn meter_mod(&self, meter_mod: &MeterMod) -> Result<(), FlowError>;

    /// One meter as it was configured, or all with `OFPM_ALL`.
    ///
    /// # Errors
    /// What goes into the OFPT_ERROR.
    fn meters(&self, meter_id: u32) -> Result<Vec<MeterConfig>, FlowError>;

    /// Counters of one meter, or of all with `OFPM_ALL`.
    ///
    /// # Errors
    /// What goes into the OFPT_ERROR.
    fn meter_stats(&self, meter_id: u32) -> Result<Vec<MeterStats>, FlowError>;

    /// What meters there can be.
    fn meter_features(&self) -> MeterFeatures;

    /// Returns when every change made before is in force on every PMD.
    fn barrier(&self);

    /// The flows that `request` selects.
    ///
    /// # Errors
    /// What goes into the OFPT_ERROR.
    fn flows(&self, request: &FlowStatsRequest) -> Result<Box<dyn FlowCursor>, FlowError>;

    /// The sum of the counters of the flows that `request` selects.
    ///
    /// # Errors
    /// What goes into the OFPT_ERROR.
    fn aggregate(&self, request: &FlowStatsRequest) -> Result<AggregateStats, FlowError>;

    /// Counters of the tables.
    fn tables(&self) -> Vec<TableStats>;

    /// What the tables can do.
    fn table_features(&self) -> Vec<TableFeatures>;
}

/// Flows, a few at a time.
pub trait FlowCursor: Send {
    /// The next flows, at most `count`; none at the end.
    fn next(&mut self, count: usize) -> Vec<FlowStats>;
}
