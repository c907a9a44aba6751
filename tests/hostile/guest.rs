//! A guest made of raw parts, so that it can break any rule.

use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::Context as _;
use tollgate_vhost::mock::{Driver, FROM_GUEST, Layout, MockFrontend, Ram, TO_GUEST};
use vhost::VhostBackend as _;
use vhost::vhost_user::message::VhostUserHeaderFlag;
use vhost::vhost_user::{Frontend, VhostUserFrontend as _};
use vhost::{VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Descriptors per ring.
const RING_SIZE: u16 = 64;
/// The virtio-net header of VERSION_1.
const NET_HEADER_BYTES: usize = 12;
/// VERSION_1 and vhost-user's protocol features.
const FEATURES: u64 = 1 << 32 | 1 << 30;

/// A connected guest with both rings of one queue pair started.
pub(crate) struct RawGuest {
    stream: UnixStream,
    driver: Driver,
    _frontend: Frontend,
    _events: Vec<EventFd>,
}

impl RawGuest {
    /// Connects to a listening port, negotiates and starts both rings.
    pub(crate) fn attach(socket: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        let mut frontend = Frontend::from_stream(stream.try_clone()?, 2);
        frontend.set_owner()?;
        let offered = frontend.get_features()?;
        frontend.set_features(offered & FEATURES)?;
        let protocol = frontend.get_protocol_features()?;
        frontend.set_protocol_features(protocol)?;
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        let ram = Ram::new(&[(0x10000, 1 << 20)]);
        share(&frontend, &ram)?;
        let transmit = Layout::packed_at(0x10000, RING_SIZE, 2048);
        let receive =
            Layout::packed_at(transmit.end(RING_SIZE).next_multiple_of(4096), RING_SIZE, 2048);
        let drivers = [
            (FROM_GUEST, Driver::new(&ram, transmit, RING_SIZE, 0)),
            (TO_GUEST, Driver::new(&ram, receive, RING_SIZE, 0)),
        ];
        let mut events = Vec::new();
        for (index, driver) in &drivers {
            let index = usize::from(*index);
            let (kick, call) = (EventFd::new(EFD_NONBLOCK)?, EventFd::new(EFD_NONBLOCK)?);
            let addresses: VringConfigData = MockFrontend::addresses(driver);
            frontend.set_vring_num(index, RING_SIZE)?;
            frontend.set_vring_base(index, 0)?;
            frontend.set_vring_addr(index, &addresses)?;
            frontend.set_vring_call(index, &call)?;
            frontend.set_vring_kick(index, &kick)?;
            frontend.set_vring_enable(index, true)?;
            events.extend([kick, call]);
        }
        let [(_, driver), _] = drivers;
        Ok(Self { stream, driver, _frontend: frontend, _events: events })
    }

    /// The ring that it sends on.
    pub(crate) fn driver(&mut self) -> &mut Driver {
        &mut self.driver
    }

    /// Sends a frame as a good guest would.
    pub(crate) fn transmit(&mut self, frame: &[u8]) {
        self.driver.transmit(NET_HEADER_BYTES, frame);
    }

    /// Sends any message.
    pub(crate) fn send_raw(&self, request: u32, payload: &[u8]) {
        const VERSION: u32 = 1;
        let words = [request, VERSION, payload.len() as u32];
        let mut message: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        message.extend_from_slice(payload);
        // A connection that has ended already is as good as one that will.
        let _ = (&self.stream).write_all(&message);
    }
}

fn share(frontend: &Frontend, ram: &Ram) -> anyhow::Result<()> {
    let files = ram.files();
    let region = ram.regions().into_iter().next().context("no memory")?;
    let file = files.first().context("no memory file")?;
    frontend.set_mem_table(&[VhostUserMemoryRegionInfo {
        guest_phys_addr: region.guest_address,
        memory_size: region.size,
        userspace_addr: region.user_address,
        mmap_offset: region.file_offset,
        mmap_handle: file.as_raw_fd(),
    }])?;
    Ok(())
}

/// Connects, sends half of a message's header, and keeps quiet.
pub(crate) fn half_a_header(socket: &Path) -> anyhow::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(&[1, 0, 0, 0, 1, 0])?;
    Ok(stream)
}
