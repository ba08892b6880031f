//! The clock behind TSval, and comparisons of timestamps (RFC 7323).
//!
//! One tick is a millisecond. Timestamps wrap as sequence numbers do. It does not depend on pcbs. Tests stand at the
//! end.

use core::time::Duration;

use crate::time::Instant;

/// How long TS.Recent stays meaningful on an idle connection (RFC 7323 section 5.5): after 24.8 days, a peer's
/// millisecond clock has covered half of its range.
pub const RECENT_MAX_AGE: Duration = Duration::from_secs(24 * 24 * 60 * 60);

/// The unit of TSval, microseconds.
pub const TICK_US: u32 = 1_000;

/// TSval at `now` for a connection whose offset is `ts_offset`.
pub const fn value(now: Instant, ts_offset: u32) -> u32 {
    // Only the low 32 bits of the millisecond count appear on the wire: the narrowing is intended.
    ((now.as_millis() & 0xffff_ffff) as u32).wrapping_add(ts_offset)
}

/// True if timestamp `a` is strictly older than `b`.
pub const fn older(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// True if TS.Recent shows that a segment with this timestamp is an old duplicate (PAWS, RFC 7323 section 5.3 R1). Zero
/// shows nothing, as on Linux: some hosts send zero with their SYN, and then their clock, which may be in the other
/// half of its range. Nor does a distance of half of the range, which may be later as well as older.
pub const fn is_stale(val: u32, ts_recent: u32) -> bool {
    ts_recent != 0 && ts_recent.wrapping_sub(val) as i32 > 0
}

/// True if this timestamp is a later TS.Recent.
pub const fn is_later(val: u32, ts_recent: u32) -> bool {
    ts_recent == 0 || older(ts_recent, val)
}

/// Time passed at `now` since a connection with this offset sent what the peer has echoed; `None` for an echo of what it has not sent yet.
pub const fn since(echo: u32, now: Instant, ts_offset: u32) -> Option<Duration> {
    elapsed(echo, value(now, ts_offset))
}

/// Time passed between two of our own timestamps; `None` if `later` is not at or after `earlier`.
const fn elapsed(earlier: u32, later: u32) -> Option<Duration> {
    if older(later, earlier) { None } else { Some(Duration::from_millis(later.wrapping_sub(earlier) as u64)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recent_timestamp_of_zero_shows_nothing() {
        for val in [0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            assert!(!is_stale(val, 0) && is_later(val, 0), "{val}");
            assert!(!is_stale(val, val) && (val == 0 || !is_later(val, val)), "{val}");
        }
        assert!(is_stale(0xffff_ffff, 1) && !is_later(0xffff_ffff, 1));
        assert!(!is_stale(2, 1) && is_later(2, 1));
        assert!(!is_stale(0x8000_0001, 1) && is_stale(0x8000_0002, 1) && is_later(0x8000_0001, 1));
    }

    #[test]
    fn timestamps_order_across_the_wrap() {
        assert!(older(u32::MAX, 3) && !older(3, u32::MAX) && !older(7, 7));
        assert_eq!(elapsed(u32::MAX, 3), Some(Duration::from_millis(4)));
        assert_eq!(elapsed(3, u32::MAX), None);
    }

    #[test]
    fn value_is_the_low_half_of_the_millisecond_clock_plus_the_offset() {
        let now = Instant::from_micros(((1u64 << 32) + 5) * 1000);
        assert_eq!(value(now, 0), 5);
        assert_eq!(value(now, u32::MAX), 4);
    }
}
