//! A guest's memory: memfds, mapped here as the guest sees them.

use std::fs::File;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap, GuestMemoryRegion,
};

use crate::memory::{GuestMemory, RegionInfo};

/// Memory of a guest in one or several regions, a memfd each.
#[derive(Clone, Debug)]
pub struct Ram {
    memory: GuestMemoryMmap,
}

impl Ram {
    /// Regions by guest physical address and size, both in whole pages.
    pub fn new(regions: &[(u64, usize)]) -> Self {
        let ranges = regions.iter().map(|(address, size)| {
            let file = File::from(memfd_create("mock-guest", MemfdFlags::CLOEXEC).unwrap());
            ftruncate(&file, *size as u64).unwrap();
            (GuestAddress(*address), *size, Some(FileOffset::new(file, 0)))
        });
        Self { memory: GuestMemoryMmap::from_ranges_with_files(ranges).unwrap() }
    }

    /// The memory, for `virtio-queue` and the like.
    pub fn memory(&self) -> &GuestMemoryMmap {
        &self.memory
    }

    /// Writes to guest memory.
    pub fn write(&self, address: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(address)).unwrap();
    }

    /// Reads guest memory.
    pub fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_slice(&mut bytes, GuestAddress(address)).unwrap();
        bytes
    }

    /// Where this process, as the frontend, has `address` mapped.
    pub fn user_address(&self, address: u64) -> u64 {
        self.memory.get_host_address(GuestAddress(address)).unwrap().addr() as u64
    }

    /// The regions as a frontend describes them.
    pub fn regions(&self) -> Vec<RegionInfo> {
        self.memory
            .iter()
            .map(|region| RegionInfo {
                guest_address: region.start_addr().0,
                size: region.len(),
                user_address: region
                    .get_host_address(vm_memory::MemoryRegionAddress(0))
                    .unwrap()
                    .addr() as u64,
                file_offset: 0,
            })
            .collect()
    }

    /// The files behind the regions.
    pub fn files(&self) -> Vec<File> {
        let file = |region: &vm_memory::GuestRegionMmap| {
            region.file_offset().unwrap().file().try_clone().unwrap()
        };
        self.memory.iter().map(file).collect()
    }

    /// Maps it once more, as the switch does.
    pub fn map(&self) -> Arc<GuestMemory> {
        Arc::new(GuestMemory::map(&self.regions(), self.files()).unwrap())
    }
}
