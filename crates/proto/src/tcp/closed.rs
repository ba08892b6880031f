//! The answer to a segment without a pcb: the CLOSED state (RFC 9293 section 3.10.7.1), and the first steps of LISTEN
//! (section 3.10.7.2), which leave only SYNs for the syncache.
//!
//! Pure functions of the header. They do not depend on addresses, listeners or rate limits; a stack that limits its
//! resets does that outside. Invariant: a reset is never answered; otherwise two hosts could answer each other for
//! ever. Tests stand at the end.

use crate::seq::SeqNum;
use crate::tcp::segment::{Flags, Header};

/// The reset for a segment to a connection that does not exist; `None` if the segment is a reset.
///
/// Its sequence number is one that the sender of the segment must believe (RFC 9293 section 3.5.2,
/// group 1).
pub fn reset_for(hdr: &Header, payload_len: usize) -> Option<Header> {
    if hdr.flags.has(Flags::RST) {
        None
    } else if hdr.flags.has(Flags::ACK) {
        Some(reset_at(hdr.ack))
    } else {
        let ack = hdr.seq + hdr.seq_len(payload_len);
        Some(Header { ack, flags: Flags::RST.with(Flags::ACK), ..Header::default() })
    }
}

/// `<SEQ=seq><CTL=RST>`, the answer to a segment whose acknowledgment cannot be right.
pub(super) fn reset_at(seq: SeqNum) -> Header {
    Header { seq, flags: Flags::RST, ..Header::default() }
}

/// A listener's decision on a segment that belongs to no connection and no syncache entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListenAction {
    /// Drop it.
    Ignore,
    /// Send this reset.
    Reset(Header),
    /// Hand it to the syncache: it is a SYN.
    Syn,
}

/// The steps of RFC 9293 section 3.10.7.2, in its order: RST, then ACK, then SYN, then the rest.
///
/// A SYN that also has FIN is dropped: only scanners send it on a new connection, and the RFC allows the rest of such a
/// segment to be processed later or retransmitted.
pub fn listen(hdr: &Header) -> ListenAction {
    if hdr.flags.has(Flags::RST) {
        ListenAction::Ignore
    } else if hdr.flags.has(Flags::ACK) {
        ListenAction::Reset(reset_at(hdr.ack))
    } else if hdr.flags.has(Flags::SYN) && !hdr.flags.has(Flags::FIN) {
        ListenAction::Syn
    } else {
        ListenAction::Ignore
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(flags: Flags) -> Header {
        Header { seq: SeqNum::new(u32::MAX), ack: SeqNum::new(77), flags, ..Header::default() }
    }

    #[test]
    fn a_reset_is_never_answered() {
        for other in 0..=u8::MAX {
            let hdr = segment(Flags::RST.with(Flags::from_bits(other)));
            assert_eq!(reset_for(&hdr, 9), None);
            assert_eq!(listen(&hdr), ListenAction::Ignore);
        }
    }

    #[test]
    fn a_segment_with_ack_is_reset_where_its_ack_points() {
        let rst = Header { seq: SeqNum::new(77), flags: Flags::RST, ..Header::default() };
        for other in [Flags::NONE, Flags::SYN, Flags::FIN, Flags::PSH] {
            let hdr = segment(Flags::ACK.with(other));
            assert_eq!(reset_for(&hdr, 9), Some(rst));
            assert_eq!(listen(&hdr), ListenAction::Reset(rst));
        }
    }

    #[test]
    fn a_segment_without_ack_is_reset_with_its_end_acknowledged() {
        let flags = Flags::RST.with(Flags::ACK);
        let rst = |ack| Header { ack: SeqNum::new(ack), flags, ..Header::default() };
        // The segment begins one below zero, so that its end is after the wrap.
        assert_eq!(reset_for(&segment(Flags::SYN), 0), Some(rst(0)));
        assert_eq!(reset_for(&segment(Flags::SYN.with(Flags::FIN)), 5), Some(rst(6)));
        assert_eq!(reset_for(&segment(Flags::NONE), 5), Some(rst(4)));
    }

    #[test]
    fn only_a_plain_syn_reaches_the_syncache() {
        assert_eq!(listen(&segment(Flags::SYN)), ListenAction::Syn);
        // With ECN's offer (RFC 3168) and early data, it is still a SYN.
        let ecn = Flags::SYN.with(Flags::ECE).with(Flags::CWR).with(Flags::PSH);
        assert_eq!(listen(&segment(ecn)), ListenAction::Syn);
        for flags in [Flags::NONE, Flags::FIN, Flags::PSH, Flags::SYN.with(Flags::FIN)] {
            assert_eq!(listen(&segment(flags)), ListenAction::Ignore);
        }
    }
}
