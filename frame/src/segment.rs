//! A piece of payload that stays where it is until it is copied out.

use std::fmt;
use std::marker::PhantomData;

use crate::copy;

/// Bytes that are mapped for `'a` but that a peer may change at any moment, so that they are never
/// a `&[u8]`.
#[derive(Clone, Copy)]
pub struct Segment<'a> {
    address: *const u8,
    len: u32,
    mapped: PhantomData<&'a [u8]>,
}

// SAFETY: a segment gives nothing but reads by opaque copies, which race with the peer's writes
// anyway; another thread reading too changes nothing.
unsafe impl Send for Segment<'_> {}
// SAFETY: as for `Send`; a shared segment cannot be changed.
unsafe impl Sync for Segment<'_> {}

impl<'a> Segment<'a> {
    /// Names `len` bytes at `address`.
    ///
    /// # Safety
    /// All of them stay mapped and readable during `'a`. They may change meanwhile.
    #[inline]
    pub unsafe fn from_raw(address: *const u8, len: u32) -> Self {
        Self { address, len, mapped: PhantomData }
    }

    /// Names an ordinary slice; a slice beyond 4 GiB is cut.
    #[inline]
    pub fn from_slice(slice: &'a [u8]) -> Self {
        let len = u32::try_from(slice.len()).unwrap_or(u32::MAX);
        Self { address: slice.as_ptr(), len, mapped: PhantomData }
    }

    /// Where the bytes are. Only a hint for prefetching unless used under the rules of
    /// [`copy`].
    #[inline]
    pub fn address(&self) -> *const u8 {
        self.address
    }

    /// How many bytes.
    #[inline]
    pub fn len(&self) -> usize {
        // Lossless: usize has 64 bits on the only architecture that builds.
        self.len as usize
    }

    /// Whether there is no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The segment without its first `count` bytes (without any, if it has fewer).
    #[inline]
    #[must_use]
    pub fn skip(self, count: usize) -> Self {
        let count = count.min(self.len());
        Self {
            address: self.address.wrapping_add(count),
            len: self.len - count as u32,
            mapped: PhantomData,
        }
    }

    /// Copies as many bytes as both have into the front of `to`; returns how many.
    #[inline]
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        let len = self.len().min(to.len());
        if let Some(to) = to.get_mut(..len) {
            // SAFETY: `len` does not exceed the segment, whose bytes are mapped during 'a, which
            // includes this call.
            unsafe { copy::copy_in(self.address, to) };
        }
        len
    }
}

impl fmt::Debug for Segment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment({:p}, {})", self.address, self.len)
    }
}

/// Bytes in all of `segments`.
#[inline]
pub fn payload_len(segments: &[Segment<'_>]) -> usize {
    segments.iter().map(Segment::len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipping_and_copying_stay_inside() {
        let bytes = [1, 2, 3, 4, 5];
        let segment = Segment::from_slice(&bytes);
        let mut to = [0; 8];
        assert_eq!(segment.skip(2).copy_to(&mut to), 3);
        assert_eq!(to, [3, 4, 5, 0, 0, 0, 0, 0]);
        assert!(segment.skip(9).is_empty());
        assert_eq!(segment.copy_to(&mut to[..2]), 2);
        assert_eq!(payload_len(&[segment, segment.skip(1)]), 9);
    }
}
