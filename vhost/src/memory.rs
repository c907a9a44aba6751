//! A guest's memory, as its frontend shared it.
//!
//! A table is mapped as a whole, checked as a whole and never changed afterwards: a change of
//! memory makes a new table, and the old one stays mapped until the last ring and burst let go of
//! it.

use std::fmt;
use std::fs::File;
use std::sync::Arc;

use rustix::fs::{FileType, fstat, fstatfs};
use rustix::param::page_size;
use tollgate_accel::tsc;
use tollgate_frame::copy;
use vm_memory::{FileOffset, MmapRegion};

use crate::limits::{MAX_MEMORY_REGIONS, USUAL_FRAME_BYTES};
use crate::pages::{MetPages, MetView};

/// HUGETLBFS_MAGIC of linux/magic.h.
const HUGETLBFS_MAGIC: u64 = 0x958458f6;

/// One region as the frontend describes it (vhost-user protocol, "Memory region description").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// Guest physical address of its first byte.
    pub guest_address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Where the frontend has it mapped; ring addresses refer to this.
    pub user_address: u64,
    /// Where in the file it starts.
    pub file_offset: u64,
}

/// Why a memory table was refused.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what the variant means")]
pub enum MemoryError {
    #[error("{count} memory regions: at most {MAX_MEMORY_REGIONS} are supported")]
    TooMany { count: usize },
    #[error("{regions} memory regions came with {files} files")]
    FileCount { regions: usize, files: usize },
    #[error("memory region {index} is empty")]
    Empty { index: usize },
    #[error("memory region {index}: an address plus its size overflows")]
    Overflow { index: usize },
    #[error("memory regions {first} and {second} overlap in {space} addresses")]
    Overlap { first: usize, second: usize, space: &'static str },
    #[error("memory region {index} needs {needed} bytes of a file that has {actual}")]
    FileTooShort { index: usize, needed: u64, actual: u64 },
    #[error("memory region {index} is not backed by a regular file (memfd, hugetlbfs, tmpfs)")]
    NotAFile { index: usize },
    #[error("memory region {index}: {source}")]
    File { index: usize, source: std::io::Error },
    #[error("memory region {index} cannot be mapped: {source}")]
    Map { index: usize, source: vm_memory::mmap::MmapRegionError },
    #[error("no such memory region to remove")]
    Unknown,
}

/// A region that is mapped here.
#[derive(Clone)]
struct Region {
    info: RegionInfo,
    host: HostAddress,
    /// Keeps `info.size` bytes from `host` mapped.
    mapping: Arc<MmapRegion>,
    met: Arc<MetPages>,
}

/// A region by itself: who asks for one address asks for others nearby. To be used with the table
/// that it came from.
#[derive(Clone, Copy)]
pub(crate) struct Near {
    guest_address: u64,
    size: u64,
    host: HostAddress,
    met: MetView,
}

impl Near {
    /// No region.
    pub(crate) const NOWHERE: Self = Self {
        guest_address: 0,
        size: 0,
        host: HostAddress(std::ptr::null_mut()),
        met: MetView::NOWHERE,
    };

    #[inline(always)]
    fn at(&self, guest_address: u64) -> Option<(*mut u8, u64)> {
        let offset = guest_address.wrapping_sub(self.guest_address);
        // Lossless: usize has 64 bits on the only architecture that builds.
        (offset < self.size)
            .then(|| (self.host.0.wrapping_add(offset as usize), self.size - offset))
    }
}

#[derive(Clone, Copy)]
struct HostAddress(*mut u8);

// SAFETY: an address alone gives no access; every access through it is an opaque copy or an atomic
// that tolerates other writers, because the guest is one anyway.
unsafe impl Send for HostAddress {}
// SAFETY: as for `Send`.
unsafe impl Sync for HostAddress {}

/// A checked and mapped memory table.
#[derive(Clone, Default)]
pub struct GuestMemory {
    regions: Vec<Region>,
}

impl GuestMemory {
    /// Maps a whole table.
    ///
    /// # Errors
    /// When regions overlap, overflow, exceed their files or cannot be mapped.
    pub fn map(infos: &[RegionInfo], files: Vec<File>) -> Result<Self, MemoryError> {
        if infos.len() != files.len() {
            return Err(MemoryError::FileCount { regions: infos.len(), files: files.len() });
        }
        infos
            .iter()
            .zip(files)
            .try_fold(Self::default(), |memory, (info, file)| memory.with_region(*info, file))
    }

