//! The state that is kept for a SYN: enough to repeat the SYN-ACK and to make a pcb.
//!
//! It does not depend on keys, listeners or queues. Invariant: everything but TS.Recent, the two counts, the agreement
//! on ECN and the mark of an acknowledgment stays as the SYN set it. Tests: `syncache/tests.rs`.

use core::num::NonZeroU8;
use core::ops::BitAnd;
use core::time::Duration;

use super::{InitialNumbers, ListenParams, Patience};
use crate::seq::SeqNum;
use crate::tcp::accecn::{self, AccEcnOption, IpEcn, SynEcn};
use crate::tcp::accepted::{Accepted, SynAcks, TimestampState, WindowScale};
use crate::tcp::ecn;
use crate::tcp::segment::{Flags, Header, Options, Timestamps};
use crate::tcp::timestamp;
use crate::tcp::wire::WINDOW_SCALE_MAX;
use crate::time::Instant;

/// One half-open connection: 28 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct HalfOpen {
    pub iss: SeqNum,
    pub irs: SeqNum,
    pub ts_recent: u32,
    pub ts_offset: u32,
    /// The window of the peer's SYN, bytes.
    snd_wnd: u16,
    /// The window of our SYN-ACK, bytes.
    pub window: u16,
    /// The MSS that we announce.
    mss: u16,
    /// The MSS that the peer announced, or the default.
    peer_mss: u16,
    /// How often the timer has expired (the lower four bits), and how often it has repeated the SYN-ACK (the upper
    /// four).
    timer: u8,
    /// Other answers given, saturating, and [`REPEATED_BEFORE`](Self::REPEATED_BEFORE).
    answers: u8,
    scale: PackedScale,
    pub agreed: Agreed,
}

/// What both sides have agreed on, except window scaling: a set of bits of which one is always set, so that an empty
/// slot needs no extra byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Agreed(NonZeroU8);

impl Agreed {
    const ALWAYS: NonZeroU8 = NonZeroU8::MIN;
    const TIMESTAMPS: u8 = 2;
    const SACK: u8 = 4;
    /// The agreement on ECN, [as a number](Ecn::number) of three bits, the lowest here and the others in
    /// [`ECN_HIGH`](Self::ECN_HIGH).
    const ECN_LOW: u8 = 8;
    const ECN_HIGH: u8 = 64 | 128;
    /// Not negotiated, but also a bit: the peer has acknowledged our SYN, and the listener waits for its text.
    const ACKED: u8 = 16;
    /// Also not negotiated: the SYN arrived again, and was answered again.
    const REPEATED: u8 = 32;

    fn new(timestamps: bool, sack: bool, ecn: Ecn) -> Self {
        let bit = |wanted: bool, bit: u8| u8::from(wanted) * bit;
        let bits = [bit(timestamps, Self::TIMESTAMPS), bit(sack, Self::SACK)];
        Self(bits.into_iter().fold(Self::ALWAYS, |all, bit| all | bit)).with_ecn(ecn)
    }

    fn with_ecn(self, ecn: Ecn) -> Self {
        let others = self.0.get().bitand(!(Self::ECN_LOW | Self::ECN_HIGH));
        let ecn = (ecn.number() & 1) << 3 | (ecn.number() & 6) << 5;
        Self((others | ecn).try_into().unwrap_or(Self::ALWAYS))
    }

    const fn has(self, bit: u8) -> bool {
        self.0.get() & bit != 0
    }

    pub const fn timestamps(self) -> bool {
        self.has(Self::TIMESTAMPS)
    }

    const fn sack(self) -> bool {
        self.has(Self::SACK)
    }

    fn ecn(self) -> Ecn {
        let bits = self.0.get();
        Ecn::of_number((bits & Self::ECN_LOW) >> 3 | (bits & Self::ECN_HIGH) >> 5)
    }
}

