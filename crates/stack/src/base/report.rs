//! Reports on what was sent, and which of them a socket asks for: the types, which TCP and UDP share.
//!
//! It does not depend on sockets. Who makes reports: `tcp/conn/reports.rs`, `udp/stamps.rs`.

use std::time::Duration;

/// Which timestamps a socket takes (SO_TIMESTAMPING, in software), as a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Timestamping(u8);

impl Timestamping {
    /// None.
    pub const NONE: Self = Self(0);
    /// `SOF_TIMESTAMPING_TX_SCHED`: when the last byte of a send was passed on for sending. The stack has no packet
    /// queue, so this is the time of [`SENT`](Self::SENT).
    pub const SCHEDULED: Self = Self(1);
    /// `SOF_TIMESTAMPING_TX_SOFTWARE`: when the segment with the last byte of a send was made, for the first time.
    pub const SENT: Self = Self(1 << 1);
    /// `SOF_TIMESTAMPING_TX_ACK`: when the peer had acknowledged all bytes of a send.
    pub const ACKED: Self = Self(1 << 2);
    /// `SOF_TIMESTAMPING_RX_SOFTWARE`: when received bytes arrived.
    pub const RECEIVED: Self = Self(1 << 3);
    /// `SOF_TIMESTAMPING_OPT_ID`: reports have a key, which is the number of the send's last byte. The first byte that was not
    /// acknowledged when this was set has number 0.
    pub const NUMBERED: Self = Self(1 << 4);

    /// The flags of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if all of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if one of `other` is set.
    pub(crate) const fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Those of sends.
    pub(crate) const OF_SENDS: Self = Self(Self::SCHEDULED.0 | Self::SENT.0 | Self::ACKED.0);
}

/// What has happened to bytes that were sent: [`TcpStream::recv_report`](crate::TcpStream::recv_report).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Report {
    /// The stack no longer needs the bytes of the zero-copy sends `first` to `last` (`SO_EE_ORIGIN_ZEROCOPY`). Such
    /// sends are counted from 0 on, modulo 2^32.
    ZeroCopy {
        /// The first of these sends.
        first: u32,
        /// The last of them.
        last: u32,
        /// The bytes were copied after all (`SO_EE_CODE_ZEROCOPY_COPIED`): they came in slices.
        copied: bool,
    },
    /// A time stamp of a send's last byte (`SCM_TIMESTAMPING`).
    Timestamp {
        /// What happened: one of [`Timestamping::SCHEDULED`], [`Timestamping::SENT`], [`Timestamping::ACKED`].
        what: Timestamping,
        /// The number of that byte with [`Timestamping::NUMBERED`], else 0.
        key: u32,
        /// When: the time since the stack was made, as in [`Stack::now`](crate::Stack::now).
        at: Duration,
    },
}
