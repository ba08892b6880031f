//! The values at the two ends of a pcb's life: a connection made by the syncache begins with [`Accepted`]; one that has
//! reached TIME-WAIT ends with [`TimeWaitParams`].
//!
//! Plain values. They do not depend on the syncache's entries, the TIME-WAIT table or the pcb's fields beyond those
//! that the other side needs to go on. Windows are in bytes, already scaled. Tests are with the types that make and use
//! them.

use core::time::Duration;

use crate::seq::SeqNum;
use crate::time::Instant;

use super::accecn::SynEcn;

/// Timestamps of a connection on which both sides agreed to send them (RFC 7323 section 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimestampState {
    /// TS.Recent: the peer's newest timestamp that we may echo.
    pub ts_recent: u32,
    /// When `ts_recent` was taken; after 24 days it no longer means anything (RFC 7323 section 5.5).
    pub ts_recent_at: Instant,
    /// This connection's offset, added to our clock in every TSval (RFC 7323 section 7.1); see
    /// [`timestamp::value`](super::timestamp::value).
    pub ts_offset: u32,
}

/// A handshake that the syncache has handled up to its third segment.
///
/// The new pcb then gets that segment itself (its window, payload or FIN).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// ISS: the sequence number of our SYN-ACK.
    pub iss: SeqNum,
    /// IRS: the sequence number of the peer's SYN.
    pub irs: SeqNum,
    /// The MSS that the peer announced, bytes; [`DEFAULT_MSS`] or [`DEFAULT_MSS_V6`] if it announced
    /// none (RFC 9293 section 3.7.1).
    pub peer_mss: u16,
    /// SND.WND: the window of the peer's SYN, bytes (never scaled, RFC 7323 section 2.2).
    pub snd_wnd: u32,
    /// RCV.WND: the window that our SYN-ACK announced, bytes.
    pub rcv_wnd: u32,
    /// Both shift counts if both sides sent the window scale option, else `None` (no scaling).
    pub window_scale: Option<WindowScale>,
    /// Timestamps if both sides sent the option.
    pub timestamps: Option<TimestampState>,
    /// True if both sides permitted SACK.
    pub sack_permitted: bool,
    /// True if both sides agreed to ECN (RFC 3168).
    pub ecn: bool,
    /// Set if both sides agreed to accurate ECN (RFC 9768): how the peer's SYN arrived. `ecn` is then false.
    pub accurate_ecn: Option<SynEcn>,
    /// Time from the SYN-ACK to the segment that acknowledged it; `None` if it is unknown, or if the listener has waited
    /// for text after the acknowledgment.
    pub rtt: Option<Duration>,
    /// How many SYN-ACKs were sent.
    pub syn_acks: SynAcks,
    /// How often the SYN-ACK's sender has requested another path, for the flow label.
    pub rehashes: u8,
}

/// What is known about the number of SYN-ACKs sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SynAcks {
    /// One.
    One,
    /// Two, or several that answered SYNs which came again: only the echo of a timestamp shows the round trip (Karn's rule,
    /// RFC 6298 section 3).
    Several,
    /// Three or more, at least one of them because a timer expired. A single repetition may have been needless, but not
    /// so many (RFC 6928 section 2).
    Many,
    /// Unknown, because it was a cookie.
    Unknown,
}

/// The two shift counts of RFC 7323 section 2.3, each at most 14.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowScale {
    /// Snd.Wind.Shift: applied to windows that the peer sends.
    pub snd: u8,
    /// Rcv.Wind.Shift: applied to windows that we send.
    pub rcv: u8,
}

/// Everything that TIME-WAIT needs to know about a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeWaitParams {
    /// SND.NXT, past our FIN.
    pub snd_nxt: SeqNum,
    /// RCV.NXT, past the peer's FIN.
    pub rcv_nxt: SeqNum,
    /// The window field, as in the header, for later acknowledgments.
    pub window_field: u16,
    /// Timestamps if the connection used them.
    pub timestamps: Option<TimestampState>,
    /// When the 2MSL timer ends.
    pub expires_at: Instant,
    /// 2MSL, for restarting the timer.
    pub two_msl: Duration,
}

/// The MSS to assume towards an IPv4 peer that announced none, bytes (RFC 9293 MUST-15).
pub const DEFAULT_MSS: u16 = 536;
/// The same towards an IPv6 peer.
pub const DEFAULT_MSS_V6: u16 = 1220;
