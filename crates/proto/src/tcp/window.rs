//! The receive window: how much to advertise, and when an update needs a segment of its own.
//!
//! The reader of `so_rcv` and the pcb use the same function, [`window_update_due`], to decide whether an update is due.
//! The reader does so under `so_rcv`'s mutex, so either it sees the edge that the pcb has advertised, or the pcb sees
//! the space that it has freed. This module does not depend on the pcb. Tests stand at the end and in
//! `tests/windows.rs`.
//!
//! Invariants: the right edge never moves left; it moves right by at least
//! `min(hiwat / 2, unit)` (RFC 9293 section 3.8.6.2.2), or not at all.

use crate::seq::SeqNum;

/// True if the receiver should send a window update although it has nothing else to send.
///
/// All sizes in bytes: `space` is free in `so_rcv` (at most [`Pcb::rcv_wnd_max`](super::pcb::Pcb::rcv_wnd_max)
/// of it counts, so pass the smaller of the two, for `hiwat` as well), `rcv_adv` is the right edge
/// last advertised, `mss` is [`Pcb::window_unit`](super::pcb::Pcb::window_unit).
///
/// The edge must be able to move by as much as receiver SWS avoidance requires. In addition, either the peer can no
/// longer send a full segment, or the gain is a quarter of the buffer: a fast reader must not cause one update per
/// read.
#[inline]
pub fn window_update_due(space: u32, rcv_nxt: SeqNum, rcv_adv: SeqNum, hiwat: u32, mss: u32) -> bool {
    let remaining = rcv_adv.since(rcv_nxt);
    let growth = space.saturating_sub(remaining);
    let least = least_growth(hiwat, mss);
    growth >= least && (remaining < least || growth >= hiwat / 4)
}

/// The smallest step of the right edge, bytes.
#[inline]
pub(super) fn least_growth(hiwat: u32, unit: u32) -> u32 {
    (hiwat / 2).min(unit).max(1)
}

/// The shift count for a receive buffer that may grow to `rcv_buf_max` bytes (RFC 7323 section 2.3).
pub fn window_scale_for(rcv_buf_max: u32) -> u8 {
    let mut scale = 0;
    while scale < WINDOW_SCALE_MAX && (rcv_buf_max >> scale) > WINDOW_FIELD_MAX {
        scale += 1;
    }
    scale
}

/// The window field for `wnd` bytes. Rounds down: the part that the field cannot express is not announced.
pub fn window_field(wnd: u32, scale: u8) -> u16 {
    u16::try_from(wnd >> scale).unwrap_or(u16::MAX)
}

/// The largest value of the window field.
const WINDOW_FIELD_MAX: u32 = 0xffff;
/// RFC 7323 section 2.3.
pub const WINDOW_SCALE_MAX: u8 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1460;
    const HIWAT: u32 = 65_536;

    fn due(space: u32, remaining: u32) -> bool {
        let nxt = SeqNum::new(u32::MAX - 5);
        window_update_due(space, nxt, nxt + remaining, HIWAT, MSS)
    }

    #[test]
    fn a_closed_window_opens_by_one_segment_and_not_earlier() {
        assert!(!due(0, 0));
        assert!(!due(MSS - 1, 0));
        assert!(due(MSS, 0));
    }

    #[test]
    fn an_open_window_is_updated_for_a_quarter_of_the_buffer() {
        let remaining = HIWAT / 2;
        assert!(!due(remaining + HIWAT / 4 - 1, remaining));
        assert!(due(remaining + HIWAT / 4, remaining));
    }

    #[test]
    fn a_small_buffer_is_updated_for_half_of_itself() {
        let nxt = SeqNum::new(7);
        assert!(!window_update_due(499, nxt, nxt, 1000, MSS));
        assert!(window_update_due(500, nxt, nxt, 1000, MSS));
    }

    #[test]
    fn a_window_larger_than_the_space_is_no_reason_for_an_update() {
        assert!(!due(10, 5000));
    }

    #[test]
    fn the_scale_is_the_smallest_that_can_express_the_buffer() {
        assert_eq!(window_scale_for(0), 0);
        assert_eq!(window_scale_for(65_535), 0);
        assert_eq!(window_scale_for(65_536), 1);
        assert_eq!(window_scale_for(4 << 20), 7);
        assert_eq!(window_scale_for(u32::MAX), WINDOW_SCALE_MAX);
    }

    #[test]
    fn the_field_rounds_down_and_saturates() {
        assert_eq!(window_field(1023, 3), 127);
        assert_eq!(window_field(7, 3), 0);
        assert_eq!(window_field(u32::MAX, 3), u16::MAX);
    }
}
