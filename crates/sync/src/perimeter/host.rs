//! A thread that waits outside lends itself: what is put into a free perimeter then waits for that thread, the *host*,
//! and is run on its core.
//!
//! A reader who waits for bytes is the best one to run the segments that bring them: he is about to touch what they
//! change, and the sender need not fetch it. So before he waits he marks the perimeter as *hosted*
//! ([`Perimeter::host`]). Whoever has an item for it may then leave the item with the host ([`Perimeter::fill_hosted`]),
//! which is `fill` with the host for the worker, and ends his wait.
//!
//! *Hosted* is a way of being free. Everybody else enters as ever, and the mark is gone then: the host waits on as if he had
//! never set it. It has the host's CPU, since for a sender on the same one there is nothing to be won.
//!
//! # Why no item is stranded, and no wait goes on for ever
//! *The host comes.* Once his wait is over, whatever has ended it, he calls [`Perimeter::unhost`], and if the mark
//! is not there any more, [`Perimeter::resume`]. The word puts the two in order: if taking back the mark came first, the
//! exchange of `fill_hosted` fails, and its caller does with the item what he does with a perimeter that is free; if that came
//! first the mark is gone, and `resume` finds the perimeter on paper, or somebody inside who took it over from there.
//! Several hosts may have set the mark one after the other. Whose it is does not matter: to take back another's mark costs
//! that one a hint, and he resumes all the same.
//!
//! *He is told.* He announces his wait before he sets the mark, and the exchange of `fill_hosted` acquires that. So whoever
//! fills afterwards ends a wait that he can see.
//!
//! This file must not know how one waits. Tests: `perimeter/tests.rs`, `tests/loom/host.rs`.

use core::ptr;

use super::Perimeter;
use super::word::Word;
use crate::facade::Ordering;
use crate::node::{Load, Node};

impl<T> Perimeter<T> {
    /// Marks a free perimeter as hosted by the caller, who runs on `cpu`, has announced his wait, and owes an
    /// [`unhost`](Self::unhost) after it. False if it is not free, or hosted by another; then he owes nothing. Never blocks.
    #[must_use = "a host owes an `unhost`"]
    pub fn host(&self, cpu: u32) -> bool {
        // Release: the announcement, with the acquire of `fill_hosted`.
        self.exchange(Word::FREE, Word::hosted(cpu), Ordering::Release).is_ok()
    }

    /// The CPU of the host, if there is one. A hint: true the moment it was looked at.
    #[inline]
    pub fn hosted_on(&self) -> Option<u32> {
        // Relaxed: `fill_hosted` looks again.
        self.load(Ordering::Relaxed).host()
    }

    /// Leaves `item` with the host; the caller then ends his wait. The item comes back if there is no host (any more). Never
    /// blocks.
    ///
    /// # Errors
    /// The item, if the perimeter is not hosted.
    pub fn fill_hosted(&self, item: T) -> Result<(), T> {
        let node = Node::boxed(Load::Item(item));
        // SAFETY: the node is ours until the exchange below publishes it.
        unsafe { Node::link(node, ptr::null_mut()) };
        let seen = self.load(Ordering::Relaxed);
        // Release: the node's contents, with the acquire of `resume`. Acquire: the host's announcement.
        let is_filled = seen.host().is_some()
            && self.exchange(seen, Word::FREE.with_list(node).on_paper(), Ordering::AcqRel).is_ok();
        if is_filled {
            return Ok(());
        }
        // SAFETY: the node was not pushed, so it is still ours.
        match unsafe { Node::unbox(node) } {
            Some(Load::Item(item)) => Err(item),
            Some(Load::Waiter(_)) | None => unreachable!("the node was made with an item"),
        }
    }

    /// The host's wait is over: takes back his mark. False if it is gone: he then calls [`resume`](Self::resume), since
    /// something may have been left with him. Never blocks.
    #[must_use = "what was left with the host has to be run"]
    pub fn unhost(&self) -> bool {
        let seen = self.load(Ordering::Relaxed);
        // Relaxed: a read-modify-write, so it goes on with the release sequence of the last `leave`.
        seen.host().is_some() && self.exchange(seen, Word::FREE, Ordering::Relaxed).is_ok()
    }
}
