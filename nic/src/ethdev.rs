//! One queue pair of a DPDK Ethernet device.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate_dpdk_sys as dpdk;
use tollgate_frame::burst::Mapping;
use tollgate_frame::{Burst, DropReason, MAX_PACKET_SEGMENTS, Segment, Sink, payload_len};
use tollgate_packet::limits::HEADER_COPY_BYTES;

use crate::limits::{BURST_FRAMES, MBUF_DATA_BYTES, POOL_MBUFS, RING_DESCRIPTORS};

/// Why a device could not be had.
#[derive(Debug, thiserror::Error)]
pub enum EthDevError {
    /// DPDK can be initialised once per process.
    #[error("DPDK's environment is initialised already, or an earlier attempt failed")]
    EalOnce,
    /// A zero byte in a name or argument.
    #[error("{0:?} contains a zero byte")]
    ZeroByte(String),
    /// DPDK refused.
    #[error("{call}: {reason}")]
    Dpdk {
        /// The function that failed.
        call: &'static str,
        /// `rte_strerror`'s words.
        reason: String,
    },
}

/// DPDK's process-wide environment.
#[derive(Debug)]
pub struct Eal(());

static EAL_STARTED: AtomicBool = AtomicBool::new(false);

impl Eal {
    /// Initialises DPDK with the given EAL arguments, for instance
    /// `["--no-huge", "-m", "128", "--no-pci", "--no-telemetry", "--vdev=net_ring0"]`.
    ///
    /// # Errors
    /// On the second call in a process, or in DPDK's words.
    pub fn init(arguments: &[&str]) -> Result<Self, EthDevError> {
        if EAL_STARTED.swap(true, Ordering::AcqRel) {
            return Err(EthDevError::EalOnce);
        }
        let strings = std::iter::once(&"tollgate").chain(arguments);
        let strings: Vec<CString> = strings.map(|text| c_string(text)).collect::<Result<_, _>>()?;
        // EAL permutes the array and keeps pointers into the strings for the life of the process.
        let mut argv: Vec<*mut c_char> = strings.into_iter().map(CString::into_raw).collect();
        // SAFETY: `argv` holds as many valid, writable, NUL-terminated strings as are announced;
        // the strings are never freed, and the flag above makes this the only call.
        let result = unsafe { dpdk::rte_eal_init(argv.len() as c_int, argv.as_mut_ptr()) };
        if result < 0 { Err(last_error("rte_eal_init")) } else { Ok(Self(())) }
    }
}

fn c_string(text: &str) -> Result<CString, EthDevError> {
    CString::new(text).map_err(|_| EthDevError::ZeroByte(text.to_owned()))
}

fn last_error(call: &'static str) -> EthDevError {
    // SAFETY: reads a thread-local integer.
    let code = unsafe { dpdk::shim_errno() };
    error_of(call, code)
}

fn error_of(call: &'static str, code: c_int) -> EthDevError {
    // SAFETY: returns a pointer to a string, static or thread-local, for every code.
    let text = unsafe { dpdk::rte_strerror(code.abs()) };
    // SAFETY: the string is NUL-terminated and is copied before DPDK is called again.
    let reason = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    EthDevError::Dpdk { call, reason }
}

fn check(call: &'static str, result: c_int) -> Result<(), EthDevError> {
    if result < 0 { Err(error_of(call, result)) } else { Ok(()) }
}

/// The mbufs of one device. Their memory stays mapped as long as this lives.
#[derive(Debug)]
struct Pool(NonNull<dpdk::rte_mempool>);

// SAFETY: a mempool may be used from any thread (it is a ring with per-lcore caches), and the
// wrapper only hands the pointer to DPDK's functions.
unsafe impl Send for Pool {}
// SAFETY: as for `Send`.
unsafe impl Sync for Pool {}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the last owner: the device that took mbufs from it is closed (`EthDev` closes it
        // before its fields are dropped) and no burst names their memory any more.
        unsafe { dpdk::rte_mempool_free(self.0.as_ptr()) };
    }
}

type Mbuf = NonNull<dpdk::rte_mbuf>;

/// A started device with one receive and one transmit queue, for one polling thread.
#[derive(Debug)]
pub struct EthDev {
    port: u16,
    pool: Arc<Pool>,
    mapping: Mapping,
    /// Received mbufs that the burst refers to.
    received: Vec<Mbuf>,
    /// Frames for the next transmit call.
    outgoing: Vec<Mbuf>,
}

