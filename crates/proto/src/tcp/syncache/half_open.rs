//! The state that is kept of a SYN: enough to repeat the SYN-ACK and to make a pcb of it.
//!
//! It does not depend on keys, listeners or queues. Invariant: everything but TS.Recent, the two counts, the
//! agreement to ECN and the mark of an acknowledgment stays as the SYN made it. Tests: `syncache/tests.rs`.

use core::num::NonZeroU8;
use core::ops::BitAnd;

use super::{InitialNumbers, ListenParams, Patience};
use crate::seq::SeqNum;
use crate::tcp::accepted::{Accepted, TimestampState, WindowScale};
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
    /// SYN-ACKs repeated by the timer.
    pub retries: u8,
    /// Other answers given, saturating.
    pub answers: u8,
    scale: PackedScale,
    pub agreed: Agreed,
}

/// The wishes of both sides, apart from window scaling: a set of bits of which one always stands, so that an empty slot
/// needs no byte of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Agreed(NonZeroU8);

impl Agreed {
    const ALWAYS: NonZeroU8 = NonZeroU8::MIN;
    const TIMESTAMPS: u8 = 2;
    const SACK: u8 = 4;
    const ECN: u8 = 8;
    /// Not agreed on, but a bit as well: the peer has acknowledged our SYN, and the listener waits for its text.
    const ACKED: u8 = 16;
    /// Nor is this: the SYN came again, and was answered again.
    const REPEATED: u8 = 32;

    fn new(timestamps: bool, sack: bool, ecn: bool) -> Self {
        let bit = |wanted: bool, bit: u8| u8::from(wanted) * bit;
        let bits = [bit(timestamps, Self::TIMESTAMPS), bit(sack, Self::SACK), bit(ecn, Self::ECN)];
        Self(bits.into_iter().fold(Self::ALWAYS, |all, bit| all | bit))
    }

    fn without_ecn(self) -> Self {
        Self(self.0.get().bitand(!Self::ECN).try_into().unwrap_or(Self::ALWAYS))
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

    const fn ecn(self) -> bool {
        self.has(Self::ECN)
    }
}

/// Both shift counts in one byte, four bits each; 15, which no shift may be, stands for no scaling.
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
            retries: 0,
            answers: 0,
            scale: PackedScale::new(scale),
            agreed: Agreed::new(
                timestamps.is_some(),
                params.sack && theirs.sack_permitted,
                params.ecn && ecn::is_offered(syn.flags),
            ),
        }
    }

    /// RCV.NXT: behind the peer's SYN.
    pub fn rcv_nxt(&self) -> SeqNum {
        self.irs + 1
    }

    /// SND.NXT: behind our SYN.
    pub fn snd_nxt(&self) -> SeqNum {
        self.iss + 1
    }

    /// The SYN-ACK, the same each time but for the clock.
    pub fn syn_ack(&self, now: Instant) -> Header {
        Header {
            seq: self.iss,
            ack: self.rcv_nxt(),
            flags: if self.ecn() { SYN_ACK.with(Flags::ECE) } else { SYN_ACK },
            window: self.window,
            urgent: 0,
            gso_size: 0,
            options: Options {
                mss: Some(self.mss),
                window_scale: self.scale.unpack().map(|scale| scale.rcv),
                sack_permitted: self.agreed.sack(),
                timestamps: self.timestamps(now),
                ..Options::default()
            },
        }
    }

    /// An ACK of where the handshake stands. Unlike the SYN-ACK's, its window is scaled.
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

    /// A SYN-ACK that has to be repeated does without ECN, for that may be why it was lost, and an end that has once sent
    /// one without stays without (RFC 3168 section 6.1.1.1).
    fn ecn(&self) -> bool {
        self.agreed.ecn()
    }

    fn timestamps(&self, now: Instant) -> Option<Timestamps> {
        self.agreed
            .timestamps()
            .then(|| Timestamps { val: timestamp::value(now, self.ts_offset), ecr: self.ts_recent })
    }

    /// Values for the pcb; the third segment came at `now`, the last SYN-ACK left at `sent_at`.
    pub fn accepted(&self, sent_at: Instant, now: Instant) -> Accepted {
        // A challenge is no SYN-ACK that might have been lost.
        let rtt_is_known = self.retries == 0 && !self.agreed.has(Agreed::REPEATED);
        Accepted {
            iss: self.iss,
            irs: self.irs,
            peer_mss: self.peer_mss,
            snd_wnd: u32::from(self.snd_wnd),
            rcv_wnd: u32::from(self.window),
            window_scale: self.scale.unpack(),
            timestamps: self.agreed.timestamps().then_some(TimestampState {
                ts_recent: self.ts_recent,
                // It came with a SYN at most as old as the entry, far from the 24 days that matter.
                ts_recent_at: sent_at,
                ts_offset: self.ts_offset,
            }),
            sack_permitted: self.agreed.sack(),
            ecn: self.ecn(),
            rtt: rtt_is_known.then(|| now.since(sent_at)),
        }
    }

    /// Whether the acknowledgment that completes the handshake has to wait for text, as the listener wishes. Remembers that it came.
    pub fn waits_for_text(&mut self, hdr: &Header, payload_len: usize, patience: Patience) -> bool {
        let waits = self.retries < patience.defers && hdr.seq_len(payload_len) == 0;
        if waits {
            self.agreed = Agreed(self.agreed.0 | Agreed::ACKED);
        }
        waits
    }

    /// Whether an acknowledgment has come that had to wait.
    pub fn is_acked(&self) -> bool {
        self.agreed.has(Agreed::ACKED)
    }

    /// The acknowledgment may be that of another SYN-ACK: it measures no round trip (Karn's rule).
    pub fn note_ambiguous(&mut self) {
        self.agreed = Agreed(self.agreed.0 | Agreed::REPEATED);
    }

    /// Counts an answer outside the timer.
    pub fn note_answer(&mut self) {
        self.answers = self.answers.saturating_add(1);
    }

    /// A repeated SYN may carry a newer TSval, which is the one to echo (RFC 7323 section 4.3), and no longer offer
    /// ECN. No round trip can be measured any more.
    pub fn note_repeated(&mut self, hdr: &Header) {
        self.note_ambiguous();
        if !ecn::is_offered(hdr.flags) {
            self.agreed = self.agreed.without_ecn();
        }
        if let Some(ts) = hdr.options.timestamps
            && self.agreed.timestamps()
            && timestamp::older(self.ts_recent, ts.val)
        {
            self.ts_recent = ts.val;
        }
    }
}

const SYN_ACK: Flags = Flags::SYN.with(Flags::ACK);
