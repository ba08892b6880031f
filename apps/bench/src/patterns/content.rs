//! The bytes that patterns carry.
//!
//! Purpose: each direction of each connection has a stream of its own, of which any part can be given or checked. A byte that
//! is lost, doubled, changed or out of order is noticed, unless by a multiple of [`PERIOD`] bytes, which the length shows.
//!
//! Does not depend on sockets. Tests: below.

use std::io;
use std::sync::OnceLock;

use crate::stats::SplitMix64;

/// The stream of one direction of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Content {
    start: usize,
}

impl Content {
    /// Of direction `way` (0 to 3) of connection `index` of pattern `number`.
    pub fn new(number: usize, index: usize, way: usize) -> Self {
        let mut random = SplitMix64::new(((number * 1000 + index) * 4 + way) as u64);
        Self { start: random.below(PERIOD) }
    }

    /// The bytes from `offset`, at most [`PART_MAX`] and at most `len` of them.
    pub fn part(self, offset: usize, len: usize) -> &'static [u8] {
        let at = (self.start + offset) % PERIOD;
        &table()[at..at + len.min(PART_MAX)]
    }

    /// That `data` are the bytes from `offset`.
    ///
    /// # Errors
    /// `InvalidData` with the offset of the first that is not.
    pub fn check(self, offset: usize, data: &[u8]) -> io::Result<()> {
        let mut at = offset;
        for part in data.chunks(PART_MAX) {
            let want = self.part(at, part.len());
            if part != want {
                let wrong = part.iter().zip(want).position(|(one, other)| one != other).unwrap_or(0);
                let message = format!("byte {} of a stream is not the one that was written", at + wrong);
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            at += part.len();
        }
        Ok(())
    }
}

fn table() -> &'static [u8] {
    static TABLE: OnceLock<Vec<u8>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut random = SplitMix64::new(1);
        let once: Vec<u8> = (0..PERIOD).map(|_| random.below(256) as u8).collect();
        once.iter().cycle().take(PERIOD + PART_MAX).copied().collect()
    })
}

/// Bytes after which a stream repeats: a prime, so that no size of a buffer or segment divides it.
const PERIOD: usize = 65_521;
/// Bytes that are given at once.
pub const PART_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_stream_fit_together() {
        let content = Content::new(3, 2, 1);
        let whole: Vec<u8> = content.part(0, 200_000).to_vec();
        for (at, len) in [(0, 1), (1, 1448), (65_520, 2), (70_000, 130_000)] {
            assert_eq!(content.part(at, len), &whole[at..at + len]);
            content.check(at, &whole[at..at + len]).unwrap();
        }
    }

    #[test]
    fn changed_lost_and_foreign_bytes_are_noticed() {
        let content = Content::new(1, 0, 0);
        let mut data = content.part(10, 1000).to_vec();
        data[500] ^= 1;
        let error = content.check(10, &data).unwrap_err();
        assert!(error.to_string().contains("byte 510"), "{error}");
        assert!(content.check(11, content.part(10, 1000)).is_err());
        assert!(Content::new(1, 0, 1).check(0, content.part(0, 1000)).is_err());
        assert!(Content::new(1, 1, 0).check(0, content.part(0, 1000)).is_err());
    }
}
