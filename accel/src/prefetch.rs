//! Cache hints. A prefetch never faults, whatever the address, so these are safe for raw pointers.

use std::arch::asm;
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

/// Asks for the cache line at `address`, for reading.
#[inline(always)]
pub fn prefetch_read<T>(address: *const T) {
    // SAFETY: PREFETCHT0 is a hint: the Intel and AMD manuals say that it raises no exception and
    // has no architectural effect for any address, mapped or not.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

/// Asks for the cache line at `address`, for writing.
#[inline(always)]
pub fn prefetch_write<T>(address: *const T) {
    // The intrinsic's write hint becomes a read prefetch unless the build targets a CPU with
    // `prfchw`; the line would then be fetched twice.
    // SAFETY: as above, for PREFETCHW, which 64-bit CPUs without it execute as a no-op.
    unsafe {
        asm!("prefetchw [{address}]", address = in(reg) address, options(nostack, preserves_flags));
    }
}
