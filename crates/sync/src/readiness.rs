//! A poller's registration in one word: a socket's readiness, and whether the poller has it on its list.
//!
//! The socket's side *raises* bits, and puts an *entry* into the poller's inbox if the word was not queued. The poller
//! *looks* at its entries. The thread that makes the socket not ready any more *lowers*. A byte that goes to a polled
//! socket does all three, so none of them is a locked instruction where that can be: the words of a socket are written
//! under that socket's mutex, which the deliverer and the reader hold anyway, and the poller only reads.
//!
//! # States
//!
//! `word` is a generation, the flags `QUEUED` and `CLOSER`, and eight ready bits. An entry is the generation in which it
//! was queued, and is *void* once the word has another one.
//!
//! | from → to | by |
//! |---|---|
//! | idle → queued, with bits | the holder of the mutex: [`raise`](Readiness::raise); it then queues the entry, in the same section |
//! | queued → queued, more bits | the same |
//! | queued → queued, fewer bits | the holder of the mutex: [`lower`](Readiness::lower), [`settle`](Readiness::settle) |
//! | queued → idle, next generation | the holder of the mutex: `settle` with nothing; `lower` of the last bit, if the entry was reported |
//!
//! `reported` is the last generation whose entry the poller has taken out of its inbox. The poller alone writes it, `lower`
//! reads it: an entry that is still in the inbox is not made void, so there are two entries of one word at most, one of
//! them void.
//!
//! # Why no readiness is lost
//!
//! While the socket is ready for something of interest, its word is queued, and if it is queued, the entry of its
//! generation is in the inbox or with the poller. *Raised* bits: `raise` under the mutex sees every earlier writer of the
//! word. *Idle* is written under the mutex, by `settle`, whose caller has looked at the socket in the same section, or by
//! `lower`, when no bit is left, and the bits are never fewer than the socket's readiness. A poller drops an entry only
//! if it is void, or if its own `settle` made it so; void entries were followed by another one or by *idle*.
//!
//! The poller looks without the mutex ([`look`](Readiness::look)). The bits that it sees were true at some time since its last look.
//! Bits can stand for more than is there (`CLOSER` says that they do); then the poller settles, under the mutex.
//!
//! # Words under two mutexes
//!
//! A socket whose readiness depends on two mutexes, or whose readers do not lower, uses the same word by locked instructions instead:
//! [`raise_shared`](Readiness::raise_shared), [`take_shared`](Readiness::take_shared), [`keep_shared`](Readiness::keep_shared). There
//! only the poller makes it idle, the generation stays, and a thread that takes looks afterwards: of a `raise_shared` and a
//! `take_shared` one is first in the word's order, and the second sees the earlier writes of the first one's thread. A word is used
//! in one of the two ways, always.
//!
//! Does not depend on sockets or on the meaning of the bits. Tests: below, `tests/loom/readiness.rs`.

use crate::facade::{AtomicU32, Ordering};

/// One registration; see the head of the file. Eight bytes.
#[derive(Debug)]
pub struct Readiness {
    /// (m) written, (a) read; (a) in the shared way.
    word: AtomicU32,
    /// (a) The generation of the entry that the poller took last, by the poller alone.
    reported: AtomicU32,
}

/// Entry of a poller's list for a word: the generation in which it was queued.
#[must_use = "an entry that is not queued is readiness lost"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Generation(u32);

/// A poller's view without the mutex.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// The entry is void: to be dropped.
    Void,
    /// These bits, and they are not more than is there.
    Ready(u8),
    /// The poller has to look at the socket, under the mutex.
    Closer,
}

impl Readiness {
    /// Idle. `first`: where its generations begin; entries of an earlier word in the same place are void.
    pub fn new(first: Generation) -> Self {
        Self { word: AtomicU32::new(first.0), reported: AtomicU32::new(NEVER) }
    }

    /// The socket is ready for `bits`. If this queues it, the caller puts the entry into the inbox before it gives
    /// up the mutex. **Under the mutex.** No locked instruction.
    #[inline]
    pub fn raise(&self, bits: u8) -> Option<Generation> {
        let seen = self.locked();
        let now = seen | QUEUED | u32::from(bits);
        if now != seen {
            self.write(now);
        }
        (seen & QUEUED == 0).then_some(Generation(seen & GENERATION))
    }

