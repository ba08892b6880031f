//! Where the data of `so_snd` gets PSH, by Linux's rules (`tcp_mark_push`, `forced_push`).
//!
//! RFC 9293 section 3.9.1.2 lets a sender set PSH as it likes if it does not hold data back for ever. Linux sets PSH at
//! the end of a write, and when more than half of the largest window that the peer ever offered was written since the
//! last PSH: otherwise, a receiver that waits for PSH could hold back everything that fits into its window. The marks
//! are on positions, not on segments, so a retransmitted segment has the same PSH. A mark inside a segment moves to the
//! segment's end when it is sent, and stays there if it is cut later. Written data that is not sent yet is
//! in runs of whole segments (Linux: one socket buffer), or of one segment if Linux would not join segments
//! (`gso_max_segs` is 1). A write continues the last run, and removes the mark at its end. Also, the last of several
//! segments that are sent together for the first time has PSH. They are one packet for the device or for generic
//! segmentation, and a receiver that joins segments should not wait after it (`tcp_tso_autosize` decides how many;
//! [`Pcb::burst_max`]). The beginning and end of such a packet are kept, because its data is also retransmitted as one,
//! with PSH at its end if it has several segments (`tcp_retransmit_skb`).
//!
//! Callers that append to `so_snd` update it under the same lock, and so does output; the pcb does not know it.
//! Positions are bytes since the beginning of the stream, modulo 2^32. Bound: `MARKS_MAX` marks and as many
//! unacknowledged packets. If there are more marks, the first ones and the last count, so segments far after them have
//! no PSH. If there are more packets, the oldest are forgotten, and their retransmitted segments have no PSH. Tests:
//! `push/tests.rs`; `tests/tcp/sender.rs` of the stack.

use std::collections::VecDeque;

use crate::seq::SeqNum;

use super::accepted::DEFAULT_MSS;
use super::output::BURST_MAX;
use super::pcb::Pcb;
use super::segment::Payload;

/// What comes after appended bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// The rest of the same write follows.
    GoesOn,
    /// The write ends with these bytes.
    Ends,
    /// The write ends, and the writer has announced more (`MSG_MORE`): no PSH here.
    More,
}

/// The marks of one send buffer.
#[derive(Debug)]
pub struct Pushes {
    /// The first byte of the buffer.
    front: SeqNum,
    /// The latest mark; there is none if it is not after `front`.
    last: SeqNum,
    /// The end of written data when it was set (`pushed_seq`). Removing a mark does not change this.
    pushed: SeqNum,
    /// The beginning of the last run.
    run: SeqNum,
    /// Where the current write ends if it does not block; not after `front` if that is not known.
    over: SeqNum,
    /// Everything before this was sent, as of the last output.
    sent: SeqNum,
    /// Bytes of a full run, and the segment and window from which it is computed.
    run_max: u32,
    mss: u32,
    wnd_max: u32,
    /// Segments sent together so far.
    burst: u32,
    /// Bytes of whole segments for which the windows had room after the last output.
    room: u32,
    /// Least number of segments that are sent together, if the windows allow it (`tcp_min_tso_segs`).
    burst_min: u8,
    /// The interface takes segments without their checksums, so that Linux would hand it several as one (GSO).
    is_joined: bool,
    /// The write that appended last continues.
    is_begun: bool,
    /// Everything else after `front`.
    kept: Option<Box<Kept>>,
}

/// Marks and packets after the front of the buffer, in order.
#[derive(Debug, Default)]
struct Kept {
    /// Marks before the last.
    marks: VecDeque<SeqNum>,
    /// Beginnings and ends of sent packets with several segments.
    packets: VecDeque<(SeqNum, SeqNum)>,
    /// The end of the latest retransmission, and how many segments of its packet were sent together there.
    again: (SeqNum, u32),
}

impl Kept {
    fn add_packet(&mut self, start: SeqNum, end: SeqNum) {
        if self.packets.len() >= MARKS_MAX {
            self.packets.pop_front();
        }
        self.packets.push_back((start, end));
    }

    /// `start` to `end` is retransmitted in segments of `mss` bytes; `is_last` if nothing after it is now. Returns
    /// whether several segments of a packet end there.
    fn leaves_again(&mut self, start: SeqNum, end: SeqNum, mss: u32, is_last: bool) -> bool {
        let next = self.packets.partition_point(|(_, packet_end)| packet_end.before(end));
        let Some(packet) = self.packets.get(next).filter(|packet| packet.0.before(end)) else {
            self.again.1 = 0;
            return false;
        };
        let begin = start.max(packet.0);
        let before = if begin == self.again.0 && begin.after(packet.0) { self.again.1 } else { 0 };
        self.again = (end, before + end.since(begin).div_ceil(mss.max(1)));
        (end == packet.1 || is_last) && self.again.1 > 1
    }

