//! A device from its start to its end.
#![allow(clippy::disallowed_methods)] // control side

use std::ffi::CStr;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_dpdk_sys as dpdk;
use tollgate_packet::MacAddr;

use super::calls::{c_string, check, reason};
use super::eal::Eal;
use super::pool::Pool;
use super::rx::RxQueue;
use super::tx::TxQueue;
use crate::limits::{
    CLOSING_BURSTS, FRAME_OVERHEAD_BYTES, MAX_QUEUES, MBUF_DATA_BYTES_MIN, MBUF_HEADROOM_BYTES,
    POOL_CACHE_MBUFS, POOL_SPARE_MBUFS, RX_DESCRIPTORS, TX_DESCRIPTORS,
};
use crate::{DeviceConfig, Link, NicError, Queues};

/// DPDK's numbers of the devices that are open.
static OPEN: Mutex<Vec<u16>> = Mutex::new(Vec::new());

/// Held while a device is opened or closed: DPDK's own functions for that are not meant to run side by
/// side.
static CALLS: Mutex<()> = Mutex::new(());

/// A started device. It ends with the last of this and its queues.
#[derive(Debug)]
pub struct Device {
    open: Arc<OpenPort>,
    driver: String,
    mac: Option<MacAddr>,
    mtu: u16,
    /// Of each receive queue; frames that are sent come from the first.
    pools: Vec<Arc<Pool>>,
}

/// DPDK's number of a device that is ours. It is stopped, closed and unplugged with the last who holds it;
/// queues do.
#[derive(Debug)]
pub(super) struct OpenPort(u16);

impl OpenPort {
    /// Takes a device that nobody has.
    fn take(port: u16, device: &str) -> Result<Arc<Self>, NicError> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if open.contains(&port) {
            return Err(NicError::InUse(device.to_owned()));
        }
        open.push(port);
        Ok(Arc::new(Self(port)))
    }

    #[inline]
    pub(super) fn number(&self) -> u16 {
        self.0
    }
}

impl Drop for OpenPort {
    fn drop(&mut self) {
        let _calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
        let device = describe(self.0).map(|limits| limits.device);
        // SAFETY: the device is ours, and nobody polls it: its queues are gone.
        unsafe { dpdk::rte_eth_dev_stop(self.0) };
        // SAFETY: stopped just above; closing gives its mbufs back to the pools.
        unsafe { dpdk::rte_eth_dev_close(self.0) };
        if let Ok(device) = device {
            // SAFETY: known to DPDK until now. One that cannot be unplugged stays, and is found again.
            unsafe { dpdk::rte_dev_remove(device) };
        }
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).retain(|port| *port != self.0);
    }
}

impl Device {
    /// Finds the device, or makes it if it is a virtual one, configures and starts it. Its queues are
    /// for polling threads; each receive queue, with the transmit queue if it is queue 0, for one.
    ///
    /// # Errors
    /// Names the key that is at fault, or says it in DPDK's words; the device is closed again.
    pub fn open(_eal: Eal, config: &DeviceConfig) -> Result<(Self, Queues), NicError> {
        let calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
        let open = OpenPort::take(find(&config.devargs)?, &name_of(&config.devargs))?;
        let mut device = Self { open, driver: String::new(), mac: None, mtu: 0, pools: Vec::new() };
        let queues = device.start(config);
        // Where that has failed, the device is closed next.
        drop(calls);
        queues.map(|queues| (device, queues))
    }

    fn start(&mut self, config: &DeviceConfig) -> Result<Queues, NicError> {
        let port = self.open.number();
        let limits = describe(port)?;
        self.driver = text(limits.driver);
        let (driver, asked) = (self.driver.clone(), config.queues);
        let most = limits.rx_queues_max.min(MAX_QUEUES);
        if asked > most {
            return Err(NicError::TooManyQueues { asked, most, driver });
        }
        let (least, most) = (limits.mtu_min, limits.mtu_max);
        if let Some(asked) = config.mtu.filter(|mtu| *mtu < least || (most > 0 && *mtu > most)) {
            return Err(NicError::Mtu { asked, least, most, driver });
        }
        let mtu = config.mtu.unwrap_or(0);
        // SAFETY: the device exists and is stopped; plain numbers.
        check("rte_eth_dev_configure", unsafe {
            dpdk::shim_eth_configure(port, config.queues, mtu)
        })?;
        if config.mtu.is_some() {
            // SAFETY: as above.
            let set = unsafe { dpdk::rte_eth_dev_set_mtu(port, mtu) };
            // A device that cannot be told has taken it with its configuration.
            if set != -NOT_SUPPORTED {
                check("rte_eth_dev_set_mtu", set)?;
            }
        }
        // SAFETY: the device exists; the number is written to a place of ours.
        check("rte_eth_dev_get_mtu", unsafe {
            dpdk::rte_eth_dev_get_mtu(port, &raw mut self.mtu)
        })?;
        let queues = self.set_up_queues(config.queues)?;
        // SAFETY: configured, with all queues set up.
        check("rte_eth_dev_start", unsafe { dpdk::rte_eth_dev_start(port) })?;
        self.set_promiscuous(config.promiscuous)?;
        let mut mac = [0; 6];
        // SAFETY: the device exists; there is room for an address.
        let known = unsafe { dpdk::shim_eth_mac(port, mac.as_mut_ptr()) };
        self.mac = (known == 0).then_some(MacAddr(mac));
        Ok(queues)
    }

