//! A placeholder for an algorithm with a box, until something happens.
//!
//! Many connections only receive, so the first event that changes something makes the box. Until then there is only the
//! initial window. Tests: `tests.rs`.

use super::bbr::Bbr;
use super::cubic::Cubic;
use super::newreno::NewReno;
use super::{Algorithm, Cc};

/// An algorithm that begins with this window.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Fresh {
    pub algorithm: Algorithm,
    /// Bytes.
    pub cwnd: u32,
    /// Seed of the random choices.
    pub seed: u32,
}

impl Fresh {
    /// The algorithm as it begins.
    #[cold]
    pub fn begin(self) -> Cc {
        match self.algorithm {
            Algorithm::NewReno => Cc::NewReno(NewReno::new(self.cwnd)),
            Algorithm::Cubic => Cc::Cubic(Box::new(Cubic::new(self.cwnd))),
            Algorithm::Bbr => Cc::Bbr(Box::new(Bbr::new(self.cwnd, self.seed))),
        }
    }
}
