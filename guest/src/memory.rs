//! The guest's memory: one memfd, mapped once, cut into regions that the switch maps too.
//!
//! Every byte of it may be read or written by the switch at any moment, so it is never seen through
//! a Rust reference: only through [`Block`], with atomics for ring fields and opaque copies for
//! buffers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::limits::MEMORY_REGIONS_MAX;
use crate::racing::{self, Scalar};

const PAGE_BYTES: usize = 4096;
const HUGEPAGE_BYTES: usize = 2 << 20;

/// Guest-physical address of the first region. Not zero, and not what the mapping's own address
/// could be, so that a switch that mixes the two up is caught.
const GUEST_BASE: u64 = 0x4000_0000;
/// Guest-physical hole between two regions.
const GUEST_HOLE: u64 = 0x1000_0000;

/// How to make a guest's memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryConfig {
    /// Bytes at least; rounded up to whole pages per region.
    pub bytes: usize,
    /// 2 MiB pages from the system's pool instead of ordinary ones.
    pub hugepages: bool,
    /// Regions to announce it as, 1 to [`MEMORY_REGIONS_MAX`], with holes between them.
    pub regions: usize,
    /// Forbid everybody to truncate the file (F_SEAL_SHRINK), as QEMU does.
    pub sealed: bool,
}

/// The guest's memory could not be had.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// A system call failed.
    #[error("guest memory: {what} of {bytes} bytes: {error}{}", hint(*hugepages))]
    System {
        /// The step that failed.
        what: &'static str,
        /// Bytes asked for.
        bytes: usize,
        /// Whether hugepages were asked for.
        hugepages: bool,
        /// The system's answer.
        error: rustix::io::Errno,
    },
    /// The configuration is out of range.
    #[error("guest memory: {0} regions; 1 to {MEMORY_REGIONS_MAX} are possible")]
    Regions(usize),
    /// An allocation did not fit.
    #[error("guest memory: {bytes} bytes do not fit into what is left of any region")]
    Full {
        /// Bytes asked for.
        bytes: usize,
    },
}

fn hint(hugepages: bool) -> &'static str {
    if hugepages { " (are enough hugepages free? see /proc/sys/vm/nr_hugepages)" } else { "" }
}

/// One region as it is announced to the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Address that descriptors use.
    pub guest_address: u64,
    /// Address in this process, which SET_VRING_ADDR uses.
    pub host_address: u64,
    /// Offset in the file.
    pub file_offset: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A mapping of `bytes` bytes, unmapped when the last [`Block`] in it is gone.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a Mapping is an address range and nothing else. It is only read as such, and unmapped
// once, by whichever thread drops the last handle.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method of a shared Mapping touches the memory.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `start` and `bytes` are what mmap returned and was asked for; every Block holds
        // an Arc of this, so none is left that could touch the range.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of our own range");
    }
}

/// The memory of one guest and a bump allocator over it.
#[derive(Debug)]
pub struct GuestMemory {
    mapping: Arc<Mapping>,
    file: OwnedFd,
    regions: Vec<Region>,
    /// Bytes handed out of each region.
    taken: Vec<usize>,
}

