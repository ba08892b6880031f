//! TCP Fast Open (RFC 7413): text on a SYN, and the cookie that makes it safe.
//!
//! A *client's* first SYN asks for a cookie, or carries one together with text. If that SYN is lost, the next one is
//! plain (section 4.1.3), because something on the path may drop it. Text that the SYN-ACK does not acknowledge is sent
//! again at once, as if for the first time.
//!
//! A *server's* pcb is made at the SYN, with the text in it, and may send before its SYN is acknowledged. It is in
//! ESTABLISHED in every respect except `syn_unacked`: until an acknowledgment covers the SYN, the SYN-ACK is repeated
//! instead of data, it also answers a repeated SYN, a FIN of `shutdown` waits, and an acknowledgment out of range is
//! answered with a reset. All this is as in SYN-RECEIVED, which is the state that others see. Until then, the SYN
//! itself is not part of SND.UNA to SND.MAX.
//!
//! The caller decides which clients get a cookie, and how cookies are made. Tests: `tests/fast_open.rs`.

use crate::seq::SeqNum;
use crate::time::Instant;

use super::accepted::Accepted;
use super::delack::low_micros;
use super::events::{Events, Input, Transmit};
use super::pcb::{Pcb, RCV_WND_MAX, Timing};
use super::segment::{Flags, Header, Payload};
use super::settings::Settings;
use super::state::State;
use super::syncache::AGAIN_INTERVAL;
use super::timers::NEVER;

/// The shortest cookie, bytes (RFC 7413 section 4.1.1).
pub const COOKIE_LEN_MIN: usize = 4;
/// The longest.
pub const COOKIE_LEN_MAX: usize = 16;

/// The value of the Fast Open option: a cookie, or nothing, which asks for one. It may be in the option of the former
/// Fast Open experiment (kind 254), which is the only one that some servers know.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Cookie {
    len: u8,
    is_experimental: bool,
    bytes: [u8; COOKIE_LEN_MAX],
}

impl Cookie {
    /// The option without a cookie.
    pub const REQUEST: Self = Self { len: 0, is_experimental: false, bytes: [0; COOKIE_LEN_MAX] };

    /// A cookie of these bytes; the empty one is the request. `None` for an invalid length: it must be even, and 4 to
    /// 16.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let len = u8::try_from(bytes.len()).ok()?;
        let is_allowed = (COOKIE_LEN_MIN..=COOKIE_LEN_MAX).contains(&bytes.len()) && len.is_multiple_of(2);
        if !is_allowed && len != 0 {
            return None;
        }
        let mut all = [0; COOKIE_LEN_MAX];
        all.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self { len, is_experimental: false, bytes: all })
    }

    /// The same in the experimental option.
    #[must_use]
    pub const fn experimental(self) -> Self {
        Self { is_experimental: true, ..self }
    }

    /// Whether it is in the experimental option.
    pub const fn is_experimental(&self) -> bool {
        self.is_experimental
    }

    /// Its bytes; none for a request.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// True if it asks for a cookie.
    pub const fn is_request(&self) -> bool {
        self.len == 0
    }
}

impl core::fmt::Debug for Cookie {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Cookie({} bytes)", self.len)
    }
}

/// An active open's use of Fast Open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FastOpenSyn {
    /// The option on the first SYN: a cookie, or a request for one. `None`: text is sent without one, to a server that
    /// is known not to require it.
    pub cookie: Option<Cookie>,
    /// The assumed MSS of the peer, bytes: text and options together are not longer.
    pub mss: u16,
}

/// Fate of the text on our SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SynText {
    /// There was none.
    #[default]
    None,
    /// It is on its way.
    Sent,
    /// The SYN-ACK acknowledged all of it.
    Taken,
    /// The SYN-ACK acknowledged a part of it.
    Part,
    /// The SYN-ACK acknowledged the SYN alone.
    Refused,
    /// The SYN had to be repeated, without the text.
    Lost,
    /// The same, because the network has reported that the first was too long for the path.
    TooLong,
}

