//! A frontend in this process, at the other end of a socket pair.

use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use vhost::VhostBackend;
use vhost::vhost_user::message::{VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

use super::{Driver, MockHost, Ram};
use crate::features::Features;
use crate::session::{SessionConfig, SessionEnd, serve};
use crate::status::PortStatus;

/// A session served on a thread, and both of its ends in the test's hand.
pub struct MockFrontend {
    /// The host that rings go to.
    pub host: Arc<MockHost>,
    /// What the outside sees.
    pub status: Arc<PortStatus>,
    /// The `vhost` crate's frontend.
    pub frontend: Frontend,
    stream: UnixStream,
    server: Option<JoinHandle<SessionEnd>>,
    kicks: Vec<EventFd>,
    calls: Vec<EventFd>,
}

impl MockFrontend {
    /// Connects to a session of a port with `queue_pairs` pairs; nothing is negotiated yet.
    pub fn connect(queue_pairs: u16) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let host = Arc::new(MockHost::new());
        let status = Arc::new(PortStatus::new());
        let config = SessionConfig { name: "mock".to_owned(), queue_pairs_max: queue_pairs };
        let server = std::thread::spawn({
            let (host, status) = (Arc::clone(&host), Arc::clone(&status));
            move || serve(theirs, &config, &*host, &status)
        });
        let eventfd = |_| EventFd::new(EFD_NONBLOCK).unwrap();
        Self {
            host,
            status,
            frontend: Frontend::from_stream(ours.try_clone().unwrap(), 1024),
            stream: ours,
            server: Some(server),
            kicks: (0..queue_pairs * 2).map(eventfd).collect(),
            calls: (0..queue_pairs * 2).map(eventfd).collect(),
        }
    }

    /// Connects and negotiates: everything offered that is also in `wanted`, replies to every
    /// message.
    pub fn negotiated(queue_pairs: u16, wanted: u64) -> Self {
        let mut mock = Self::connect(queue_pairs);
        let offered = mock.frontend.get_features().unwrap();
        mock.frontend.set_owner().unwrap();
        let features = Features(offered & wanted);
        mock.frontend.set_features(features.0).unwrap();
        if features.protocol_features() {
            let protocol = mock.frontend.get_protocol_features().unwrap();
            mock.frontend.set_protocol_features(protocol).unwrap();
            assert!(protocol.contains(VhostUserProtocolFeatures::REPLY_ACK));
            mock.frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        }
        mock
    }

    /// Shares `ram`.
    ///
    /// # Errors
    /// When it is refused.
    pub fn share(&self, ram: &Ram) -> vhost::Result<()> {
        let files = ram.files();
        let regions: Vec<_> = ram
            .regions()
            .iter()
            .zip(&files)
            .map(|(region, file)| VhostUserMemoryRegionInfo {
                guest_phys_addr: region.guest_address,
                memory_size: region.size,
                userspace_addr: region.user_address,
                mmap_offset: region.file_offset,
                mmap_handle: file.as_raw_fd(),
            })
            .collect();
        self.frontend.set_mem_table(&regions).map(drop)
    }

    /// Where `driver`'s ring is, as SET_VRING_ADDR tells it.
    pub fn addresses(driver: &Driver) -> VringConfigData {
        let addresses = driver.addresses();
        VringConfigData {
            queue_max_size: driver.size(),
            queue_size: driver.size(),
            flags: 0,
            desc_table_addr: addresses.descriptors,
            used_ring_addr: addresses.used,
            avail_ring_addr: addresses.avail,
            log_addr: None,
        }
    }

    /// Everything that starts ring `index` but enabling it.
    ///
    /// # Errors
    /// When something is refused.
    pub fn set_up(&self, index: usize, driver: &Driver) -> vhost::Result<()> {
        self.frontend.set_vring_num(index, driver.size())?;
        self.frontend.set_vring_base(index, driver.base())?;
        self.frontend.set_vring_addr(index, &Self::addresses(driver))?;
        self.frontend.set_vring_call(index, self.call(index))?;
        self.frontend.set_vring_kick(index, self.kick(index))
    }

    /// Sets ring `index` up and enables it.
    ///
    /// # Errors
    /// When something is refused.
    pub fn start(&mut self, index: usize, driver: &Driver) -> vhost::Result<()> {
        self.set_up(index, driver)?;
        self.frontend.set_vring_enable(index, true)
    }

    /// The eventfd with which ring `index` is kicked.
    pub fn kick(&self, index: usize) -> &EventFd {
        &self.kicks[index]
    }

    /// The eventfd through which ring `index` interrupts.
    pub fn call(&self, index: usize) -> &EventFd {
        &self.calls[index]
    }

    /// Sends any bytes as a message's header and payload, with any fds.
    pub fn send_raw(&self, request: u32, flags: u32, payload: &[u8], fds: &[RawFd]) {
        let size = payload.len() as u32;
        let mut message: Vec<u8> =
            [request, flags, size].iter().flat_map(|word| word.to_le_bytes()).collect();
        message.extend_from_slice(payload);
        self.send_bytes(&message, fds);
    }

    /// Sends any bytes.
    pub fn send_bytes(&self, bytes: &[u8], fds: &[RawFd]) {
        // A session that has ended already is as good as one that will.
        let _ = self.stream.send_with_fds(&[bytes], fds);
    }

    /// Waits until the session has closed the connection, and says why it ended.
    pub fn end_of_session(mut self) -> (SessionEnd, Arc<PortStatus>, Arc<MockHost>) {
        let mut rest = Vec::new();
        // Replies still under way, then the end (or a reset, if our last words were not read).
        let _ = self.stream.read_to_end(&mut rest);
        (self.join(), Arc::clone(&self.status), Arc::clone(&self.host))
    }

    /// Disconnects and waits for the session's end.
    pub fn disconnect(mut self) -> (SessionEnd, Arc<PortStatus>, Arc<MockHost>) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        (self.join(), Arc::clone(&self.status), Arc::clone(&self.host))
    }

    fn join(&mut self) -> SessionEnd {
        self.server.take().unwrap().join().unwrap()
    }
}

impl std::fmt::Debug for MockFrontend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MockFrontend").field("status", &self.status).finish_non_exhaustive()
    }
}
