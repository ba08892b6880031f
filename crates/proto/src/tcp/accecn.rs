//! Accurate ECN (RFC 9768): the receiver counts marks, and the sender learns how many there were, not only that there was one.
//!
//! | step | what happens |
//! |---|---|
//! | SYN | AE, CWR and ECE together ask for it (`is_asked_for`) |
//! | SYN-ACK, and the client's first acknowledgment if it is bare | the three flags tell the other end which ECN field its SYN had (`reflected`) |
//! | afterwards | the three flags are the counter of marked packets modulo eight, which begins with 5 (`AccEcn::flags`); the option has the bytes for each ECN field |
//!
//! The state exists only if both ends agreed, behind the pointer of `rare.rs`. Each segment of such a connection takes
//! the full path of the input, since its flags have a meaning. All segments except SYNs are ECN-capable (as on Linux),
//! unless the peer's answers show that a middlebox changes the field or clears the flags ([`Fail`]).
//!
//! If the RFC leaves a choice, it follows Linux: the option has kind 174; after the peer has sent one, every segment
//! with room for it has it; and an acknowledgment of more packets than the flags can count stands for as many marks as
//! possible, unless the option shows otherwise. It does not depend on input and output, which are in `ecn.rs` and
//! `output.rs`. Tests: at the end, `tests/accecn.rs`.

mod handshake;
mod option;

use crate::seq::SeqNum;

pub use self::handshake::IpEcn;
use self::handshake::told;
pub(super) use self::handshake::{Answer, answer, is_asked_for, reflected};
pub use self::option::AccEcnOption;
use super::segment::Flags;

/// First values of the counters of bytes: ECT(1), CE, ECT(0).
const FIRST: [u32; 3] = [1, 0, 1];
/// First value of the counter of packets.
const FIRST_ACE: u32 = 5;
/// The maximum of the three flags.
const ACE_MAX: u32 = 7;
/// Amount of text after which the first option is no longer trusted: a counter may have wrapped.
const UNSEEN_MAX: u32 = (1 << 23) - 1;

/// What does not work on the path (`tcpi_accecn_fail_mode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fail(u8);

impl Fail {
    /// SYNs, or SYN-ACKs, with the flags do not arrive: nothing is sent as ECN-capable.
    pub const ACE_SENT: Self = Self(1);
    /// The peer's flags show that the field or the flags are changed on the path: nothing is sent as ECN-capable.
    pub const ACE_RECEIVED: Self = Self(2);
    /// Our options do not arrive: they are not sent.
    pub const OPTION_SENT: Self = Self(4);
    /// The peer's options are cleared on the path, or arrived too late: they are not read.
    pub const OPTION_RECEIVED: Self = Self(8);

    /// As the kernel's number.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether this does not work.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// Whether the peer has sent the option (`tcpi_accecn_opt_seen`, by the same numbers).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug, Default)]
pub enum OptionSeen {
    /// Not yet.
    #[default]
    No,
    /// Without counters.
    Empty,
    /// With counters.
    Counters,
    /// With counters that a middlebox had cleared.
    Cleared,
}

/// Counts of bytes of text by the ECN field of the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EcnBytes {
    /// ECT(1).
    pub ect_1: u32,
    /// Marked.
    pub ce: u32,
    /// ECT(0).
    pub ect_0: u32,
}

impl From<[u32; 3]> for EcnBytes {
    fn from([ect_1, ce, ect_0]: [u32; 3]) -> Self {
        Self { ect_1, ce, ect_0 }
    }
}

/// A connection's accurate ECN seen from outside. Counts wrap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccEcnInfo {
    /// Packets that arrived marked (`tcpi_received_ce`).
    pub received_ce: u32,
    /// Bytes that arrived (`tcpi_received_e1_bytes` and similar).
    pub received: EcnBytes,
    /// Packets that arrived marked at the peer, as far as known (`tcpi_delivered_ce`).
    pub delivered_ce: u32,
    /// Bytes that arrived at the peer (`tcpi_delivered_e1_bytes` and similar).
    pub delivered: EcnBytes,
    /// What does not work.
    pub fail: Fail,
    /// Whether the peer's option was seen.
    pub option_seen: OptionSeen,
}

