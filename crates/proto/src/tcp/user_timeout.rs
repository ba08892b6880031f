//! The user timeout: how long something may stay unacknowledged before the connection is given up.
//!
//! It is R2 of RFC 9293 section 3.8.3 as a time and per connection, with the semantics of Linux's `TCP_USER_TIMEOUT`:
//! it counts from the first retransmission in the repair of the oldest unacknowledged byte, from the first window
//! probe, or from the first SYN. A tail loss probe does not count as a retransmission. Progress within the repair does
//! not prolong the timeout, because the rest was in flight equally long. While it is set, the number of retransmissions
//! has no effect. Answered probes do not prolong it, including those with text in flight over which the peer has closed
//! its window. For a connection that is only kept alive, it replaces the number of probes.
//!
//! `Settings::user_timeout_option` enables announcements (RFC 5482): if the application has set a timeout, the
//! connection announces it; otherwise it uses the peer's, within [`LIMIT_MIN`] and [`LIMIT_MAX`].
//!
//! Does not depend on sockets. Invariant: `stall_una` and `stalled_at` belong together; a stall ends when SND.UNA has
//! moved, or text is sent into a window that was probed. Tests: `tests/user_timeout.rs`.

use core::num::NonZeroU16;
use core::time::Duration;

use crate::seq::SeqNum;
use crate::time::Instant;

use super::loss::BLACK_HOLE_TIMEOUTS;
use super::pcb::Pcb;
use super::rtt::BACKOFF_MAX;
use super::segment::{Flags, Header, Payload};
use super::settings::{Settings, millis};
use super::timers::{NEVER, after_us, since_us};
use super::timestamp;
use super::wire;

/// Lower limit of a peer's timeout (L_LIMIT of RFC 5482 section 3.1; RFC 9293 requires at least 100 s).
pub const LIMIT_MIN: Duration = Duration::from_secs(100);
/// Upper limit of a peer's timeout (U_LIMIT).
pub const LIMIT_MAX: Duration = Duration::from_secs(3600);

/// The value of the user timeout option as in the option: the granularity bit and 15 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UserTimeout(NonZeroU16);

impl UserTimeout {
    const MINUTES: u16 = 0x8000;

    /// From the option's two octets; `None` for a time of zero, which is reserved (RFC 5482 section 3.2).
    pub const fn from_bits(bits: u16) -> Option<Self> {
        match NonZeroU16::new(bits) {
            Some(bits) if bits.get() & !Self::MINUTES != 0 => Some(Self(bits)),
            Some(_) | None => None,
        }
    }

    /// The option's two octets.
    pub const fn bits(self) -> u16 {
        self.0.get()
    }

    /// The nearest value that the option can express, rounded up to seconds, or above nine hours to minutes.
    pub fn new(timeout: Duration) -> Self {
        let seconds = timeout.as_millis().div_ceil(1000);
        let bits = match u16::try_from(seconds) {
            Ok(seconds) if seconds < Self::MINUTES => seconds,
            Ok(_) | Err(_) => {
                let minutes = u16::try_from(seconds.div_ceil(60)).unwrap_or(u16::MAX);
                minutes.min(Self::MINUTES - 1) | Self::MINUTES
            }
        };
        Self(NonZeroU16::new(bits).unwrap_or(NonZeroU16::MIN))
    }

    /// The time.
    pub fn timeout(self) -> Duration {
        let value = u64::from(self.bits() & !Self::MINUTES);
        Duration::from_secs(if self.bits() & Self::MINUTES == 0 { value } else { value * 60 })
    }
}

/// The state in a pcb; there is none as long as neither application nor peer has asked for a timeout.
#[derive(Clone, Copy, Debug)]
pub(super) struct UserTimeoutState {
    /// The timeout in force, milliseconds; 0 for none.
    ms: u32,
    /// When the stall at `stall_una` began; [`NEVER`] before the first.
    stalled_at: Instant,
    stall_una: SeqNum,
    /// RFC 5482's ENABLED.
    is_enabled: bool,
    /// RFC 5482's CHANGEABLE: the application has set none, so the peer's value counts.
    is_changeable: bool,
    /// The next segment announces it to the peer.
    is_owed: bool,
}

impl UserTimeoutState {
    pub fn new(s: &Settings) -> Option<Self> {
        let is_set = !s.user_timeout.is_zero();
        let state = Self {
            ms: millis(s.user_timeout),
            stalled_at: NEVER,
            stall_una: SeqNum::default(),
            is_enabled: s.user_timeout_option,
            is_changeable: !is_set,
            is_owed: s.user_timeout_option && is_set,
        };
        (is_set || s.user_timeout_option).then_some(state)
    }

