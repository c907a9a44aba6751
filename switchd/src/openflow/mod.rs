//! OpenFlow 1.3 on RUNDIR/BRIDGE.mgmt, for controllers and for tools like `ofctl` and `ovs-ofctl`.

mod server;
mod session;
mod stream;

use tollgate_openflow::FlowMod;
use tollgate_openflow::message::Features;
use tollgate_openflow::multipart::{
    AggregateStats, DescStats, FlowStats, FlowStatsRequest, PortStats, TableStats,
};
use tollgate_openflow::port::PortDesc;
use tollgate_openflow::table_features::TableFeatures;

use crate::pipeline::FlowError;

pub use server::serve;

/// A bridge as its OpenFlow clients see it. Calls may block.
pub trait Bridge: Send + Sync + 'static {
    /// Its name.
    fn name(&self) -> &str;

    /// What it is.
    fn features(&self) -> Features;

    /// Who made it.
    fn description(&self) -> DescStats;

    /// Its ports, by number.
    fn ports(&self) -> Vec<PortDesc>;

    /// Its ports' counters, by number.
    fn port_stats(&self) -> Vec<PortStats>;

    /// Changes the tables.
    ///
    /// # Errors
    /// What goes into the OFPT_ERROR.
    fn flow_mod(&self, flow_mod: &FlowMod) -> Result<(), FlowError>;

    /// Returns when every change made before is in force on every PMD.
    fn barrier(&self);

    /// The flows that `request` selects.
    ///
    /// # Errors
    /// What goes into the OFPT_ERROR.
    fn flows(&self, request: &FlowStatsRequest) -> Result<Vec<FlowStats>, FlowError>;

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
