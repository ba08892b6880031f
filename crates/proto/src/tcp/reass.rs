//! The out-of-order queue: what arrived behind a hole.
//!
//! Runs of bytes, sorted, never touching or overlapping: neighbours are joined when they meet. Where
//! segments overlap, a byte that is already held stays, except that a run swallowed whole gives way.
//! It must not know windows: the caller has cut everything to the receive window, which bounds
//! the bytes. Two more bounds stand here, because many tiny segments cost more memory than their bytes:
//! `RUNS_MAX` holes and `PIECES_MAX` segments. A segment that would go beyond is dropped, not
//! acknowledged, and the peer repeats it; to keep room for what is needed first, the last run
//! gives way to an earlier one. Tests stand at the end and, through the pcb, in `tests/transfer.rs`.

use crate::seq::SeqNum;

use super::segment::Payload;

/// The queue. Allocated when the first hole appears, freed when the last is filled.
#[derive(Debug)]
pub(super) struct Reass<P> {
    runs: Vec<Run<P>>,
    /// Where the peer's stream ends, if its FIN arrived early.
    fin: Option<SeqNum>,
}

/// Bytes without a hole.
#[derive(Debug)]
struct Run<P> {
    start: SeqNum,
    payload: P,
    /// Segments that went into this run.
    piece_count: u32,
}

impl<P: Payload> Run<P> {
    fn end(&self) -> SeqNum {
        // A run lies inside the receive window, so its length fits 32 bits.
        self.start + u32::try_from(self.payload.len()).unwrap_or(u32::MAX)
    }
}

impl<P: Payload> Reass<P> {
    pub fn new() -> Self {
        Self { runs: Vec::new(), fin: None }
    }

    /// True if nothing waits here any more.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.fin.is_none()
    }

    /// The peer's stream ends at `at`. A claim that contradicts what was received before is ignored.
    pub fn note_fin(&mut self, at: SeqNum) {
        if self.runs.last().is_none_or(|run| run.end().at_or_before(at)) {
            self.fin.get_or_insert(at);
        }
    }

    /// True, once, if the stream ends at `at`.
    pub fn take_fin(&mut self, at: SeqNum) -> bool {
        let reached = self.fin == Some(at);
        if reached {
            self.fin = None;
        }
        reached
    }

    /// Puts `payload`, which begins at `start`, into its place.
    pub fn insert(&mut self, start: SeqNum, mut payload: P) {
        if let Some(fin) = self.fin {
            payload.truncate(fin.since(start) as usize);
        }
        let mut new = Run { start, payload, piece_count: 1 };
        // Index of the first run that begins behind the start of the new one.
        let mut at = self.runs.partition_point(|run| run.start.at_or_before(start));
        if let Some(before) = at.checked_sub(1).and_then(|i| self.runs.get(i)) {
            if new.end().at_or_before(before.end()) {
                return;
            }
            let overlap = before.end().since(new.start);
            new.payload.trim_front(overlap as usize);
            new.start += overlap;
        }
        self.drop_swallowed(at, new.end());
        if let Some(after) = self.runs.get(at) {
            let room = after.start.since(new.start);
            new.payload.truncate(room as usize);
        }
        if new.payload.is_empty() || !self.make_room(&mut at) {
            return;
        }
        self.runs.insert(at, new);
        self.join(at);
        if let Some(before) = at.checked_sub(1) {
            self.join(before);
        }
    }

    /// Takes the bytes that begin at `at`, all up to the next hole. What lies before `at` is discarded.
    pub fn take(&mut self, at: SeqNum) -> Option<P> {
        while let Some(first) = self.runs.first_mut() {
            if first.start.after(at) {
                return None;
            }
            if first.end().at_or_before(at) {
                self.runs.remove(0);
                continue;
            }
            let stale = at.since(first.start);
            first.payload.trim_front(stale as usize);
            return Some(self.runs.remove(0).payload);
        }
        None
    }

    /// Drops the runs from index `at` on that lie whole before `end`: the new one contains them.
    fn drop_swallowed(&mut self, at: usize, end: SeqNum) {
        let swallowed = self.runs.iter().skip(at).take_while(|run| run.end().at_or_before(end)).count();
        self.runs.drain(at..at + swallowed);
    }

    /// Keeps the bounds. False if the new run, to be put at index `at`, has to be dropped.
    fn make_room(&mut self, at: &mut usize) -> bool {
        let piece_count: u32 = self.runs.iter().map(|run| run.piece_count).sum();
        if self.runs.len() < RUNS_MAX && piece_count < PIECES_MAX {
            return true;
        }
        if *at >= self.runs.len() {
            return false;
        }
        self.runs.pop();
        *at = (*at).min(self.runs.len());
        true
    }

    /// Joins the run at index `at` with the next one if they touch.
    fn join(&mut self, at: usize) {
        let touch = match (self.runs.get(at), self.runs.get(at + 1)) {
            (Some(a), Some(b)) => a.end() == b.start,
            (Some(_) | None, None) | (None, Some(_)) => false,
        };
        if touch {
            let tail = self.runs.remove(at + 1);
            if let Some(run) = self.runs.get_mut(at) {
                run.piece_count += tail.piece_count;
                run.payload.append(tail.payload);
            }
        }
    }
}

