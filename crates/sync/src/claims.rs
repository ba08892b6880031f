//! Numbers, as those of ports, that one side claims as a whole and the other side uses in parts: a socket is bound to a port,
//! a connection uses it beside one remote end.
//!
//! Uses stand in a table in parts, each under a lock of its own, so that two users rarely meet. A claim is under one lock of all claimants, and must know
//! whether there are uses without a look through all parts. So there is a bit for each number that is claimed, and one for each that may have uses;
//! the second one stays when the last use ends, until [`Claims::forget_uses`].
//!
//! **Who wants to use** a number takes the lock of its part, looks at [`Claims::is_claimed`], and under the same hold calls [`Claims::note_use`] and puts the
//! use into the part. **Who claims** it sets its bit, takes the lock of each part once and lets it go ([`Claims::claim`]), and then looks at
//! [`Claims::may_be_used`].
//!
//! No use beside a claim goes unseen: the user's hold of its part's lock is before or after the claimant's pass over that part. If it is before, its
//! note is visible to the claimant behind the pass. If it is after, the user sees the claim. Both may see each other, where the user comes late:
//! then it uses nothing, and at worst leaves a note behind. The locks give the order, so all accesses are relaxed.
//!
//! **Forgetting** is for the holder of the claimants' lock: it clears all notes, and then notes what it finds in each part under that part's lock. A use is in its part before the lock is
//! let go, so that it is found there or noted later.
//!
//! Test: `tests/loom/claims.rs`.

use crate::facade::{AtomicU64, Ordering};

/// See the module's head.
#[derive(Debug)]
pub struct Claims {
    claimed: Bits,
    used: Bits,
}

impl Claims {
    /// For the numbers below `count`, of which none is claimed or used.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { claimed: Bits::new(count), used: Bits::new(count) }
    }

    /// Whether a number is claimed. It is only a hint, but under the lock of the part that a use would stand in.
    #[must_use]
    pub fn is_claimed(&self, number: usize) -> bool {
        self.claimed.contains(number)
    }

    /// Claims a number, under the lock of all claimants. `pass` takes the lock of each part once, and lets it go. What
    /// [`may_be_used`](Self::may_be_used) says then holds until [`release`](Self::release), but for users who do not mind the claim.
    pub fn claim(&self, number: usize, pass: impl FnOnce()) {
        self.claimed.insert(number);
        pass();
    }

    /// Takes a [`claim`](Self::claim) back, under the lock of all claimants.
    pub fn release(&self, number: usize) {
        self.claimed.remove(number);
    }

    /// Notes a use, under the lock of its part.
    pub fn note_use(&self, number: usize) {
        // Looked at first: most of the time it is there, and the line stays with all its readers.
        if !self.used.contains(number) {
            self.used.insert(number);
        }
    }

    /// Whether there may be uses: `false` is certain of a number that is claimed, under the lock of all claimants.
    #[must_use]
    pub fn may_be_used(&self, number: usize) -> bool {
        self.used.contains(number)
    }

    /// Clears all notes, under the lock of all claimants. The caller has to note the uses again that it finds in each part.
    pub fn forget_uses(&self) {
        self.used.clear();
    }
}

/// A bit for each number.
#[derive(Debug)]
struct Bits(Box<[AtomicU64]>);

impl Bits {
    fn new(count: usize) -> Self {
        Self((0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// The word of a number, and its bit.
    fn place(&self, number: usize) -> (&AtomicU64, u64) {
        (&self.0[number / 64], 1 << (number % 64))
    }

    fn contains(&self, number: usize) -> bool {
        let (word, bit) = self.place(number);
        word.load(Ordering::Relaxed) & bit != 0
    }

    fn insert(&self, number: usize) {
        let (word, bit) = self.place(number);
        word.fetch_or(bit, Ordering::Relaxed);
    }

    fn remove(&self, number: usize) {
        let (word, bit) = self.place(number);
        word.fetch_and(!bit, Ordering::Relaxed);
    }

    fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}