    /// Everything before `front` is acknowledged. Returns whether nothing is left, but capacity for much.
    fn forget_before(&mut self, front: SeqNum) -> bool {
        while self.marks.front().is_some_and(|mark| mark.at_or_before(front)) {
            self.marks.pop_front();
        }
        while self.packets.front().is_some_and(|(_, end)| end.at_or_before(front)) {
            self.packets.pop_front();
        }
        self.again.1 = 0;
        let room = self.marks.capacity().max(self.packets.capacity());
        self.marks.is_empty() && self.packets.is_empty() && room > MARKS_KEPT
    }
}

impl Default for Pushes {
    fn default() -> Self {
        Self::new(false, BURST_MIN)
    }
}

impl Pushes {
    /// The marks of an empty buffer. `is_joined`: Linux would join segments for the interface (GSO), at least
    /// `burst_min`.
    pub const fn new(is_joined: bool, burst_min: u8) -> Self {
        let begin = SeqNum::new(0);
        Self {
            front: begin,
            last: begin,
            pushed: begin,
            run: begin,
            over: begin,
            sent: begin,
            run_max: RUN_MAX,
            mss: 0,
            wnd_max: u32::MAX,
            burst: 0,
            room: 0,
            burst_min,
            is_joined,
            is_begun: false,
            kept: None,
        }
    }

    /// `added` bytes were appended to the buffer, which now has `len`.
    #[inline]
    pub fn written(&mut self, added: u32, len: u32, then: Then) {
        let is_end = then != Then::GoesOn;
        let end = self.front + len;
        let start = end - added;
        if !self.is_begun {
            self.run = if self.sent.at_or_after(start) { start } else { self.run.max(self.sent) };
            if self.last == start && start.after(self.run) && start.since(self.run) < self.run_max {
                self.unmark();
            }
        }
        if end.since(self.run) >= self.run_max {
            self.pass_runs(start, end, is_end);
        }
        self.is_begun = !is_end;
        if is_end {
            self.over = self.front;
        }
        // A write that has used all of its room ends now; what it sends leaves.
        let is_over = then == Then::Ends || (!is_end && end == self.over);
        if is_over || (then == Then::More && end.since(self.pushed) > self.wnd_max / 2) {
            self.mark(end);
            self.pushed = end;
        }
    }

    /// The next write ends a buffer of `len` bytes and is urgent: nothing of it is sent or pushed before its end
    /// (`tcp_sendmsg_locked`).
    #[cold]
    pub fn urgent(&mut self, len: u32) {
        (self.pushed, self.room) = (self.front + len, 0);
    }

    /// Bytes that a writer may append to a buffer of `len` if there is less space than it wants, only `space`: it fills
    /// its present run, and begins another as long as there is any space. On Linux, only the beginning of a socket
    /// buffer checks for memory (`tcp_sendmsg_locked`). Behind runs that wait, none of the write's own is sent before the
    /// write ends, so the writer gets all of its room at once, and a write that does not block ends there.
    pub fn room(&mut self, len: u32, space: u32) -> u32 {
        let start = self.front + len;
        let run = self.run.max(self.sent);
        let waits = self.sent.before(start);
        let rest = if waits { self.run_max.saturating_sub(start.since(run)) } else { 0 };
        if !waits || (rest > 0 && rest < self.run_max && !run.after(self.sent)) {
            // The first queued run is sent as soon as it is full (`tcp_push_one`).
            return if rest == 0 && space > 0 { self.run_max } else { rest };
        }
        // A run that has just ended takes no more data.
        let rest = if rest < self.run_max { rest } else { 0 };
        let room = rest + space.saturating_sub(rest).div_ceil(self.run_max).saturating_mul(self.run_max);
        self.over = start + room;
        room
    }

    /// Whether a write that does not block has used all of its room when the buffer has `len` bytes.
    pub fn is_over(&self, len: u32) -> bool {
        self.is_begun && self.over == self.front + len
    }

    /// The last run ends here: later writes are not joined with it (`MSG_EOR`).
    pub fn end_run(&mut self, len: u32) {
        self.run = self.front + len;
    }

    /// What was written so far must be sent although its write continues: the write waits for space, or has given up.
    /// The buffer has `len` bytes.
    pub fn interrupted(&mut self, len: u32) {
        let end = self.front + len;
        (self.is_begun, self.over) = (false, self.front);
        if self.sent.before(end) {
            self.mark(end);
            self.pushed = end;
        }
    }

    /// `bytes` at the front of the buffer were removed.
    #[inline]
    pub fn acked(&mut self, bytes: u32) {
        self.front += bytes;
    }

