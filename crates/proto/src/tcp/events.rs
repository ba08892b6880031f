//! Values that the pcb returns: results of a segment or a timer, and segments to send.
//!
//! Plain values; they do not depend on the pcb. The caller acts on them after it has released the lock. Tests: with the
//! pcb.

use super::segment::{Flags, Head, Header, Payload};

/// Events of the connection, as a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Events(u16);

impl Events {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// The handshake of an active open is done.
    pub const CONNECTED: Self = Self(1);
    /// The peer has closed its direction: end of file after the bytes delivered with this event.
    pub const PEER_FIN: Self = Self(1 << 1);
    /// The peer reset the connection (`ECONNRESET`). The pcb is closed.
    pub const RESET: Self = Self(1 << 2);
    /// The peer answered our SYN with a reset (`ECONNREFUSED`). The pcb is closed.
    pub const REFUSED: Self = Self(1 << 3);
    /// The peer no longer answered (`ETIMEDOUT`). The pcb is closed.
    pub const TIMED_OUT: Self = Self(1 << 4);
    /// The connection is in TIME-WAIT. When `poll_transmit` has returned `None`, the caller may replace the pcb by its
    /// [`TimeWaitParams`](super::accepted::TimeWaitParams).
    pub const ENTER_TIME_WAIT: Self = Self(1 << 5);
    /// The pcb is closed and may be freed.
    pub const CLOSED: Self = Self(1 << 6);
    /// Data arrived after the application had closed both directions, and was answered with a reset. The pcb is closed.
    pub const DATA_AFTER_CLOSE: Self = Self(1 << 7);
    /// The peer has marked urgent data that is not read yet; the segment's header has its position
    /// ([`Header::urgent_mark`](super::segment::Header::urgent_mark)).
    pub const URGENT: Self = Self(1 << 10);
    /// The SYN of a server's Fast Open connection is acknowledged: the client's address is genuine.
    pub const SYN_ACKED: Self = Self(1 << 9);

    /// The network has reported that the peer cannot be reached, and the handshake is given up; see
    /// [`Pcb::unreachable`](super::pcb::Pcb::unreachable). The pcb is closed.
    pub const UNREACHABLE: Self = Self(1 << 8);

    /// The retransmission timer has expired several times in a row: sent data gets no answer. The next hop may have
    /// moved to another station.
    pub const SILENT: Self = Self(1 << 11);
    /// The retransmission timer has expired, for text or a SYN, or the SYN of a server's Fast Open connection has
    /// arrived again: packets may take another path from now on (`sk_rethink_txhash`).
    pub const REHASH: Self = Self(1 << 12);

    /// True if no event is set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// True if every event of `other` is set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
    /// True if any event of `other` is set.
    pub const fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
    /// Both together.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    /// Adds the events of `other`.
    pub fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl core::fmt::Debug for Events {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let names = [
            (Self::CONNECTED, "CONNECTED"),
            (Self::PEER_FIN, "PEER_FIN"),
            (Self::RESET, "RESET"),
            (Self::REFUSED, "REFUSED"),
            (Self::TIMED_OUT, "TIMED_OUT"),
            (Self::ENTER_TIME_WAIT, "ENTER_TIME_WAIT"),
            (Self::CLOSED, "CLOSED"),
            (Self::DATA_AFTER_CLOSE, "DATA_AFTER_CLOSE"),
            (Self::UNREACHABLE, "UNREACHABLE"),
            (Self::SYN_ACKED, "SYN_ACKED"),
            (Self::URGENT, "URGENT"),
            (Self::SILENT, "SILENT"),
            (Self::REHASH, "REHASH"),
        ];
        f.debug_set()
            .entries(names.into_iter().filter(|(event, _)| self.has(*event)).map(|(_, name)| name))
            .finish()
    }
}

/// Result of a segment.
#[derive(Debug, Default)]
#[must_use]
pub struct Input<P: Payload> {
    /// Bytes to append to `so_rcv` now, in order; possibly none.
    pub deliver: P,
    /// Bytes to drop from the front of `so_snd`: the peer has them.
    pub acked: u32,
    /// Events.
    pub events: Events,
    /// A reset to send. Acknowledgments are not here; `poll_transmit` makes them.
    pub reply: Option<Header>,
}

/// Result of the timers. The caller must call `poll_transmit` afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct TimerOutcome {
    /// Events.
    pub events: Events,
    /// A reset to send: the connection has been given up.
    pub reply: Option<Header>,
}

/// A segment to send.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Transmit {
    /// Its header, as short as it can be.
    pub head: Head,
    /// Where its payload begins in `so_snd`, bytes from the front (SND.UNA).
    pub offset: u32,
    /// Its payload, bytes; more than the MSS only if `tso_max` allows.
    pub len: u32,
    /// It announces a larger window and nothing else: a pure window update.
    pub is_window_update: bool,
    /// It is larger than the MSS, to find out whether the path carries it: it must be sent as one packet.
    pub is_mtu_probe: bool,
}

impl Transmit {
    /// Its complete header.
    pub fn header(&self) -> Header {
        self.head.clone().into()
    }

    /// Sets PSH if `is_end` returns that its last byte has a mark ([`Pushes`](super::push::Pushes)). A SYN has none.
    #[inline]
    pub fn push_if(&mut self, is_end: bool) {
        if is_end && self.len > 0 && !self.head.flags().has(Flags::SYN) {
            self.head.add(Flags::PSH);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_told_apart_from_all_others() {
        const ALL: [(Events, &str); 13] = [
            (Events::CONNECTED, "CONNECTED"),
            (Events::PEER_FIN, "PEER_FIN"),
            (Events::RESET, "RESET"),
            (Events::REFUSED, "REFUSED"),
            (Events::TIMED_OUT, "TIMED_OUT"),
            (Events::ENTER_TIME_WAIT, "ENTER_TIME_WAIT"),
            (Events::CLOSED, "CLOSED"),
            (Events::DATA_AFTER_CLOSE, "DATA_AFTER_CLOSE"),
            (Events::UNREACHABLE, "UNREACHABLE"),
            (Events::SYN_ACKED, "SYN_ACKED"),
            (Events::URGENT, "URGENT"),
            (Events::SILENT, "SILENT"),
            (Events::REHASH, "REHASH"),
        ];
        for (event, name) in ALL {
            assert_eq!(format!("{event:?}"), format!("{{{name:?}}}"));
            assert!(!event.is_empty() && event.has(event));
        }
    }
}
