//! What is behind a port: a guest's socket, or a network card.

use std::path::PathBuf;
use std::sync::Arc;

use tollgate_datapath::{Datapath, PortHandle};
use tollgate_nic::{Device, Eal, Link};
use tollgate_packet::MacAddr;
use tollgate_vhost::{PortSocket, PortStatus, SessionConfig, SocketMode};

use super::{Refusal, Switch};
use crate::config::{PortConfig, PortKind, PortMode};

/// What is behind a port.
#[derive(Debug)]
pub(super) enum Attachment {
    Guest {
        path: PathBuf,
        mode: PortMode,
        queue_pairs: u16,
        status: Arc<PortStatus>,
        socket: PortSocket,
    },
    Card {
        devargs: String,
        queues: u16,
        device: Box<Device>,
    },
}

/// What is behind a port, to be looked at.
#[derive(Debug)]
pub enum AttachmentSummary {
    /// A guest.
    Guest {
        /// Its socket.
        socket: PathBuf,
        /// Who listens on the socket.
        mode: PortMode,
        /// Most queue pairs.
        queue_pairs: u16,
        /// Its connection and rings.
        status: Arc<PortStatus>,
    },
    /// A network card.
    Card(CardSummary),
}

/// A network card.
#[derive(Debug)]
pub struct CardSummary {
    /// As configured.
    pub devargs: String,
    /// Its driver.
    pub driver: String,
    /// Receive queues.
    pub queues: u16,
    /// MTU in bytes.
    pub mtu: u16,
    /// Whether it takes frames for other stations.
    pub promiscuous: bool,
    /// Its address.
    pub mac: Option<MacAddr>,
    /// Its link.
    pub link: Link,
    /// Mbufs that are not in its pools.
    pub mbufs_in_use: u32,
}

impl Attachment {
    /// Whether frames can come and go.
    pub(super) fn is_up(&self) -> bool {
        match self {
            Self::Guest { status, .. } => status.is_connected(),
            Self::Card { device, .. } => device.link().is_up,
        }
    }

    pub(super) fn summary(&self) -> AttachmentSummary {
        match self {
            Self::Guest { path, mode, queue_pairs, status, .. } => AttachmentSummary::Guest {
                socket: path.clone(),
                mode: *mode,
                queue_pairs: *queue_pairs,
                status: Arc::clone(status),
            },
            Self::Card { devargs, queues, device } => AttachmentSummary::Card(CardSummary {
                devargs: devargs.clone(),
                driver: device.driver().to_owned(),
                queues: *queues,
                mtu: device.mtu(),
                promiscuous: device.is_promiscuous(),
                mac: device.mac(),
                link: device.link(),
                mbufs_in_use: device.mbufs_in_use(),
            }),
        }
    }

    /// A card's own counters; a guest has none.
    pub(super) fn xstats(&self) -> Vec<(String, u64)> {
        match self {
            Self::Guest { .. } => Vec::new(),
            Self::Card { device, .. } => device.xstats(),
        }
    }

    /// Ends it; the datapath polls nothing of it when it returns.
    pub(super) fn end(self, datapath: &Datapath, handle: &PortHandle) {
        match self {
            Self::Guest { socket, .. } => socket.shutdown(),
            Self::Card { device, .. } => device.close(*datapath.queues_stop(handle.index)),
        }
    }
}

impl Switch {
    /// Begins to listen, to connect, or to poll.
    pub(super) fn attachment(
        &self,
        port: &PortConfig,
        handle: &PortHandle,
    ) -> Result<Attachment, Refusal> {
        match port.kind {
            PortKind::VhostUser => self.guest(port, handle),
            PortKind::Dpdk => self.card(port, handle, self.eal.ok_or(Refusal::NoDpdk)?),
        }
    }

    fn guest(&self, port: &PortConfig, handle: &PortHandle) -> Result<Attachment, Refusal> {
        let path = port.socket.clone().unwrap_or_else(|| self.run_dir.vhost_socket(&port.name));
        let host = self.datapath.ring_host(handle.index)?;
        let status = Arc::new(PortStatus::new());
        let (mode, queue_pairs) = (port.mode, port.queue_pairs);
        let socket_mode = match mode {
            PortMode::Listen => SocketMode::Listen,
            PortMode::Connect => SocketMode::Connect,
        };
        let config = SessionConfig { name: port.name.clone(), queue_pairs_max: queue_pairs };
        let socket = PortSocket::spawn(&path, socket_mode, config, host, Arc::clone(&status))?;
        Ok(Attachment::Guest { path, mode, queue_pairs, status, socket })
    }

    fn card(
        &self,
        port: &PortConfig,
        handle: &PortHandle,
        eal: Eal,
    ) -> Result<Attachment, Refusal> {
        let config = port.device();
        let (device, queues) = Device::open(eal, &config)?;
        if let Err((queues, error)) = self.datapath.queues_start(handle.index, Box::new(queues)) {
            device.close(*queues);
            return Err(error.into());
        }
        let (devargs, queues) = (config.devargs, config.queues);
        let driver = device.driver();
        tracing::info!(port = port.name, devargs, driver, mtu = device.mtu(), "network card");
        Ok(Attachment::Card { devargs, queues, device: Box::new(device) })
    }
}
