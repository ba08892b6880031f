//! Kinds of readiness, as bits.
//!
//! Does not depend on the caller. Tests: with polls, `tests/suite/poll.rs`.

/// A set of readiness bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ready(pub(super) u8);

impl Ready {
    pub const NONE: Self = Self(0);
    pub const READABLE: Self = Self(1);
    pub const WRITABLE: Self = Self(2);
    pub const READ_CLOSED: Self = Self(4);
    pub const WRITE_CLOSED: Self = Self(8);
    pub const ERROR: Self = Self(16);
    pub const HUNG_UP: Self = Self(32);
    pub const PRIORITY: Self = Self(64);

    /// The bits, as [`WaitList`](sockeye_sync::WaitList) has them.
    pub const fn bits(self) -> u8 {
        self.0
    }
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    /// What is reported, beside itself, to those who have asked for this: errors and hang-ups to everybody (EPOLLERR, EPOLLHUP), and the end
    /// of a direction to those who wait for it, as `mio` asks for EPOLLRDHUP. Others would be told of an end again and again.
    pub(super) fn told_unasked(self) -> Self {
        Self::ERROR
            .with(Self::HUNG_UP)
            .with(Self::READ_CLOSED.when(self.any(Self::READABLE.with(Self::PRIORITY))))
            .with(Self::WRITE_CLOSED.when(self.any(Self::WRITABLE)))
    }
    pub const fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
    pub fn when(self, condition: bool) -> Self {
        if condition { self } else { Self::NONE }
    }
}
