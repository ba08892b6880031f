//! The states of a connection (RFC 9293 section 3.3.2) and what each of them allows.
//!
//! LISTEN is missing on purpose: a listener is not a pcb, and its half-open connections are in the syncache. It does
//! not depend on the pcb. `tests/transitions.rs` checks the table of transitions.

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Active open: our SYN waits for its answer.
    SynSent,
    /// Simultaneous open: both SYNs have crossed, our SYN-ACK waits for its acknowledgment.
    SynReceived,
    /// Both directions open.
    Established,
    /// The peer has closed its direction, the application has not closed ours.
    CloseWait,
    /// The application has closed our direction, the FIN is not acknowledged yet.
    FinWait1,
    /// Our FIN is acknowledged, the peer's has not arrived.
    FinWait2,
    /// Both FINs have crossed, ours is not acknowledged yet.
    Closing,
    /// The peer closed first; our FIN waits for its acknowledgment.
    LastAck,
    /// Both directions closed; old segments die out.
    TimeWait,
    /// No connection. The pcb may be freed.
    Closed,
}

impl State {
    /// Every state, for tables and tests.
    pub const ALL: [Self; 10] = [
        Self::SynSent,
        Self::SynReceived,
        Self::Established,
        Self::CloseWait,
        Self::FinWait1,
        Self::FinWait2,
        Self::Closing,
        Self::LastAck,
        Self::TimeWait,
        Self::Closed,
    ];

    /// The name in RFC 9293 section 3.3.2.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SynSent => "SYN-SENT",
            Self::SynReceived => "SYN-RECEIVED",
            Self::Established => "ESTABLISHED",
            Self::CloseWait => "CLOSE-WAIT",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::Closing => "CLOSING",
            Self::LastAck => "LAST-ACK",
            Self::TimeWait => "TIME-WAIT",
            Self::Closed => "CLOSED",
        }
    }

    /// True while the application may append to `so_snd`.
    #[inline]
    pub const fn can_send(self) -> bool {
        match self {
            Self::Established | Self::CloseWait => true,
            Self::SynSent
            | Self::SynReceived
            | Self::FinWait1
            | Self::FinWait2
            | Self::Closing
            | Self::LastAck
            | Self::TimeWait
            | Self::Closed => false,
        }
    }

    /// True while data or our FIN may still have to be sent, for the first time or again.
    #[inline]
    pub const fn transmits(self) -> bool {
        match self {
            Self::Established | Self::CloseWait | Self::FinWait1 | Self::Closing | Self::LastAck => true,
            Self::SynSent | Self::SynReceived | Self::FinWait2 | Self::TimeWait | Self::Closed => false,
        }
    }

    /// True while text from the peer is accepted: its FIN has not arrived.
    #[inline]
    pub const fn receives(self) -> bool {
        match self {
            Self::Established | Self::FinWait1 | Self::FinWait2 => true,
            Self::SynSent
            | Self::SynReceived
            | Self::CloseWait
            | Self::Closing
            | Self::LastAck
            | Self::TimeWait
            | Self::Closed => false,
        }
    }
}
