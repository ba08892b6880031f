//! Scenarios: calls of an application and segments of its peer, each with its time, on one connection.
//!
//! A scenario is all that a run depends on, besides the tested side. `text.rs` reads and writes them. Tests: there.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::codec::Report;
use crate::segment::Segment;

/// A scenario.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scenario {
    /// What it is about: the comment at the head of its text.
    pub about: String,
    /// Its packets are IPv6's.
    pub is_ipv6: bool,
    /// Settings of the tested side that are not the usual ones: see [`crate::settings`].
    pub settings: BTreeMap<String, String>,
    /// In the order of their times.
    pub events: Vec<Event>,
}

/// Something that happens to the tested side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Milliseconds after the scenario's begin.
    pub at_ms: u32,
    /// What happens.
    pub action: Action,
}

/// What happens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// A listener is made, with this backlog.
    Listen(u32),
    /// The socket connects to the peer, without waiting.
    Connect,
    /// The same with Fast Open and the first bytes of the stream, of this number (MSG_FASTOPEN). Returns how many were taken, 0 where the connection
    /// is only begun.
    ConnectWith(u32),
    /// Another connection begins: a new socket is made, and numbers count from its SYN. The previous connection must be over.
    Again,
    /// The listener's first connection is taken; later calls are on it.
    Accept,
    /// Up to this many bytes are read.
    Read(u32),
    /// The same, and returns how many bytes are left (TCP_INQ).
    ReadInq(u32),
    /// Up to this many bytes are read without taking them (MSG_PEEK).
    Peek(u32),
    /// The next bytes of the stream, of this number, are written.
    Write(u32),
    /// The same with MSG_MORE.
    WriteMore(u32),
    /// The same with MSG_OOB.
    WriteUrgent(u32),
    /// The same with MSG_EOR.
    WriteRecord(u32),
    /// `shutdown`.
    Shutdown(How),
    /// The connection's socket is closed.
    Close,
    /// The listener is closed.
    CloseListener,
    /// A socket option, on the connection if there is one.
    Set(SockOpt, u32),
    /// A socket option of a connection is read (getsockopt(2)).
    Get(SockOpt),
    /// SO_ERROR.
    TakeError,
    /// A question is asked by ioctl(2).
    Ask(Question),
    /// The peer sends a segment.
    Segment(Segment),
    /// A router reports an error.
    Report(Report),
    /// Nothing happens, but the state is recorded.
    Wait,
}

/// Questions that have no option: of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// Whether the next byte to be read is the last of the peer's urgent data (SIOCATMARK).
    Mark,
    /// How many bytes wait to be read (SIOCINQ).
    Unread,
    /// How many bytes wait for an acknowledgment (SIOCOUTQ).
    Unacknowledged,
}

impl Question {
    /// Its word in the text.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, known)| *known == self).map_or("", |(word, _)| word)
    }

    /// All, with the words of the text.
    pub const ALL: [(&str, Self); 3] =
        [("mark", Self::Mark), ("unread", Self::Unread), ("unacknowledged", Self::Unacknowledged)];
}

/// Directions of `shutdown`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Of reading.
    Read,
    /// Of writing.
    Write,
    /// Both.
    Both,
}