// SAFETY: the raw mbuf pointers are owned by this value alone, and DPDK lets a queue move to
// another thread as long as one thread uses it at a time, which `&mut self` ensures.
unsafe impl Send for EthDev {}

impl EthDev {
    /// Configures and starts the device that EAL calls `name` (a PCI address or a vdev's name).
    ///
    /// # Errors
    /// In DPDK's words; the device is closed again.
    pub fn open(_eal: &Eal, name: &str) -> Result<Self, EthDevError> {
        let c_name = c_string(name)?;
        let mut port = 0;
        // SAFETY: both pointers are valid for the call; the name is NUL-terminated.
        let found = unsafe { dpdk::rte_eth_dev_get_port_by_name(c_name.as_ptr(), &raw mut port) };
        check("rte_eth_dev_get_port_by_name", found)?;
        let pool_name = c_string(&format!("tollgate_{port}"))?;
        // SAFETY: the name is NUL-terminated; the other arguments are plain numbers.
        let pool = unsafe {
            dpdk::rte_pktmbuf_pool_create(pool_name.as_ptr(), POOL_MBUFS, 0, 0, MBUF_DATA_BYTES, -1)
        };
        let pool = NonNull::new(pool).ok_or_else(|| last_error("rte_pktmbuf_pool_create"))?;
        let pool = Arc::new(Pool(pool));
        let mapping: Mapping = Arc::clone(&pool) as Mapping;
        let received = Vec::with_capacity(BURST_FRAMES);
        let outgoing = Vec::with_capacity(BURST_FRAMES);
        let device = Self { port, pool, mapping, received, outgoing };
        device.start()?;
        Ok(device)
    }

    fn start(&self) -> Result<(), EthDevError> {
        let config = dpdk::rte_eth_conf::default();
        let port = self.port;
        // SAFETY: the device exists and is stopped; the configuration is read during the call.
        check("rte_eth_dev_configure", unsafe {
            dpdk::rte_eth_dev_configure(port, 1, 1, &raw const config)
        })?;
        // SAFETY: a port that exists; the call only reads.
        let socket = unsafe { dpdk::rte_eth_dev_socket_id(port) };
        let socket = u32::try_from(socket).unwrap_or(0);
        // SAFETY: the device is configured with one queue, NULL asks for the driver's own queue
        // settings, and the pool lives until the device is closed.
        check("rte_eth_rx_queue_setup", unsafe {
            let pool = self.pool.0.as_ptr();
            dpdk::rte_eth_rx_queue_setup(port, 0, RING_DESCRIPTORS, socket, std::ptr::null(), pool)
        })?;
        // SAFETY: as above.
        check("rte_eth_tx_queue_setup", unsafe {
            dpdk::rte_eth_tx_queue_setup(port, 0, RING_DESCRIPTORS, socket, std::ptr::null())
        })?;
        // SAFETY: configured, with both queues set up.
        check("rte_eth_dev_start", unsafe { dpdk::rte_eth_dev_start(port) })
    }

    /// Appends received frames to the burst; their mbufs are held until
    /// [`complete`](Self::complete). A frame in too many pieces is dropped and counted in the
    /// second result.
    pub fn fetch(&mut self, burst: &mut Burst, max: usize) -> (usize, usize) {
        let mut mbufs = [std::ptr::null_mut(); BURST_FRAMES];
        let wanted = max.min(burst.room()).min(BURST_FRAMES - self.received.len());
        // SAFETY: the array has room for `wanted` pointers; one thread uses the queue.
        let got =
            unsafe { dpdk::shim_eth_rx_burst(self.port, 0, mbufs.as_mut_ptr(), wanted as u16) };
        let (mut fetched, mut dropped) = (0, 0);
        for mbuf in mbufs.into_iter().take(usize::from(got)).filter_map(NonNull::new) {
            if push_mbuf(burst, &self.mapping, mbuf) {
                self.received.push(mbuf);
                fetched += 1;
            } else {
                free(mbuf);
                dropped += 1;
            }
        }
        (fetched, dropped)
    }

    /// Gives the fetched mbufs back; the burst must have been cleared or delivered.
    pub fn complete(&mut self) {
        self.received.drain(..).for_each(free);
    }

    /// Hands the delivered frames to the driver; returns those that its ring had no room for,
    /// which are dropped.
    pub fn publish(&mut self) -> usize {
        let count = self.outgoing.len();
        // SAFETY: `Mbuf` is a non-null pointer with the layout of a pointer; the driver owns the
        // first `sent` mbufs afterwards.
        let sent = unsafe {
            let mbufs = self.outgoing.as_mut_ptr().cast::<*mut dpdk::rte_mbuf>();
            dpdk::shim_eth_tx_burst(self.port, 0, mbufs, count as u16)
        };
        let sent = usize::from(sent).min(count);
        self.outgoing.drain(..).skip(sent).for_each(free);
        count - sent
    }

