//! Copies of memory that somebody else may be writing.
//!
//! A peer shares the pages, so a Rust reference or `ptr::copy` on them would be a data race, and
//! the compiler could read a byte twice or invent a write. Inline assembly is opaque to it: every
//! function here leaves in each destination byte a value that its source byte had during the call,
//! and touches nothing else, whatever the peer does meanwhile. What decides something is then read
//! from the private copy only. If source and destination overlap, the bytes
//! that arrive are unspecified, and nothing else goes wrong.
//!
//! Small copies are pairs of overlapping moves (head and tail), so that no size loops or branches
//! per byte; from [`REP_MOVSB_FROM`] on the microcode's string move is used.

use std::arch::asm;

/// From this many bytes on `rep movsb` is used: below, its start-up (some 30 to 80 cycles) shows.
pub const REP_MOVSB_FROM: usize = 4096;

/// Copies `len` bytes from `src` to `dst`.
///
/// # Safety
/// `len` bytes at `src` are mapped readable and `len` bytes at `dst` mapped writable for the whole
/// call, and no Rust reference of this process promises that the bytes at `dst` do not change.
#[inline(always)]
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one contract, one branch taken")]
pub unsafe fn copy_racing(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller's contract is that of each branch; each accesses offsets 0..len only: its
    // head starts at 0, its tail ends at `len`, and `len` is at least their size.
    unsafe {
        match len {
            0 => {}
            1 => copy_1(src, dst),
            2..4 => copy_ends::<2>(src, dst, len),
            4..8 => copy_ends::<4>(src, dst, len),
            8..16 => copy_ends::<8>(src, dst, len),
            16..=32 => copy_ends::<16>(src, dst, len),
            33..=64 => copy_ends::<32>(src, dst, len),
            65..REP_MOVSB_FROM => copy_blocks(src, dst, len),
            _ => copy_string(src, dst, len),
        }
    }
}

/// Fills `dst` from `src`.
///
/// # Safety
/// `dst.len()` bytes at `src` are mapped readable for the whole call.
#[inline(always)]
pub unsafe fn copy_in(src: *const u8, dst: &mut [u8]) {
    // SAFETY: `dst` is writable as long as it is borrowed, and exclusively ours; `src` by contract.
    unsafe { copy_racing(src, dst.as_mut_ptr(), dst.len()) }
}

/// Copies the whole of `src` to `dst`.
///
/// # Safety
/// `src.len()` bytes at `dst` are mapped writable for the whole call, and no Rust reference of this
/// process promises that they do not change.
#[inline(always)]
pub unsafe fn copy_out(src: &[u8], dst: *mut u8) {
    // SAFETY: `src` is readable as long as it is borrowed; `dst` by contract.
    unsafe { copy_racing(src.as_ptr(), dst, src.len()) }
}

/// Loads two bytes, exactly once.
///
/// # Safety
/// 2 bytes at `src` are mapped readable. No alignment is needed.
#[inline(always)]
pub unsafe fn load_u16(src: *const u8) -> u16 {
    let value: u32;
    // SAFETY: one load of the 2 bytes that the caller vouches for; nothing else is touched.
    unsafe {
        asm!(
            "movzx {value:e}, word ptr [{src}]",
            src = in(reg) src,
            value = out(reg) value,
            options(nostack, preserves_flags),
        );
    }
    value as u16
}

/// Loads two adjacent 64-bit words (a descriptor), each exactly once, in that order.
///
/// # Safety
/// 16 bytes at `src` are mapped readable. No alignment is needed.
#[inline(always)]
pub unsafe fn load_pair(src: *const u8) -> [u64; 2] {
    let (low, high): (u64, u64);
    // SAFETY: two loads inside the 16 bytes that the caller vouches for; nothing else is touched.
    unsafe {
        asm!(
            "mov {low}, qword ptr [{src}]",
            "mov {high}, qword ptr [{src} + 8]",
            src = in(reg) src,
            low = out(reg) low,
            high = lateout(reg) high,
            options(nostack, preserves_flags),
        );
    }
    [low, high]
}

