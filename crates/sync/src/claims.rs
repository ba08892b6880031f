//! Numbers that one side claims as a whole and the other side uses in parts. Ports are such numbers: a socket is bound to a port, and a
//! connection uses it beside one remote end.
//!
//! Uses stand in a table of several parts, each under a lock of its own, so that two uses rarely meet. Claims are made under one lock, and a claim must know
//! whether the number is used without searching all parts. So there are two bits for each number: one says that it is claimed, the other that it may be used.
//! The second one stays set when the last use ends, until [`Claims::forget_uses`].
//!
//! **To use** a number, a thread takes the lock of a part, checks [`Claims::is_claimed`], and under the same hold calls [`Claims::note_use`] and adds the
//! use to the part. **To claim** one, a thread sets its bit, takes and releases the lock of each part once ([`Claims::claim`]), and then checks
//! [`Claims::may_be_used`].
//!
//! No use beside a claim is missed: the using thread holds its part's lock either before or after the claiming thread does. If before, the claiming
//! thread sees its note. If after, the using thread sees the claim. If both happen, the number is not used, and at worst a note is left
//! behind. The locks give the order, so all accesses are relaxed.
//!
//! **Forgetting** needs the lock under which claims are made: it clears all notes, and then notes again what it finds in each part, under that part's lock. A use is in its part before the lock is
//! released, so it is found there or noted later.
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

    /// Whether a number is claimed. A hint, unless the caller holds the lock of the part that its use would stand in.
    #[must_use]
    pub fn is_claimed(&self, number: usize) -> bool {
        self.claimed.contains(number)
    }

    /// Claims a number, under the lock for claims. `pass` takes and releases the lock of each part once. No use that checks the claim begins
    /// after that, until [`release`](Self::release).
    pub fn claim(&self, number: usize, pass: impl FnOnce()) {
        self.claimed.insert(number);
        pass();
    }

    /// Takes a [`claim`](Self::claim) back, under the lock for claims.
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

    /// Whether there may be uses: `false` is certain of a number that is claimed, under the lock for claims.
    #[must_use]
    pub fn may_be_used(&self, number: usize) -> bool {
        self.used.contains(number)
    }

    /// Clears all notes, under the lock for claims. The caller has to note the uses again that it finds in each part.
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
