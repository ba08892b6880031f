//! A registration with a poller: the use of its word by the socket's side and by the poller.
//!
//! The word itself, and why it loses no readiness, is [`Readiness`]. It is used in one of three ways:
//!
//! | [`Way`] | the word is changed | a look |
//! |---|---|---|
//! | `Owned` | under one mutex of the socket: a delivery raises, the read that empties a buffer lowers | believes the word for as long as it says nothing but *believed* bits; else it settles, under the mutex |
//! | `Level` | by locked instructions: a mark raises | asks the socket; a ready registration stays with the poller |
//! | `Edge` | by locked instructions: a mark raises | takes the bits, and reports them once |
//!
//! # States of a registration, and the holder of its entry
//!
//! | from → to | by |
//! |---|---|
//! | idle → in the inbox | [`mark`](Polled::mark) returns an entry, and its caller pushes it |
//! | in the inbox, or reported → reported | [`look`](Polled::look) finds it ready: [`Found::stays`] |
//! | in the inbox, or reported → idle | `look` finds nothing, or it is edge-triggered; `lower` of the last bit of a reported one |
//!
//! # Why no readiness is lost in the shared ways
//!
//! *Level.* The first look asks the socket, and if that is ready the word stays queued with its entry. Otherwise, and at each later look, the word is
//! made idle *first* and the socket asked *afterwards*. A mark comes before the word is made idle, then the question sees its cause; or it comes
//! later, then it finds the word idle and pushes an entry of its own. If the socket is ready and no thread has pushed one the poller makes the word
//! queued again and goes on holding the entry; if one has, that entry is the one and the held one is dropped.
//!
//! *Edge.* Bits are taken by one exchange; a mark is before it, and its bits are taken, or after it, and it pushes.
//!
//! A look first drops an entry that is void, in every way, so that an entry of an earlier registration of this number (`slots.rs`) changes
//! nothing.
//!
//! *A [`Source`] panics.* The poller goes on holding the entry (`poll_queue.rs`). `settle` has not changed the word then, and where `Level` has made it
//! idle it becomes queued again on the way out, so that the next look asks the socket once more. If a mark has come in between, the poller has
//! two entries of one word until the socket is found not ready, and reports it twice.
//!
//! Does not depend on the meaning of the bits. Tests: `tests/loom/poll_queue.rs`.

use crate::readiness::{Look, Readiness};
use crate::slots::{Entry, Numbered};

/// See the head of the file.
#[derive(Debug)]
pub struct Polled {
    numbered: Numbered,
    /// The bits that are reported.
    interest: u8,
    way: Way,
}

/// How a word is used; see the head of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Level-triggered, under the socket's mutex. These bits are lowered by the threads that make them untrue, the others
    /// are not.
    Owned {
        /// The believed content of the word.
        believed: u8,
    },
    /// Level-triggered.
    Level,
    /// Edge-triggered.
    Edge,
}

/// An entry that the poller has taken out of its inbox.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// The entry.
    pub entry: Entry,
    /// A look at it has kept it before.
    pub is_reported: bool,
}

/// Result of a look, if there is something to report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The bits, of those of interest.
    pub ready: u8,
    /// The poller goes on holding the entry.
    pub stays: bool,
}

/// The socket behind a registration.
pub trait Source {
    /// Its readiness now.
    fn ready(&self) -> u8;

    /// Calls `settle` with its readiness, under the mutex of its words. For [`Way::Owned`].
    fn settle(&self, settle: &mut dyn FnMut(u8));
}

impl Polled {
    /// Not on any list yet. `asked` is the application's interest; `always` is reported, too.
    pub fn new(numbered: Numbered, way: Way, asked: u8, always: u8) -> Self {
        if let Way::Owned { believed } = way
            && asked != believed
        {
            // No thread lowers anything else.
            numbered.word().look_closer();
        }
        Self { numbered, interest: asked | always, way }
    }

    /// The bits that are reported.
    #[inline]
    pub fn interest(&self) -> u8 {
        self.interest
    }

    /// Its number.
    #[inline]
    pub fn numbered(&self) -> &Numbered {
        &self.numbered
    }

    /// The socket has become ready for these bits. The entry is to be pushed. Under the mutex of the socket if it is owned, in the same section
    /// as the push.
    #[inline]
    pub fn mark(&self, ready: u8) -> Option<Entry> {
        let ready = ready & self.interest;
        if ready == 0 {
            return None;
        }
        match self.way {
            Way::Owned { believed } => {
                if ready != believed {
                    self.word().look_closer();
                }
                self.numbered.raise(ready)
            }
            Way::Level | Way::Edge => self.numbered.raise_shared(ready),
        }
    }

    /// An owned one is not ready for these bits any more. Under the mutex of the socket.
    #[inline]
    pub fn lower(&self, bits: u8) {
        if self.is_owned() {
            self.word().lower(bits);
        }
    }

    /// The word of an owned one says less than the socket from now on. Under the mutex of the socket.
    pub fn look_closer(&self) {
        if self.is_owned() {
            self.word().look_closer();
        }
    }

    /// The poller's look at an entry that has this one's number.
    #[inline]
    pub fn look(&self, held: Held, source: &impl Source) -> Option<Found> {
        let entry = held.entry.generation();
        match (self.word().look(entry), self.way) {
            (Look::Void, _) => None,
            (Look::Ready(ready), Way::Owned { .. }) => {
                self.word().report(entry);
                Some(Found { ready, stays: true })
            }
            (Look::Closer, Way::Owned { .. }) => self.settle(held, source),
            (_, Way::Level) => self.look_at_socket(held, source),
            (_, Way::Edge) => {
                let ready = some(self.word().take_shared(entry)?)?;
                Some(Found { ready, stays: false })
            }
        }
    }

    /// A look at the socket itself, under its mutex.
    #[cold]
    fn settle(&self, held: Held, source: &impl Source) -> Option<Found> {
        let mut found = None;
        source.settle(&mut |ready| {
            let ready = ready & self.interest;
            let stays = self.word().settle(held.entry.generation(), ready);
            found = stays.then_some(Found { ready, stays });
        });
        found
    }

    /// The first time it is most likely ready; later most likely not, so it is made idle first, and a mark after the look queues it again.
    fn look_at_socket(&self, held: Held, source: &impl Source) -> Option<Found> {
        let is_ready = || some(source.ready() & self.interest);
        if !held.is_reported
            && let Some(ready) = is_ready()
        {
            return Some(Found { ready, stays: true });
        }
        self.word().take_shared(held.entry.generation())?;
        let unwound = Unwound(self.word());
        let ready = is_ready();
        std::mem::forget(unwound);
        let ready = ready?;
        // A mark that came in between has queued it itself; then it is in the inbox and not held.
        Some(Found { ready, stays: self.word().keep_shared() })
    }

    #[inline]
    fn word(&self) -> &Readiness {
        self.numbered.word()
    }

    #[inline]
    fn is_owned(&self) -> bool {
        matches!(self.way, Way::Owned { .. })
    }
}

/// The word of an entry that is held, while its source is asked. If that panics it becomes queued again.
struct Unwound<'a>(&'a Readiness);

impl Drop for Unwound<'_> {
    #[cold]
    fn drop(&mut self) {
        let _or_marked = self.0.keep_shared();
    }
}

fn some(bits: u8) -> Option<u8> {
    (bits != 0).then_some(bits)
}