/// What a server knows about the SYNs of a client with which it has agreed on accurate ECN.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SynEcn {
    /// The ECN field of the latest.
    pub came_with: IpEcn,
    /// The SYN arrived again, and no longer asked for it.
    pub is_withdrawn: bool,
}

/// The state of a connection whose ends agreed.
#[derive(Clone, Debug)]
pub(super) struct AccEcn {
    received_ce: u32,
    received: [u32; 3],
    delivered_ce: u32,
    delivered: [u32; 3],
    /// The ECN field that arrived last.
    last: IpEcn,
    /// The field with which all recent bytes have arrived.
    estimate: Option<usize>,
    /// How many counters an option needs to report the news.
    needed: u8,
    /// Marked packets that no segment has reported yet, saturating.
    untold: u8,
    seen: OptionSeen,
    fail: Fail,
    /// If our first segment after the SYN is a bare acknowledgment, it reports how the peer's SYN-ACK arrived.
    reflects: Option<IpEcn>,
    /// The first segment after the peer's SYN has not arrived.
    is_new: bool,
    /// The duplicate that was last reported together with an option.
    told_duplicate: Option<SeqNum>,
    /// Packets that an acknowledgment reports on average, in sixty-fourths; 0 before the first.
    packets_avg: u32,
}

/// The values of an acknowledgment that count here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acked<'a> {
    pub flags: Flags,
    pub option: Option<&'a AccEcnOption>,
    /// Text that it newly reports, bytes.
    pub bytes: u32,
    /// The same in packets.
    pub packets: u32,
    /// Text that was ever sent, bytes, saturating.
    pub sent: u32,
    pub mss: u32,
}

impl AccEcn {
    /// The state of a server whose client's SYN arrived with this field.
    pub fn server(syn: SynEcn) -> Self {
        let mut state = Self { last: syn.came_with, is_new: true, ..Self::new() };
        if syn.is_withdrawn {
            state.fail.add(Fail::ACE_SENT);
        }
        state
    }

    /// The state of a client whose server's SYN-ACK arrived with these flags and this option.
    pub fn client(syn_ack: Flags, option: Option<&AccEcnOption>) -> Self {
        let came_with = IpEcn::of(syn_ack);
        let mut state = Self { reflects: Some(came_with), ..Self::new() };
        if let Some(option) = option {
            state.see(option);
        }
        if !SENT_WITH.may_become(told(syn_ack.ace()).unwrap_or_default()) {
            state.fail.add(Fail::ACE_RECEIVED);
        } else if came_with == IpEcn::Ce {
            state.received_ce += 1;
        }
        state
    }

    fn new() -> Self {
        Self {
            received_ce: 0,
            received: [0; 3],
            delivered_ce: 0,
            delivered: [0; 3],
            last: IpEcn::NotEct,
            estimate: None,
            needed: 0,
            untold: 0,
            seen: OptionSeen::No,
            fail: Fail::default(),
            reflects: None,
            is_new: false,
            told_duplicate: None,
            packets_avg: 0,
        }
    }

    pub fn info(&self) -> AccEcnInfo {
        AccEcnInfo {
            received_ce: self.received_ce,
            received: self.received.into(),
            delivered_ce: self.delivered_ce,
            delivered: self.delivered.into(),
            fail: self.fail,
            option_seen: self.seen,
        }
    }

    /// The field of the peer's SYN, while nothing else has arrived.
    pub fn syn_came_with(&self) -> IpEcn {
        self.last
    }

    /// Whether segments have the option.
    pub fn sends_option(&self) -> bool {
        self.seen != OptionSeen::No && !self.fail.has(Fail::OPTION_SENT)
    }

    /// The flags of every segment: the counter, and whether it is ECN-capable.
    pub fn flags(&self) -> Flags {
        let ace = u8::try_from(self.received_ce.wrapping_add(FIRST_ACE) & ACE_MAX).unwrap_or(0);
        let is_seen_through = !self.fail.has(Fail::ACE_RECEIVED) && !self.fail.has(Fail::ACE_SENT);
        let ect = if is_seen_through { Flags::ECT } else { Flags::NONE };
        Flags::from_ace(ace).with(ect)
    }