    /// The same table with one region more.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub fn with_region(&self, info: RegionInfo, file: File) -> Result<Self, MemoryError> {
        let index = self.regions.len();
        if index >= MAX_MEMORY_REGIONS {
            return Err(MemoryError::TooMany { count: index + 1 });
        }
        check_range(index, &info)?;
        for (first, other) in self.regions.iter().enumerate() {
            if let Some(space) = overlap(&other.info, &info) {
                return Err(MemoryError::Overlap { first, second: index, space });
            }
        }
        let mut regions = self.regions.clone();
        regions.push(map_region(index, info, file)?);
        Ok(Self { regions })
    }

    /// The same table without the region that has `info`'s addresses and size (vhost-user
    /// protocol, REM_MEM_REG: the file offset may differ).
    ///
    /// # Errors
    /// When there is none.
    pub fn without_region(&self, info: &RegionInfo) -> Result<Self, MemoryError> {
        let same = |region: &&Region| {
            region.info.guest_address == info.guest_address
                && region.info.user_address == info.user_address
                && region.info.size == info.size
        };
        if !self.regions.iter().any(|region| same(&region)) {
            return Err(MemoryError::Unknown);
        }
        Ok(Self { regions: self.regions.iter().filter(|region| !same(region)).cloned().collect() })
    }

    /// How many regions there are.
    pub fn region_count(&self) -> usize {
        self.regions.len()
    }

    /// The host address of guest physical address `guest_address` and how many bytes of its region
    /// follow (at least 1). `near` remembers the region of the last hit.
    #[inline(always)]
    pub(crate) fn at(&self, guest_address: u64, near: &mut Near) -> Option<(*mut u8, u64)> {
        near.at(guest_address).or_else(|| {
            *near = self.search(guest_address)?;
            near.at(guest_address)
        })
    }

    #[cold]
    #[inline(never)]
    fn search(&self, guest_address: u64) -> Option<Near> {
        let near = |region: &Region| Near {
            guest_address: region.info.guest_address,
            size: region.info.size,
            host: region.host,
            met: region.met.view(),
        };
        self.regions.iter().map(near).find(|near| near.at(guest_address).is_some())
    }

    /// Whether the pages of a buffer, as far as a usual frame goes, were written to before. `near` is of
    /// this table and of the buffer's address, and all of it lies in that region; else nothing is known,
    /// and nothing to be found out.
    #[inline(always)]
    pub(crate) fn has_met(&self, guest_address: u64, len: u32, near: &Near) -> bool {
        let first = guest_address.wrapping_sub(near.guest_address);
        let last = first.wrapping_add(u64::from(len.clamp(1, USUAL_FRAME_BYTES)) - 1);
        // SAFETY: regions, and so their pages, live as long as this table, which `near` is of by
        // contract; both offsets are checked against the region's size, that of its pages.
        first >= near.size || last >= near.size || unsafe { near.met.has_both(first, last) }
    }

    /// Writes a byte to each page of `len` bytes at `host` that was not met before; the cycles that this
    /// took.
    ///
    /// # Safety
    /// The bytes are mapped writable, in this table, and the device's to write to.
    #[cold]
    pub(crate) unsafe fn meet(&self, host: *mut u8, len: u32) -> u64 {
        let offset_in = |region: &Region| {
            let offset = (host as u64).checked_sub(region.host.0 as u64)?;
            (offset < region.info.size).then_some(offset)
        };
        let found = self.regions.iter().find_map(|region| Some((region, offset_in(region)?)));
        let Some((region, start)) = found else { return 0 };
        let end = start.saturating_add(u64::from(len)).min(region.info.size);
        let began_tsc = tsc::now();
        let (mut at, mut is_new) = (start, false);
        while at < end {
            if !region.met.has(at) {
                // SAFETY: between `host` and `len` bytes after it, which the caller vouches for.
                unsafe { copy::copy_out(&[0], region.host_at(at)) };
                region.met.meet(at);
                is_new = true;
            }
            at = region.met.page_end(at);
        }
        if is_new { tsc::now().saturating_sub(began_tsc) } else { 0 }
    }

