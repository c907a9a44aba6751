//! The control side of one port: what the frontend's messages set up.

use std::fs::File;
use std::os::fd::{FromRawFd, IntoRawFd};

use vhost::vhost_user::message::*;
use vhost::vhost_user::{
    Error, GpuBackend, Result, VhostUserBackendReqHandlerMut, VhostUserProtocolFeatures,
};
use virtio_queue::{Queue, QueueT};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

use super::{Behaviour, bits};

/// One ring as the frontend has set it up so far.
#[derive(Default)]
pub(crate) struct Ring {
    pub(crate) queue: Option<Queue>,
    pub(crate) kick: Option<EventFd>,
    pub(crate) call: Option<EventFd>,
    pub(crate) enabled: bool,
    /// Between the kick file's arrival and GET_VRING_BASE.
    pub(crate) started: bool,
}

/// One port.
pub(crate) struct Device {
    behaviour: Behaviour,
    pub(crate) features: u64,
    pub(crate) memory: Option<GuestMemoryMmap>,
    /// Frontend address, length, guest address.
    regions: Vec<(u64, u64, u64)>,
    /// 2 n: the guest receives; 2 n + 1: it transmits.
    pub(crate) rings: Vec<Ring>,
    /// Messages that fail, by [`Behaviour::refuse_memory`].
    pub(crate) refused: u64,
}

impl Device {
    pub(crate) fn new(behaviour: Behaviour) -> Self {
        let rings = (0..2 * behaviour.queue_pairs).map(|_| Ring::default()).collect();
        Self { behaviour, features: 0, memory: None, regions: Vec::new(), rings, refused: 0 }
    }

    pub(crate) fn disconnect(&mut self) {
        *self = Self::new(self.behaviour);
    }

    fn ring(&mut self, index: u32) -> Result<&mut Ring> {
        self.rings.get_mut(index as usize).ok_or(Error::InvalidParam)
    }

    fn queue(&mut self, index: u32) -> Result<&mut Queue> {
        let ring = self.ring(index)?;
        Ok(ring.queue.get_or_insert_with(|| Queue::new(32768).unwrap()))
    }

    fn guest_address(&self, frontend: u64) -> Result<u64> {
        self.regions
            .iter()
            .find(|(start, bytes, _)| (*start..start + bytes).contains(&frontend))
            .map(|(start, _, guest)| guest + frontend - start)
            .ok_or(Error::InvalidParam)
    }
}

fn event(file: Option<File>) -> Option<EventFd> {
    // SAFETY: the number was a File's own, which gave it up.
    file.map(|file| unsafe { EventFd::from_raw_fd(file.into_raw_fd()) })
}

fn halves(address: u64) -> (Option<u32>, Option<u32>) {
    (Some(address as u32), Some((address >> 32) as u32))
}

impl VhostUserBackendReqHandlerMut for Device {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }
    fn reset_owner(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("not here"))
    }
    fn reset_device(&mut self) -> Result<()> {
        self.rings.iter_mut().for_each(|ring| *ring = Ring::default());
        Ok(())
    }
    fn get_features(&mut self) -> Result<u64> {
        Ok(self.behaviour.features)
    }
    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !self.behaviour.features != 0 {
            return Err(Error::InvalidParam);
        }
        self.features = features;
        Ok(())
    }
    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        if self.behaviour.refuse_memory {
            self.refused += 1;
            return Err(Error::InvalidParam);
        }
        let ranges: Vec<_> = regions
            .iter()
            .zip(files)
            .map(|(region, file)| {
                let offset = FileOffset::new(file, region.mmap_offset);
                let start = GuestAddress(region.guest_phys_addr);
                (start, region.memory_size as usize, Some(offset))
            })
            .collect();
        let memory = GuestMemoryMmap::from_ranges_with_files(&ranges);
        self.memory = Some(memory.map_err(|_| Error::InvalidParam)?);
        self.regions = regions
            .iter()
            .map(|region| (region.user_addr, region.memory_size, region.guest_phys_addr))
            .collect();
        Ok(None)
    }
    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = u16::try_from(num).map_err(|_| Error::InvalidParam)?;
        self.queue(index)?.try_set_size(size).map_err(|_| Error::InvalidParam)
    }
    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let [descriptor, used, available] = [
            self.guest_address(descriptor)?,
            self.guest_address(used)?,
            self.guest_address(available)?,
        ]
        .map(GuestAddress);
        let queue = self.queue(index)?;
        queue.try_set_desc_table_address(descriptor).map_err(|_| Error::InvalidParam)?;
        queue.try_set_used_ring_address(used).map_err(|_| Error::InvalidParam)?;
        queue.try_set_avail_ring_address(available).map_err(|_| Error::InvalidParam)
    }
    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        let queue = self.queue(index)?;
        queue.set_next_avail(base);
        queue.set_next_used(base);
        Ok(())
    }
    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let base = self.queue(index)?.next_avail();
        let ring = self.ring(index)?;
        (ring.started, ring.kick, ring.call) = (false, None, None);
        Ok(VhostUserVringState::new(index, base.into()))
    }
    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let event_idx = self.features & bits::EVENT_IDX != 0;
        let always = self.features & bits::PROTOCOL_FEATURES == 0;
        let queue = self.queue(index.into())?;
        queue.set_event_idx(event_idx);
        queue.set_ready(true);
        let ring = self.ring(index.into())?;
        ring.kick = event(fd);
        ring.started = true;
        ring.enabled |= always;
        Ok(())
    }
    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        self.ring(index.into())?.call = event(fd);
        Ok(())
    }
    fn set_vring_err(&mut self, _index: u8, _fd: Option<File>) -> Result<()> {
        Ok(())
    }
    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::RESET_DEVICE)
    }
    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }
    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.behaviour.queue_pairs)
    }
    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.ring(index)?.enabled = enable;
        Ok(())
    }
    fn get_config(&mut self, _: u32, _: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        Err(Error::InvalidOperation("not here"))
    }
    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        Err(Error::InvalidOperation("not here"))
    }
    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("not here"))
    }
    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("not here"))
    }
    fn get_inflight_fd(&mut self, _: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        Err(Error::InvalidOperation("not here"))
    }
    fn set_inflight_fd(&mut self, _: &VhostUserInflight, _: File) -> Result<()> {
        Err(Error::InvalidOperation("not here"))
    }
    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Err(Error::InvalidOperation("not here"))
    }
    fn add_mem_region(
        &mut self,
        _: &VhostUserSingleMemoryRegion,
        _: File,
        _: Option<bool>,
    ) -> Result<Option<u64>> {
        Err(Error::InvalidOperation("not here"))
    }
    fn remove_mem_region(&mut self, _: &VhostUserSingleMemoryRegion) -> Result<()> {
        Err(Error::InvalidOperation("not here"))
    }
    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidOperation("not here"))
    }
    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("not here"))
    }
    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidOperation("not here"))
    }
    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        Err(Error::InvalidOperation("not here"))
    }
}
