//! Where PSH stands in the data of `so_snd`, by Linux's rules (`tcp_mark_push`, `forced_push`).
//!
//! RFC 9293 section 3.9.1.2 lets a sender set PSH as it likes if it cannot hold data back for ever. Linux sets it where a write
//! ends, and where more than half of the largest window that the peer ever offered was written since the last one: else a
//! receiver that waits for PSH could hold back all that fits into its window. Positions and not segments are marked, so that a
//! segment that is sent again has the PSH that it had. Written data that is not sent yet lies in runs of whole segments (Linux:
//! one socket buffer), or of one where Linux would not join segments (`gso_max_segs` is 1); a write goes on in the last run,
//! and takes back the mark that stands at its end. Besides, the last
//! of several segments that leave together for the first time has PSH: there one packet of the device's or of generic
//! segmentation, which a receiver that joins segments is not to wait behind (`tcp_tso_autosize` says how many;
//! [`Pcb::burst_max`]). Where such a packet began and ended is kept, as what goes again of it leaves as one too, and has PSH at its
//! end if there are several segments of it (`tcp_retransmit_skb`).
//!
//! Written by whoever appends to `so_snd`, under the same lock, and by output; the pcb does not know of it. Positions are bytes
//! since the beginning of the stream, modulo 2^32. Bound: `MARKS_MAX` marks and as many packets that are not acknowledged; of more marks the
//! first and the last count, so that far behind them segments have no PSH; of more packets the oldest are forgotten, which costs repeated segments theirs. Tests: `push/tests.rs`; `tests/tcp/sender.rs` of the stack.

use std::collections::VecDeque;

use crate::seq::SeqNum;

use super::accepted::DEFAULT_MSS;
use super::output::BURST_MAX;
use super::pcb::Pcb;
use super::segment::Payload;

/// What comes after appended bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// The rest of the same write.
    GoesOn,
    /// The write ends with them.
    Ends,
    /// The write ends, and the writer has said that more will come (`MSG_MORE`): that is no place for PSH.
    More,
}

/// The marks of one send buffer.
#[derive(Debug)]
pub struct Pushes {
    /// The first byte of the buffer.
    front: SeqNum,
    /// The latest mark: there is none if it is not behind `front`.
    last: SeqNum,
    /// What was written when it was set (`pushed_seq`): a mark that is taken back does not change this.
    pushed: SeqNum,
    /// Where the last run begins.
    run: SeqNum,
    /// Everything before this was sent, as of the last output.
    sent: SeqNum,
    /// Bytes of a full run, and the segment and window that it is computed from.
    run_max: u32,
    mss: u32,
    wnd_max: u32,
    /// Segments that have left together so far.
    burst: u32,
    /// Bytes of whole segments that the windows had room for after the last output.
    room: u32,
    /// Segments that leave together at least, where the windows allow it (`tcp_min_tso_segs`).
    burst_min: u8,
    /// The interface takes segments without their checksums, so that Linux would hand it several as one (GSO).
    is_joined: bool,
    /// The write that appended last goes on.
    is_begun: bool,
    /// What else there is behind `front`.
    kept: Option<Box<Kept>>,
}

/// Behind the front of the buffer, in order.
#[derive(Debug, Default)]
struct Kept {
    /// Marks before the last.
    marks: VecDeque<SeqNum>,
    /// Where packets of several segments that have left began, and where they ended.
    packets: VecDeque<(SeqNum, SeqNum)>,
    /// The end of what was sent again last, and how many segments of its packet left together there.
    again: (SeqNum, u32),
}

impl Kept {
    fn add_packet(&mut self, start: SeqNum, end: SeqNum) {
        if self.packets.len() >= MARKS_MAX {
            self.packets.pop_front();
        }
        self.packets.push_back((start, end));
    }

    /// `start` to `end`, in segments of `mss` bytes, leaves again; `is_last` if nothing behind it does now. Whether several segments of a packet
    /// end there.
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

