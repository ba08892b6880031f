//! SYN cookies (RFC 4987 section 3.6): a handshake whose only state is kept by the peer.
//!
//! If there is no room for an entry, the SYN-ACK's sequence number encodes what an entry would store: which peer asked,
//! when, and with which MSS; the third segment brings it back. The rest (the peer's window scale, whether it permits
//! SACK) is in the low bits of the SYN-ACK's TSval, which comes back as TSecr. Without timestamps, a connection made
//! from a cookie has neither, as on Linux.
//!
//! The number is Bernstein's, with two changes: `F1(4-tuple) + SEQ + (t << 24) + ((F2(4-tuple, t, SEQ) + (m << 21)) mod
//! 2^24)`, where t counts periods of [`PERIOD`] and m is an index into [`MSS_TABLE`]. Without SEQ in F2, the check
//! would only use the difference of both sides' numbers, and with m in the lowest bits, neighbouring numbers would be
//! valid as well. In either case, a late acknowledgment of an old connection that carried the same number of bytes in
//! both directions, or a few, could make a connection unknown to its peer. F1 and F2 are keyed hashes, so only guessing
//! finds a number that passes [`check`] (8 × 2 of 2^32 pass), and a valid number becomes invalid after [`PERIODS_MAX`]
//! periods.
//!
//! It does not depend on tables, listeners or addresses, and the caller decides when to send a cookie. Invariants:
//! [`check`] never restores more than the peer offered; the TSval sent is never later than the clock, so the next one
//! is not earlier than it. Tests: `syncache/tests/cookie.rs`.

use core::time::Duration;

use super::half_open::HalfOpen;
use super::{InitialNumbers, ListenParams};
use crate::seq::SeqNum;
use crate::tcp::accepted::{Accepted, SynAcks};
use crate::tcp::isn::{CookiePart, Secret};
use crate::tcp::segment::{Flags, Header, Options, Timestamps};
use crate::tcp::timestamp;
use crate::time::Instant;

/// The step of the counter in a cookie.
pub const PERIOD: Duration = Duration::from_secs(64);
/// For how many periods a cookie is valid, including the one in which it is made: 64 to 128 s.
pub const PERIODS_MAX: u32 = 2;
/// The sizes that a cookie can encode, bytes: the defaults, and those that MTUs of 1280, 1500 (with tunnels and
/// without) and 9000 leave. A peer gets the largest size that is not above its own; a size below the second counts as
/// the first, the smallest that a pcb uses.
pub const MSS_TABLE: [u16; 8] = [88, 536, 1220, 1300, 1420, 1440, 1460, 8940];

/// Low bits of TSval that carry options.
const TS_BITS: u32 = 6;
const TS_MASK: u32 = (1 << TS_BITS) - 1;
/// The bits of the peer's shift count; all four set for none.
const TS_SCALE: u32 = 0x0f;
/// The peer permits SACK.
const TS_SACK: u32 = 1 << 4;
/// ECN was negotiated.
const TS_ECN: u32 = 1 << 5;
/// The bits of a cookie that are not the counter.
const LOW: u32 = 0x00ff_ffff;
/// The position of the size's index in it: at the top, so that no two cookies of a handshake are near each other.
const SIZE_SHIFT: u32 = 21;

/// Identity of both ends of a handshake, as input of the keyed hashes: see [`Secret::isn`].
#[derive(Clone, Copy, Debug)]
pub struct Ends<'a> {
    /// Our end.
    pub local: &'a [u8],
    /// The peer's.
    pub remote: &'a [u8],
}

/// The answer to a SYN of which nothing is stored. `ts_offset` is the connection's ([`Secret::ts_offset`]).
pub fn syn_ack(
    secret: &Secret,
    ends: Ends<'_>,
    syn: &Header,
    params: &ListenParams,
    ts_offset: u32,
    now: Instant,
) -> Header {
    let mss = syn.options.mss.unwrap_or(params.peer_mss_default);
    // Without timestamps, there is no place for the other options and for ECN: they are not negotiated.
    let (options, flags) = match syn.options.timestamps {
        Some(_) if params.timestamps => (syn.options, syn.flags),
        Some(_) | None => (Options::default(), Flags::SYN),
    };
    let iss = encode(secret, ends, syn.seq, mss, now);
    let half_open =
        HalfOpen::new(&Header { options, flags, ..*syn }, params, InitialNumbers { iss, ts_offset });
    let mut header = half_open.syn_ack(now);
    let ecn = header.flags.any(Flags::ACE);
    if let Some(ts) = &mut header.options.timestamps {
        ts.val = pack(&options, ecn, now).wrapping_add(ts_offset);
    }
    header
}