/// Why a client's SYN delivered no text to the server's application (`tcpi_fastopen_client_fail`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FastOpenFail {
    /// There was no cookie for the server, and without one it gets no text (`TFO_COOKIE_UNAVAILABLE`).
    CookieUnavailable,
    /// The SYN-ACK did not acknowledge all of it (`TFO_DATA_NOT_ACKED`).
    TextNotAcked,
    /// The SYN had to be repeated without text (`TFO_SYN_RETRANSMITTED`): something on the path may drop SYNs with
    /// text.
    SynRepeated,
}

/// A pcb's state of Fast Open.
#[derive(Clone, Copy, Debug)]
pub(super) struct FastOpen {
    /// The option of a client's first SYN, or of a server's SYN-ACK until that is sent.
    option: Option<Cookie>,
    /// The client's limit for text and options; 0 if there must be no text.
    mss: u16,
    /// Bytes of text on the client's SYN, once it is sent.
    sent_len: u32,
    /// Bytes of text that the server has accepted from the SYN.
    taken_len: u32,
    pub text: SynText,
    /// The client's SYN had to be repeated.
    is_repeated: bool,
    /// The client's SYN was acknowledged.
    is_answered: bool,
    /// The client's SYN waits for text.
    is_held: bool,
    /// The server's SYN-ACK is sent with the next poll.
    syn_ack_owed: bool,
    /// When the client's SYN arrived again, and was answered.
    again_at: Option<Instant>,
}

impl FastOpen {
    const NONE: Self = Self {
        option: None,
        mss: 0,
        sent_len: 0,
        taken_len: 0,
        text: SynText::None,
        is_repeated: false,
        is_answered: false,
        is_held: false,
        syn_ack_owed: false,
        again_at: None,
    };

    pub fn client(syn: FastOpenSyn) -> Self {
        let mss = if syn.cookie.is_some_and(|cookie| cookie.is_request()) { 0 } else { syn.mss };
        Self { option: syn.cookie, mss, ..Self::NONE }
    }

    fn fail(&self) -> Option<FastOpenFail> {
        match self.text {
            SynText::Part | SynText::Refused | SynText::Lost | SynText::TooLong => {
                let repeated =
                    if self.is_repeated { FastOpenFail::SynRepeated } else { FastOpenFail::TextNotAcked };
                self.is_answered.then_some(repeated)
            }
            SynText::None if self.option.is_some_and(|cookie| cookie.is_request()) => {
                Some(FastOpenFail::CookieUnavailable)
            }
            SynText::None | SynText::Sent | SynText::Taken => None,
        }
    }
}

impl<P: Payload> Pcb<P> {
    /// Passive open by a SYN with `text_len` accepted bytes of text: the caller puts them into `so_rcv`.
    /// [`Pcb::poll_transmit`] makes the SYN-ACK, with `cookie` if the client gets a new one.
    pub fn accept_fast_open(
        s: &Settings,
        a: &Accepted,
        text_len: u32,
        cookie: Option<Cookie>,
        now: Instant,
    ) -> Self {
        let mut pcb = Self::accept_with(s, a, 0, now);
        let len = text_len.min(pcb.rcv_wnd());
        pcb.rcv_nxt += len;
        // The window counts from the end of the text, as on Linux, as far as the buffer has room for both.
        let room = pcb.rcv_hiwat.saturating_sub(len);
        pcb.rcv_adv = pcb.rcv_nxt + a.rcv_wnd.min(room).min(RCV_WND_MAX);
        (pcb.syn_unacked, pcb.takes_all_steps) = (true, true);
        let text = if len > 0 { SynText::Taken } else { SynText::None };
        let state = FastOpen { option: cookie, taken_len: len, text, syn_ack_owed: true, ..FastOpen::NONE };
        pcb.rare.set_fast_open(Some(state));
        pcb
    }

    /// Fate of the text on the SYN of an active open. At the end that has accepted text from a SYN, it is also
    /// [`SynText::Taken`].
    pub fn syn_text(&self) -> SynText {
        self.rare.fast_open().map_or(SynText::None, |fast_open| fast_open.text)
    }

    /// Why our SYN delivered no text to the server's application, if it should have.
    pub fn fast_open_fail(&self) -> Option<FastOpenFail> {
        self.rare.fast_open()?.fail()
    }

