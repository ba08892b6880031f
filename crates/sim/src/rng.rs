//! Chance that can be replayed: a stream of numbers that a seed decides.
//!
//! SplitMix64: one word of state, a few instructions, and the same numbers on every machine and in every release,
//! which is why it is our own: a crate may change its streams, and recorded seeds would mean something else. It
//! can be predicted, and must not be used for secrets outside a simulation. Tests: below.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

/// The golden ratio as a fraction of 2^64: the step of the generator.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Rng {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds shall not give neighbouring streams.
        Self(mix(seed ^ 0x6a09_e667_f3bc_c909))
    }

    /// A stream of its own, decided by this one's next number and `label`.
    pub fn fork(&mut self, label: u64) -> Self {
        Self(mix(self.u64() ^ mix(label)))
    }

    /// The next number.
    pub fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `bound`; 0 if that is 0. Even to within 2^-64 of `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.u64()) * u128::from(bound);
        // The upper half of a product is below its second factor.
        u64::try_from(product >> 64).unwrap_or(u64::MAX)
    }

    /// A number from `low` to `high`, both possible; `low` if they are the wrong way round.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// A number from 0 up to, but not including, 1.
    pub fn unit(&mut self) -> f64 {
        // The 53 bits that a double holds.
        (self.u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with probability `p`. Draws only if that is a question.
    pub fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && (p >= 1.0 || self.unit() < p)
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let word = self.u64().to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }
}

/// The finalizer of SplitMix64: every bit depends on every bit.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_numbers_for_ever() {
        let mut rng = Rng::new(7);
        let first = [rng.u64(), rng.u64()];
        // Recorded once: a change here makes every recorded seed mean something else.
        assert_eq!(first, [RECORDED.0, RECORDED.1]);
        assert_ne!(Rng::new(8).u64(), first[0]);
    }

    const RECORDED: (u64, u64) = (15_381_340_408_456_295_118, 12_074_680_432_912_537_551);

    #[test]
    fn bounds_are_kept_and_reached() {
        let mut rng = Rng::new(1);
        let mut seen = [0u32; 6];
        for _ in 0..6000 {
            seen[rng.between(3, 5) as usize] += 1;
        }
        assert_eq!(seen[..3], [0; 3]);
        assert!(seen[3..].iter().all(|count| (1800..2200).contains(count)), "{seen:?}");
        assert_eq!((rng.below(0), rng.between(4, 4)), (0, 4));
    }

    #[test]
    fn chance_is_true_as_often_as_its_probability() {
        let mut rng = Rng::new(2);
        let hits = (0..100_000).filter(|_| rng.chance(0.01)).count();
        assert!((850..1150).contains(&hits), "{hits}");
        let before = rng.clone().u64();
        assert!(!rng.chance(0.0) && rng.chance(1.0));
        assert_eq!(rng.u64(), before, "certainty draws nothing");
    }
}