    /// The socket is not ready for `bits` any more. **Under the mutex.** No locked instruction.
    #[inline]
    pub fn lower(&self, bits: u8) {
        let seen = self.locked();
        if seen & u32::from(bits) == 0 {
            return;
        }
        let left = seen & !u32::from(bits);
        // Relaxed: an older value only means that the poller will have to settle.
        let is_reported = self.reported.load(Ordering::Relaxed) == seen & GENERATION;
        let is_over = left & (BITS | CLOSER) == 0 && is_reported;
        self.write(if is_over { after(seen) } else { left });
    }

    /// From now on the bits say less than the socket: pollers look at it. **Under the mutex.**
    pub fn look_closer(&self) {
        self.write(self.locked() | CLOSER);
    }

    /// The poller has looked at the socket for this entry, which is ready for `bits` and for nothing else of interest. True
    /// if the entry stays; else it is void, or has become so for want of bits. **Under the mutex**, in the section of the
    /// look.
    pub fn settle(&self, entry: Generation, bits: u8) -> bool {
        let seen = self.locked();
        if !is_current(seen, entry) {
            return false;
        }
        if bits == 0 {
            // A word that needs a closer look stays so.
            self.write(after(seen) | seen & CLOSER);
            return false;
        }
        self.write(seen & !BITS | u32::from(bits));
        self.report(entry);
        true
    }

    /// The poller's judgment of an entry without the mutex. No locked instruction.
    #[inline]
    pub fn look(&self, entry: Generation) -> Look {
        // Acquire: with the release of the thread that raised the bits. The reader takes the mutex all the same.
        let seen = self.word.load(Ordering::Acquire);
        match seen & (BITS | CLOSER) {
            _ if !is_current(seen, entry) => Look::Void,
            // At most eight bits.
            bits @ 1..=BITS => Look::Ready(bits as u8),
            _nothing_or_closer => Look::Closer,
        }
    }

    /// The poller reports this entry, and keeps it. By the poller alone.
    #[inline]
    pub fn report(&self, entry: Generation) {
        // Relaxed both times: one thread at a time is the poller, and `lower` takes an older value. Not written again by
        // each report: the line is the deliverer's too.
        if self.reported.load(Ordering::Relaxed) != entry.0 {
            self.reported.store(entry.0, Ordering::Relaxed);
        }
    }

    /// [`raise`](Self::raise) for a word that is shared. One locked instruction.
    #[inline]
    pub fn raise_shared(&self, bits: u8) -> Option<Generation> {
        // AcqRel, with `take_shared`: the thread that takes the bits sees the state behind them.
        let before = self.word.fetch_or(QUEUED | u32::from(bits), Ordering::AcqRel);
        (before & QUEUED == 0).then_some(Generation(before & GENERATION))
    }

    /// Makes a shared word idle and gives its bits; `None` if the entry is void. The poller then looks at the socket, or
    /// goes by the bits. One locked instruction.
    pub fn take_shared(&self, entry: Generation) -> Option<u8> {
        // Relaxed: the generation of a shared word is constant.
        if self.word.load(Ordering::Relaxed) & GENERATION != entry.0 {
            return None;
        }
        // AcqRel: with `raise_shared`. A swap is enough: it has bits and `QUEUED`, and nothing else.
        let before = self.word.swap(entry.0, Ordering::AcqRel);
        // At most eight bits.
        (before & QUEUED != 0).then_some((before & BITS) as u8)
    }

    /// Queues a word that was taken once more, without an inbox. False if another thread has raised it meanwhile, and
    /// so has queued it itself. One locked instruction.
    pub fn keep_shared(&self) -> bool {
        self.word.fetch_or(QUEUED, Ordering::AcqRel) & QUEUED == 0
    }

    /// The generation with which a later word in the same place begins. Once the word is out of use.
    pub fn next(&self) -> Generation {
        // Relaxed: the end of the word's use has ordered it.
        Generation(after(self.word.load(Ordering::Relaxed)))
    }

    /// The word, for the thread that holds the mutex that orders all its writers.
    #[inline]
    fn locked(&self) -> u32 {
        // Relaxed: the mutex orders it.
        self.word.load(Ordering::Relaxed)
    }

    #[inline]
    fn write(&self, word: u32) {
        // Release: the state behind the bits, with the acquire of `look`.
        self.word.store(word, Ordering::Release);
    }
}