    fn micros(&self) -> u64 {
        u64::from(self.ms) * 1000
    }
}

impl<P: Payload> Pcb<P> {
    /// `TCP_USER_TIMEOUT`: zero for none. From then on, the peer's value no longer counts. For data that is being
    /// retransmitted, the time counts from the first retransmission.
    pub fn set_user_timeout(&mut self, timeout: Duration) {
        let ms = millis(timeout);
        if let Some(state) = self.rare.user_timeout_mut() {
            let is_same = if state.is_changeable { ms == 0 } else { ms == state.ms };
            if !is_same {
                state.ms = ms;
                state.is_changeable = ms == 0;
                state.is_owed = state.is_enabled && ms != 0;
            }
        } else if ms != 0 {
            self.rare.set_user_timeout(Some(UserTimeoutState {
                ms,
                stalled_at: self.repeated_at().unwrap_or(NEVER),
                stall_una: self.snd_una,
                is_enabled: false,
                is_changeable: false,
                is_owed: false,
            }));
        }
    }

    /// When the present repair began to retransmit, to a millisecond.
    fn repeated_at(&self) -> Option<Instant> {
        let since = self.loss.as_deref()?.repeated_ts()?;
        let ms = timestamp::value(self.clock, self.ts_offset).wrapping_sub(since);
        Some(Instant::from_micros(self.clock.as_micros().saturating_sub(u64::from(ms) * 1000)))
    }

    /// The user timeout in force; `None` if the number of retransmissions decides.
    pub fn user_timeout(&self) -> Option<Duration> {
        let ms = self.rare.user_timeout()?.ms;
        (ms != 0).then(|| Duration::from_millis(u64::from(ms)))
    }

    /// The retransmission or persist timer has expired; it may do so `most` times. Notes the beginning of a stall.
    pub(super) fn is_to_be_given_up(&mut self, most: u8, handshake: bool, now: Instant) -> bool {
        // For a SYN, the time counts from its transmission. In a connection, it counts from the repair's first
        // retransmission, which follows now if there was none (`retrans_stamp`), and for a closed window from the first
        // probe (`icsk_probes_tstamp`).
        let began = self.timer_began_at();
        let repeated = self.repeated_at().filter(|_| !self.persist);
        let since = if handshake { began } else { repeated.unwrap_or(now) };
        let (una, is_probing) = (self.snd_una, self.persist);
        // The peer has also not answered keepalive (`icsk_probes_out`).
        let count = self.rexmt_count.saturating_add(if is_probing { self.keepalive_probes() } else { 0 });
        let (is_shut, is_asked) = (self.is_shut_over_text(), self.is_asked());
        let left_at = self.unanswered_since();
        let is_spent = match repeated {
            // Not the number of timeouts: a router's reports may have made them shorter (RFC 6069 section 5.1).
            Some(at) if !handshake && !is_shut => count > 0 && since_us(now, at) >= self.patience_us(most),
            Some(_) | None => count >= most,
        };
        let Some(state) = self.rare.user_timeout_mut() else { return is_spent };
        if state.stalled_at == NEVER || state.stall_una != una {
            (state.stalled_at, state.stall_una) = (since, una);
        }
        if state.ms == 0 {
            return is_spent;
        }
        let from = if is_shut && repeated.is_none() { left_at } else { state.stalled_at };
        let is_over = is_asked && since_us(now, from) >= state.micros();
        is_over || ((handshake || is_probing) && count >= most)
    }

    /// When the retransmission or persist timer was started.
    fn timer_began_at(&self) -> Instant {
        Instant::from_micros(self.rexmt_at.as_micros().saturating_sub(self.rexmt_wait_us()))
    }

    /// Since when the oldest data in flight waits for its acknowledgment: since the present repair began to retransmit,
    /// or since it was sent if there is none (`tcp_rtx_probe0_timed_out`).
    pub(super) fn unanswered_since(&self) -> Instant {
        let first = self.loss.as_deref().and_then(|loss| loss.records.first());
        self.repeated_at().unwrap_or_else(|| first.map_or(self.timer_began_at(), |first| first.sent_at))
    }

