//! A keyed hash of a few 64-bit words.
//!
//! Guests choose the words, so the hash must not let them choose the bucket: they are mixed, two at
//! a time where that is possible, by a 64x64->128-bit multiply of factors that are secret, in the
//! manner of wyhash. A CRC would be cheaper, but it is linear: two keys that collide under one seed
//! collide under all of them.

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
        let (pairs, odd) = words.as_chunks::<2>();
        // One multiply for two words, as both of its factors have a secret in them. A word that
        // cancels its secret (product zero) hides its neighbour, but not the words before.
        let state = pairs.iter().fold(self.seed, |state, [first, second]| {
            multiply_fold(first ^ self.multiplier, second ^ state) ^ state.rotate_left(23)
        });
        let state = odd.iter().fold(state, |state, word| fold(state ^ word, self.multiplier));
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

/// High and low halves of the product, folded together.
#[inline]
fn multiply_fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// The same, but adding the rotated input keeps a word that cancels the state (product zero) from
/// hiding the words before it.
#[inline]
fn fold(value: u64, multiplier: u64) -> u64 {
    multiply_fold(value, multiplier) ^ value.rotate_left(23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_anywhere_changes_the_hash_and_half_of_its_bits() {
        for words in 1..=13 {
            let secret = HashSecret::random();
            let base: Vec<u64> =
                (0..words).map(|word| [7, 0, u64::MAX, 1 << 40][word % 4]).collect();
            let reference = secret.hash(&base);
            let mut flipped_bits = 0;
            for bit in 0..words * 64 {
                let mut changed = base.clone();
                changed[bit / 64] ^= 1 << (bit % 64);
                let difference = secret.hash(&changed) ^ reference;
                assert_ne!(difference, 0, "bit {bit} of {words} words");
                flipped_bits += difference.count_ones();
            }
            let mean = f64::from(flipped_bits) / (words * 64) as f64;
            assert!((24.0..40.0).contains(&mean), "mean flipped bits {mean} of {words} words");
        }
    }

    /// Addresses and ports that count upwards, as a guest can make them, in each pair of words.
    #[test]
    fn keys_that_differ_in_a_few_bits_spread_over_the_buckets() {
        const KEYS: u64 = 1 << 14;
        for (a, b) in [(0, 1), (4, 5), (5, 7), (7, 8), (11, 12)] {
            let secret = HashSecret::random();
            let mut low = vec![0_u32; KEYS as usize];
            let mut high = low.clone();
            for key in 0..KEYS {
                let mut words = [0_u64; 13];
                words[a] = key & 0x7f;
                words[b] = key >> 7 << 48;
                let hash = secret.hash(&words);
                low[(hash % KEYS) as usize] += 1;
                high[(hash >> 50) as usize] += 1;
            }
            // As many balls as bins: the fullest of 16384 has 8 or 9, more than 14 once in 10^8.
            for bins in [&low, &high] {
                let fullest = bins.iter().max().copied().unwrap_or_default();
                assert!(
                    fullest <= 14,
                    "{fullest} keys in one of {KEYS} buckets, words {a} and {b}"
                );
            }
        }
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
