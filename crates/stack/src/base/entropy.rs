//! Random numbers for a stack's secrets: drawn from the system once, or from a seed.
//!
//! Must not know what they are for. Tests: `tests/seeded.rs`.

use std::io;

/// Random numbers of the stack's start: a seed from the system, spread by SipHash.
pub(crate) struct Entropy {
    seed: [u8; 16],
    drawn: u64,
}

impl Entropy {
    /// Numbers that follow from `seed` alone.
    pub fn of(seed: [u8; 16]) -> Self {
        Self { seed, drawn: 0 }
    }

    /// Numbers that nobody can foretell.
    pub fn draw() -> io::Result<Self> {
        let mut seed = [0; 16];
        getrandom::fill(&mut seed)
            .map_err(|e| io::Error::other(format!("no entropy for the stack's secrets: {e}")))?;
        Ok(Self { seed, drawn: 0 })
    }

    pub fn u64(&mut self) -> u64 {
        self.drawn += 1;
        siphasher::sip::SipHasher24::new_with_key(&self.seed).hash(&self.drawn.to_ne_bytes())
    }

    pub fn bytes(&mut self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.u64().to_ne_bytes());
        bytes[8..].copy_from_slice(&self.u64().to_ne_bytes());
        bytes
    }
}