    /// The option that our first SYN has, or had.
    pub fn fast_open_option(&self) -> Option<Cookie> {
        self.rare.fast_open()?.option
    }

    /// Whether our SYN with Fast Open had to be repeated.
    pub fn is_fast_open_repeated(&self) -> bool {
        self.rare.fast_open().is_some_and(|fast_open| fast_open.is_repeated)
    }

    /// Largest number of bytes of text that the first SYN carries; 0 if it carries none, or was sent.
    pub fn syn_text_max(&self) -> u32 {
        let is_ahead = self.state == State::SynSent && self.snd_max == self.iss;
        let Some(fast_open) = self.rare.fast_open().filter(|_| is_ahead) else { return 0 };
        // This counts the largest options, as on Linux: a middlebox may add some.
        u32::from(fast_open.mss.min(self.syn_mss())).saturating_sub(OPTIONS_LEN_MAX)
    }

    /// Holds our SYN back until there is text for it, or releases it.
    pub fn hold_syn(&mut self, is_held: bool) {
        if let Some(fast_open) = self.rare.fast_open_mut() {
            fast_open.is_held = is_held;
        }
    }

    /// Whether our SYN waits for text.
    pub(super) fn holds_syn(&self) -> bool {
        self.rare.fast_open().is_some_and(|fast_open| fast_open.is_held)
    }

    /// The largest segment to the peer before its first segment: the limit of the link and of what is known about the
    /// path.
    fn syn_mss(&self) -> u16 {
        match self.tuning.path_mtu {
            0 => self.rcv_mss,
            mtu => self.rcv_mss.min(mtu.saturating_sub(self.tuning.headers_len)),
        }
    }

    /// RCV.NXT of a connection on which nothing has arrived since its SYN.
    pub(super) fn behind_syn(&self) -> SeqNum {
        self.irs + 1 + self.rare.fast_open().map_or(0, |fast_open| fast_open.taken_len)
    }

