//! Moves to and from memory that another process reads and writes at the same time.
//!
//! Rust's own loads and stores may be repeated, split or left out by the compiler, and a data race
//! on them is undefined. Assembly is opaque: each of these performs its accesses exactly once, and
//! a race only yields whichever bytes were there.

use std::arch::asm;

/// From this size on `rep movsb` is as quick as 16-byte moves, and one instruction.
const STRING_MOVE_BYTES: usize = 1024;

/// Copies `len` bytes; the ranges must not overlap.
///
/// # Safety
/// `src` must be readable and `dst` writable for `len` bytes of mapped memory, and no Rust
/// reference to the destination may be live.
#[inline(always)]
pub(crate) unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    if len >= STRING_MOVE_BYTES {
        // SAFETY: passed on from the caller.
        unsafe { copy_string(src, dst, len) }
    } else if len >= 16 {
        let mut at = 0;
        while at + 16 <= len {
            // SAFETY: at + 16 <= len, so both ranges lie inside the caller's.
            unsafe { copy_16(src.wrapping_add(at), dst.wrapping_add(at)) }
            at += 16;
        }
        if at < len {
            // SAFETY: len >= 16, so the last 16 bytes lie inside; the overlap is written twice
            // with what was read, which is all that racing memory promises anyway.
            unsafe { copy_16(src.wrapping_add(len - 16), dst.wrapping_add(len - 16)) }
        }
    } else {
        // SAFETY: passed on from the caller.
        unsafe { copy_string(src, dst, len) }
    }
}

/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn copy_string(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller vouches for both ranges; the x86-64 ABI keeps the direction flag clear.
    unsafe {
        asm!("rep movsb", inout("rcx") len => _, inout("rsi") src => _, inout("rdi") dst => _,
             options(nostack, preserves_flags));
    }
}

/// # Safety
/// As [`copy`], for 16 bytes.
#[inline(always)]
unsafe fn copy_16(src: *const u8, dst: *mut u8) {
    // SAFETY: the caller vouches for both ranges; MOVDQU needs no alignment.
    unsafe {
        asm!("movdqu {x}, [{s}]", "movdqu [{d}], {x}", x = out(xmm_reg) _, s = in(reg) src,
             d = in(reg) dst, options(nostack, preserves_flags));
    }
}

/// Asks for the cache line at `address` for writing, so that a store need not wait for other CPUs to
/// give up their copies. Assembly, because the compiler's own prefetch for writing becomes one for
/// reading on targets that do not promise PREFETCHW, and the store would wait all the same.
#[inline(always)]
pub(crate) fn prefetch_write(address: *const u8) {
    // SAFETY: PREFETCHW is a hint: it faults for no address, and 64-bit CPUs that lack it execute it
    // as a no-operation (Intel and AMD manuals).
    unsafe {
        asm!("prefetchw [{a}]", a = in(reg) address,
             options(nostack, preserves_flags, readonly));
    }
}

/// A whole number of 2, 4 or 8 bytes that lies unaligned in racing memory.
pub(crate) trait Scalar: Copy {
    /// # Safety
    /// `src` must be readable for the type's size.
    unsafe fn load(src: *const u8) -> Self;
    /// # Safety
    /// `dst` must be writable for the type's size, and no Rust reference to it may be live.
    unsafe fn store(self, dst: *mut u8);
}

macro_rules! scalar {
    ($type:ty, $width:literal, $modifier:literal) => {
        impl Scalar for $type {
            #[inline(always)]
            unsafe fn load(src: *const u8) -> Self {
                let value: Self;
                // SAFETY: the caller vouches for the range; MOV needs no alignment.
                unsafe {
                    asm!(concat!("mov {v", $modifier, "}, ", $width, " ptr [{s}]"),
                         v = out(reg) value, s = in(reg) src,
                         options(nostack, preserves_flags, readonly));
                }
                value
            }
            #[inline(always)]
            unsafe fn store(self, dst: *mut u8) {
                // SAFETY: the caller vouches for the range; MOV needs no alignment.
                unsafe {
                    asm!(concat!("mov ", $width, " ptr [{d}], {v", $modifier, "}"),
                         v = in(reg) self, d = in(reg) dst, options(nostack, preserves_flags));
                }
            }
        }
    };
}

scalar!(u16, "word", ":x");
scalar!(u32, "dword", ":e");
scalar!(u64, "qword", "");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_every_length_move_exactly_their_bytes() {
        for len in (0..200).chain([1023, 1024, 1025, 4000]) {
            let source: Vec<u8> = (0..len).map(|i| (i * 7 + 3) as u8).collect();
            let mut target = vec![0xee; len + 2];
            let inside = target[1..].as_mut_ptr();
            // SAFETY: both vectors hold `len` bytes from there on, and are distinct.
            unsafe { copy(source.as_ptr(), inside, len) };
            assert_eq!(target[1..=len], source);
            assert_eq!((target[0], target[len + 1]), (0xee, 0xee), "length {len}");
        }
    }

    /// Stores a scalar at the start of `bytes` and loads it again.
    fn there_and_back<T: Scalar>(value: T, bytes: &mut [u8]) -> T {
        assert!(bytes.len() >= size_of::<T>());
        // SAFETY: the slice is long enough, as was just checked, and not used meanwhile.
        unsafe { value.store(bytes.as_mut_ptr()) };
        // SAFETY: as above.
        unsafe { T::load(bytes.as_ptr()) }
    }

    #[test]
    fn scalars_are_moved_whole_at_odd_addresses() {
        let mut bytes = [0u8; 16];
        assert_eq!(there_and_back(0x0102u16, &mut bytes[1..3]), 0x0102);
        assert_eq!(there_and_back(0x0304_0506u32, &mut bytes[3..7]), 0x0304_0506);
        let long = 0x0708_090a_0b0c_0d0eu64;
        assert_eq!(there_and_back(long, &mut bytes[7..15]), long);
        assert_eq!(bytes, [0, 2, 1, 6, 5, 4, 3, 0xe, 0xd, 0xc, 0xb, 0xa, 9, 8, 7, 0]);
    }
}
