//! The start-up configuration: one TOML file, described key by key in `examples/switchd.toml`.

mod boost;
pub(crate) mod check;
mod load;
mod locate;
mod mac;
mod refill;
mod rx_overrun;
mod weight;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tollgate_datapath::{DatapathConfig, PortSettings, TenantSettings};
use tollgate_nic::DeviceConfig;
use tollgate_packet::MacAddr;
use tollgate_policy::limits::{COORDINATOR_CAP_CYCLES, COORDINATOR_PERIOD_US};
use tollgate_policy::{Boost, Refill, RxOverrun, SchedulerConfig, Weight};

use crate::control::TenantChange;
use crate::openflow::Target;
use crate::pipeline::limits::RULES_PER_TABLE;
use crate::pipeline::{Overflow, TableLimits};

pub use check::{check_kind, check_mac, check_socket_path};
pub use tollgate_vhost::limits::MAX_QUEUE_PAIRS;

pub use refill::RefillKind;

pub use load::{ConfigError, Problem, load, parse};

/// Everything that `switchd` reads at start. Every key has a default.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The polling threads.
    pub pmd: PmdConfig,
    /// Who runs when.
    pub scheduler: SchedulerSection,
    /// Sizes of each PMD's flow caches.
    pub cache: CacheConfig,
    /// The thread that walks the tables for packets no cache knows.
    pub slow_path: SlowPathConfig,
    /// DPDK, which is initialised at the start if there is this section.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dpdk: Option<DpdkConfig>,
    /// Tenants whose settings are not the default, by name.
    pub tenants: BTreeMap<String, TenantConfig>,
    /// Bridges that exist from the start.
    pub bridges: Vec<BridgeConfig>,
    /// Ports that exist from the start.
    pub ports: Vec<PortConfig>,
}

/// `[pmd]`
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PmdConfig {
    /// CPUs, one PMD thread on each; empty means the last CPU that the process may use.
    pub cores: Vec<usize>,
}

/// `[scheduler]`
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SchedulerSection {
    /// Whether tenants in debt wait for funded ones.
    pub protection: bool,
    /// What one turn may cost.
    pub quantum_cycles: u64,
    /// Most credit a tenant can hold; by default 4 quanta, or 15 000 cycles under a coordinator.
    pub cap_cycles: Option<u64>,
    /// Most debt that is remembered; by default 200 quanta.
    pub floor_cycles: Option<u64>,
    /// How long a tenant without work still counts as active; by default as `floor_cycles`.
    pub horizon_cycles: Option<u64>,
    /// Who gives tenants their credit.
    pub refill: RefillKind,
    /// Under a coordinator: from one grant to the next.
    pub period_us: u64,
    /// Under a coordinator: the part of the elapsed time that is given out.
    #[serde(with = "boost")]
    pub boost: Boost,
}

/// `[cache]`
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// Entries of the exact-match table.
    pub exact_entries: usize,
    /// Whether that table is used.
    pub exact_match: bool,
    /// Megaflows.
    pub megaflows: usize,
    /// Pairs of ingress port and megaflow mask.
    pub subtables: usize,
    /// Megaflows of one tenant on all PMDs together; by default a quarter of `megaflows`.
    pub megaflows_per_tenant: Option<usize>,
}

impl CacheConfig {
    /// What is in force where nothing is given.
    pub fn megaflows_per_tenant(&self) -> usize {
        self.megaflows_per_tenant.unwrap_or(self.megaflows / 4)
    }
}

/// `[slow_path]`
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SlowPathConfig {
    /// The CPU it is pinned to; none means any but the PMDs'.
    pub core: Option<usize>,
    /// Its nice value; the daemon's own when not given.
    pub nice: Option<i32>,
}

/// `[dpdk]`
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct DpdkConfig {
    /// Arguments of DPDK's environment (EAL), each a text of its own.
    pub eal_args: Vec<String>,
}

/// `[tenants.NAME]`
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantConfig {
    /// Share of a busy core relative to the other tenants'.
    #[serde(with = "weight")]
    pub weight: Weight,
    /// Copies for controllers that its packets may cause per second.
    pub controller_pps: u32,
    /// Most credit it may hold; by default the scheduler's.
    pub cap_cycles: Option<u64>,
    /// Most of its debt that is remembered; by default the scheduler's.
    pub floor_cycles: Option<u64>,
    /// What becomes of its received packets when it is over its share.
    #[serde(with = "rx_overrun")]
    pub rx_overrun: RxOverrun,
    /// With `rx_overrun = "mark-then-drop"`: in how much debt dropping begins; by default its cap.
    pub mark_depth_cycles: Option<u64>,
    /// New flows that it may ask the slow path about per second.
    pub setups_per_second: u64,
    /// Megaflows that it may have; by default `cache.megaflows_per_tenant`.
    pub megaflows: Option<u64>,
    /// Pairs of ingress port and mask among them.
    pub subtables: u64,
    /// Bytes of its packets that may wait for the slow path, on each PMD.
    pub arena_bytes: u64,
    /// Entries that it may have in each PMD's exact-match table; by default an equal part of it with
    /// the other active tenants.
    pub exact_entries: Option<u64>,
}