/// Checks the cookie that the segment `hdr`, which has ACK and neither SYN nor RST, brings back. `None`: there is no
/// valid one. Otherwise returns the values for the pcb, which then gets the segment.
pub fn check(
    secret: &Secret,
    ends: Ends<'_>,
    hdr: &Header,
    params: &ListenParams,
    ts_offset: u32,
    now: Instant,
) -> Option<Accepted> {
    if !hdr.flags.has(Flags::ACK) || hdr.flags.any(Flags::SYN.with(Flags::RST)) {
        return None;
    }
    let (iss, irs) = (hdr.ack - 1, hdr.seq - 1);
    let mss = decode(secret, ends, irs, iss, now)?;
    let mut options = Options { mss: Some(mss), ..Options::default() };
    let mut flags = Flags::SYN;
    if params.timestamps
        && let Some(ts) = hdr.options.timestamps
    {
        flags = flags.with(unpack(&mut options, ts, ts_offset));
        // The flags of the acknowledgment show which kind of ECN it was (RFC 9768 section 5.1).
        if flags.any(Flags::ACE) && params.accurate_ecn && hdr.flags.ace() > 1 {
            flags = flags.with(Flags::ACE);
        }
    }
    let syn = Header { seq: irs, flags, window: hdr.window, options, ..Header::default() };
    let half_open = HalfOpen::new(&syn, params, InitialNumbers { iss, ts_offset });
    let timestamps = options.timestamps.filter(|_| params.timestamps);
    let rtt = timestamps.and_then(Timestamps::echo).and_then(|echo| round_trip(echo, ts_offset, now));
    Some(Accepted { rtt, syn_acks: SynAcks::Unknown, ..half_open.accepted(None, now, now) })
}

/// The time since the SYN-ACK was sent, by the echo of its timestamp: up to 64 ms too long, because that was rounded
/// down for the options. None if the echo is older than any cookie.
fn round_trip(echo: u32, ts_offset: u32, now: Instant) -> Option<Duration> {
    timestamp::since(echo, now, ts_offset).filter(|rtt| *rtt <= PERIOD * PERIODS_MAX)
}

fn encode(secret: &Secret, ends: Ends<'_>, irs: SeqNum, mss: u16, now: Instant) -> SeqNum {
    let index = MSS_TABLE.iter().rposition(|size| *size <= mss).unwrap_or(0);
    let index = u32::try_from(index).unwrap_or(0);
    let count = period(now);
    let data = secret.cookie(CookiePart::Data, count, irs.raw(), ends.local, ends.remote);
    let low = data.wrapping_add(index << SIZE_SHIFT) & LOW;
    irs + secret
        .cookie(CookiePart::Whole, 0, 0, ends.local, ends.remote)
        .wrapping_add(count << 24)
        .wrapping_add(low)
}

fn decode(secret: &Secret, ends: Ends<'_>, irs: SeqNum, iss: SeqNum, now: Instant) -> Option<u16> {
    let rest = iss.raw().wrapping_sub(irs.raw()).wrapping_sub(secret.cookie(
        CookiePart::Whole,
        0,
        0,
        ends.local,
        ends.remote,
    ));
    // The counter's low eight bits are there; only those of the last periods are valid.
    let count = period(now);
    let age = count.wrapping_sub(rest >> 24) & 0xff;
    if age >= PERIODS_MAX {
        return None;
    }
    let made = count.wrapping_sub(age);
    let data = secret.cookie(CookiePart::Data, made, irs.raw(), ends.local, ends.remote);
    let low = rest.wrapping_sub(data) & LOW;
    let index = usize::try_from(low >> SIZE_SHIFT).ok()?;
    MSS_TABLE.get(index).copied().filter(|_| low.trailing_zeros() >= SIZE_SHIFT)
}

/// Periods since the clock began. Only the low bits are used, so the narrowing is intended.
fn period(now: Instant) -> u32 {
    u32::try_from((now.as_millis() / 1000 / PERIOD.as_secs()) & u64::from(u32::MAX)).unwrap_or(0)
}

/// The clock, rounded down, with the options in the bits that this frees.
fn pack(options: &Options, ecn: bool, now: Instant) -> u32 {
    let scale = options.window_scale.map_or(TS_SCALE, u32::from) & TS_SCALE;
    let sack = if options.sack_permitted { TS_SACK } else { 0 };
    let ecn = if ecn { TS_ECN } else { 0 };
    let clock = timestamp::value(now, 0);
    let value = (clock & !TS_MASK) | scale | sack | ecn;
    if timestamp::older(clock, value) { value.wrapping_sub(TS_MASK + 1) } else { value }
}

/// Puts the options back, and returns the SYN's ECN flags.
fn unpack(options: &mut Options, ts: Timestamps, ts_offset: u32) -> Flags {
    let bits = ts.ecr.wrapping_sub(ts_offset) & TS_MASK;
    options.timestamps = Some(ts);
    options.sack_permitted = bits & TS_SACK != 0;
    options.window_scale = u8::try_from(bits & TS_SCALE).ok().filter(|scale| u32::from(*scale) != TS_SCALE);
    if bits & TS_ECN != 0 { Flags::ECE.with(Flags::CWR) } else { Flags::NONE }
}
