//! A buffer that holds a whole frame and can change hands, so that the frame need not be copied.

use std::ffi::c_void;
use std::ptr::NonNull;

/// An mbuf of a network card's pool that a packet of a burst lies in. Whoever has it owns it; what is
/// dropped instead of being given back is lost to its pool, and no worse.
#[derive(Debug, PartialEq, Eq)]
pub struct Buffer(NonNull<c_void>);

// SAFETY: a handle that is owned and never dereferenced here; an mbuf may be used from any thread, by
// one at a time, and there is one handle.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Takes an mbuf over.
    ///
    /// # Safety
    /// It is an `rte_mbuf` (the first of a chain) that the caller owns and from now on does not, and its
    /// pool outlives it.
    pub unsafe fn from_raw(mbuf: NonNull<c_void>) -> Self {
        Self(mbuf)
    }

    /// The mbuf, which the caller owns from now on.
    pub fn into_raw(self) -> NonNull<c_void> {
        self.0
    }
}
