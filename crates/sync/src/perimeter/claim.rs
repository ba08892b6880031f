//! Owning a perimeter without borrowing it: enter now, run later, with the object held by other means.
//!
//! A caller that is inside one perimeter and has work for another one takes that other one's ownership on
//! the spot, if it is free, and runs the work after having left the first. Until then the ownership is a
//! [`Claim`], which borrows nothing, so it can wait in a list next to whatever keeps the perimeter alive.
//! Compared with `fill` and `resume` it costs one exchange instead of three and no queue node.
//!
//! For everybody else the perimeter is *inside* from the claim on: items are queued, nobody resumes it, and
//! the essay at the head of `perimeter.rs` holds word for word. What is special is only that an owner by
//! claim owes a [`Perimeter::redeem`]: whoever holds claims redeems them before it sleeps or waits for
//! anybody. A claim cannot be copied, made otherwise or redeemed elsewhere, so there is one `Inside` at a time.
//!
//! A claim that is dropped leaves the perimeter occupied for ever, for it does not know where it is. Its
//! holder therefore redeems it in a `Drop` of its own, which then poisons, as a panic inside does.
//!
//! Tests: `perimeter/tests.rs`, `tests/loom/perimeter.rs`.

use core::marker::PhantomData;

use super::inside::Inside;
use super::{Perimeter, PerimeterId};

/// The ownership of a perimeter, away from it. See the head of the file.
#[must_use = "a claim that is dropped leaves its perimeter occupied for ever: redeem it"]
#[derive(Debug)]
pub struct Claim {
    id: PerimeterId,
    /// Like an `Inside`, it stays on its thread: it is the thread that is inside.
    not_send: PhantomData<*const ()>,
}

impl<T> Perimeter<T> {
    /// Becomes the owner if the perimeter is free. One compare-exchange; never blocks.
    #[inline]
    pub fn claim(&self) -> Option<Claim> {
        self.try_enter().map(|inside| {
            // The ownership goes over to the claim; an `Inside` that has just been made holds nothing else.
            core::mem::forget(inside);
            Claim { id: self.id, not_send: PhantomData }
        })
    }

    /// Turns a claim back into being inside. No shared memory is touched; never blocks.
    ///
    /// # Panics
    /// If the claim is another perimeter's.
    #[inline]
    pub fn redeem(&self, claim: Claim) -> Inside<'_, T> {
        assert!(claim.id == self.id, "a claim is redeemed where it was made");
        // SAFETY: the claim was made by an exchange that made us the owner, and is used up here.
        unsafe { Inside::new(self) }
    }
}