    /// Everything before `front` is acknowledged. Whether nothing is left, and room for much.
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
    /// Those of an empty buffer. `is_joined`: as of an interface for which Linux would join segments (GSO), `burst_min` at least.
    pub const fn new(is_joined: bool, burst_min: u8) -> Self {
        let begin = SeqNum::new(0);
        Self {
            front: begin,
            last: begin,
            pushed: begin,
            run: begin,
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
        if then == Then::Ends || (then == Then::More && end.since(self.pushed) > self.wnd_max / 2) {
            self.mark(end);
            self.pushed = end;
        }
    }

    /// What is noted next ends a buffer of `len` bytes and is urgent: nothing of such a write leaves or is pushed before its end
    /// (`tcp_sendmsg_locked`).
    #[cold]
    pub fn urgent(&mut self, len: u32) {
        (self.pushed, self.room) = (self.front + len, 0);
    }

    /// Bytes that a writer may append to a buffer of `len` where there is less space than it wants, namely `space`: it fills the run that it is in,
    /// and begins another while there is any space, as on Linux, where only the beginning of a buffer looks for memory (`tcp_sendmsg_locked`).
    pub fn room(&self, len: u32, space: u32) -> u32 {
        let start = self.front + len;
        let filled = if self.sent.at_or_after(start) { 0 } else { start.since(self.run.max(self.sent)) };
        match self.run_max.checked_sub(filled).filter(|rest| filled > 0 && *rest > 0) {
            Some(rest) => rest,
            None if space > 0 => self.run_max,
            None => 0,
        }
    }

    /// The last run ends here: what is written from now on is not joined with it (`MSG_EOR`).
    pub fn end_run(&mut self, len: u32) {
        self.run = self.front + len;
    }

    /// What was written so far is to leave although its write goes on: it waits for space, or has given up. The buffer has `len`
    /// bytes.
    pub fn interrupted(&mut self, len: u32) {
        let end = self.front + len;
        self.is_begun = false;
        if self.sent.before(end) {
            self.mark(end);
            self.pushed = end;
        }
    }

    /// `bytes` at the front of the buffer are gone.
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
        if mss != self.mss || wnd_max != self.wnd_max {
            (self.mss, self.wnd_max) = (mss, wnd_max);
            let most = RUN_MAX.min(half_of_window(wnd_max));
            let full = if self.is_joined { (most - most % mss.max(1)).max(mss) } else { mss };
            self.fill_first_run(full, len);
            self.run_max = full;
        }
        if self.kept.is_some() {
            self.forget_acked();
        }
    }

    /// A full run has `full` bytes from now on. The first of two that wait is filled up from the other, also where it does not leave (`tcp_grow_skb`). The buffer
    /// has `len` bytes.
    fn fill_first_run(&mut self, full: u32, len: u32) {
        if self.run == self.sent + self.run_max && full > self.run_max {
            self.run = (self.sent + full).min(self.front + len);
        }
    }

    /// A segment of `len` bytes leaves that ends `end` bytes from the front, or several of `mss` bytes as one. Whether it has PSH.
    #[inline]
    pub fn leaves<P: Payload>(&mut self, len: u32, end: u32, mss: u32, pcb: &Pcb<P>) -> bool {
        let at = self.front + end;
        let is_marked = self.has_mark(at - len, at);
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
            // All but the last are whole.
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

    /// A SYN takes along the text that ends `offset` bytes from the front. It is one packet, which has a mark behind it and none inside, and counts as pushed
    /// (`tcp_send_syn_data`, `tcp_connect`).
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

    /// The byte that is `offset` bytes from the front has a mark behind it, besides the last.
    fn mark_within(&mut self, offset: u32) {
        let at = self.front + offset;
        if at != self.last {
            self.mark_before_last(at);
        }
    }

    /// A probe of a small window leaves of a buffer of `len` bytes and ends `offset` bytes from the front: PSH stands behind it, and what is left of the packet that it
    /// is cut from has PSH as well; all of the packet counts as pushed (`tcp_write_wakeup` does both before it cuts).
    pub fn mark_probe(&mut self, offset: u32, len: u32) {
        let (start, packet_end) = (self.sent, self.sent + self.run_max);
        self.pushed = self.pushed.max(packet_end.min(self.front + len));
        let is_cut = (self.front + offset).before(packet_end) && self.last.after(packet_end);
        if is_cut && !self.has_mark(start, packet_end) {
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

    /// Whether a byte from `start` up to `end` has a mark behind it: then the segment has PSH, also where it was cut anew and goes on behind
    /// the mark (`tcp_grow_skb`).
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
            // What is left of a full run that has left in part is filled up again.
            self.run = if start.since(self.sent) < self.run_max { self.sent } else { start };
        }
        if self.sent == self.run && end.since(self.run) > self.run_max {
            // The first full run leaves while the write goes on, as far as there is room (`tcp_push_one`), and what is left of it is
            // filled up again.
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

    /// A write goes on in the run that the latest mark is in, and so takes it back.
    fn unmark(&mut self) {
        let before = self.kept.as_deref_mut().and_then(|kept| kept.marks.pop_back());
        self.last = before.unwrap_or(self.front);
    }

    /// A mark at `at`, in the last run. It takes the place of one that the run has already.
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

/// Bytes of the longest run: those of a packet of 64 KiB without the room for headers that Linux keeps.
const RUN_MAX: u32 = BURST_MAX;
/// `tcp_min_tso_segs` of Linux.
const BURST_MIN: u8 = 2;
/// Marks that are kept besides the last, and packets.
const MARKS_MAX: usize = 1024;
/// Room for so many is kept when there are none.
const MARKS_KEPT: usize = 64;

#[cfg(test)]
mod tests;