impl TenantConfig {
    /// For the datapath.
    pub fn settings(&self) -> TenantSettings {
        TenantSettings {
            weight: self.weight,
            punt_pps: self.controller_pps,
            cap_cycles: self.cap_cycles,
            floor_cycles: self.floor_cycles,
            rx_overrun: self.rx_overrun,
            mark_depth_cycles: self.mark_depth_cycles,
            setups_per_second: self.setups_per_second,
            megaflows: self.megaflows,
            subtables: self.subtables,
            arena_bytes: self.arena_bytes,
            exact_entries: self.exact_entries,
        }
    }

    /// As an order to set all of it.
    pub fn change(&self) -> TenantChange {
        TenantChange {
            weight: Some(self.weight),
            controller_pps: Some(self.controller_pps),
            cap_cycles: self.cap_cycles,
            floor_cycles: self.floor_cycles,
            rx_overrun: Some(self.rx_overrun),
            mark_depth_cycles: self.mark_depth_cycles,
            setups_per_second: Some(self.setups_per_second),
            megaflows: self.megaflows,
            subtables: Some(self.subtables),
            arena_bytes: Some(self.arena_bytes),
            exact_entries: self.exact_entries,
        }
    }
}

/// One of `[[bridges]]`
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BridgeConfig {
    /// Its name; its OpenFlow socket is RUNDIR/NAME.mgmt.
    pub name: String,
    /// Its controllers.
    #[serde(default)]
    pub controllers: Vec<Target>,
    /// What becomes of its flows while no controller is there.
    #[serde(default)]
    pub fail_mode: FailMode,
    /// Flows that each of its tables takes.
    #[serde(default = "every_rule")]
    pub flows_per_table: usize,
    /// What happens to one more.
    #[serde(default)]
    pub overflow: Overflow,
}

impl BridgeConfig {
    /// How many flows its tables take.
    pub fn table_limits(&self) -> TableLimits {
        TableLimits { rules: self.flows_per_table, overflow: self.overflow }
    }
}

/// As many flows as a table can hold.
fn every_rule() -> usize {
    RULES_PER_TABLE
}

/// What becomes of a bridge's flows while none of its controllers is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FailMode {
    /// They stay as they are.
    #[default]
    Secure,
    /// The bridge would become a learning switch; refused, since it is not implemented.
    Standalone,
}

/// One of `[[ports]]`
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PortConfig {
    /// The bridge it belongs to.
    pub bridge: String,
    /// Its name.
    pub name: String,
    /// What is behind it.
    #[serde(default, rename = "type")]
    pub kind: PortKind,
    /// Path of its vhost-user socket; by default RUNDIR/vhost/NAME.
    #[serde(default)]
    pub socket: Option<PathBuf>,
    /// Who listens on the socket.
    #[serde(default)]
    pub mode: PortMode,
    /// Who is charged for it; by default a tenant of the port's name.
    #[serde(default)]
    pub tenant: Option<String>,
    /// Its OpenFlow number; by default the lowest free one.
    #[serde(default)]
    pub ofport: Option<u32>,
    /// Most queue pairs that the guest may use.
    #[serde(default = "one_queue_pair")]
    pub queue_pairs: u16,
    /// The PMD (an index into `pmd.cores`) that polls it; by default the one with the fewest ports.
    #[serde(default)]
    pub pmd: Option<usize>,
    /// Whether it stands for a network card: packets from it are charged to the tenants that they
    /// are for. A port of DPDK always does.
    #[serde(default)]
    pub uplink: Option<bool>,
    /// The address of the guest behind it, by which packets from an uplink are known to be its
    /// tenant's before they are classified.
    #[serde(default, with = "mac", skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// Of a port of DPDK: the device, a PCI address or a virtual device with its arguments.
    #[serde(default)]
    pub devargs: Option<String>,
    /// Of a port of DPDK: its receive queues; by default 1.
    #[serde(default)]
    pub queues: Option<u16>,
    /// Of a port of DPDK: its MTU in bytes; by default the device's own.
    #[serde(default)]
    pub mtu: Option<u16>,
    /// Of a port of DPDK: whether it takes frames for other stations; by default it does.
    #[serde(default)]
    pub promiscuous: Option<bool>,
}

