//! Comparing many small values at once.

use std::arch::x86_64::{
    __m128i, _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16,
    _mm_setzero_si128,
};

/// Which of eight lanes equal `value`: bit n for lane n. SSE2, which every x86-64 has; compilers
/// make a loop of it otherwise.
#[inline(always)]
pub fn equal_lanes(lanes: &[u16; 8], value: u16) -> u32 {
    // SAFETY: every x86-64 CPU has SSE2, the only feature that it needs.
    unsafe { equal_lanes_sse2(lanes, value) }
}

#[inline]
#[target_feature(enable = "sse2")]
fn equal_lanes_sse2(lanes: &[u16; 8], value: u16) -> u32 {
    // SAFETY: the 16 bytes of `lanes` are readable, and no alignment is needed.
    let lanes = unsafe { _mm_loadu_si128((&raw const *lanes).cast::<__m128i>()) };
    let equal = _mm_cmpeq_epi16(lanes, _mm_set1_epi16(value.cast_signed()));
    // Each lane is all ones or all zeros, and so is each byte that it is packed to.
    let bytes = _mm_packs_epi16(equal, _mm_setzero_si128());
    _mm_movemask_epi8(bytes).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::equal_lanes;

    #[test]
    fn each_lane_has_its_bit() {
        for value in [0, 1, 0x7fff, 0x8000, 0xffff] {
            for pattern in 0..=255_u32 {
                let lanes = std::array::from_fn(|lane| {
                    if pattern >> lane & 1 == 1 { value } else { value ^ 0x0100 }
                });
                assert_eq!(equal_lanes(&lanes, value), pattern, "{lanes:x?}");
            }
        }
    }
}