/// Whether the 12 bytes at `src` equal `value`: one load of 8 and one of 4.
///
/// # Safety
/// 12 bytes at `src` are mapped readable. No alignment is needed.
#[inline(always)]
pub unsafe fn equals_12(src: *const u8, value: &[u8; 12]) -> bool {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *value;
    let (low, high): (u64, u32);
    // SAFETY: two loads inside the 12 bytes that the caller vouches for; nothing else is touched.
    unsafe {
        asm!(
            "mov {low}, qword ptr [{src}]",
            "mov {high:e}, dword ptr [{src} + 8]",
            src = in(reg) src,
            low = out(reg) low,
            high = lateout(reg) high,
            options(nostack, preserves_flags),
        );
    }
    low == u64::from_le_bytes([a, b, c, d, e, f, g, h]) && high == u32::from_le_bytes([i, j, k, l])
}

/// # Safety
/// As [`copy_racing`] with `len` = 1.
#[inline(always)]
unsafe fn copy_1(src: *const u8, dst: *mut u8) {
    // SAFETY: one byte each, by contract.
    unsafe {
        asm!(
            "mov {byte}, byte ptr [{src}]",
            "mov byte ptr [{dst}], {byte}",
            src = in(reg) src,
            dst = in(reg) dst,
            byte = out(reg_byte) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies the first and the last `WIDTH` bytes, both loaded before either is stored. Together they
/// cover everything when `WIDTH <= len <= 2 * WIDTH`; bytes of the overlap are loaded twice from
/// the source but one store decides each destination byte.
///
/// # Safety
/// As [`copy_racing`], and `len >= WIDTH`.
#[inline(always)]
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one contract, one branch taken")]
unsafe fn copy_ends<const WIDTH: usize>(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: every access lies in 0..WIDTH or in len-WIDTH..len, both inside 0..len by contract.
    unsafe {
        match WIDTH {
            2 => asm!(
                "movzx {head:e}, word ptr [{src}]",
                "movzx {tail:e}, word ptr [{src} + {len} - 2]",
                "mov word ptr [{dst}], {head:x}",
                "mov word ptr [{dst} + {len} - 2], {tail:x}",
                src = in(reg) src, dst = in(reg) dst, len = in(reg) len,
                head = out(reg) _, tail = out(reg) _,
                options(nostack, preserves_flags),
            ),
            4 => asm!(
                "mov {head:e}, dword ptr [{src}]",
                "mov {tail:e}, dword ptr [{src} + {len} - 4]",
                "mov dword ptr [{dst}], {head:e}",
                "mov dword ptr [{dst} + {len} - 4], {tail:e}",
                src = in(reg) src, dst = in(reg) dst, len = in(reg) len,
                head = out(reg) _, tail = out(reg) _,
                options(nostack, preserves_flags),
            ),
            8 => asm!(
                "mov {head}, qword ptr [{src}]",
                "mov {tail}, qword ptr [{src} + {len} - 8]",
                "mov qword ptr [{dst}], {head}",
                "mov qword ptr [{dst} + {len} - 8], {tail}",
                src = in(reg) src, dst = in(reg) dst, len = in(reg) len,
                head = out(reg) _, tail = out(reg) _,
                options(nostack, preserves_flags),
            ),
            16 => asm!(
                "movdqu {head}, xmmword ptr [{src}]",
                "movdqu {tail}, xmmword ptr [{src} + {len} - 16]",
                "movdqu xmmword ptr [{dst}], {head}",
                "movdqu xmmword ptr [{dst} + {len} - 16], {tail}",
                src = in(reg) src, dst = in(reg) dst, len = in(reg) len,
                head = out(xmm_reg) _, tail = out(xmm_reg) _,
                options(nostack, preserves_flags),
            ),
            _ => asm!(
                "movdqu {a}, xmmword ptr [{src}]",
                "movdqu {b}, xmmword ptr [{src} + 16]",
                "movdqu {c}, xmmword ptr [{src} + {len} - 32]",
                "movdqu {d}, xmmword ptr [{src} + {len} - 16]",
                "movdqu xmmword ptr [{dst}], {a}",
                "movdqu xmmword ptr [{dst} + 16], {b}",
                "movdqu xmmword ptr [{dst} + {len} - 32], {c}",
                "movdqu xmmword ptr [{dst} + {len} - 16], {d}",
                src = in(reg) src, dst = in(reg) dst, len = in(reg) len,
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                options(nostack, preserves_flags),
            ),
        }
    }
}

/// Whole 64-byte blocks, then the last 64 bytes again from their end.
///
/// # Safety
/// As [`copy_racing`], and `len >= 64`.
#[inline(always)]
unsafe fn copy_blocks(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the loop touches offset..offset+64 only while offset + 64 < len (the caller vouches
    // for len >= 64, so it runs at least once when len > 64 and the bound `len - 64` does not
    // wrap); the tail touches len-64..len.
    unsafe {
        asm!(
            "2:",
            "movdqu {a}, xmmword ptr [{src} + {offset}]",
            "movdqu {b}, xmmword ptr [{src} + {offset} + 16]",
            "movdqu {c}, xmmword ptr [{src} + {offset} + 32]",
            "movdqu {d}, xmmword ptr [{src} + {offset} + 48]",
            "movdqu xmmword ptr [{dst} + {offset}], {a}",
            "movdqu xmmword ptr [{dst} + {offset} + 16], {b}",
            "movdqu xmmword ptr [{dst} + {offset} + 32], {c}",
            "movdqu xmmword ptr [{dst} + {offset} + 48], {d}",
            "add {offset}, 64",
            "cmp {offset}, {last}",
            "jb 2b",
            "movdqu {a}, xmmword ptr [{src} + {last}]",
            "movdqu {b}, xmmword ptr [{src} + {last} + 16]",
            "movdqu {c}, xmmword ptr [{src} + {last} + 32]",
            "movdqu {d}, xmmword ptr [{src} + {last} + 48]",
            "movdqu xmmword ptr [{dst} + {last}], {a}",
            "movdqu xmmword ptr [{dst} + {last} + 16], {b}",
            "movdqu xmmword ptr [{dst} + {last} + 32], {c}",
            "movdqu xmmword ptr [{dst} + {last} + 48], {d}",
            src = in(reg) src,
            dst = in(reg) dst,
            last = in(reg) len - 64,
            offset = inout(reg) 0usize => _,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// # Safety
/// As [`copy_racing`].
#[inline(always)]
unsafe fn copy_string(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: `rep movsb` moves exactly `len` bytes upwards (Rust guarantees a clear direction flag
    // on entry to inline assembly).
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") src => _,
            inout("rdi") dst => _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_copies_exactly_its_bytes() {
        let source: Vec<u8> = (0..REP_MOVSB_FROM + 200).map(|i| (i * 7 + 1) as u8).collect();
        let lengths = (0..300).chain(4000..source.len());
        for len in lengths {
            for skew in [0, 1, 7] {
                let mut target = vec![0xee; len + skew + 64];
                // SAFETY: both vectors hold `len` bytes from the addresses given.
                unsafe { copy_racing(source.as_ptr(), target[skew..].as_mut_ptr(), len) };
                assert_eq!(&target[skew..skew + len], &source[..len], "length {len}");
                assert!(target[..skew].iter().all(|byte| *byte == 0xee), "before, length {len}");
                assert!(target[skew + len..].iter().all(|byte| *byte == 0xee), "after {len}");
            }
        }
    }

    #[test]
    fn in_and_out_are_the_same_copy() {
        let source =
            *b"the quick brown fox jumps over the lazy dog, twice over, and then home again";
        let mut inner = [0; 76];
        let mut outer = [0; 76];
        // SAFETY: both sides are arrays of 76 bytes.
        unsafe { copy_in(source.as_ptr(), &mut inner) };
        // SAFETY: as above.
        unsafe { copy_out(&inner, outer.as_mut_ptr()) };
        assert_eq!(outer, source);
    }

    #[test]
    fn words_and_comparison_look_at_the_right_bytes() {
        let bytes: Vec<u8> = (1..=32).collect();
        // SAFETY: 17 bytes are there.
        let [low, high] = unsafe { load_pair(bytes.as_ptr().wrapping_add(1)) };
        assert_eq!(low.to_le_bytes(), bytes[1..9]);
        assert_eq!(high.to_le_bytes(), bytes[9..17]);
        // SAFETY: 5 bytes are there.
        let pair = unsafe { load_u16(bytes.as_ptr().wrapping_add(3)) };
        assert_eq!(pair.to_le_bytes(), bytes[3..5]);
        let mut value: [u8; 12] = bytes[3..15].try_into().unwrap();
        // SAFETY: 15 bytes are there.
        assert!(unsafe { equals_12(bytes.as_ptr().wrapping_add(3), &value) });
        for byte in 0..12 {
            value[byte] ^= 0x80;
            // SAFETY: as above.
            assert!(!unsafe { equals_12(bytes.as_ptr().wrapping_add(3), &value) }, "byte {byte}");
            value[byte] ^= 0x80;
        }
    }
}