    /// How long this many timeouts take, from the shortest on and doubled up to the longest, microseconds
    /// (`tcp_model_timeout`).
    fn patience_us(&self, timeouts: u8) -> u64 {
        let (first, longest) = (FIRST_WAIT_US, u64::from(self.tuning.rto_max_us));
        (0..=timeouts).map(|count| first.saturating_mul(1 << count.min(BACKOFF_MAX)).min(longest)).sum()
    }

    /// Whether a repair has lasted so long that the path is in doubt (`tcp_retries1`).
    pub(super) fn is_repeated_for_long(&self, now: Instant) -> bool {
        let since = self.repeated_at();
        since.is_some_and(|since| since_us(now, since) >= self.patience_us(BLACK_HOLE_TIMEOUTS))
    }

    /// Whether the user timeout may end the connection: the waiting data was retransmitted at least once, regardless of
    /// how long earlier data was, unless the peer has closed its window over it; or it is a SYN, or a window is being
    /// probed.
    fn is_asked(&self) -> bool {
        self.rexmt_count > 0 || self.persist || self.is_in_handshake() || self.is_shut_over_text()
    }

    /// For how long the retransmission timer is armed, microseconds: for a SYN, not beyond the user timeout.
    pub(super) fn rexmt_wait_us(&self) -> u64 {
        let (least, most) = (self.tuning.rto_min_us, self.tuning.rto_max_us);
        let rto = if self.persist { self.rtt.next_probe_us(least, most) } else { self.rtt.rto_us(most) };
        match self.rare.user_timeout() {
            Some(state) if state.ms != 0 && self.is_in_handshake() => rto.min(state.micros()),
            Some(_) | None => rto,
        }
    }

    /// Something is retransmitted, not as a probe: if it is the oldest byte, a stall begins.
    #[cold]
    pub(super) fn note_stall(&mut self, start: SeqNum, now: Instant) {
        let since = self.repeated_at().unwrap_or(now);
        if let Some(state) = self.rare.user_timeout_mut()
            && start == self.snd_una
            && (state.stalled_at == NEVER || state.stall_una != start)
        {
            (state.stalled_at, state.stall_una) = (since, start);
        }
    }

    /// The probed window has opened: for data sent now, the time restarts.
    pub(super) fn end_stall(&mut self) {
        if let Some(state) = self.rare.user_timeout_mut() {
            state.stalled_at = NEVER;
        }
    }

    /// The latest time at which a timer due at `at` may expire.
    pub(super) fn no_later_than_user_timeout(&self, at: Instant) -> Instant {
        match self.rare.user_timeout().filter(|_| self.is_asked()) {
            Some(state) if state.ms != 0 && state.stalled_at != NEVER && state.stall_una == self.snd_una => {
                at.min(after_us(state.stalled_at, state.micros()))
            }
            Some(_) | None => at,
        }
    }

    /// Whether a peer that answers no keepalive probe is given up after `silence`; `None` if their number decides.
    pub(super) fn keepalive_verdict(&self, silence: Duration, probe_count: u8) -> Option<bool> {
        self.user_timeout().map(|timeout| probe_count > 0 && silence >= timeout)
    }

    /// Announces the timeout, if that is due, on a segment that is sent anyway and has room beside `text_len` bytes.
    pub(super) fn attach_user_timeout(&mut self, header: &mut Header, text_len: u32) {
        let has_room = wire::header_len(header) + wire::USER_TIMEOUT_LEN <= wire::HEADER_LEN_EMITTED_MAX
            && text_len <= u32::from(self.mss).saturating_sub(4);
        let timeout = self.user_timeout();
        if let Some(state) = self.rare.user_timeout_mut()
            && state.is_owed
            && has_room
        {
            // A SYN may be lost: the next segment announces it again.
            state.is_owed = header.flags.has(Flags::SYN);
            header.options.user_timeout = timeout.map(UserTimeout::new);
        }
    }

    /// Processes the peer's timeout (RFC 5482 section 3.1).
    pub(super) fn take_user_timeout(&mut self, header: &Header) {
        if let Some(theirs) = header.options.user_timeout
            && let Some(state) = self.rare.user_timeout_mut()
            && state.is_enabled
            && state.is_changeable
        {
            state.ms = millis(theirs.timeout().clamp(LIMIT_MIN, LIMIT_MAX));
        }
    }
}

/// The first of the timeouts for which a number of retries stands, regardless of the path's round trip (`TCP_RTO_MIN`).
const FIRST_WAIT_US: u64 = 200_000;
