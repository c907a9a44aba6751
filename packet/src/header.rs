//! A header copy that can grow at its front.

use crate::limits::{HEADER_COPY_BYTES, HEADROOM_BYTES};

const BUFFER_BYTES: usize = HEADROOM_BYTES + HEADER_COPY_BYTES;

/// The first bytes of a frame, copied once, editable, with room in front for what is pushed.
///
/// Never zeroed between packets: only `bytes()` has meaning.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct HeaderBuf {
    buffer: [u8; BUFFER_BYTES],
    start: u16,
    len: u16,
}

impl HeaderBuf {
    /// An empty header.
    pub const fn new() -> Self {
        Self { buffer: [0; BUFFER_BYTES], start: HEADROOM_BYTES as u16, len: 0 }
    }

    /// Forgets the old header and gives the space for a new one of `len` bytes, to be filled by
    /// the caller. `len` is cut to [`HEADER_COPY_BYTES`].
    #[inline]
    pub fn reset(&mut self, len: usize) -> &mut [u8] {
        let len = len.min(HEADER_COPY_BYTES);
        self.start = HEADROOM_BYTES as u16;
        self.len = len as u16;
        self.buffer.get_mut(HEADROOM_BYTES..HEADROOM_BYTES + len).unwrap_or_default()
    }

    /// A header holding the start of `frame`.
    pub fn from_frame(frame: &[u8]) -> Self {
        let mut header = Self::new();
        let copy = header.reset(frame.len());
        let len = copy.len();
        copy.copy_from_slice(frame.get(..len).unwrap_or_default());
        header
    }

    /// The header as it is now.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let start = usize::from(self.start);
        self.buffer.get(start..start + usize::from(self.len)).unwrap_or_default()
    }

    /// The header, to be changed in place.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let start = usize::from(self.start);
        self.buffer.get_mut(start..start + usize::from(self.len)).unwrap_or_default()
    }

    /// Bytes in the header.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Opens a gap of `gap` bytes at `at`, moving the bytes before it towards the front; `false`
    /// (and nothing changed) when the headroom is used up or `at` lies outside. The gap's content
    /// is unspecified.
    #[must_use]
    pub fn insert(&mut self, at: usize, gap: usize) -> bool {
        let start = usize::from(self.start);
        if at > self.len() || gap > start {
            return false;
        }
        self.buffer.copy_within(start..start + at, start - gap);
        self.start -= gap as u16;
        self.len += gap as u16;
        true
    }

    /// Removes `count` bytes at `at`, moving the bytes before it towards the back; `false` (and
    /// nothing changed) when they are not there.
    #[must_use]
    pub fn remove(&mut self, at: usize, count: usize) -> bool {
        let start = usize::from(self.start);
        if at + count > self.len() {
            return false;
        }
        self.buffer.copy_within(start..start + at, start + count);
        self.start += count as u16;
        self.len -= count as u16;
        true
    }

    /// Copies `other`'s live bytes, leaving the rest alone.
    #[inline]
    pub fn clone_from_header(&mut self, other: &Self) {
        let start = usize::from(other.start);
        let live = start..start + usize::from(other.len);
        if let (Some(to), Some(from)) = (self.buffer.get_mut(live.clone()), other.buffer.get(live))
        {
            to.copy_from_slice(from);
        }
        self.start = other.start;
        self.len = other.len;
    }
}

impl Default for HeaderBuf {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserting_and_removing_move_only_the_front() {
        let mut header = HeaderBuf::from_frame(b"abcdefgh");
        assert!(header.insert(4, 2));
        assert_eq!(&header.bytes()[..4], b"abcd");
        assert_eq!(&header.bytes()[6..], b"efgh");
        assert!(header.remove(4, 2));
        assert_eq!(header.bytes(), b"abcdefgh");
        assert!(!header.remove(7, 2));
        assert!(!header.insert(9, 1));
        assert!(!header.insert(0, HEADROOM_BYTES + 1));
    }

    #[test]
    fn a_long_frame_is_cut_to_the_copy() {
        assert_eq!(HeaderBuf::from_frame(&[1; 500]).len(), HEADER_COPY_BYTES);
    }
}