    /// The state as others see it: SYN-RECEIVED until the SYN of a server's Fast Open connection is acknowledged.
    pub fn state_name(&self) -> &'static str {
        let is_early = self.syn_unacked && self.state == State::Established;
        if is_early { State::SynReceived } else { self.state }.name()
    }

    /// True for a server's Fast Open connection whose SYN the client has not acknowledged.
    pub fn is_syn_unacked(&self) -> bool {
        self.syn_unacked
    }

    /// Completes the first SYN: adds the option, and returns how many bytes of text it carries.
    pub(super) fn fast_open_syn(&mut self, header: &mut Header) -> u32 {
        let len = self.snd_len.min(self.syn_text_max());
        let Some(fast_open) = self.rare.fast_open_mut() else { return 0 };
        header.options.fast_open = fast_open.option;
        if len > 0 {
            (fast_open.text, fast_open.sent_len) = (SynText::Sent, len);
        }
        len
    }

    /// The SYN is repeated without option and text.
    pub(super) fn fast_open_lost(&mut self) {
        if let Some(fast_open) = self.rare.fast_open_mut() {
            fast_open.syn_ack_owed = self.syn_unacked;
            fast_open.is_repeated = true;
            if fast_open.text == SynText::Sent {
                fast_open.text = SynText::Lost;
            }
        }
    }

    /// Bytes of text on our SYN that remain after an acknowledgment of `text` of them.
    pub(super) fn fast_open_unanswered(&self, text: u32) -> u32 {
        self.rare.fast_open().map_or(0, |fast_open| fast_open.sent_len).saturating_sub(text)
    }

    /// Whether data up to `end` was on our SYN. It was limited by the room on the SYN, so it is no reason to hold back
    /// what follows (as on Linux).
    pub(super) fn is_text_of_syn(&self, end: SeqNum) -> bool {
        let begin = self.iss + 1;
        let is_within =
            |fast_open: &FastOpen| end.after(begin) && end.at_or_before(begin + fast_open.sent_len);
        self.rare.fast_open().is_some_and(is_within)
    }

    /// The SYN with text was too long for the path. False if there was none.
    pub(super) fn fast_open_too_long(&mut self) -> bool {
        match self.rare.fast_open_mut() {
            Some(fast_open) if fast_open.text == SynText::Sent => {
                (fast_open.text, fast_open.is_repeated) = (SynText::TooLong, true);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Our SYN is acknowledged, and `text` bytes after it.
    pub(super) fn fast_open_answered(&mut self, text: u32) {
        if let Some(fast_open) = self.rare.fast_open_mut()
            && fast_open.text != SynText::None
        {
            fast_open.is_answered = true;
            fast_open.text = match text {
                0 if fast_open.is_repeated => fast_open.text,
                0 => SynText::Refused,
                text if text < fast_open.sent_len => SynText::Part,
                _ => SynText::Taken,
            };
        }
    }

    /// The SYN-ACK of a server, if it is due.
    #[cold]
    pub(super) fn transmit_early_syn_ack(&mut self, now: Instant) -> Option<Transmit> {
        let fast_open = self.rare.fast_open_mut()?;
        if !core::mem::take(&mut fast_open.syn_ack_owed) {
            return None;
        }
        let cookie = fast_open.option.take();
        if self.rexmt_count == 0 && self.timing == Timing::Idle {
            (self.timing, self.rtt_seq, self.rtt_sent_us) = (Timing::Running, self.iss + 1, low_micros(now));
        }
        if self.rexmt_at == NEVER {
            self.arm_rexmt(now);
        }
        // If it had to be repeated, the first may have been dropped because of its ECN flags.
        if self.rexmt_count > 0 && !self.ecn.is_accurate() {
            self.ecn.give_up();
        }
        let mut header = self.syn_header(Flags::SYN.with(Flags::ACK), now);
        header.options.fast_open = cookie;
        self.mark_syn_ack(&mut header);
        let head = header.into();
        Some(Transmit { head, offset: 0, len: 0, is_window_update: false, is_mtu_probe: false })
    }

    /// Whether the segment is the client's SYN once more. Then the SYN-ACK is due, unless the SYN arrives soon after
    /// another (`tcp_oow_rate_limited`).
    pub(super) fn answers_syn_again(&mut self, header: &Header, now: Instant, events: &mut Events) -> bool {
        let is_again = self.syn_unacked
            && header.seq == self.irs
            && header.flags.has(Flags::SYN)
            && !header.flags.any(ACK_RST);
        if is_again && let Some(fast_open) = self.rare.fast_open_mut() {
            let is_allowed = fast_open.again_at.is_none_or(|at| now.since(at) >= AGAIN_INTERVAL);
            if is_allowed {
                (fast_open.syn_ack_owed, fast_open.again_at) = (true, Some(now));
                events.insert(Events::REHASH);
                // The echo is that of the latest SYN.
                self.spoil_timing();
            }
        }
        is_again
    }

    /// The first acknowledgment of a server's SYN. False if it cannot be right.
    pub(super) fn early_syn_acknowledged(
        &mut self,
        ack: SeqNum,
        header: &Header,
        now: Instant,
        input: &mut Input<P>,
    ) -> bool {
        if !(ack.at_or_after(self.iss + 1) && ack.at_or_before(self.snd_max)) {
            return false;
        }
        (self.syn_unacked, self.takes_all_steps) = (false, self.ecn.is_accurate());
        // A pause begins here at the earliest (`lsndtime`).
        self.last_snd_at = now;
        if ack == self.iss + 1 || !self.keeps_records() {
            self.measure_handshake(ack, header.options.timestamps, now);
        } else {
            // Text acknowledged with it gives a later round trip.
            self.timing = Timing::Idle;
        }
        // Linux counts the SYN-ACK's timeouts separately, so text after it starts without back-off.
        self.rtt.end_back_off();
        self.rtt.distrust_after_syn_loss(self.tuning.rto_max_us);
        self.rexmt_count = 0;
        self.rexmt_at = NEVER;
        if self.snd_una != self.snd_max {
            self.arm_rexmt(now);
        } else if !self.holds_repair() {
            self.recovery.finish();
        }
        if self.fin_queued && self.state == State::Established {
            self.end_sending();
        }
        input.events.insert(Events::SYN_ACKED);
        true
    }
}

const ACK_RST: Flags = Flags::ACK.with(Flags::RST);
/// Bytes of the longest options.
const OPTIONS_LEN_MAX: u32 = 40;