    /// The flags of our first segment, `is_bare` or not, if they differ from those of every segment. After that, no
    /// segment is the first.
    pub fn reflect(&mut self, is_bare: bool) -> Option<Flags> {
        self.reflects.take().filter(|_| is_bare).map(reflected)
    }

    /// The option for a segment with this much room.
    pub fn option(&self, room: usize) -> Option<AccEcnOption> {
        let value = |index: usize| self.received[index].wrapping_add(FIRST[index]);
        AccEcnOption::new([value(0), value(1), value(2)], 3)
            .within(room)
            .filter(|option| self.sends_option() && option.count >= self.needed)
    }

    /// Number of counters for which the next option needs room.
    pub fn needed(&self) -> u8 {
        if self.sends_option() { self.needed } else { 0 }
    }

    /// A segment reports that text from `duplicate` on arrived twice. If it was reported before, together with an
    /// option, that segment was lost, perhaps because of the option (RFC 9768 section 3.2.3.2.2).
    pub fn on_duplicate(&mut self, duplicate: SeqNum) {
        if self.told_duplicate == Some(duplicate) {
            self.fail.add(Fail::OPTION_SENT);
        }
        self.told_duplicate = self.sends_option().then_some(duplicate);
    }

    /// A segment is sent, with the option or without.
    pub fn on_sent(&mut self, with_option: bool) {
        self.untold = 0;
        if with_option {
            self.needed = 0;
        }
    }

    /// Counts an accepted segment, which a device may have joined from several. True if the peer must be told at once.
    pub fn count(&mut self, flags: Flags, text_len: u32, packets: u32) -> bool {
        let came_with = IpEcn::of(flags);
        if came_with == IpEcn::Ce {
            self.received_ce = self.received_ce.wrapping_add(packets);
            self.untold = self.untold.saturating_add(u8::try_from(packets).unwrap_or(u8::MAX));
        }
        if let Some(index) = came_with.index().filter(|_| text_len > 0) {
            self.received[index] = self.received[index].wrapping_add(text_len);
            self.needed = self.needed.max(u8::try_from(index + 1).unwrap_or(3));
        }
        let is_change = core::mem::replace(&mut self.last, came_with) != came_with;
        text_len > 0 && (is_change || self.untold >= UNTOLD_MAX)
    }

    /// Processes the first segment after the peer's SYN (RFC 9768 section 3.2.2.1 and table 4). True if this is that
    /// segment.
    pub fn take_first(&mut self, flags: Flags, is_bare: bool, option: Option<&AccEcnOption>) -> bool {
        if !core::mem::take(&mut self.is_new) {
            return false;
        }
        let is_changed = |came_with: IpEcn| is_bare && !SENT_WITH.may_become(came_with);
        if flags.ace() == 0 || told(flags.ace()).is_some_and(is_changed) {
            self.fail.add(Fail::ACE_RECEIVED);
        }
        if let Some(option) = option {
            self.see(option);
        }
        true
    }

    /// Processes a new acknowledgment, and returns how many more packets have arrived marked (RFC 9768 appendix A.1 and
    /// A.2).
    pub fn take_ack(&mut self, acked: &Acked<'_>) -> u32 {
        let marked_before = self.delivered[1];
        let is_told = self.take_option(acked);
        let ace = u32::from(acked.flags.ace()).wrapping_sub(FIRST_ACE);
        let delta = ace.wrapping_sub(self.delivered_ce) & ACE_MAX;
        let marked_bytes = self.delivered[1].wrapping_sub(marked_before);
        self.count_packets(acked.packets);
        let is_joined = self.packets_avg > JOINED_PACKETS << PACKETS_SHIFT;
        let news = likely(delta, acked, is_told.then_some(marked_bytes), is_joined);
        self.delivered_ce = self.delivered_ce.wrapping_add(news);
        news
    }

