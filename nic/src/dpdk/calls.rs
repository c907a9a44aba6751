//! How DPDK's functions say what went wrong, and the mbuf that most of them are about.

use std::ffi::{CStr, CString, c_int};
use std::ptr::NonNull;

use tollgate_dpdk_sys as dpdk;

use crate::NicError;

/// One frame, or a piece of one, in memory of a pool.
pub(super) type Mbuf = NonNull<dpdk::rte_mbuf>;

pub(super) fn c_string(text: &str) -> Result<CString, NicError> {
    CString::new(text).map_err(|_| NicError::ZeroByte(text.to_owned()))
}

/// `rte_errno`'s words.
pub(super) fn last_reason() -> String {
    // SAFETY: reads a thread-local integer.
    reason(unsafe { dpdk::shim_errno() })
}

/// `rte_strerror`'s words for an error code of either sign.
pub(super) fn reason(code: c_int) -> String {
    // SAFETY: returns a pointer to a string, static or thread-local, for every code.
    let text = unsafe { dpdk::rte_strerror(code.saturating_abs()) };
    // SAFETY: the string is NUL-terminated and is copied before DPDK is called again.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

pub(super) fn check(call: &'static str, result: c_int) -> Result<(), NicError> {
    if result < 0 { Err(NicError::Dpdk { call, reason: reason(result) }) } else { Ok(()) }
}

/// Gives an mbuf, with the pieces that hang on it, back to its pool.
pub(super) fn free(mbuf: Mbuf) {
    // SAFETY: every caller owns the mbuf and forgets the pointer.
    unsafe { dpdk::shim_pktmbuf_free(mbuf.as_ptr()) };
}