/// Socket options that scenarios set. The number is 0 or 1 for switches, and otherwise the value of the kernel's option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SockOpt {
    /// TCP_NODELAY.
    Nodelay,
    /// SO_KEEPALIVE.
    Keepalive,
    /// TCP_KEEPIDLE, seconds.
    KeepIdle,
    /// TCP_KEEPINTVL, seconds.
    KeepInterval,
    /// TCP_KEEPCNT.
    KeepCount,
    /// SO_LINGER with so many seconds.
    Linger,
    /// TCP_USER_TIMEOUT, milliseconds.
    UserTimeout,
    /// TCP_QUICKACK.
    Quickack,
    /// TCP_NOTSENT_LOWAT.
    NotsentLowat,
    /// TCP_CORK.
    Cork,
    /// SO_RCVLOWAT, bytes.
    RcvLowat,
    /// SO_RCVBUF, bytes.
    RcvBuf,
    /// SO_SNDBUF, bytes.
    SndBuf,
    /// TCP_MAXSEG, bytes. Of a connection it can only be read.
    MaxSeg,
    /// TCP_WINDOW_CLAMP, bytes.
    WindowClamp,
    /// TCP_LINGER2, seconds; 4294967295 is -1.
    Linger2,
    /// TCP_RTO_MAX_MS, milliseconds.
    RtoMax,
    /// SO_MAX_PACING_RATE, bytes a second.
    MaxPacingRate,
    /// TCP_FASTOPEN: the length of a listener's queue. Set before it listens.
    FastOpen,
    /// TCP_FASTOPEN_CONNECT.
    FastOpenConnect,
    /// TCP_DEFER_ACCEPT, seconds. Set before the socket listens.
    DeferAccept,
    /// TCP_SYNCNT.
    SynCount,
    /// IP_TOS or IPV6_TCLASS.
    Tos,
    /// IP_TTL or IPV6_UNICAST_HOPS.
    Ttl,
}

impl SockOpt {
    /// Its word in the text.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, known)| *known == self).map_or("", |(word, _)| word)
    }

    /// All, with the words of the text.
    pub const ALL: [(&str, Self); 24] = [
        ("nodelay", Self::Nodelay),
        ("keepalive", Self::Keepalive),
        ("keepidle", Self::KeepIdle),
        ("keepintvl", Self::KeepInterval),
        ("keepcnt", Self::KeepCount),
        ("linger", Self::Linger),
        ("user_timeout", Self::UserTimeout),
        ("quickack", Self::Quickack),
        ("notsent_lowat", Self::NotsentLowat),
        ("cork", Self::Cork),
        ("rcvlowat", Self::RcvLowat),
        ("rcvbuf", Self::RcvBuf),
        ("sndbuf", Self::SndBuf),
        ("maxseg", Self::MaxSeg),
        ("window_clamp", Self::WindowClamp),
        ("linger2", Self::Linger2),
        ("rto_max", Self::RtoMax),
        ("max_pacing_rate", Self::MaxPacingRate),
        ("fastopen", Self::FastOpen),
        ("fastopen_connect", Self::FastOpenConnect),
        ("defer_accept", Self::DeferAccept),
        ("syncnt", Self::SynCount),
        ("tos", Self::Tos),
        ("ttl", Self::Ttl),
    ];
}

impl Scenario {
    /// The time at which it is over: some time after the last event, so that an answer to it is seen. The state is recorded a last time then.
    pub fn end(&self) -> Duration {
        let Some(last) = self.events.last() else { return AFTERMATH };
        last.at() + if last.action == Action::Wait { Duration::ZERO } else { AFTERMATH }
    }

    /// Whether `is` holds for the action of any event.
    pub fn any(&self, is: impl Fn(&Action) -> bool) -> bool {
        self.events.iter().any(|event| is(&event.action))
    }

    /// Whether the tested side answers each SYN with a cookie.
    pub fn has_cookies(&self) -> bool {
        self.settings.get("syn_cookies").is_some_and(|value| value == "always")
    }
}

impl Action {
    /// How many bytes are written, if this is a write.
    pub fn written(&self) -> Option<u32> {
        match self {
            Self::Write(len) | Self::WriteMore(len) | Self::WriteUrgent(len) | Self::WriteRecord(len) => {
                Some(*len)
            }
            _ => None,
        }
    }
}

impl Event {
    /// When it happens, from the scenario's begin on.
    pub fn at(&self) -> Duration {
        Duration::from_millis(u64::from(self.at_ms))
    }
}

/// How long a run continues after its last event. Longer than a delayed acknowledgment takes, shorter than a retransmission.
const AFTERMATH: Duration = Duration::from_millis(100);