    fn set_up_queues(&mut self, count: u16) -> Result<Queues, NicError> {
        let port = self.open.number();
        let (mut rx_descriptors, mut tx_descriptors) = (RX_DESCRIPTORS, TX_DESCRIPTORS);
        // SAFETY: the device exists; both numbers are ours.
        check("rte_eth_dev_adjust_nb_rx_tx_desc", unsafe {
            let (rx, tx) = (&raw mut rx_descriptors, &raw mut tx_descriptors);
            dpdk::rte_eth_dev_adjust_nb_rx_tx_desc(port, rx, tx)
        })?;
        // SAFETY: a port that exists; the call only reads.
        let socket = unsafe { dpdk::rte_eth_dev_socket_id(port) };
        let frame_bytes_max = self.mtu.saturating_add(FRAME_OVERHEAD_BYTES);
        // The frame check sequence, which some devices leave on.
        let data_bytes = frame_bytes_max.saturating_add(4).next_multiple_of(64);
        let data_room = data_bytes.max(MBUF_DATA_BYTES_MIN) + MBUF_HEADROOM_BYTES;
        let mut queues = Queues::default();
        for (number, place) in (0..count).zip(&mut queues.rx) {
            let sending = if number == 0 { tx_descriptors } else { 0 };
            let in_rings = u32::from(rx_descriptors) + u32::from(sending);
            // A cache may hold half as much again as it is meant to.
            let mbufs = in_rings + POOL_SPARE_MBUFS + 2 * POOL_CACHE_MBUFS;
            let pool = Pool::new(mbufs, POOL_CACHE_MBUFS, data_room, socket)?;
            let socket = u32::try_from(socket).unwrap_or(u32::MAX);
            // SAFETY: the device is configured with so many queues, NULL asks for the driver's own
            // settings, and the pool outlives the device (`Pool`).
            check("rte_eth_rx_queue_setup", unsafe {
                let none = std::ptr::null();
                let pool = pool.as_ptr();
                dpdk::rte_eth_rx_queue_setup(port, number, rx_descriptors, socket, none, pool)
            })?;
            if number == 0 {
                // SAFETY: as above.
                check("rte_eth_tx_queue_setup", unsafe {
                    let none = std::ptr::null();
                    dpdk::rte_eth_tx_queue_setup(port, 0, tx_descriptors, socket, none)
                })?;
                let bytes = usize::from(frame_bytes_max);
                queues.tx =
                    Some(Box::new(TxQueue::new(Arc::clone(&self.open), Arc::clone(&pool), bytes)));
            }
            *place = Some(Box::new(RxQueue::new(Arc::clone(&self.open), number, pool.clone())));
            self.pools.push(pool);
        }
        Ok(queues)
    }

    fn set_promiscuous(&self, on: bool) -> Result<(), NicError> {
        let port = self.open.number();
        let result = if on {
            // SAFETY: the device exists.
            unsafe { dpdk::rte_eth_promiscuous_enable(port) }
        } else {
            // SAFETY: as above.
            unsafe { dpdk::rte_eth_promiscuous_disable(port) }
        };
        // Devices without such a mode (rings, files) take everything.
        if result == -NOT_SUPPORTED {
            return Ok(());
        }
        check("rte_eth_promiscuous_enable", result)
    }

    /// Its driver, as DPDK calls it.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// Its address, if it has one.
    pub fn mac(&self) -> Option<MacAddr> {
        self.mac
    }

    /// The largest payload of a frame, in bytes.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Whether it takes frames for other stations; as the driver says now.
    pub fn is_promiscuous(&self) -> bool {
        // SAFETY: the device exists; the call reads.
        unsafe { dpdk::rte_eth_promiscuous_get(self.open.number()) == 1 }
    }

    /// Its link as last known; down where the driver cannot say.
    pub fn link(&self) -> Link {
        let mut link = dpdk::shim_link::default();
        // SAFETY: the device exists; the structure is ours.
        if unsafe { dpdk::shim_eth_link(self.open.number(), &raw mut link) } < 0 {
            return Link::default();
        }
        // 0 and all ones are "none" and "unknown".
        let speed_mbps = Some(link.speed_mbps).filter(|mbps| !matches!(*mbps, 0 | u32::MAX));
        Link { is_up: link.is_up != 0, speed_mbps, is_full_duplex: link.is_full_duplex != 0 }
    }