impl Generation {
    /// Of the first word in its place.
    pub const FIRST: Self = Self(0);
}

#[inline]
fn is_current(word: u32, entry: Generation) -> bool {
    word & (GENERATION | QUEUED) == entry.0 | QUEUED
}

/// Idle, in the next generation.
#[inline]
fn after(word: u32) -> u32 {
    (word & GENERATION).wrapping_add(GENERATION_STEP)
}

const BITS: u32 = 0xff;
const QUEUED: u32 = 1 << 8;
const CLOSER: u32 = 1 << 9;
/// Of two entries of one word, one at most is void, so this many generations cannot be taken for each other.
const GENERATION_STEP: u32 = 1 << 10;
const GENERATION: u32 = !(GENERATION_STEP - 1);
/// No generation: it has other bits.
const NEVER: u32 = 1;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const READ: u8 = 1;
    const WRITE: u8 = 2;

    #[test]
    fn a_word_is_queued_once_until_it_is_settled() {
        let word = Readiness::new(Generation::FIRST);
        let entry = word.raise(READ).expect("it was idle");
        assert_eq!(word.raise(WRITE), None);
        assert_eq!(word.look(entry), Look::Ready(READ | WRITE));
        assert!(word.settle(entry, WRITE));
        assert_eq!(word.look(entry), Look::Ready(WRITE));
        assert!(!word.settle(entry, 0));
        assert_eq!(word.look(entry), Look::Void);
        let again = word.raise(READ).expect("it is idle again");
        assert_ne!(again, entry);
        assert_eq!(word.look(entry), Look::Void);
        assert!(!word.settle(entry, READ), "the entry of an earlier generation is void");
        assert_eq!(word.look(again), Look::Ready(READ));
    }

    #[test]
    fn clearing_the_last_bit_invalidates_a_reported_entry() {
        let word = Readiness::new(Generation::FIRST);
        let entry = word.raise(READ | WRITE).expect("it was idle");
        word.report(entry);
        word.lower(READ);
        assert_eq!(word.look(entry), Look::Ready(WRITE));
        word.lower(READ);
        word.lower(WRITE);
        assert_eq!(word.look(entry), Look::Void);
        assert!(word.raise(READ).is_some());
    }

    #[test]
    fn an_entry_in_the_inbox_stays_in_it() {
        let word = Readiness::new(Generation::FIRST);
        let entry = word.raise(READ).expect("it was idle");
        word.lower(READ);
        assert_eq!(word.look(entry), Look::Closer, "no thread has looked at it yet");
        assert_eq!(word.raise(READ), None, "a second entry would be one more each time");
        assert_eq!(word.look(entry), Look::Ready(READ));
    }

    #[test]
    fn a_word_marked_for_inspection_stays_marked() {
        let word = Readiness::new(Generation::FIRST);
        word.look_closer();
        for _ in 0..2 {
            let entry = word.raise(READ).expect("it was idle");
            assert_eq!(word.look(entry), Look::Closer);
            assert!(word.settle(entry, READ));
            assert_eq!(word.look(entry), Look::Closer);
            word.lower(READ);
            assert_eq!(word.look(entry), Look::Closer);
            assert!(!word.settle(entry, 0));
        }
    }

    #[test]
    fn a_shared_word_is_made_idle_by_the_poller_alone() {
        let word = Readiness::new(Generation::FIRST);
        let entry = word.raise_shared(READ).expect("it was idle");
        assert_eq!(word.raise_shared(WRITE), None);
        assert_eq!(word.take_shared(entry), Some(READ | WRITE));
        assert_eq!(word.take_shared(entry), None, "it is idle");
        assert!(word.keep_shared());
        assert!(!word.keep_shared());
        assert_eq!(word.raise_shared(READ), None);
        assert_eq!(word.take_shared(entry), Some(READ));
    }

    #[test]
    fn a_later_word_in_the_same_place_has_other_entries() {
        let first = Readiness::new(Generation::FIRST);
        let entry = first.raise_shared(READ).expect("it was idle");
        let second = Readiness::new(first.next());
        let other = second.raise_shared(READ).expect("it was idle");
        assert_eq!(second.look(entry), Look::Void);
        assert_eq!(second.take_shared(entry), None);
        assert_eq!(second.take_shared(other), Some(READ), "an entry of the first one has taken its bits");
    }
}
