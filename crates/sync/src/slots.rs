//! Numbers for a poller's registrations, which are given out again when a registration has gone.
//!
//! A thread that marks a registration as ready puts an [`Entry`] into the poller's inbox: the registration's number, and the generation of
//! its word ([`Readiness`]). An entry counts no reference, so it may outlive its registration, and by the time that the poller comes to it
//! the number may belong to another one.
//!
//! # States of a number
//!
//! | from → to | by |
//! |---|---|
//! | - or free → taken | [`insert`](Slots::insert); the word begins in the generation that the slot has kept |
//! | taken → free | [`remove`](Slots::remove): the slot keeps the generation after the last one of the word |
//!
//! [`Slots`] stands under a mutex of its owner, which orders these two and [`get`](Slots::get).
//!
//! # Why an entry never counts for a later registration
//!
//! The generations of a word only rise, and they rise under the mutex of a list that the registration is on. `remove` comes after the registration
//! was taken off every list, in a section of that mutex, so it reads the last generation that the word has. A thread that still has a reference may
//! raise the word even now; it makes an entry of that last generation, or of an earlier one. The next word of this number begins one generation
//! later, so each entry of the earlier registration is void to it. The poller drops a void entry, which changes no word: the events of the new
//! registration are those of its own entries alone.
//!
//! 2^22 registrations that follow each other in one number, between two looks at the inbox, would make a generation come round.
//!
//! Does not depend on the registered objects. Tests: below, `tests/loom/poll_queue.rs`.

use crate::facade::Arc;
use crate::readiness::{Generation, Readiness};

/// A registration that may be ready, without a reference to it.
#[must_use = "an entry that is not queued is readiness lost"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    index: u32,
    generation: Generation,
}

/// The word of a registration, and its number.
#[derive(Debug)]
pub struct Numbered {
    index: u32,
    word: Readiness,
}

/// Something that has a number.
pub trait Registered {
    /// The number and the word.
    fn numbered(&self) -> &Numbered;
}

#[cfg(all(test, not(loom)))]
impl Registered for Numbered {
    fn numbered(&self) -> &Numbered {
        self
    }
}

/// See the head of the file.
#[derive(Debug)]
pub struct Slots<T> {
    slots: Vec<Slot<T>>,
    /// Numbers without a registration.
    free: Vec<u32>,
}

/// The place of a registration.
#[derive(Debug)]
struct Slot<T> {
    registration: Option<Arc<T>>,
    /// Where the generations of the next one begin.
    next: Generation,
}

impl Entry {
    /// For the word of the registration that [`Slots::get`] returns.
    #[inline]
    pub fn generation(self) -> Generation {
        self.generation
    }
}

impl Numbered {
    /// The word.
    #[inline]
    pub fn word(&self) -> &Readiness {
        &self.word
    }

    /// [`Readiness::raise`], with the entry to be queued.
    #[inline]
    pub fn raise(&self, bits: u8) -> Option<Entry> {
        self.word.raise(bits).map(|generation| Entry { index: self.index, generation })
    }

    /// [`Readiness::raise_shared`], with the entry to be queued.
    #[inline]
    pub fn raise_shared(&self, bits: u8) -> Option<Entry> {
        self.word.raise_shared(bits).map(|generation| Entry { index: self.index, generation })
    }
}

impl<T: Registered> Slots<T> {
    /// Makes a registration and gives it a number. `None` if there are no numbers left, of 2^32.
    pub fn insert(&mut self, make: impl FnOnce(Numbered) -> T) -> Option<Arc<T>> {
        // The number is taken when there is a registration: if `make` panics it stays free.
        let (index, first) = match self.free.last() {
            Some(free) => (*free, self.slots[*free as usize].next),
            None => (u32::try_from(self.slots.len()).ok()?, Generation::FIRST),
        };
        let registration = Arc::new(make(Numbered { index, word: Readiness::new(first) }));
        let slot = Slot { registration: Some(Arc::clone(&registration)), next: first };
        match self.free.pop() {
            Some(free) => self.slots[free as usize] = slot,
            None => self.slots.push(slot),
        }
        Some(registration)
    }

    /// Frees the number of a registration that is on no list any more. Once more does nothing, nor does it where the slots were
    /// [emptied](Self::take_all).
    pub fn remove(&mut self, gone: &Arc<T>) {
        let numbered = gone.numbered();
        let Some(slot) = self.slots.get_mut(numbered.index as usize) else { return };
        if slot.registration.as_ref().is_some_and(|known| Arc::ptr_eq(known, gone)) {
            slot.next = numbered.word.next();
            // Never the last reference: the caller has one.
            slot.registration = None;
            self.free.push(numbered.index);
        }
    }

    /// The registration that has the number of this entry now. Whether it is its entry its word says.
    #[inline]
    pub fn get(&self, entry: Entry) -> Option<&Arc<T>> {
        self.slots.get(entry.index as usize)?.registration.as_ref()
    }

    /// Takes all registrations out. There will be no others.
    pub fn take_all(&mut self) -> impl Iterator<Item = Arc<T>> + use<T> {
        let all = std::mem::take(self);
        all.slots.into_iter().filter_map(|slot| slot.registration)
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::readiness::Look;

    const READ: u8 = 1;

    fn look(slots: &Slots<Numbered>, entry: Entry) -> Option<Look> {
        slots.get(entry).map(|found| found.word().look(entry.generation()))
    }

    #[test]
    fn a_number_is_given_out_again_and_its_old_entries_are_void() {
        let mut slots = Slots::default();
        let first = slots.insert(|numbered| numbered).expect("a number");
        let beside = slots.insert(|numbered| numbered).expect("a number");
        let old = first.raise(READ).expect("it was idle");
        slots.remove(&first);
        assert_eq!(look(&slots, old), None);
        let second = slots.insert(|numbered| numbered).expect("a number");
        assert_eq!((second.index, beside.index), (first.index, 1));
        slots.remove(&first);
        let new = second.raise_shared(READ).expect("it was idle");
        assert_eq!(look(&slots, old), Some(Look::Void));
        assert_eq!(
            look(&slots, new),
            Some(Look::Ready(READ)),
            "nor has the second removal of the first hit it"
        );
    }

    #[test]
    fn a_registration_that_cannot_be_made_costs_no_number() {
        let mut slots = Slots::default();
        let first = slots.insert(|numbered| numbered).expect("a number");
        for _ in 0..2 {
            let made = catch_unwind(AssertUnwindSafe(|| slots.insert(|_| panic!("of a test"))));
            assert!(made.is_err());
            slots.remove(&first);
        }
        assert_eq!(
            (slots.insert(|numbered| numbered).map(|made| made.index), slots.slots.len()),
            (Some(0), 1)
        );
        assert_eq!(slots.take_all().count(), 1);
        slots.remove(&first);
        assert_eq!(slots.take_all().count(), 0);
    }
}