    /// Mbufs that are not in the pool: in the driver, in a burst, or leaked.
    pub fn mbufs_in_use(&self) -> u32 {
        // SAFETY: the pool is alive; the count is a racy read by design.
        unsafe { dpdk::rte_mempool_in_use_count(self.pool.0.as_ptr()) }
    }
}

impl Sink for EthDev {
    fn deliver(&mut self, header: &[u8], payload: &[Segment<'_>]) -> Result<(), DropReason> {
        let len = header.len() + payload_len(payload);
        let room = u16::try_from(len).map_err(|_| DropReason::TxTooLong)?;
        if self.outgoing.len() == BURST_FRAMES {
            return Err(DropReason::TxRingFull);
        }
        // SAFETY: the pool is alive.
        let mbuf = unsafe { dpdk::shim_pktmbuf_alloc(self.pool.0.as_ptr()) };
        let mbuf = NonNull::new(mbuf).ok_or(DropReason::NoBuffers)?;
        // SAFETY: a fresh mbuf that nobody else has.
        let data = unsafe { dpdk::shim_pktmbuf_append(mbuf.as_ptr(), room) };
        if data.is_null() {
            free(mbuf);
            return Err(DropReason::TxTooLong);
        }
        // SAFETY: `append` gave `len` bytes at `data`, in an mbuf that only we hold.
        let mut to = unsafe { std::slice::from_raw_parts_mut(data, len) };
        let (front, rest) = to.split_at_mut(header.len());
        front.copy_from_slice(header);
        to = rest;
        for segment in payload {
            let copied = segment.copy_to(to);
            to = to.get_mut(copied..).unwrap_or_default();
        }
        self.outgoing.push(mbuf);
        Ok(())
    }
}

impl Drop for EthDev {
    fn drop(&mut self) {
        self.complete();
        self.outgoing.drain(..).for_each(free);
        // SAFETY: the device is ours, and nobody polls it any more.
        unsafe { dpdk::rte_eth_dev_stop(self.port) };
        // SAFETY: stopped just above; closing gives its mbufs back to the pool.
        unsafe { dpdk::rte_eth_dev_close(self.port) };
    }
}

fn free(mbuf: Mbuf) {
    // SAFETY: every caller owns the mbuf and forgets the pointer.
    unsafe { dpdk::shim_pktmbuf_free(mbuf.as_ptr()) };
}

/// One piece of an mbuf chain.
fn piece(mbuf: Mbuf) -> (*const u8, u32) {
    let mut len = 0;
    // SAFETY: an mbuf that the caller owns; both pointers are valid.
    let data = unsafe { dpdk::shim_pktmbuf_data(mbuf.as_ptr(), &raw mut len) };
    (data, u32::from(len))
}

/// Appends a received chain: the first bytes copied, the rest by reference.
fn push_mbuf(burst: &mut Burst, mapping: &Mapping, mbuf: Mbuf) -> bool {
    let Some(mut writer) = burst.begin(mapping) else { return false };
    // SAFETY: an mbuf that the caller owns.
    let frame_len = unsafe { dpdk::shim_pktmbuf_pkt_len(mbuf.as_ptr()) } as usize;
    let mut missing = writer.header().reset(frame_len.min(HEADER_COPY_BYTES)).len();
    let mut at = Some(mbuf);
    for _ in 0..MAX_PACKET_SEGMENTS {
        let Some(current) = at else { break };
        let (data, len) = piece(current);
        // SAFETY: the piece's bytes are mapped: the caller owns the mbuf.
        let segment = unsafe { Segment::from_raw(data, len) };
        let header = writer.header().bytes_mut();
        let filled = header.len() - missing;
        let copied = header.get_mut(filled..).map_or(0, |to| segment.copy_to(to));
        missing -= copied;
        let rest = segment.skip(copied);
        if !rest.is_empty() {
            // SAFETY: mbuf memory belongs to the pool, which the mapping keeps alive.
            if unsafe { writer.push_segment(rest.address(), rest.len() as u32) }.is_err() {
                return false;
            }
        }
        // SAFETY: an mbuf that the caller owns.
        at = NonNull::new(unsafe { dpdk::shim_pktmbuf_next(current.as_ptr()) });
    }
    if at.is_some() || missing > 0 {
        return false;
    }
    writer.commit();
    true
}
