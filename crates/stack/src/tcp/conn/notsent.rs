//! TCP_NOTSENT_LOWAT: how much of `so_snd` may wait to be sent before its writers do.
//!
//! A large send buffer keeps a fast path full, but written data cannot be taken back or overtaken: with this mark it holds the
//! data in flight, and only little besides. The rules are Linux's: the socket calls itself writable, and wakes those that wait,
//! while twice its unsent bytes are fewer than the mark, so that one wake pays for half a mark; a write is let in beyond that, up
//! to the mark, and over an interface it fills the packet that it has begun by then (`Pushes::room`). Where segments do not leave the
//! stack it always goes up to a full segment: else Nagle's algorithm would wait for the rest of it, and the writer for Nagle's algorithm.
//!
//! # What raises writability
//! [`SendBuf::is_writable`](super::sockbuf::SendBuf::is_writable) is a function of values under the socket lock, and a caller that finds it
//! false and waits has a ticket, or is on the list of waiters, from the same section. With a mark *unsent bytes* are one of the values.
//! They are the bytes in `so_snd` beyond [`Mark::sent`], and fall in two ways:
//!
//! * by *sending*, which needs no acknowledgment: [`settle`] takes the new `sent` from the pcb at the end of each stay
//!   that may have sent something, in the section of that output, and wakes if the socket was not writable before it and is now;
//! * by a larger mark, or none: the setter wakes, in its own section.
//!
//! An acknowledgment takes the same number off both the buffer and `sent` (`engine::acked`), so it leaves them as they are; it
//! makes space, which has its own wake, and may let output send, which is the first way. `sent` may be too small, just after a mark
//! was set, and never too large, so that no writer is let in too early; the setter then asks for the output that corrects it.
//! Writers cannot wait for ever: while something is unsent, either something is in flight, and an acknowledgment or a timeout
//! brings output, or the window is closed and probed, or output is due.
//!
//! It does not depend on sockets' calls. Rank: the socket lock. Tests: below; `tests/tcp/notsent.rs`, also beside the
//! kernel; `tests/suite/notsent.rs`.

use sockeye_proto::tcp::pcb::Pcb;
use sockeye_sync::facade::Arc;

use super::outbox::Context;
use super::sockbuf::{Buffers, SendBuf};
use super::{Conn, engine, reports};
use crate::base::payload::Data;

/// The mark of a socket that has none, as in Linux's `tcp_notsent_lowat`.
pub(crate) const NONE: u32 = u32::MAX;

/// A send buffer's mark, and its state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// Bytes of which fewer may be unsent; 1 at least, [`NONE`] for no bound.
    lowat: u32,
    /// Bytes at the front of the buffer that were sent, as of the last output.
    sent: u32,
    /// Bytes of a full segment then.
    segment: u32,
}

impl Mark {
    pub fn new(lowat: u32) -> Self {
        Self { lowat, sent: 0, segment: 0 }
    }

    /// Another mark from now on. A mark that is absent does not keep up, so its value is unknown.
    fn set(&mut self, lowat: u32) {
        if self.lowat == NONE {
            self.sent = 0;
        }
        self.lowat = lowat;
    }

    pub fn lowat(&self) -> u32 {
        self.lowat
    }

    /// So many bytes at the front are gone.
    pub fn acked(&mut self, bytes: u32) {
        self.sent = self.sent.saturating_sub(bytes);
    }

    /// Bytes that a writer may add to a buffer that has `len`, reserved ones included, as far as the mark goes.
    pub fn room(&self, len: u32) -> u32 {
        self.lowat.max(self.segment).saturating_sub(len.saturating_sub(self.sent))
    }

    /// Whether so few bytes of `len` are unsent that it is worth to wake writers.
    pub fn is_low(&self, len: u32) -> bool {
        self.lowat == NONE || len.saturating_sub(self.sent).saturating_mul(2) < self.lowat
    }
}

/// Sets the mark. `true` if the waiters are to be woken.
pub(crate) fn set(snd: &mut SendBuf, lowat: u32) -> bool {
    snd.rare_mut().mark.set(lowat);
    snd.drop_idle_rare();
    snd.is_writable()
}

/// After output: takes over how much was sent, and wakes writers that this lets in.
pub(super) fn settle(cx: &mut Context<'_>, pcb: &Pcb<Data>, conn: &Arc<Conn>, so: &mut Buffers) {
    let (buffered, was_writable) = (so.snd.len(), so.snd.is_writable());
    let Some(rare) = so.snd.rare.as_deref_mut() else { return };
    if let Some(pushes) = &mut rare.pushes {
        pushes.settle(pcb, buffered);
        so.snd.unit = pcb.full_len();
    }
    let sent = pcb.snd_max().since(pcb.snd_una());
    let (has_mark, has_reports) = (rare.mark.lowat() != NONE, rare.reports.is_some());
    if has_mark {
        // A SYN or FIN counts as a byte; the first is no concern of a socket without a connection, the second of one that has shut down.
        rare.mark.sent = sent;
        rare.mark.segment = u32::from(pcb.send_mss());
    }
    if has_reports {
        // A SYN that is not acknowledged stands before the text.
        reports::sent(cx, so, sent.saturating_sub(u32::from(!so.snd.connected)));
    }
    if !has_mark {
        return;
    }
    if !was_writable && so.snd.is_writable() {
        so.snd.cpu = cx.cpu;
        engine::wake_writers(cx, conn, so);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_accepted_below_the_mark_and_notified_below_half_of_it() {
        let mark = Mark { lowat: 1000, sent: 500, segment: 100 };
        for (len, room, is_low) in [(500, 1000, true), (999, 501, true), (1000, 500, false), (1499, 1, false)]
        {
            assert_eq!((mark.room(len), mark.is_low(len)), (room, is_low), "{len}");
        }
        assert_eq!((mark.room(1500), mark.room(u32::MAX)), (0, 0));
        assert!(!mark.is_low(u32::MAX));
        assert_eq!(mark.room(0), 1000, "a FIN in flight, which is not in the buffer, does not count");
    }

    #[test]
    fn a_segment_may_be_completed_with_any_mark() {
        let mark = Mark { lowat: 1, sent: 500, segment: 1460 };
        assert_eq!((mark.room(500), mark.is_low(500)), (1460, true));
        assert_eq!((mark.room(501), mark.is_low(501)), (1459, false));
        assert_eq!((mark.room(1960), mark.is_low(1960)), (0, false));
        assert_eq!(Mark::new(1).room(0), 1, "before the first output");
    }

    #[test]
    fn acknowledged_bytes_leave_the_unsent_ones_as_they_are() {
        let mut mark = Mark { lowat: 1000, sent: 500, segment: 100 };
        mark.acked(200);
        assert_eq!((mark.sent, mark.room(900 - 200)), (300, 600));
        mark.acked(400);
        assert_eq!(mark.sent, 0);
    }

    #[test]
    fn a_first_mark_treats_everything_before_it_as_sent() {
        let mut mark = Mark { lowat: NONE, sent: 500, segment: 100 };
        assert!(mark.is_low(u32::MAX) && mark.room(1 << 26) > 0);
        mark.set(1000);
        assert_eq!((mark.sent, mark.room(900)), (0, 100));
        mark.sent = 400;
        mark.set(2000);
        assert_eq!(mark.sent, 400);
    }
}