    /// After output: `len` bytes are in the buffer.
    #[inline]
    pub fn settle<P: Payload>(&mut self, pcb: &Pcb<P>, len: u32) {
        self.sent = self.front + pcb.snd_max().since(pcb.snd_una()).min(len);
        self.burst = 0;
        self.room = pcb.room_for_segments();
        let (mss, wnd_max) = (u32::from(pcb.send_mss()), pcb.snd_wnd_max());
        let run_max = self.run_max;
        if mss != self.mss || wnd_max != self.wnd_max {
            (self.mss, self.wnd_max) = (mss, wnd_max);
            let most = RUN_MAX.min(half_of_window(wnd_max));
            self.run_max = if self.is_joined { (most - most % mss.max(1)).max(mss) } else { mss };
        }
        if self.sent.before(self.run) && self.run.since(self.sent) <= run_max {
            self.fill_first_run(pcb, len);
        }
        if self.kept.is_some() {
            self.forget_acked();
        }
    }

    /// One run waits before the last: unless it is full, or ends a record, it is filled up from the last, even if the peer's
    /// window has no room for it, or it is held back (`tcp_grow_skb` in `tcp_write_xmit`). The buffer has `len` bytes.
    #[inline(never)]
    fn fill_first_run<P: Payload>(&mut self, pcb: &Pcb<P>, len: u32) {
        let (end, before) = (self.front + len, self.run.since(self.sent));
        // Several segments, where they are sent as one.
        let burst = if self.is_joined { pcb.burst_max(u32::from(self.burst_min)) } else { 1 };
        let most = self.run_max.min(burst.saturating_mul(self.mss));
        let full = (self.sent + most).min(end);
        let is_parted = pcb.within_record(self.sent.since(self.front), before + 1) <= before;
        if before >= most || is_parted || !pcb.has_looked_with_room() {
            return;
        }
        // A write continues what has taken all of the last run.
        self.run = if full == end { self.sent } else { full };
        if self.has_mark(self.sent, full) {
            self.gather(self.sent, full);
        }
    }

    /// A segment of `len` bytes is sent that ends `end` bytes from the front, or several of `mss` bytes as one. Returns
    /// whether it has PSH.
    #[inline]
    pub fn leaves<P: Payload>(&mut self, len: u32, end: u32, mss: u32, pcb: &Pcb<P>) -> bool {
        let at = self.front + end;
        let is_marked = self.has_mark(at - len, at);
        if is_marked && (self.last != at || self.kept.is_some()) {
            self.gather(at - len, at);
        }
        if !at.after(self.sent) {
            return is_marked || self.leaves_again(at - len, at, mss, pcb);
        }
        self.sent = at;
        let before = self.burst;
        self.burst += if len <= mss { 1 } else { len.div_ceil(mss.max(1)) };
        let ends =
            self.is_joined && (self.burst >= pcb.burst_max(u32::from(self.burst_min)) || !pcb.sends_more());
        // A burst of one is an ordinary segment.
        let is_packet = self.burst > 1 && (ends || (is_marked && self.is_joined));
        if is_packet {
            // All but the last are full.
            self.kept.get_or_insert_default().add_packet(at - len - before * mss, at);
        }
        if is_marked || ends {
            self.burst = 0;
        }
        is_marked || is_packet
    }

    #[inline(never)]
    fn leaves_again<P: Payload>(&mut self, start: SeqNum, end: SeqNum, mss: u32, pcb: &Pcb<P>) -> bool {
        let Some(kept) = self.kept.as_deref_mut() else { return false };
        kept.leaves_again(start, end, mss, !pcb.repeats_at(end.since(self.front)))
    }

    /// A SYN carries the text that ends `offset` bytes from the front. It is one packet, which has a mark at its end
    /// and none inside, and counts as pushed (`tcp_send_syn_data`, `tcp_connect`).
    pub fn leaves_with_syn(&mut self, offset: u32) {
        let end = self.front + offset;
        if let Some(kept) = self.kept.as_deref_mut() {
            kept.marks.retain(|mark| mark.at_or_after(end));
        }
        if self.last.before(end) {
            self.last = self.front;
        }
        self.mark_within(offset);
        self.pushed = self.pushed.max(self.front + offset);
    }

    /// Sets a mark `offset` bytes from the front, in addition to the last.
    fn mark_within(&mut self, offset: u32) {
        let at = self.front + offset;
        if at != self.last {
            self.mark_before_last(at);
        }
    }

    /// A probe of a small window is sent from a buffer of `len` bytes and ends `offset` bytes from the front. It has
    /// PSH, and so has the rest of the packet from which it is cut; the whole packet counts as pushed
    /// (`tcp_write_wakeup` does both before it cuts).
    pub fn mark_probe(&mut self, offset: u32, len: u32) {
        let packet_end = self.sent + self.run_max;
        self.pushed = self.pushed.max(packet_end.min(self.front + len));
        let is_cut = (self.front + offset).before(packet_end) && packet_end.before(self.front + len);
        if is_cut {
            self.mark_before_last(packet_end);
        }
        self.mark_within(offset);
    }

