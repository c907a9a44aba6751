//! The running switch as its operators see it: bridges, ports and tenants by name, over a datapath
//! and a pipeline that know numbers only.

mod attachment;
mod bridges;
mod controllers;
mod error;
mod insight;
mod links;
mod of_bridge;
mod ports;
mod recordings;
mod registry;
mod scheduler;
mod tenants;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::task::AbortHandle;
use tollgate_datapath::Datapath;
use tollgate_nic::Eal;

use crate::config::Config;
use crate::identity::HostIdentity;
use crate::openflow::EventHub;
use crate::pipeline::Pipeline;
use crate::rundir::RunDir;

pub use attachment::{AttachmentSummary, CardSummary};
pub use bridges::BridgeSummary;
pub use error::Refusal;
pub use insight::MegaflowSummary;
pub use ports::PortSummary;
pub use scheduler::SchedulerChange;
pub use tenants::{TenantChange, TenantSummary};

use links::LinkWatch;
use registry::{PortEntry, Registry};

/// At shutdown: enough that slow ones do not add up, few enough to be had at once.
const SESSIONS_ENDED_AT_ONCE: usize = 16;

/// The switch. Its methods block while PMDs take changes in, so they are called on threads that
/// may.
#[derive(Debug)]
pub struct Switch {
    datapath: Arc<Datapath>,
    pipeline: Arc<Pipeline>,
    /// Where the pipeline's events go.
    events: Arc<EventHub>,
    run_dir: RunDir,
    /// DPDK, if it was initialised.
    eal: Option<Eal>,
    host: HostIdentity,
    /// Where the OpenFlow servers run.
    runtime: tokio::runtime::Handle,
    /// Held by whoever changes something, however long it takes.
    change: Mutex<Change>,
    /// What is there. Held for moments only, so that listing never waits for a change.
    registry: Arc<RwLock<Registry>>,
    /// The task that tells controllers of guests that come and go.
    links: AbortHandle,
}

/// Whether changes are still allowed.
#[derive(Debug)]
struct Change {
    closed: bool,
}

impl Switch {
    /// A switch without bridges, ports and tenants. The pipeline's events go to `events`.
    pub fn new(
        datapath: Arc<Datapath>,
        pipeline: Arc<Pipeline>,
        events: Arc<EventHub>,
        run_dir: RunDir,
        eal: Option<Eal>,
        runtime: tokio::runtime::Handle,
    ) -> Self {
        let registry = Arc::<RwLock<Registry>>::default();
        let links = LinkWatch {
            registry: Arc::clone(&registry),
            pipeline: Arc::clone(&pipeline),
            events: Arc::clone(&events),
        };
        let links = runtime.spawn(links.run()).abort_handle();
        Self {
            datapath,
            pipeline,
            events,
            run_dir,
            eal,
            host: HostIdentity::of_this_host(),
            runtime,
            change: Mutex::new(Change { closed: false }),
            registry,
            links,
        }
    }

    /// Makes everything that `config` lists.
    ///
    /// # Errors
    /// The first refusal, with the name of what was refused.
    pub fn populate(&self, config: &Config) -> anyhow::Result<()> {
        use anyhow::Context as _;
        {
            let _change = self.change()?;
            self.replace_scheduler(config.scheduler.clone()).context("[scheduler]")?;
        }
        for (name, tenant) in &config.tenants {
            self.tenant_set(name, tenant.change()).with_context(|| format!("tenant {name}"))?;
        }
        for bridge in &config.bridges {
            self.bridge_add(&bridge.name, bridge.table_limits())
                .with_context(|| format!("bridge {}", bridge.name))?;
            self.controller_set(&bridge.name, &bridge.controllers)
                .with_context(|| format!("bridge {}", bridge.name))?;
        }
        for port in &config.ports {
            self.port_add(port).with_context(|| format!("port {}", port.name))?;
        }
        Ok(())
    }

    /// Ends all sessions and servers and refuses every further change. Their sockets are gone when
    /// it returns.
    pub fn close(&self) {
        let mut change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        change.closed = true;
        self.links.abort();
        let registry = std::mem::take(&mut *self.registry_mut());
        drop(registry.bridges);
        end_ports(&self.datapath, registry.ports.into_values().collect());
    }

    /// Switches the gate on the running PMDs and in the slow path.
    ///
    /// # Errors
    /// When the datapath has stopped.
    pub fn set_protection(&self, on: bool) -> Result<(), Refusal> {
        let _change = self.change()?;
        self.datapath.set_protection(on)?;
        self.pipeline.set_protection(on);
        Ok(())
    }

    /// Turns the exact-match table on the running PMDs on or off.
    ///
    /// # Errors
    /// When the datapath has stopped.
    pub fn set_exact_match(&self, on: bool) -> Result<(), Refusal> {
        let _change = self.change()?;
        Ok(self.datapath.set_exact_match(on)?)
    }

    /// The datapath.
    pub fn datapath(&self) -> &Datapath {
        &self.datapath
    }

    /// The bridges' tables.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// The right to change something.
    fn change(&self) -> Result<MutexGuard<'_, Change>, Refusal> {
        let change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        if change.closed { Err(Refusal::ShuttingDown) } else { Ok(change) }
    }

    fn registry(&self) -> RwLockReadGuard<'_, Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn registry_mut(&self) -> RwLockWriteGuard<'_, Registry> {
        self.registry.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends what is behind many ports, several at a time: each may wait for its PMD and its frontend.
fn end_ports(datapath: &Datapath, ports: Vec<PortEntry>) {
    let ports = Mutex::new(ports);
    let end_next = || ports.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let end_all = || {
        while let Some(port) = end_next() {
            port.attachment.end(datapath, &port.handle);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..SESSIONS_ENDED_AT_ONCE {
            // Where no thread can be had, this one does it all.
            let _ = std::thread::Builder::new().spawn_scoped(scope, end_all);
        }
        end_all();
    });
}
