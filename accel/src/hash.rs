//! A keyed hash of a few 64-bit words.
//!
//! Guests choose the words, so the hash must not let them choose the bucket: each word is mixed by
//! a 64x64->128-bit multiply with a secret running state, in the manner of wyhash. A CRC would be
//! cheaper, but it is linear: two keys that collide under one seed collide under all of them.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The secret of one table. Two tables with different secrets order keys differently.
#[derive(Clone, Copy, Debug)]
pub struct HashSecret {
    seed: u64,
    multiplier: u64,
}

impl HashSecret {
    /// A secret from the operating system's randomness.
    pub fn random() -> Self {
        let word = |salt: u64| {
            let mut hasher = RandomState::new().build_hasher();
            hasher.write_u64(salt);
            hasher.finish()
        };
        Self::from_words(word(1), word(2))
    }

    /// A fixed secret, for tests and reproducible benches.
    pub const fn from_words(seed: u64, multiplier: u64) -> Self {
        // An even or tiny multiplier would lose bits of the product.
        Self { seed, multiplier: multiplier | 1 | (1 << 63) }
    }

    /// Hashes `words`; every bit of the result depends on every word.
    #[inline]
    pub fn hash(&self, words: &[u64]) -> u64 {
        let state = words.iter().fold(self.seed, |state, word| fold(state ^ word, self.multiplier));
        fold(state, 0x9e37_79b9_7f4a_7c15)
    }

    /// Hashes `words[i] & mask[i]`, touching only the words whose mask is not zero.
    #[inline]
    pub fn hash_masked(&self, words: &[u64], mask: &[u64]) -> u64 {
        let state = words.iter().zip(mask).fold(self.seed, |state, (word, mask)| {
            if *mask == 0 { state } else { fold(state ^ (word & mask), self.multiplier) }
        });
        fold(state, 0x9e37_79b9_7f4a_7c15)
    }
}

/// High and low halves of the product, folded together. Adding the rotated input keeps a word
/// that cancels the state (product zero) from hiding the words before it.
#[inline]
fn fold(value: u64, multiplier: u64) -> u64 {
    let product = u128::from(value) * u128::from(multiplier);
    (product as u64) ^ ((product >> 64) as u64) ^ value.rotate_left(23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_anywhere_changes_the_hash_and_half_of_its_bits() {
        let secret = HashSecret::random();
        let base = [7u64, 0, u64::MAX, 1 << 40];
        let reference = secret.hash(&base);
        let mut flipped_bits = 0;
        for word in 0..base.len() {
            for bit in 0..64 {
                let mut changed = base;
                changed[word] ^= 1 << bit;
                flipped_bits += (secret.hash(&changed) ^ reference).count_ones();
            }
        }
        let mean = f64::from(flipped_bits) / 256.0;
        assert!((24.0..40.0).contains(&mean), "mean flipped bits {mean}");
    }

    #[test]
    fn secrets_differ_and_masked_hash_ignores_masked_bits() {
        assert_ne!(HashSecret::random().hash(&[1]), HashSecret::random().hash(&[1]));
        let secret = HashSecret::random();
        assert_eq!(
            secret.hash_masked(&[0xff, 5, 9], &[0x0f, 0, !0]),
            secret.hash_masked(&[0x0f, 6, 9], &[0x0f, 0, !0])
        );
        assert_ne!(
            secret.hash_masked(&[0xff, 5, 9], &[0x0f, 0, !0]),
            secret.hash_masked(&[0x0e, 5, 9], &[0x0f, 0, !0])
        );
    }
}