impl GuestMemory {
    /// Creates, sizes and maps the file; all pages are present afterwards.
    ///
    /// # Errors
    /// Too many regions, or the system refuses (most often: no free hugepages).
    pub fn new(config: MemoryConfig) -> Result<Self, MemoryError> {
        if config.regions == 0 || config.regions > MEMORY_REGIONS_MAX {
            return Err(MemoryError::Regions(config.regions));
        }
        let page = if config.hugepages { HUGEPAGE_BYTES } else { PAGE_BYTES };
        let region_bytes = config.bytes.div_ceil(config.regions).next_multiple_of(page).max(page);
        let bytes = region_bytes * config.regions;
        let failed = |what| {
            let hugepages = config.hugepages;
            move |error| MemoryError::System { what, bytes, hugepages, error }
        };
        let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        if config.hugepages {
            flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        }
        let file =
            rustix::fs::memfd_create("tollgate-guest", flags).map_err(failed("memfd_create"))?;
        rustix::fs::ftruncate(&file, bytes as u64).map_err(failed("ftruncate"))?;
        if config.sealed {
            rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).map_err(failed("sealing"))?;
        }
        let mapping = Arc::new(map(&file, bytes).map_err(failed("mmap"))?);
        let regions = (0..config.regions)
            .map(|index| {
                let offset = (index * region_bytes) as u64;
                Region {
                    guest_address: GUEST_BASE + offset + index as u64 * GUEST_HOLE,
                    host_address: mapping.start.as_ptr().addr() as u64 + offset,
                    file_offset: offset,
                    bytes: region_bytes as u64,
                }
            })
            .collect();
        Ok(Self { mapping, file, regions, taken: vec![0; config.regions] })
    }

    /// The regions to announce.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The file behind all regions.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Takes `bytes` zeroed bytes, aligned to `align` (a power of two), from the emptiest region.
    ///
    /// # Errors
    /// When no region has that much left.
    pub fn allocate(&mut self, bytes: usize, align: usize) -> Result<Block, MemoryError> {
        let full = MemoryError::Full { bytes };
        let emptiest = self.taken.iter_mut().zip(&self.regions).min_by_key(|(taken, _)| **taken);
        let Some((taken, region)) = emptiest else { return Err(full) };
        let start = taken.next_multiple_of(align);
        let end = start.checked_add(bytes).filter(|end| *end as u64 <= region.bytes);
        let Some(end) = end else { return Err(full) };
        *taken = end;
        let start_in_file = region.file_offset as usize + start;
        // A region's file offset and length lie inside the mapping by construction, and
        // start + bytes <= region.bytes was just checked, so the block does too.
        let address = self.mapping.start.as_ptr().wrapping_add(start_in_file);
        let Some(address) = NonNull::new(address) else { return Err(full) };
        Ok(Block {
            start: address,
            bytes,
            guest_address: region.guest_address + start as u64,
            _mapping: self.mapping.clone(),
        })
    }
}

fn map(file: &OwnedFd, bytes: usize) -> rustix::io::Result<Mapping> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | MapFlags::POPULATE;
    // SAFETY: a null hint lets the kernel choose a range that nothing else uses.
    let start =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0) }?;
    let start = NonNull::new(start.cast()).ok_or(rustix::io::Errno::FAULT)?;
    Ok(Mapping { start, bytes })
}

/// A run of guest memory, wholly inside one region.
///
/// Offsets are checked: one outside is a mistake of this crate (whatever a peer writes is validated
/// before it becomes an offset) and ends in a panic, not in a stray access.
#[derive(Clone, Debug)]
pub struct Block {
    start: NonNull<u8>,
    bytes: usize,
    guest_address: u64,
    /// Keeps the range mapped.
    _mapping: Arc<Mapping>,
}