/// The agreement on ECN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ecn {
    Off,
    Classic,
    /// Accurate; the peer's SYN arrived with this field.
    Accurate(IpEcn),
    /// Accurate; the SYN arrived again without asking for it.
    Withdrawn,
}

impl Ecn {
    fn of(syn: &Header, params: &ListenParams) -> Self {
        match () {
            () if params.accurate_ecn && accecn::is_asked_for(syn.flags) => {
                Self::Accurate(IpEcn::of(syn.flags))
            }
            () if params.ecn && ecn::is_offered(syn.flags) => Self::Classic,
            () => Self::Off,
        }
    }

    /// From 0 to 6.
    fn number(self) -> u8 {
        match self {
            Self::Off => 0,
            Self::Classic => 1,
            Self::Accurate(came_with) => 2 + came_with.bits(),
            Self::Withdrawn => 6,
        }
    }

    fn of_number(number: u8) -> Self {
        match number {
            0 => Self::Off,
            1 => Self::Classic,
            6.. => Self::Withdrawn,
            number => Self::Accurate(IpEcn::from_bits(number - 2)),
        }
    }
}

/// Both shift counts in one byte, four bits each; 15, which is no valid shift, stands for no scaling.
#[derive(Clone, Copy, Debug)]
struct PackedScale(u8);

impl PackedScale {
    const NONE: Self = Self(0xff);

    fn new(scale: Option<WindowScale>) -> Self {
        match scale {
            None => Self::NONE,
            Some(WindowScale { snd, rcv }) => {
                Self((snd.min(WINDOW_SCALE_MAX) << 4) | rcv.min(WINDOW_SCALE_MAX))
            }
        }
    }

    const fn unpack(self) -> Option<WindowScale> {
        if self.0 == Self::NONE.0 { None } else { Some(WindowScale { snd: self.0 >> 4, rcv: self.0 & 0x0f }) }
    }
}

impl HalfOpen {
    /// In `answers`: the SYN had arrived again, and was answered, before the timer last repeated the SYN-ACK.
    const REPEATED_BEFORE: u8 = 128;

    /// From a SYN and the listener's wishes.
    pub fn new(syn: &Header, params: &ListenParams, numbers: InitialNumbers) -> Self {
        let theirs = &syn.options;
        let scale = match (theirs.window_scale, params.window_scale) {
            (Some(snd), Some(rcv)) => Some(WindowScale { snd, rcv }),
            (Some(_) | None, None) | (None, Some(_)) => None,
        };
        let timestamps = if params.timestamps { theirs.timestamps } else { None };
        Self {
            iss: numbers.iss,
            irs: syn.seq,
            ts_recent: timestamps.map_or(0, |ts| ts.val),
            ts_offset: numbers.ts_offset,
            snd_wnd: syn.window,
            window: u16::try_from(params.rcv_wnd).unwrap_or(u16::MAX),
            mss: params.mss,
            peer_mss: theirs.mss.unwrap_or(params.peer_mss_default),
            timer: 0,
            answers: 0,
            scale: PackedScale::new(scale),
            agreed: Agreed::new(
                timestamps.is_some(),
                params.sack && theirs.sack_permitted,
                Ecn::of(syn, params),
            ),
        }
    }

    /// RCV.NXT: after the peer's SYN.
    pub fn rcv_nxt(&self) -> SeqNum {
        self.irs + 1
    }

    /// SND.NXT: after our SYN.
    pub fn snd_nxt(&self) -> SeqNum {
        self.iss + 1
    }

