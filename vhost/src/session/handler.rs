//! What each message of the frontend does.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    Error as ProtocolError, GpuBackend, Result, VhostUserBackendReqHandlerMut,
};

use super::vring::Kick;
use super::{Session, SessionError};
use crate::features::{self, Features};
use crate::limits::MAX_MEMORY_REGIONS;
use crate::memory::{GuestMemory, RegionInfo};
use crate::notify::{self, CallFd};
use crate::shared::RingAddresses;

impl From<SessionError> for ProtocolError {
    fn from(error: SessionError) -> Self {
        Self::ReqHandlerError(io::Error::other(error))
    }
}

fn unsupported<T>(what: &'static str) -> Result<T> {
    Err(SessionError::Unsupported(what).into())
}

impl From<&VhostUserMemoryRegion> for RegionInfo {
    fn from(region: &VhostUserMemoryRegion) -> Self {
        Self {
            guest_address: region.guest_phys_addr,
            size: region.memory_size,
            user_address: region.user_addr,
            file_offset: region.mmap_offset,
        }
    }
}

impl VhostUserBackendReqHandlerMut for Session<'_> {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    /// No longer used by frontends; the protocol suggests to disable all rings.
    fn reset_owner(&mut self) -> Result<()> {
        self.stop_all()?;
        self.vrings.iter_mut().for_each(|vring| vring.set_stopped());
        Ok(())
    }

    /// Memory stays: QEMU tracks what it has shared and does not share it again.
    fn reset_device(&mut self) -> Result<()> {
        self.stop_all()?;
        self.vrings.iter_mut().for_each(|vring| vring.reset());
        self.features = None;
        self.status.set_features(Features::default());
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(Features::offered(self.queue_pairs()).0)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let offered = Features::offered(self.queue_pairs());
        let acknowledged = Features(features);
        if !acknowledged.is_within(offered) {
            let beyond = Features(features & !offered.0).names();
            return Err(SessionError::FeaturesNotOffered(beyond).into());
        }
        if self.any_running() && self.features != Some(acknowledged) {
            return Err(SessionError::FeaturesWhileRunning.into());
        }
        self.features = Some(acknowledged);
        self.status.set_features(acknowledged);
        self.start_all_ready()
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(features::protocol_features(self.queue_pairs()))
    }

    fn set_protocol_features(&mut self, acknowledged: u64) -> Result<()> {
        let offered = features::protocol_features(self.queue_pairs());
        match acknowledged & !offered.bits() {
            0 => {
                let reply_ack = VhostUserProtocolFeatures::REPLY_ACK.bits();
                self.acknowledges = acknowledged & reply_ack != 0;
                Ok(())
            }
            beyond => Err(SessionError::ProtocolFeaturesNotOffered(beyond).into()),
        }
    }

    /// Queue pairs, as DPDK and QEMU count them for network devices.
    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(u64::from(self.queue_pairs()))
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let infos: Vec<RegionInfo> = regions.iter().map(RegionInfo::from).collect();
        self.replace_memory(|_| GuestMemory::map(&infos, files))?;
        Ok(None)
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(MAX_MEMORY_REGIONS as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<u64>> {
        let info = RegionInfo::from(&**region);
        self.replace_memory(|memory| memory.with_region(info, file))?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let info = RegionInfo::from(&**region);
        Ok(self.replace_memory(|memory| memory.without_region(&info))?)
    }

    fn set_vring_num(&mut self, index: u32, size: u32) -> Result<()> {
        self.stopped_vring(index, "its size was set")?.set_size(size);
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let vring = self.stopped_vring(index, "its base was set")?;
        // A packed ring's base has more bits; none was offered.
        let too_large = SessionError::BaseTooLarge { index: vring.index(), base };
        vring.set_base(u16::try_from(base).map_err(|_| too_large)?);
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        avail: u64,
        _log: u64,
    ) -> Result<()> {
        let index = self.ring_index(index)?;
        if flags.contains(VhostUserVringAddrFlags::VHOST_VRING_F_LOG) {
            return Err(SessionError::LogNotOffered { index }.into());
        }
        self.change(index, |vring| {
            vring.set_addresses(RingAddresses { descriptors, avail, used });
        })
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let ring = self.ring_index(index)?;
        self.stop(ring)?;
        let vring = self.vring(index)?;
        vring.set_stopped();
        Ok(VhostUserVringState::new(index, u32::from(vring.base())))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let index = self.ring_index(u32::from(index))?;
        let kick = match file.map(OwnedFd::from) {
            None => Kick::Polled,
            Some(fd) => {
                notify::check_eventfd(fd.as_fd())
                    .map_err(|source| SessionError::NotAnEventFd { index, source })?;
                Kick::Fd(fd)
            }
        };
        self.change(index, |vring| vring.set_kick(kick))
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let index = self.ring_index(u32::from(index))?;
        let call = file
            .map(|file| CallFd::new(file.into()))
            .transpose()
            .map_err(|source| SessionError::NotAnEventFd { index, source })?;
        self.change(index, |vring| vring.set_call(call.map(Arc::new)))
    }

    /// Errors are reported in `port_list`, not through this fd.
    fn set_vring_err(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let index = self.ring_index(u32::from(index))?;
        if let Some(file) = file {
            notify::check_eventfd(file.as_fd())
                .map_err(|source| SessionError::NotAnEventFd { index, source })?;
        }
        Ok(())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let index = self.ring_index(index)?;
        self.change(index, |vring| vring.set_enabled(enable))
    }

    // What follows belongs to protocol features that are not offered.

    fn get_config(&mut self, _: u32, _: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        unsupported("GET_CONFIG")
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        unsupported("SET_CONFIG")
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        unsupported("GPU_SET_SOCKET")
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        unsupported("GET_SHARED_OBJECT")
    }

    fn get_inflight_fd(&mut self, _: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        unsupported("GET_INFLIGHT_FD")
    }

    fn set_inflight_fd(&mut self, _: &VhostUserInflight, _: File) -> Result<()> {
        unsupported("SET_INFLIGHT_FD")
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        unsupported("SET_DEVICE_STATE_FD")
    }

    fn check_device_state(&mut self) -> Result<()> {
        unsupported("CHECK_DEVICE_STATE")
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        unsupported("GET_SHMEM_CONFIG")
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        unsupported("SET_LOG_BASE")
    }
}

impl Session<'_> {
    fn start_all_ready(&mut self) -> Result<()> {
        for index in 0..self.queue_pairs() * 2 {
            self.start_if_ready(index)?;
        }
        Ok(())
    }

    /// Changes ring `index` while nobody uses it, and lets it go on if it can.
    fn change(&mut self, index: u16, change: impl FnOnce(&mut super::Vring)) -> Result<()> {
        self.stop(index)?;
        change(self.vring(u32::from(index))?);
        Ok(self.start_if_ready(index)?)
    }

    /// A ring for changes that make sense only while it stands still.
    fn stopped_vring(
        &mut self,
        index: u32,
        what: &'static str,
    ) -> std::result::Result<&mut super::Vring, SessionError> {
        let vring = self.vring(index)?;
        if vring.is_running() {
            return Err(SessionError::Running { index: vring.index(), what });
        }
        Ok(vring)
    }
}