/// Holes kept, at most. A window of a megabyte with every second segment lost has about 360.
const RUNS_MAX: usize = 256;
/// Segments kept, at most: with 2 KiB of memory behind each, 2 MiB a connection.
const PIECES_MAX: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u32 = u32::MAX - 50;

    fn seq(offset: u32) -> SeqNum {
        SeqNum::new(BASE) + offset
    }

    /// The byte that belongs at `offset`.
    fn bytes(range: core::ops::Range<u32>) -> Vec<u8> {
        range.map(|offset| (offset % 251) as u8).collect()
    }

    fn put(reass: &mut Reass<Vec<u8>>, range: core::ops::Range<u32>) {
        reass.insert(seq(range.start), bytes(range));
    }

    #[test]
    fn a_hole_filled_releases_everything_behind_it() {
        let mut reass = Reass::new();
        put(&mut reass, 10..20);
        put(&mut reass, 30..40);
        assert_eq!(reass.take(seq(0)), None);
        put(&mut reass, 20..30);
        assert_eq!(reass.runs.len(), 1);
        assert_eq!(reass.take(seq(10)), Some(bytes(10..40)));
        assert!(reass.is_empty());
    }

    #[test]
    fn overlaps_are_cut() {
        let mut reass = Reass::new();
        put(&mut reass, 10..20);
        put(&mut reass, 15..25);
        put(&mut reass, 5..12);
        put(&mut reass, 11..19);
        assert_eq!(reass.take(seq(5)), Some(bytes(5..25)));
    }

    #[test]
    fn a_segment_over_several_runs_and_a_partial_one_swallows_the_whole_ones() {
        let mut reass = Reass::new();
        put(&mut reass, 10..12);
        put(&mut reass, 14..16);
        put(&mut reass, 18..30);
        put(&mut reass, 8..20);
        assert_eq!(reass.runs.len(), 1);
        assert_eq!(reass.take(seq(8)), Some(bytes(8..30)));
    }

    #[test]
    fn take_discards_what_is_already_delivered() {
        let mut reass = Reass::new();
        put(&mut reass, 10..20);
        put(&mut reass, 30..40);
        assert_eq!(reass.take(seq(35)), Some(bytes(35..40)));
        assert!(reass.is_empty());
    }

    #[test]
    fn an_early_fin_is_found_once_its_place_is_reached() {
        let mut reass: Reass<Vec<u8>> = Reass::new();
        reass.note_fin(seq(20));
        reass.note_fin(seq(90));
        assert!(!reass.is_empty() && !reass.take_fin(seq(19)));
        assert!(reass.take_fin(seq(20)));
        assert!(reass.is_empty() && !reass.take_fin(seq(90)));
    }

    #[test]
    fn nothing_lies_behind_a_fin() {
        let mut reass = Reass::new();
        put(&mut reass, 10..20);
        reass.note_fin(seq(15));
        assert!(!reass.take_fin(seq(15)), "text had come from behind it");
        reass.note_fin(seq(25));
        put(&mut reass, 20..40);
        put(&mut reass, 30..40);
        assert_eq!(reass.take(seq(10)), Some(bytes(10..25)));
        assert!(reass.take_fin(seq(25)) && reass.is_empty());
    }

    #[test]
    fn the_farthest_run_gives_way_to_an_earlier_one_and_a_later_one_is_dropped() {
        let mut reass = Reass::new();
        let limit = u32::try_from(RUNS_MAX).unwrap();
        for i in 0..limit {
            put(&mut reass, 10 * i + 100..10 * i + 105);
        }
        put(&mut reass, 10 * limit + 100..10 * limit + 105);
        assert_eq!(reass.runs.len(), RUNS_MAX);
        assert_eq!(reass.runs.last().unwrap().start, seq(10 * (limit - 1) + 100));
        put(&mut reass, 50..60);
        assert_eq!(reass.runs.len(), RUNS_MAX);
        assert_eq!(reass.runs.first().unwrap().start, seq(50));
        assert_eq!(reass.runs.last().unwrap().start, seq(10 * (limit - 2) + 100));
    }

    #[test]
    fn tiny_segments_are_bounded_in_number_even_when_they_touch() {
        let mut reass = Reass::new();
        for i in 0..2 * PIECES_MAX {
            put(&mut reass, 100 + i..101 + i);
        }
        assert_eq!(reass.runs.len(), 1);
        assert_eq!(reass.take(seq(100)), Some(bytes(100..100 + PIECES_MAX)));
    }
}