    /// The SYN-ACK, the same each time except for the clock.
    pub fn syn_ack(&self, now: Instant) -> Header {
        Header {
            seq: self.iss,
            ack: self.rcv_nxt(),
            flags: match self.agreed.ecn() {
                Ecn::Off => SYN_ACK,
                Ecn::Classic => SYN_ACK.with(Flags::ECE),
                // Twice; after that, the flags may be the reason why none arrives (RFC 9768 section 3.1.4.2).
                Ecn::Accurate(_) | Ecn::Withdrawn if self.resends() > 1 => SYN_ACK,
                Ecn::Accurate(came_with) => SYN_ACK.with(accecn::reflected(came_with)),
                Ecn::Withdrawn => SYN_ACK.with(accecn::reflected(IpEcn::NotEct)),
            },
            window: self.window,
            urgent: 0,
            gso_size: 0,
            options: Options {
                mss: Some(self.mss),
                window_scale: self.scale.unpack().map(|scale| scale.rcv),
                sack_permitted: self.agreed.sack(),
                timestamps: self.timestamps(now),
                accecn: self.accecn(),
                ..Options::default()
            },
        }
    }

    /// The option of accurate ECN: not on a repeated SYN-ACK, since the first may have been dropped because of it.
    fn accecn(&self) -> Option<AccEcnOption> {
        let is_again = self.resends() > 0 || self.is_repeated();
        (matches!(self.agreed.ecn(), Ecn::Accurate(_)) && !is_again).then(AccEcnOption::first)
    }

    /// An ACK with the handshake's present numbers. Unlike that of the SYN-ACK, its window is scaled.
    pub fn ack(&self, now: Instant) -> Header {
        let shift = self.scale.unpack().map_or(0, |scale| scale.rcv);
        Header {
            seq: self.snd_nxt(),
            ack: self.rcv_nxt(),
            flags: Flags::ACK,
            window: self.window >> shift,
            urgent: 0,
            gso_size: 0,
            options: Options { timestamps: self.timestamps(now), ..Options::default() },
        }
    }

    fn timestamps(&self, now: Instant) -> Option<Timestamps> {
        self.agreed
            .timestamps()
            .then(|| Timestamps { val: timestamp::value(now, self.ts_offset), ecr: self.ts_recent })
    }

    /// Values for the pcb; the third segment arrived at `now` with these timestamps, the last SYN-ACK was sent at `sent_at`.
    pub fn accepted(&self, ts: Option<Timestamps>, sent_at: Instant, now: Instant) -> Accepted {
        // A challenge ACK does not count as a SYN-ACK that may have been lost.
        let may_be_lost = self.resends() > 0 || self.is_repeated();
        let rtt = match may_be_lost {
            false => Some(now.since(sent_at)),
            true => ts.filter(|_| self.agreed.timestamps()).and_then(Timestamps::echo).and_then(|echo| {
                let rtt = timestamp::since(echo, now, self.ts_offset)?;
                Some(rtt.max(Duration::from_micros(timestamp::TICK_US.into())))
            }),
        };
        Accepted {
            iss: self.iss,
            irs: self.irs,
            peer_mss: self.peer_mss,
            snd_wnd: u32::from(self.snd_wnd),
            rcv_wnd: u32::from(self.window),
            window_scale: self.scale.unpack(),
            timestamps: self.agreed.timestamps().then_some(TimestampState {
                ts_recent: self.ts_recent,
                // It arrived with a SYN at most as old as the entry, far less than the 24 days that matter.
                ts_recent_at: sent_at,
                ts_offset: self.ts_offset,
            }),
            sack_permitted: self.agreed.sack(),
            ecn: self.agreed.ecn() == Ecn::Classic,
            accurate_ecn: match self.agreed.ecn() {
                Ecn::Accurate(came_with) => Some(SynEcn { came_with, is_withdrawn: false }),
                Ecn::Withdrawn => Some(SynEcn { came_with: IpEcn::NotEct, is_withdrawn: true }),
                Ecn::Off | Ecn::Classic => None,
            },
            // Text for which the listener waited does not show how long the path is.
            rtt: rtt.filter(|_| !self.is_acked()),
            syn_acks: match self.resends() {
                0 if !self.is_repeated() => SynAcks::One,
                0 => SynAcks::Several,
                1 if !self.is_repeated() && self.answers & Self::REPEATED_BEFORE == 0 => SynAcks::Several,
                1.. => SynAcks::Many,
            },
            rehashes: self.rehashes(),
        }
    }

