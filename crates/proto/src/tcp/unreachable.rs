//! The network's reports on a connection's packets: ICMP errors other than those of size (RFC 1122 section 4.2.3.9,
//! RFC 5461, RFC 5927).
//!
//! While the handshake is under way, a report ends the attempt: there is nothing to lose, and a caller that would wait
//! two minutes hears at once (as on Linux). So it ends a connection by Fast Open that nobody has accepted yet. Once connected, every report is *soft*, for it may be forged or pass over:
//! it is remembered, and given as the reason if the connection is given up later without any progress in between. It
//! does not depend on ICMP's numbers, or on errors of the application. Tests: below and `tests/path_mtu.rs`.

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
    /// No way to the host, or the packet's time was over (`EHOSTUNREACH`).
    Host,
    /// The host does not know TCP (`ENOPROTOOPT`).
    Protocol,
    /// No socket has the port (`ECONNREFUSED`); TCP says so by a reset, but a firewall may not.
    Port,
    /// It is forbidden by an administrator (`EHOSTUNREACH` on IPv4, `EACCES` on IPv6).
    Prohibited,
    /// A header's field is not understood (`EPROTO`).
    Malformed,
}

impl<P: Payload> Pcb<P> {
    /// A packet of ours that began with sequence number `seq` is reported not to have arrived. A report that quotes
    /// nothing in flight is not believed. `is_accepted`: the application has the connection. The events are empty, or [`Events::UNREACHABLE`] and [`Events::CLOSED`]: a
    /// handshake that is given up, for the reason that was reported.
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
                self.meter_mut(now).soft_error = Some((why, self.snd_una));
                Events::NONE
            }
            State::TimeWait | State::Closed => Events::NONE,
        }
    }

    /// Whether a segment that is not acknowledged begins with this number, or has it inside: a report of any other is not believed.
    pub fn has_in_flight(&self, seq: SeqNum) -> bool {
        let oldest = if self.syn_unacked { self.iss } else { self.snd_una };
        seq.at_or_after(oldest) && seq.before(self.snd_max)
    }

    fn end_unreachable(&mut self, why: Unreachable, now: Instant) -> Events {
        self.enter_closed();
        self.meter_mut(now).soft_error = Some((why, self.snd_una));
        Events::UNREACHABLE.with(Events::CLOSED)
    }

    /// The last report on the data that is out now; for the report that the connection has timed out
    /// ([`Events::TIMED_OUT`]) or could not be made ([`Events::UNREACHABLE`]).
    pub fn unreachable(&self) -> Option<Unreachable> {
        self.meter.as_deref()?.soft_error.filter(|(_, una)| *una == self.snd_una).map(|(why, _)| why)
    }
}
