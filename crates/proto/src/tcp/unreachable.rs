//! The network's reports on a connection's packets: ICMP errors other than those of size (RFC 1122 section 4.2.3.9,
//! RFC 5461, RFC 5927).
//!
//! During the handshake, a report ends the attempt: there is nothing to lose, and a caller that would wait two minutes
//! learns of it at once (as on Linux). A report also ends a Fast Open connection that nobody has accepted yet. Once
//! connected, every report is *soft*, because it may be forged or temporary: it is stored, and becomes the reason if
//! the connection is given up before the peer is heard again. If a router has no route for a retransmission, congestion
//! is not the reason for the loss: the back-off of one timeout is undone (RFC 6069). It does not depend on ICMP's
//! numbers, or on errors of the application. Tests: `tests/path_mtu.rs`.

use crate::seq::SeqNum;
use crate::time::Instant;

use super::events::Events;
use super::pcb::Pcb;
use super::segment::Payload;
use super::state::State;

/// Why a packet did not arrive, as a router or the peer's host reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreachable {
    /// No route to the network (`ENETUNREACH`).
    Network,
    /// No path to the host, the packet's time was exceeded, or an IPv4 router does not forward it (`EHOSTUNREACH`).
    Host,
    /// The host does not know TCP (`ENOPROTOOPT`).
    Protocol,
    /// No socket has the port (`ECONNREFUSED`). TCP reports that with a reset, but a firewall may send this.
    Port,
    /// An administrator forbids it, as IPv6 reports (`EACCES`).
    Prohibited,
    /// A header's field is not understood (`EPROTO`).
    Malformed,
}

impl<P: Payload> Pcb<P> {
    /// The network reports that a packet of ours that began with sequence number `seq` did not arrive. A report that
    /// quotes nothing in flight is ignored. `is_accepted`: the application has the connection. The events are empty, or
    /// [`Events::UNREACHABLE`] and [`Events::CLOSED`]: then the handshake is given up for the reported reason.
    pub fn on_unreachable(
        &mut self,
        seq: SeqNum,
        why: Unreachable,
        is_accepted: bool,
        now: Instant,
    ) -> Events {
        let now = self.clock(now);
        if !self.has_in_flight(seq) {
            return Events::NONE;
        }
        match self.state {
            State::SynSent | State::SynReceived => self.end_unreachable(why, now),
            State::Established if self.syn_unacked && !is_accepted => self.end_unreachable(why, now),
            State::Established
            | State::CloseWait
            | State::FinWait1
            | State::FinWait2
            | State::Closing
            | State::LastAck => {
                self.note_soft_error(why, now);
                Events::NONE
            }
            State::TimeWait | State::Closed => Events::NONE,
        }
    }

    /// A router has no route for a segment that began with this number. If that is the first segment and it was
    /// retransmitted, the back-off of one timeout is undone (RFC 6069 section 4.2), and the segment may be due at once:
    /// the events are those of [`on_timer`](Self::on_timer). The caller must also call
    /// [`on_unreachable`](Self::on_unreachable), and `poll_transmit` afterwards.
    pub fn on_no_route(&mut self, seq: SeqNum, now: Instant) -> Events {
        let now = self.clock(now);
        let is_repeated = seq == self.snd_una && self.rexmt_count > 0 && !self.persist;
        if is_repeated && self.is_open() && !self.is_in_handshake() && self.rtt.revert_back_off() {
            self.rearm_for_first(now);
            if self.rexmt_at <= now {
                return self.on_timer(now).events;
            }
        }
        Events::NONE
    }

    /// Whether an unacknowledged segment contains this number: a report about any other is ignored.
    pub fn has_in_flight(&self, seq: SeqNum) -> bool {
        let oldest = if self.syn_unacked { self.iss } else { self.snd_una };
        seq.at_or_after(oldest) && seq.before(self.snd_max)
    }

    fn end_unreachable(&mut self, why: Unreachable, now: Instant) -> Events {
        self.enter_closed();
        self.note_soft_error(why, now);
        Events::UNREACHABLE.with(Events::CLOSED)
    }

    fn note_soft_error(&mut self, why: Unreachable, now: Instant) {
        let una = self.snd_una;
        self.meter_mut(now).soft_error = Some((why, una));
    }

    /// The peer was heard, so something has arrived.
    pub(super) fn forget_report(&mut self) {
        if let Some(meter) = self.meter.as_deref_mut() {
            meter.soft_error = None;
        }
    }

    /// The last report since the peer was heard; it explains why the connection has timed out ([`Events::TIMED_OUT`])
    /// or could not be made ([`Events::UNREACHABLE`]).
    pub fn unreachable(&self) -> Option<Unreachable> {
        // The predicted path does not clear the report.
        self.meter.as_deref()?.soft_error.filter(|(_, una)| *una == self.snd_una).map(|(why, _)| why)
    }

    /// Takes and clears that report. SO_ERROR returns it if there is no pending error, also when the connection has ended
    /// for another reason, as on Linux (`sk_err_soft`).
    pub fn take_unreachable(&mut self) -> Option<Unreachable> {
        let why = self.unreachable()?;
        self.meter.as_deref_mut()?.soft_error = None;
        Some(why)
    }
}