    /// The host address of `len` bytes at the frontend's `user_address`, if they lie inside one
    /// region.
    pub(crate) fn at_user_address(&self, user_address: u64, len: u64) -> Option<*mut u8> {
        self.regions.iter().find_map(|region| {
            let offset = user_address.checked_sub(region.info.user_address)?;
            (offset.checked_add(len)? <= region.info.size).then(|| region.host_at(offset))
        })
    }
}

impl Region {
    #[inline]
    fn host_at(&self, offset: u64) -> *mut u8 {
        // Lossless: usize has 64 bits on the only architecture that builds.
        self.host.0.wrapping_add(offset as usize)
    }
}

fn check_range(index: usize, info: &RegionInfo) -> Result<(), MemoryError> {
    if info.size == 0 {
        return Err(MemoryError::Empty { index });
    }
    let starts = [info.guest_address, info.user_address, info.file_offset];
    // The pages around the region are mapped too: leave room for the largest page.
    let fits = |start: &u64| start.checked_add(info.size)?.checked_add(1 << 31);
    if starts.iter().any(|start| fits(start).is_none()) {
        return Err(MemoryError::Overflow { index });
    }
    Ok(())
}

/// In which addresses two regions overlap, if any. Neither overflows.
fn overlap(a: &RegionInfo, b: &RegionInfo) -> Option<&'static str> {
    let ranges =
        |a_start: u64, b_start: u64| a_start < b_start + b.size && b_start < a_start + a.size;
    if ranges(a.guest_address, b.guest_address) {
        Some("guest")
    } else if ranges(a.user_address, b.user_address) {
        Some("user")
    } else {
        None
    }
}

fn map_region(index: usize, info: RegionInfo, file: File) -> Result<Region, MemoryError> {
    let os_error = |error: rustix::io::Errno| MemoryError::File { index, source: error.into() };
    let stat = fstat(&file).map_err(os_error)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(MemoryError::NotAFile { index });
    }
    // Touching a page beyond the end of the file would be a SIGBUS.
    let actual = u64::try_from(stat.st_size).unwrap_or(0);
    let needed = info.file_offset + info.size;
    if actual < needed {
        return Err(MemoryError::FileTooShort { index, needed, actual });
    }
    let filesystem = fstatfs(&file).map_err(os_error)?;
    let is_hugetlbfs = u64::try_from(filesystem.f_type) == Ok(HUGETLBFS_MAGIC);
    // mmap wants the file offset, and munmap of huge pages also the length, in whole pages.
    let page = match u64::try_from(filesystem.f_bsize) {
        Ok(huge_page) if is_hugetlbfs && huge_page.is_power_of_two() => huge_page,
        _ => page_size() as u64,
    };
    let skipped = info.file_offset % page;
    let map_len = (skipped + info.size).next_multiple_of(page);
    let map_len = usize::try_from(map_len).map_err(|_| MemoryError::Overflow { index })?;
    let file_offset = FileOffset::new(file, info.file_offset - skipped);
    let mapping = MmapRegion::<()>::from_file(file_offset, map_len)
        .map_err(|source| MemoryError::Map { index, source })?;
    let host = HostAddress(mapping.as_ptr().wrapping_add(skipped as usize));
    let met = Arc::new(MetPages::new(info.size));
    Ok(Region { info, host, mapping: Arc::new(mapping), met })
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x?} in {} mapped bytes", self.info, self.mapping.size())
    }
}

impl fmt::Debug for GuestMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.regions).finish()
    }
}