    /// Whether the acknowledgment that completes the handshake must wait for text because of the listener's option.
    /// Remembers that it arrived.
    pub fn waits_for_text(&mut self, hdr: &Header, payload_len: usize, patience: Patience) -> bool {
        let waits = self.retries() < patience.defers && hdr.seq_len(payload_len) == 0;
        if waits {
            self.agreed = Agreed(self.agreed.0 | Agreed::ACKED);
        }
        waits
    }

    /// Whether an acknowledgment has arrived that had to wait.
    pub fn is_acked(&self) -> bool {
        self.agreed.has(Agreed::ACKED)
    }

    /// A number that changes whenever another path was requested: by two each time the timer has repeated the SYN-ACK,
    /// and by one in between if the SYN arrived again.
    pub const fn rehashes(&self) -> u8 {
        2 * self.resends() + self.is_repeated() as u8
    }

    /// Whether the SYN arrived again, and was answered.
    pub const fn is_repeated(&self) -> bool {
        self.agreed.has(Agreed::REPEATED)
    }

    /// The timer has repeated the SYN-ACK. This alone makes the round trip ambiguous, and the next repeated SYN is
    /// answered at once.
    fn end_repetition(&mut self) {
        let others = self.agreed.0.get().bitand(!Agreed::REPEATED);
        self.agreed = Agreed(others.try_into().unwrap_or(Agreed::ALWAYS));
    }

    /// How often the timer has expired.
    pub const fn retries(&self) -> u8 {
        self.timer & 15
    }

    /// How often the timer has repeated the SYN-ACK. It does not while the listener waits for text of a peer that has
    /// acknowledged the SYN-ACK.
    pub const fn resends(&self) -> u8 {
        self.timer >> 4
    }

    /// The timer has expired, at most [`SYNACK_RETRIES_MAX`](super::SYNACK_RETRIES_MAX) times.
    pub fn note_expiry(&mut self) {
        self.timer += 1;
    }

    /// The timer repeats the SYN-ACK.
    pub fn note_resend(&mut self) {
        self.timer += 16;
        if self.is_repeated() {
            self.answers |= Self::REPEATED_BEFORE;
        }
        self.end_repetition();
    }

    /// Answers given outside the timer, saturating.
    pub const fn answers(&self) -> u8 {
        self.answers & !Self::REPEATED_BEFORE
    }

    /// Counts an answer outside the timer.
    pub fn note_answer(&mut self) {
        if self.answers() + 1 < Self::REPEATED_BEFORE {
            self.answers += 1;
        }
    }

    /// A repeated SYN may carry a newer TSval, which is the one to echo (RFC 7323 section 4.3), and no longer offer
    /// ECN. No round trip can be measured any more.
    pub fn note_repeated(&mut self, hdr: &Header) {
        self.agreed = Agreed(self.agreed.0 | Agreed::REPEATED);
        self.agreed = match self.agreed.ecn() {
            // The agreement stays, and its flags keep their meaning (RFC 9768 section 3.1.5).
            Ecn::Accurate(_) if !accecn::is_asked_for(hdr.flags) => self.agreed.with_ecn(Ecn::Withdrawn),
            Ecn::Accurate(_) => self.agreed.with_ecn(Ecn::Accurate(IpEcn::of(hdr.flags))),
            Ecn::Classic if !ecn::is_offered(hdr.flags) => self.agreed.with_ecn(Ecn::Off),
            Ecn::Off | Ecn::Classic | Ecn::Withdrawn => self.agreed,
        };
        if let Some(ts) = hdr.options.timestamps
            && self.agreed.timestamps()
            && timestamp::is_later(ts.val, self.ts_recent)
        {
            self.ts_recent = ts.val;
        }
    }
}

const SYN_ACK: Flags = Flags::SYN.with(Flags::ACK);
