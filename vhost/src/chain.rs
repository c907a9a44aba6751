//! Descriptor chains: from a head to the pieces of host memory that it names.
//!
//! A chain is walked once. What it may be is in virtio 1.2, 2.7.5; what a guest may try is in the
//! tests. The walk is bounded by [`MAX_CHAIN_DESCRIPTORS`] whatever the descriptors say.
#![deny(clippy::disallowed_macros)] // on the PMD

use std::fmt;

use virtio_bindings::virtio_ring::{VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};

use crate::limits::MAX_CHAIN_DESCRIPTORS;
use crate::memory::Near;
use crate::shared::{Descriptor, SharedRing};
use crate::status::RingFault;

const NEXT: u16 = VRING_DESC_F_NEXT as u16;
const WRITE: u16 = VRING_DESC_F_WRITE as u16;
const INDIRECT: u16 = VRING_DESC_F_INDIRECT as u16;
const DESCRIPTOR_BYTES: u32 = 16;

/// Which way the chain's buffers are to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The device reads: the whole chain is walked.
    FromGuest,
    /// The device writes: the walk ends as soon as there is room enough.
    ToGuest,
}

/// Why a chain cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChainError {
    /// The ring cannot be trusted any further.
    Fault(RingFault),
    /// More descriptors than are looked at, without a loop among them.
    TooLong,
    /// A buffer that may only be written in a chain to be read.
    WriteOnly,
}

impl From<RingFault> for ChainError {
    fn from(fault: RingFault) -> Self {
        Self::Fault(fault)
    }
}

/// Contiguous bytes of host memory.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) address: *mut u8,
    pub(crate) len: u32,
}

/// The pieces of one or several chains, in order, in memory allocated once.
pub(crate) struct Pieces {
    list: Box<[Piece]>,
    len: usize,
    bytes: u64,
}

// SAFETY: as for `SharedRing`: addresses inside guest memory, used only through opaque copies.
unsafe impl Send for Pieces {}

impl Pieces {
    pub(crate) fn new() -> Self {
        let empty = Piece { address: std::ptr::null_mut(), len: 0 };
        Self { list: vec![empty; MAX_CHAIN_DESCRIPTORS].into_boxed_slice(), len: 0, bytes: 0 }
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
        self.bytes = 0;
    }

    /// Bytes in all pieces, also in those that were only counted.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many they are.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.len as u32
    }

    #[inline]
    pub(crate) fn list(&self) -> &[Piece] {
        self.list.get(..self.len).unwrap_or_default()
    }

    #[inline]
    fn push(&mut self, piece: Piece) -> Result<(), ChainError> {
        let slot = self.list.get_mut(self.len).ok_or(ChainError::TooLong)?;
        *slot = piece;
        self.len += 1;
        self.bytes += u64::from(piece.len);
        Ok(())
    }
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pieces({} in {} bytes)", self.len, self.bytes)
    }
}

/// How a chain is to be walked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    pub(crate) direction: Direction,
    /// INDIRECT_DESC was negotiated.
    pub(crate) indirect: bool,
    /// Pieces beyond so many bytes are not kept; `ToGuest` walks end there.
    pub(crate) bytes_wanted: u64,
}

/// Appends the pieces of the chain that begins with `first` to `pieces`.
pub(crate) fn collect(
    ring: &SharedRing,
    walk: Walk,
    first: Descriptor,
    near: &mut Near,
    pieces: &mut Pieces,
) -> Result<(), ChainError> {
    let mut table = Table::Ring;
    let mut descriptor = first;
    let mut loops = LoopGuard::new();
    for _ in 0..MAX_CHAIN_DESCRIPTORS {
        let next = if descriptor.flags & INDIRECT != 0 {
            table = table.enter(ring, walk, &descriptor)?;
            loops = LoopGuard::new();
            0
        } else {
            take_buffer(ring, walk, &descriptor, near, pieces)?;
            let enough = walk.direction == Direction::ToGuest && pieces.bytes >= walk.bytes_wanted;
            if enough || descriptor.flags & NEXT == 0 {
                return Ok(());
            }
            descriptor.next
        };
        loops.visit(next)?;
        descriptor = table.load(ring, next, near)?;
    }
    Err(ChainError::TooLong)
}