    /// Averages the packets of an acknowledgment.
    fn count_packets(&mut self, packets: u32) {
        let now = packets.min(u32::from(u16::MAX)) << PACKETS_SHIFT;
        self.packets_avg = match self.packets_avg {
            0 => now,
            avg => avg - (avg >> PACKETS_SHIFT) + (now >> PACKETS_SHIFT),
        };
    }

    /// Processes the option. True if its counters, or those before, show how many bytes have arrived marked.
    fn take_option(&mut self, acked: &Acked<'_>) -> bool {
        if self.fail.has(Fail::OPTION_RECEIVED) {
            return false;
        }
        let Some(option) = acked.option else {
            if self.seen == OptionSeen::No && acked.sent >= UNSEEN_MAX {
                self.fail.add(Fail::OPTION_RECEIVED);
            }
            // The option was left out: bytes arrive with the same field as before.
            let known = self.estimate.filter(|_| self.seen != OptionSeen::No);
            if let Some(index) = known {
                self.delivered[index] = self.delivered[index].wrapping_add(acked.bytes);
            }
            return known.is_some();
        };
        if self.seen < OptionSeen::Counters {
            self.see(option);
        }
        let before = self.estimate;
        let (mut changed, mut is_clear) = (None, true);
        for (index, count) in self.delivered.iter_mut().enumerate() {
            let Some(value) = option.value(index) else { continue };
            let delta = signed_24(value.wrapping_sub(FIRST[index]).wrapping_sub(*count));
            *count = count.wrapping_add_signed(delta);
            if delta != 0 {
                is_clear &= delta > 0 && changed.is_none();
                changed = Some(index);
            }
        }
        self.estimate = if is_clear { changed.or(before) } else { None };
        is_clear
    }

    /// The option has arrived.
    fn see(&mut self, option: &AccEcnOption) {
        self.seen = match () {
            () if option.count == 0 => OptionSeen::Empty,
            () if option.is_cleared() => OptionSeen::Cleared,
            () => OptionSeen::Counters,
        };
        if self.seen == OptionSeen::Cleared {
            self.fail.add(Fail::OPTION_RECEIVED);
        }
    }
}

/// The probable number of marked packets that an acknowledgment reports. Its flags show `delta` more, or that plus any
/// multiple of eight. `marked_bytes`: how many more bytes have arrived marked, if known. `is_joined`: the path joins
/// acknowledgments, so a long one says little.
fn likely(delta: u32, acked: &Acked<'_>, marked_bytes: Option<u32>, is_joined: bool) -> u32 {
    let packets = acked.packets;
    if packets <= ACE_MAX {
        return delta;
    }
    // The largest number with the same three low bits.
    let most = packets - (packets.wrapping_sub(delta) & ACE_MAX);
    match marked_bytes {
        None if is_joined => delta,
        None => most,
        Some(0) => delta,
        Some(bytes) if packets >= 2 * (ACE_MAX + 1) => {
            if acked.bytes <= bytes {
                return most;
            }
            let share = (u64::from(bytes) * u64::from(packets)).div_ceil(u64::from(acked.bytes));
            most.min(delta + (u32::try_from(share).unwrap_or(u32::MAX) & !ACE_MAX))
        }
        Some(bytes) if u64::from(bytes) > u64::from(delta) * u64::from(acked.mss) => most,
        Some(_) => delta,
    }
}

/// The low 24 bits as a signed number: a counter that goes back arrived in an old segment.
fn signed_24(delta: u32) -> i32 {
    (delta << 8).cast_signed() >> 8
}

/// SYNs and SYN-ACKs are not ECN-capable.
const SENT_WITH: IpEcn = IpEcn::NotEct;
/// From this average number of packets per acknowledgment on, the path is assumed to join acknowledgments.
const JOINED_PACKETS: u32 = 4;
/// Weight and unit of that average, as powers of two.
const PACKETS_SHIFT: u32 = 6;
/// Number of marked packets with text after which the peer is told at once (RFC 9768 section 3.2.2.5.1: 2 to 6).
const UNTOLD_MAX: u8 = 2;

#[cfg(test)]
mod tests;