// SAFETY: the range stays mapped as long as the Block lives, whichever thread holds it, and all
// accesses are atomics or opaque copies, which races cannot break: the switch races with us anyway.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Address for descriptors.
    pub fn guest_address(&self) -> u64 {
        self.guest_address
    }

    /// Address for SET_VRING_ADDR, and for prefetches.
    pub fn host_address(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// Pointer to `bytes` bytes at `offset`, which lie inside the block.
    #[inline(always)]
    fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(
            bytes <= self.bytes && offset <= self.bytes - bytes,
            "access outside the guest memory block"
        );
        self.start.as_ptr().wrapping_add(offset)
    }

    #[inline(always)]
    fn aligned<T>(&self, offset: usize) -> *mut T {
        let pointer = self.at(offset, size_of::<T>()).cast::<T>();
        assert!(pointer.is_aligned(), "misaligned ring field");
        pointer
    }

    #[inline(always)]
    fn atomic_u16(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: `aligned` proved bounds and alignment; the range is mapped while self lives, and
        // is only accessed by atomics and assembly.
        unsafe { AtomicU16::from_ptr(self.aligned(offset)) }
    }

    /// Loads a 16-bit ring field (offset a multiple of 2).
    #[inline(always)]
    pub fn load_u16(&self, offset: usize, order: Ordering) -> u16 {
        u16::from_le(self.atomic_u16(offset).load(order))
    }

    /// Stores a 16-bit ring field (offset a multiple of 2).
    #[inline(always)]
    pub fn store_u16(&self, offset: usize, value: u16, order: Ordering) {
        self.atomic_u16(offset).store(value.to_le(), order);
    }

    /// Loads a 32-bit ring field (offset a multiple of 4), relaxed.
    #[inline(always)]
    pub fn load_u32(&self, offset: usize) -> u32 {
        // SAFETY: as for atomic_u16.
        let field = unsafe { AtomicU32::from_ptr(self.aligned(offset)) };
        u32::from_le(field.load(Ordering::Relaxed))
    }

    /// Stores a 64-bit ring field (offset a multiple of 8), relaxed.
    #[inline(always)]
    pub fn store_u64(&self, offset: usize, value: u64) {
        // SAFETY: as for atomic_u16.
        let field = unsafe { AtomicU64::from_ptr(self.aligned(offset)) };
        field.store(value.to_le(), Ordering::Relaxed);
    }

    /// Copies `bytes` in at `offset`.
    #[inline(always)]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let target = self.at(offset, bytes.len());
        // SAFETY: `at` proved the target; the source is a slice of ours; a slice of ours never
        // overlaps guest memory, to which no Rust reference exists.
        unsafe { racing::copy(bytes.as_ptr(), target, bytes.len()) }
    }

    /// Copies out `bytes.len()` bytes from `offset`.
    #[inline(always)]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let source = self.at(offset, bytes.len());
        // SAFETY: as for write, in the other direction; the exclusive borrow is not used meanwhile.
        unsafe { racing::copy(source, bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Loads an unaligned scalar in memory order.
    #[inline(always)]
    pub(crate) fn get<T: Scalar>(&self, offset: usize) -> T {
        let source = self.at(offset, size_of::<T>());
        // SAFETY: `at` proved the range.
        unsafe { T::load(source) }
    }

    /// Stores an unaligned scalar in memory order.
    #[inline(always)]
    pub(crate) fn put<T: Scalar>(&self, offset: usize, value: T) {
        let target = self.at(offset, size_of::<T>());
        // SAFETY: `at` proved the range; no Rust reference to guest memory exists.
        unsafe { value.store(target) }
    }

    /// Hints that the line at `offset` will be read; harmless for any offset.
    #[inline(always)]
    pub fn prefetch_read(&self, offset: usize) {
        tollgate_accel::prefetch::prefetch_read(self.start.as_ptr().wrapping_add(offset));
    }

    /// Hints that the line at `offset` will be written; harmless for any offset.
    #[inline(always)]
    pub fn prefetch_write(&self, offset: usize) {
        racing::prefetch_write(self.start.as_ptr().wrapping_add(offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(bytes: usize, regions: usize) -> GuestMemory {
        GuestMemory::new(MemoryConfig { bytes, hugepages: false, regions, sealed: true }).unwrap()
    }

    #[test]
    fn blocks_are_disjoint_aligned_and_inside_one_region() {
        let mut memory = memory(64 << 10, 3);
        let mut seen: Vec<(u64, u64)> = Vec::new();
        while let Ok(block) = memory.allocate(700, 64) {
            let (start, end) = (block.guest_address(), block.guest_address() + 700);
            assert_eq!(start % 64, 0);
            assert_eq!(block.host_address().addr() % 64, 0);
            let inside = |r: &&Region| start >= r.guest_address && end <= r.guest_address + r.bytes;
            let region = memory.regions().iter().find(inside).expect("inside a region");
            assert_eq!(
                start - region.guest_address,
                block.host_address().addr() as u64 - region.host_address
            );
            assert!(seen.iter().all(|(s, e)| end <= *s || start >= *e));
            seen.push((start, end));
        }
        assert!(seen.len() > 80, "{} blocks", seen.len());
    }

    #[test]
    fn what_is_written_is_in_the_file_and_reads_back() {
        let mut memory = memory(4096, 1);
        let block = memory.allocate(256, 64).unwrap();
        block.write(3, b"hello, switch, here is a frame");
        block.put(40, 0x1122_3344_5566_7788u64);
        block.store_u16(64, 0xbeef, Ordering::Release);
        let mut bytes = [0; 30];
        rustix::io::pread(memory.file(), &mut bytes, 3).unwrap();
        assert_eq!(&bytes, b"hello, switch, here is a frame");
        assert_eq!(block.get::<u64>(40), 0x1122_3344_5566_7788);
        assert_eq!(block.load_u16(64, Ordering::Acquire), 0xbeef);
    }

    #[test]
    #[should_panic(expected = "outside the guest memory block")]
    fn an_access_past_the_end_is_caught() {
        let block = memory(4096, 1).allocate(16, 16).unwrap();
        block.put(9, 0u64);
    }

    #[test]
    fn a_sealed_file_cannot_be_truncated() {
        let memory = memory(8192, 1);
        assert!(rustix::fs::ftruncate(memory.file(), 0).is_err());
    }
}