impl PortConfig {
    /// Whether it stands for a network card.
    pub fn is_uplink(&self) -> bool {
        self.uplink.unwrap_or(self.kind == PortKind::Dpdk)
    }

    /// What is asked of its network card.
    pub fn device(&self) -> DeviceConfig {
        DeviceConfig {
            devargs: self.devargs.clone().unwrap_or_default(),
            queues: self.queues.unwrap_or(1),
            mtu: self.mtu,
            promiscuous: self.promiscuous.unwrap_or(true),
        }
    }

    /// For the datapath.
    pub fn settings(&self) -> PortSettings {
        PortSettings { pmd: self.pmd, uplink: self.is_uplink(), mac: self.mac }
    }
}

/// What is behind a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum PortKind {
    /// A guest.
    #[default]
    #[serde(rename = "vhost-user")]
    VhostUser,
    /// A network card, or what DPDK makes one of.
    #[serde(rename = "dpdk")]
    Dpdk,
}

impl PortKind {
    /// As written in the configuration and in JSON-RPC.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::VhostUser => "vhost-user",
            Self::Dpdk => "dpdk",
        }
    }
}

/// Which side of a vhost-user socket listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PortMode {
    /// The switch listens and the hypervisor connects.
    #[default]
    Listen,
    /// The hypervisor listens and the switch connects, and connects again after a loss.
    Connect,
}

impl PortMode {
    /// As written in the configuration and in JSON-RPC.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Listen => "listen",
            Self::Connect => "connect",
        }
    }
}

fn one_queue_pair() -> u16 {
    1
}

impl Default for SchedulerSection {
    fn default() -> Self {
        let quantum_cycles = SchedulerConfig::default().quantum_cycles;
        Self {
            protection: true,
            quantum_cycles,
            cap_cycles: None,
            floor_cycles: None,
            horizon_cycles: None,
            refill: RefillKind::default(),
            period_us: COORDINATOR_PERIOD_US,
            boost: Boost::default(),
        }
    }
}

impl SchedulerSection {
    /// For the datapath, on a clock of `tsc_hz`: what is not given follows from the quantum.
    pub fn policy(&self, tsc_hz: u64) -> SchedulerConfig {
        let quanta = |count| self.quantum_cycles.saturating_mul(count);
        let floor_cycles = self.floor_cycles.unwrap_or(quanta(200));
        let (default_cap_cycles, refill) = match self.refill {
            RefillKind::Local => (quanta(4), Refill::Local),
            RefillKind::Coordinator => {
                let period_cycles = tsc_hz.saturating_mul(self.period_us) / 1_000_000;
                let boost_thousandths = self.boost.thousandths();
                let refill = Refill::Coordinator { period_cycles, boost_thousandths };
                (COORDINATOR_CAP_CYCLES.max(quanta(2)), refill)
            }
        };
        SchedulerConfig {
            quantum_cycles: self.quantum_cycles,
            cap_cycles: self.cap_cycles.unwrap_or(default_cap_cycles),
            floor_cycles,
            horizon_cycles: self.horizon_cycles.unwrap_or(floor_cycles),
            refill,
        }
    }

    /// Checks every knob, whatever the clock.
    ///
    /// # Errors
    /// Names the first that is out of range, and its range.
    pub fn check(&self) -> Result<(), tollgate_policy::ConfigError> {
        SchedulerConfig::check_period_us(self.period_us)?;
        self.policy(NOMINAL_TSC_HZ).validate()
    }
}

/// A clock for checks that come before the real one is measured. In cycles a period of the allowed
/// range is in range on any.
pub(crate) const NOMINAL_TSC_HZ: u64 = 1_000_000_000;

impl Default for TenantConfig {
    fn default() -> Self {
        let default = TenantSettings::default();
        Self {
            weight: default.weight,
            controller_pps: default.punt_pps,
            cap_cycles: default.cap_cycles,
            floor_cycles: default.floor_cycles,
            rx_overrun: default.rx_overrun,
            mark_depth_cycles: default.mark_depth_cycles,
            setups_per_second: default.setups_per_second,
            megaflows: default.megaflows,
            subtables: default.subtables,
            arena_bytes: default.arena_bytes,
            exact_entries: default.exact_entries,
        }
    }
}

impl Default for CacheConfig {
    fn default() -> Self {
        let DatapathConfig { exact_entries, exact_match, megaflows_max, subtables_max, .. } =
            DatapathConfig::default();
        Self {
            exact_entries,
            exact_match,
            megaflows: megaflows_max,
            subtables: subtables_max,
            megaflows_per_tenant: None,
        }
    }
}