    /// The driver's own counters, by its names.
    pub fn xstats(&self) -> Vec<(String, u64)> {
        // SAFETY: asks for the number only.
        let count =
            unsafe { dpdk::rte_eth_xstats_get_names(self.open.number(), std::ptr::null_mut(), 0) }
                .max(0);
        let (mut names, mut values) = (Vec::new(), Vec::new());
        names.resize_with(count as usize, dpdk::rte_eth_xstat_name::default);
        values.resize_with(count as usize, dpdk::rte_eth_xstat::default);
        // SAFETY: there is room for as many as are announced.
        let named = unsafe {
            dpdk::rte_eth_xstats_get_names(self.open.number(), names.as_mut_ptr(), count as u32)
        };
        // SAFETY: as above.
        let valued = unsafe {
            dpdk::rte_eth_xstats_get(self.open.number(), values.as_mut_ptr(), count as u32)
        };
        // More than there is room for: they have changed in between, and are not there.
        if !(0..=count).contains(&named) || !(0..=count).contains(&valued) {
            return Vec::new();
        }
        let named = |value: &dpdk::rte_eth_xstat| {
            let name = &names.get(usize::try_from(value.id).ok()?)?.name;
            let end = name.iter().position(|byte| *byte == 0)?;
            let name: Vec<u8> = name.iter().take(end).map(|byte| *byte as u8).collect();
            Some((String::from_utf8_lossy(&name).into_owned(), value.value))
        };
        values.iter().take(valued as usize).filter_map(named).collect()
    }

    /// Mbufs that are not in its pools: in its rings, in a burst, in another device's ring, or lost.
    pub fn mbufs_in_use(&self) -> u32 {
        self.pools.iter().map(|pool| pool.in_use()).sum()
    }

    /// Ends it, with its queues, all of which must have been given back: while one is elsewhere the
    /// device goes on. What they still hold is dropped.
    pub fn close(self, mut queues: Queues) {
        queues.rx.iter_mut().flatten().for_each(|queue| drain(queue));
    }
}

/// Throws away what a queue still has.
fn drain(queue: &mut RxQueue) {
    for _ in 0..CLOSING_BURSTS {
        if !queue.poll() {
            break;
        }
        queue.discard();
    }
}

const NOT_SUPPORTED: i32 = 95;

/// The device's number, once it is known to DPDK.
fn find(devargs: &str) -> Result<u16, NicError> {
    let name = name_of(devargs);
    if let Some(port) = port_of(&name)? {
        return Ok(port);
    }
    let c_devargs = c_string(devargs)?;
    // SAFETY: the text is NUL-terminated; it is copied.
    let probed = unsafe { dpdk::rte_dev_probe(c_devargs.as_ptr()) };
    if probed < 0 {
        return Err(NicError::NoDevice { device: name, reason: reason(probed) });
    }
    port_of(&name)?.ok_or_else(|| {
        let reason = "no Ethernet driver of DPDK has taken it".to_owned();
        NicError::NoDevice { device: name, reason }
    })
}

/// What DPDK calls the device: the address or name in front of its arguments.
fn name_of(devargs: &str) -> String {
    let name = devargs.split(',').next().unwrap_or(devargs);
    let parts: Vec<&str> = name.split([':', '.']).collect();
    let is_hex = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_hexdigit());
    // A PCI address without its domain: DPDK's names have it.
    if parts.len() == 3 && parts.iter().all(is_hex) {
        format!("0000:{}", name.to_ascii_lowercase())
    } else {
        name.to_owned()
    }
}

fn port_of(name: &str) -> Result<Option<u16>, NicError> {
    let name = c_string(name)?;
    let mut port = 0;
    // SAFETY: both pointers are valid for the call; the name is NUL-terminated.
    let found = unsafe { dpdk::rte_eth_dev_get_port_by_name(name.as_ptr(), &raw mut port) };
    Ok((found == 0).then_some(port))
}

fn describe(port: u16) -> Result<dpdk::shim_device, NicError> {
    let mut device = dpdk::shim_device::default();
    // SAFETY: the structure is ours.
    let result = unsafe { dpdk::shim_eth_device(port, &raw mut device) };
    check("rte_eth_dev_info_get", result).map(|()| device)
}

fn text(name: *const std::ffi::c_char) -> String {
    if name.is_null() {
        return "unknown driver".to_owned();
    }
    // SAFETY: DPDK's drivers have static, NUL-terminated names.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn a_device_is_known_by_what_stands_in_front_of_its_arguments() {
        assert_eq!(name_of("net_af_packet0,iface=eth1,qdisc_bypass=1"), "net_af_packet0");
        assert_eq!(name_of("0000:3b:00.1"), "0000:3b:00.1");
        assert_eq!(name_of("3B:00.1,rx_vec=0"), "0000:3b:00.1");
        assert_eq!(name_of("net_ring0"), "net_ring0");
    }
}