/// Checks one buffer and appends it, in as many pieces as it spans regions.
fn take_buffer(
    ring: &SharedRing,
    walk: Walk,
    descriptor: &Descriptor,
    near: &mut Near,
    pieces: &mut Pieces,
) -> Result<(), ChainError> {
    let writable = descriptor.flags & WRITE != 0;
    match walk.direction {
        Direction::FromGuest if writable => return Err(ChainError::WriteOnly),
        Direction::ToGuest if !writable => return Err(RingFault::ReadOnlyBuffer.into()),
        _ => {}
    }
    let mut address = descriptor.address;
    let mut left = descriptor.len;
    loop {
        // Also for a length of 0: the address must be good (CVE-2020-10725).
        let (host, room) = ring.memory().at(address, near).ok_or(RingFault::BadAddress)?;
        let len = u64::from(left).min(room) as u32;
        if pieces.bytes >= walk.bytes_wanted {
            pieces.bytes += u64::from(len);
        } else if len > 0 {
            pieces.push(Piece { address: host, len })?;
        }
        left -= len;
        if left == 0 {
            return Ok(());
        }
        // Cannot overflow: regions end far below 2^64.
        address += u64::from(len);
    }
}

/// Where the next descriptor is found.
#[derive(Clone, Copy)]
enum Table {
    Ring,
    Indirect { guest_address: u64, entries: u16 },
}

impl Table {
    fn enter(
        self,
        ring: &SharedRing,
        walk: Walk,
        descriptor: &Descriptor,
    ) -> Result<Self, RingFault> {
        if !walk.indirect {
            return Err(RingFault::IndirectNotNegotiated);
        }
        if matches!(self, Self::Indirect { .. }) {
            return Err(RingFault::IndirectNested);
        }
        if descriptor.flags & NEXT != 0 {
            return Err(RingFault::IndirectWithNext);
        }
        let entries = descriptor.len / DESCRIPTOR_BYTES;
        if entries == 0 || !descriptor.len.is_multiple_of(DESCRIPTOR_BYTES) {
            return Err(RingFault::IndirectBadLength);
        }
        match u16::try_from(entries) {
            Ok(entries) if entries <= ring.size() => {
                Ok(Self::Indirect { guest_address: descriptor.address, entries })
            }
            _ => Err(RingFault::IndirectTooLong),
        }
    }

    fn load(self, ring: &SharedRing, index: u16, near: &mut Near) -> Result<Descriptor, RingFault> {
        match self {
            Self::Ring => ring.descriptor(index).ok_or(RingFault::NextOutOfRange),
            Self::Indirect { guest_address, entries } => {
                if index >= entries {
                    return Err(RingFault::NextOutOfRange);
                }
                let offset = u64::from(index) * u64::from(DESCRIPTOR_BYTES);
                let address = guest_address.checked_add(offset).ok_or(RingFault::BadAddress)?;
                // Entry by entry, so that a table may span regions (but an entry may not).
                match ring.memory().at(address, near) {
                    Some((host, room)) if room >= u64::from(DESCRIPTOR_BYTES) => {
                        // SAFETY: `room` bytes from `host` are mapped while `ring` holds its
                        // memory.
                        Ok(unsafe { Descriptor::load(host) })
                    }
                    _ => Err(RingFault::BadAddress),
                }
            }
        }
    }
}

/// Brent's cycle detection over descriptor indexes: within the walk's bound it finds every loop of
/// up to half as many descriptors. A longer one ends as a chain that is too long.
struct LoopGuard {
    anchor: Option<u16>,
    steps: u16,
    limit: u16,
}

impl LoopGuard {
    fn new() -> Self {
        Self { anchor: None, steps: 0, limit: 1 }
    }

    fn visit(&mut self, index: u16) -> Result<(), RingFault> {
        if self.anchor == Some(index) {
            return Err(RingFault::ChainLoop);
        }
        self.steps += 1;
        if self.steps == self.limit {
            self.anchor = Some(index);
            self.steps = 0;
            self.limit *= 2;
        }
        Ok(())
    }
}

/// A position in a list of pieces.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    pieces: std::slice::Iter<'a, Piece>,
    current: Piece,
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({:p}, {})", self.address, self.len)
    }
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(pieces: &'a Pieces) -> Self {
        let current = Piece { address: std::ptr::null_mut(), len: 0 };
        Self { pieces: pieces.list().iter(), current }
    }

    /// The next contiguous bytes, at most `max`; `None` at the end (or for a `max` of 0).
    pub(crate) fn take(&mut self, max: usize) -> Option<Piece> {
        while self.current.len == 0 {
            self.current = *self.pieces.next()?;
        }
        let len = u32::try_from(max).unwrap_or(u32::MAX).min(self.current.len);
        if len == 0 {
            return None;
        }
        let piece = Piece { address: self.current.address, len };
        self.current.address = self.current.address.wrapping_add(len as usize);
        self.current.len -= len;
        Some(piece)
    }
}
