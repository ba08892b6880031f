//! Urgent data: a mark in the stream, up to which the reader should hurry (RFC 9293 section 3.8.5, RFC 6093).
//!
//! The bytes stay in the stream on both sides. In the sender, the pointer is the number *after* the urgent data
//! ([`Urgent::up`], RFC 6093 section 4). In the receiver, the mark is the last byte of that data, as on Linux and as
//! applications see it. A later mark replaces an earlier one.
//!
//! Does not depend on buffers. The receiving side keeps nothing here: a new mark is an event, and the owner of `so_rcv`
//! keeps the mark. Invariant: while [`Urgent`] exists, no segment is longer than the MSS, since a device that cuts a
//! longer one would put the same pointer on every part. It is dropped when the first segment is sent after its end was
//! acknowledged. Tests: `tests/urgent.rs`.

use crate::seq::SeqNum;

use super::events::{Events, Input};
use super::pcb::Pcb;
use super::segment::{Flags, Header, Payload};
use super::state::State;

/// The sender's state while urgent data is not acknowledged.
#[derive(Debug)]
pub(super) struct Urgent {
    /// SND.UP: one past the last urgent byte.
    pub up: SeqNum,
    /// The `tso_max` to return to.
    pub tso_max: u32,
    /// A probe of a closed window has just announced it, and the ordinary probe follows.
    pub is_told: bool,
}

impl Header {
    /// The last urgent byte that a segment with [`Flags::URG`] announces. A pointer of zero names the segment's first
    /// byte, as on Linux.
    pub fn urgent_mark(&self) -> SeqNum {
        self.seq + u32::from(self.urgent.saturating_sub(1))
    }
}

impl<P: Payload> Pcb<P> {
    /// The application declares the first `len` bytes of `so_snd` urgent: each segment announces this until they are
    /// acknowledged, and Nagle's algorithm holds nothing back until then. The caller must call `poll_transmit`
    /// afterwards.
    pub fn set_urgent(&mut self, len: u32) {
        if len == 0 || self.state == State::Closed {
            return;
        }
        let is_syn_out = matches!(self.state, State::SynSent | State::SynReceived);
        let up = if is_syn_out { self.iss + 1 } else { self.snd_una } + len;
        match self.rare.urgent_mut() {
            Some(urgent) => urgent.up = up,
            None => {
                let tso_max = core::mem::take(&mut self.tuning.tso_max);
                self.rare.set_urgent(Some(Urgent { up, tso_max, is_told: false }));
            }
        }
    }

    /// Whether urgent data is unacknowledged.
    #[inline]
    pub(super) fn is_urgent(&self) -> bool {
        self.rare.urgent().is_some_and(|urgent| urgent.up.after(self.snd_una))
    }

    /// Whether the latest write, after which `so_snd` has `snd_len` bytes, was urgent: none of it was sent before its
    /// end.
    pub(super) fn is_urgent_up_to(&self, snd_len: u32) -> bool {
        self.rare.urgent().is_some_and(|urgent| urgent.up == self.snd_una + snd_len)
    }

    /// Lets a segment that begins before the end of the urgent data point to that end. If the end is too far for the
    /// field, and nothing has been sent beyond that distance, it points as far as it can, so that the peer knows as
    /// early as possible.
    pub(super) fn attach_urgent(&mut self, header: &mut Header) {
        if !self.is_urgent() {
            self.end_urgent();
            return;
        }
        let Some(urgent) = self.rare.urgent() else { return };
        if !header.seq.before(urgent.up) {
            return;
        }
        let pointer = match u16::try_from(urgent.up.since(header.seq)) {
            Ok(pointer) => pointer,
            Err(_) if (header.seq + u32::from(u16::MAX)).after(self.snd_nxt) => u16::MAX,
            Err(_) => return,
        };
        (header.flags, header.urgent) = (header.flags.with(Flags::URG), pointer);
    }

    /// The number of a probe of a closed window: one before SND.UNA, so that the peer answers. The peer ignores the
    /// urgent pointer of a segment that it cannot accept. So if urgent data waits and the pointer reaches its end, a
    /// probe at SND.UNA is sent first (`tcp_write_wakeup`).
    pub(super) fn probe_seq(&mut self) -> SeqNum {
        let una = self.snd_una;
        let Some(urgent) = self.rare.urgent_mut().filter(|urgent| urgent.up.after(una)) else {
            return una - 1;
        };
        urgent.is_told = !urgent.is_told && urgent.up.since(una) <= u32::from(u16::MAX);
        self.probe_now = urgent.is_told;
        if urgent.is_told { una } else { una - 1 }
    }

    /// No data is urgent any more.
    pub(super) fn end_urgent(&mut self) {
        if let Some(urgent) = self.rare.urgent() {
            self.tuning.tso_max = urgent.tso_max;
            self.rare.set_urgent(None);
        }
    }

    /// Sixth: the URG bit (RFC 9293 section 3.10.7.4). A mark that was already passed is ignored.
    pub(super) fn sixth_check_urg(&self, header: &Header, input: &mut Input<P>) {
        if header.flags.has(Flags::URG)
            && self.state.receives()
            && header.urgent_mark().at_or_after(self.rcv_nxt)
        {
            input.events.insert(Events::URGENT);
        }
    }
}