    /// Sets a mark that is not the last.
    fn mark_before_last(&mut self, at: SeqNum) {
        if !self.last.after(at) {
            return self.mark(at);
        }
        let marks = &mut self.kept.get_or_insert_default().marks;
        let index = marks.partition_point(|mark| mark.before(at));
        if marks.get(index) != Some(&at) {
            marks.insert(index, at);
        }
        marks.truncate(MARKS_MAX);
    }

    fn keep(&mut self, at: SeqNum) {
        let marks = &mut self.kept.get_or_insert_default().marks;
        if marks.len() < MARKS_MAX {
            marks.push_back(at);
        }
    }

    /// `start` to `end` is one packet now, whose flags are at its end (`tcp_grow_skb`, `tcp_collapse_retrans`): if it is cut
    /// later, the last part has PSH (`tcp_fragment`).
    #[inline(never)]
    fn gather(&mut self, start: SeqNum, end: SeqNum) {
        if let Some(kept) = self.kept.as_deref_mut() {
            let first = kept.marks.partition_point(|mark| mark.at_or_before(start));
            let behind = kept.marks.partition_point(|mark| mark.at_or_before(end));
            if behind == first + 1 && kept.marks[first] == end {
                return;
            }
            kept.marks.drain(first..behind);
        }
        if self.last.after(start) && self.last.at_or_before(end) {
            self.last = end;
        } else {
            self.mark_before_last(end);
        }
    }

    /// Whether a mark follows a byte from `start` up to `end`: then the segment has PSH.
    #[inline]
    fn has_mark(&self, start: SeqNum, end: SeqNum) -> bool {
        let is_inside = |mark: SeqNum| mark.after(start) && mark.at_or_before(end);
        is_inside(self.last) || (self.kept.is_some() && self.has_earlier_mark(start, end))
    }

    #[inline(never)]
    fn has_earlier_mark(&self, start: SeqNum, end: SeqNum) -> bool {
        let Some(marks) = self.kept.as_deref().map(|kept| &kept.marks) else { return false };
        let next = marks.partition_point(|mark| mark.at_or_before(start));
        marks.get(next).is_some_and(|mark| mark.at_or_before(end))
    }

    /// Full runs end between `start` and `end`.
    #[inline(never)]
    fn pass_runs(&mut self, start: SeqNum, end: SeqNum, is_end: bool) {
        if start.since(self.run) >= self.run_max {
            // The rest of a full run that was sent in part is filled up again.
            self.run = if start.since(self.sent) < self.run_max { self.sent } else { start };
        }
        if self.sent == self.run && end.since(self.run) > self.run_max {
            // The first full run is sent while the write continues, as far as there is room (`tcp_push_one`), and its
            // rest is filled up again.
            let room = core::mem::take(&mut self.room);
            if room < self.run_max {
                self.run += room;
            }
        }
        while end.since(self.run) >= self.run_max {
            let full = self.run + self.run_max;
            if is_end && full == end {
                return;
            }
            if full.after(self.pushed) && full.since(self.pushed) > self.wnd_max / 2 {
                self.mark(full);
                self.pushed = full;
            }
            if full == end {
                return;
            }
            self.run = full;
        }
    }

    /// A write continues the run that has the latest mark, and so removes the mark.
    fn unmark(&mut self) {
        let before = self.kept.as_deref_mut().and_then(|kept| kept.marks.pop_back());
        self.last = before.unwrap_or(self.front);
    }

    /// Sets a mark at `at`, in the last run. It replaces an earlier mark of that run.
    fn mark(&mut self, at: SeqNum) {
        if self.last != at && self.last.after(self.front) && self.last.at_or_before(self.run.max(self.sent)) {
            self.keep(self.last);
        }
        self.last = at;
    }

    #[inline(never)]
    fn forget_acked(&mut self) {
        if self.kept.as_deref_mut().is_some_and(|kept| kept.forget_before(self.front)) {
            self.kept = None;
        }
    }
}

/// Half of the largest window that the peer has offered, or all of a tiny one (`tcp_bound_to_half_wnd`).
pub(super) fn half_of_window(wnd_max: u32) -> u32 {
    if wnd_max > u32::from(DEFAULT_MSS) { wnd_max / 2 } else { wnd_max }
}

/// Bytes of the longest run: a packet of 64 KiB without the room for headers that Linux keeps.
const RUN_MAX: u32 = BURST_MAX;
/// `tcp_min_tso_segs` of Linux.
const BURST_MIN: u8 = 2;
/// Largest number of marks kept besides the last, and of packets.
const MARKS_MAX: usize = 1024;
/// Capacity that is kept when there are none.
const MARKS_KEPT: usize = 64;

#[cfg(test)]
mod tests;
