//! Random numbers for a stack's secrets: drawn from the system once, or from a seed.
//!
//! Does not depend on their use. Tests: `tests/tcp/seeded.rs`, `crates/drivers/tests/fork`.

use std::hash::Hasher;
use std::io;

use siphasher::sip::SipHasher24;
use sockeye_sync::facade::{AtomicU64, Ordering};

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

    /// Numbers that cannot be predicted without the key, nor with the key but without the nonce.
    pub fn mixed(key: [u8; 16], nonce: [u8; 16]) -> Self {
        let part = |n: u8| {
            let mut hasher = SipHasher24::new_with_key(&key);
            hasher.write(&nonce);
            hasher.write_u8(n);
            hasher.finish().to_ne_bytes()
        };
        let mut seed = [0; 16];
        seed[..8].copy_from_slice(&part(0));
        seed[8..].copy_from_slice(&part(1));
        Self { seed, drawn: 0 }
    }

    /// Numbers that cannot be predicted.
    pub fn draw() -> io::Result<Self> {
        let mut seed = [0; 16];
        getrandom::fill(&mut seed)
            .map_err(|e| io::Error::other(format!("no entropy for the stack's secrets: {e}")))?;
        Ok(Self { seed, drawn: 0 })
    }

    pub fn u64(&mut self) -> u64 {
        self.drawn += 1;
        SipHasher24::new_with_key(&self.seed).hash(&self.drawn.to_ne_bytes())
    }

    pub fn bytes(&mut self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.u64().to_ne_bytes());
        bytes[8..].copy_from_slice(&self.u64().to_ne_bytes());
        bytes
    }
}

/// A key that is changed only when a child process takes over its parent's stack, before anything else is done there; so
/// its two words are read one by one.
pub(crate) struct Key([AtomicU64; 2]);

impl Key {
    pub fn new(bytes: [u8; 16]) -> Self {
        let key = Self([AtomicU64::new(0), AtomicU64::new(0)]);
        key.set(bytes);
        key
    }

    #[inline]
    pub fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.0[0].load(Ordering::Relaxed).to_ne_bytes());
        bytes[8..].copy_from_slice(&self.0[1].load(Ordering::Relaxed).to_ne_bytes());
        bytes
    }

    pub fn set(&self, bytes: [u8; 16]) {
        let bits = u128::from_ne_bytes(bytes);
        let words = [bits as u64, (bits >> u64::BITS) as u64];
        let words = if cfg!(target_endian = "big") { [words[1], words[0]] } else { words };
        for (word, value) in self.0.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
    }
}
