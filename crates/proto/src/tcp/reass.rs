//! The out-of-order queue: what arrived behind a hole.
//!
//! Runs of bytes, sorted, never touching or overlapping: neighbours are joined when they meet. Where
//! segments overlap, a byte that is already held stays, except that a run swallowed whole gives way.
//! It must not know windows: the caller has cut everything to the receive window, which bounds
//! the bytes. Two more bounds stand here, because many tiny segments cost more memory than their bytes:
//! `RUNS_MAX` holes and `PIECES_MAX` segments that are shorter than `SMALL`; longer ones are worth their memory, and one
//! loss on a long and fast path leaves thousands of them. A segment that would go beyond is dropped, not
//! acknowledged, and the peer repeats it; to keep room for what is needed first, the last run
//! gives way to an earlier one. It also remembers what to report: which runs have grown last (RFC 2018 section 4),
//! and what came twice (RFC 2883). Tests stand at the end and, through the pcb, in `tests/transfer.rs`
//! and `tests/sack.rs`.

use crate::seq::SeqNum;

use super::sack::{SackBlock, SackBlocks};
use super::segment::{Payload, SACK_BLOCKS_MAX};

/// The queue. Allocated when the first hole appears, freed when the last is filled.
#[derive(Debug)]
pub(super) struct Reass<P> {
    runs: Vec<Run<P>>,
    /// Small segments that went into all runs together.
    piece_count: u32,
    /// A place in each of the runs that grew last, the latest first. A run may be gone since.
    recent: [SeqNum; SACK_BLOCKS_MAX],
    recent_count: u8,
    /// What came twice and is not reported yet.
    duplicate: Option<SackBlock>,
    /// Where the peer's stream ends, if its FIN arrived early.
    fin: Option<SeqNum>,
}

/// Bytes without a hole.
#[derive(Debug)]
struct Run<P> {
    start: SeqNum,
    payload: P,
    /// Small segments that went into this run.
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
        Self {
            runs: Vec::new(),
            piece_count: 0,
            recent: [SeqNum::default(); SACK_BLOCKS_MAX],
            recent_count: 0,
            duplicate: None,
            fin: None,
        }
    }

    /// True if nothing waits here any more.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.fin.is_none() && self.duplicate.is_none()
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

    /// Bytes from `start` to `end` came although they were there.
    pub fn note_duplicate(&mut self, start: SeqNum, end: SeqNum) {
        self.duplicate = Some(SackBlock { start, end });
    }

    /// How many blocks there are to report, at most [`SACK_BLOCKS_MAX`].
    pub fn sack_count(&self) -> usize {
        (self.runs.len() + usize::from(self.duplicate.is_some())).min(SACK_BLOCKS_MAX)
    }

    /// At most `count` blocks to report: a duplicate first and once, then the runs, those first that grew
    /// last.
    pub fn take_sack(&mut self, count: usize) -> SackBlocks {
        let mut indices: [Option<usize>; SACK_BLOCKS_MAX] = [None; SACK_BLOCKS_MAX];
        let mut known = 0;
        let recent = self.recent.iter().take(usize::from(self.recent_count)).map(|&place| self.run_at(place));
        // Then whatever there is, from the front.
        let others = (0..self.runs.len().min(2 * SACK_BLOCKS_MAX)).map(Some);
        for index in recent.chain(others).flatten() {
            if !indices.contains(&Some(index))
                && let Some(slot) = indices.get_mut(known)
            {
                *slot = Some(index);
                known += 1;
            }
        }
        let runs = indices.into_iter().flatten().filter_map(|index| self.runs.get(index));
        let runs = runs.map(|run| SackBlock { start: run.start, end: run.end() });
        let blocks: SackBlocks = self.duplicate.into_iter().chain(runs).take(count).collect();
        if count > 0 {
            self.duplicate = None;
        }
        blocks
    }

    /// The index of the run that holds `place`.
    fn run_at(&self, place: SeqNum) -> Option<usize> {
        let index = self.runs.partition_point(|run| run.end().at_or_before(place));
        self.runs.get(index).filter(|run| run.start.at_or_before(place)).map(|_| index)
    }

    /// The run that holds `place` has grown.
    fn note_recent(&mut self, place: SeqNum) {
        let run = self.run_at(place);
        let mut recent = [place; SACK_BLOCKS_MAX];
        let mut count = 1;
        for &earlier in self.recent.iter().take(usize::from(self.recent_count)) {
            let at = self.run_at(earlier);
            // One whose run is gone, or is this one, says nothing.
            if at.is_some()
                && at != run
                && let Some(slot) = recent.get_mut(count)
            {
                *slot = earlier;
                count += 1;
            }
        }
        self.recent = recent;
        // At most SACK_BLOCKS_MAX.
        self.recent_count = u8::try_from(count).unwrap_or(RECENT_MAX);
    }

    /// Puts `payload`, which begins at `start`, into its place.
    pub fn insert(&mut self, start: SeqNum, mut payload: P) {
        if let Some(fin) = self.fin {
            payload.truncate(fin.since(start) as usize);
        }
        let mut new = Run { start, payload, piece_count: 0 };
        // Index of the first run that begins behind the start of the new one.
        let mut at = self.runs.partition_point(|run| run.start.at_or_before(start));
        if let Some(before) = at.checked_sub(1).and_then(|i| self.runs.get(i)) {
            if new.end().at_or_before(before.end()) {
                let (start, end) = (new.start, new.end());
                if start.before(end) {
                    self.note_duplicate(start, end);
                    self.note_recent(start);
                }
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
        new.piece_count = u32::from(new.payload.len() < SMALL);
        if new.payload.is_empty() || !self.make_room(&mut at, new.piece_count) {
            return;
        }
        let place = new.start;
        self.piece_count += new.piece_count;
        self.runs.insert(at, new);
        self.join(at);
        if let Some(before) = at.checked_sub(1) {
            self.join(before);
        }
        self.note_recent(place);
    }

    /// Takes the bytes that begin at `at`, all up to the next hole. What lies before `at` is discarded.
    pub fn take(&mut self, at: SeqNum) -> Option<P> {
        while let Some(first) = self.runs.first_mut() {
            if first.start.after(at) {
                return None;
            }
            let stale = at.since(first.start);
            first.payload.trim_front(stale as usize);
            let run = self.runs.remove(0);
            self.piece_count -= run.piece_count;
            if !run.payload.is_empty() {
                return Some(run.payload);
            }
        }
        None
    }

    /// Drops the runs from index `at` on that lie whole before `end`: the new one contains them.
    fn drop_swallowed(&mut self, at: usize, end: SeqNum) {
        let swallowed = self.runs.iter().skip(at).take_while(|run| run.end().at_or_before(end)).count();
        let gone: u32 = self.runs.drain(at..at + swallowed).map(|run| run.piece_count).sum();
        self.piece_count -= gone;
    }

    /// Keeps the bounds. False if the new run of `pieces` small segments, to be put at index `at`, has to be dropped.
    fn make_room(&mut self, at: &mut usize, pieces: u32) -> bool {
        if self.runs.len() < RUNS_MAX && self.piece_count + pieces <= PIECES_MAX {
            return true;
        }
        if *at >= self.runs.len() {
            return false;
        }
        self.piece_count -= self.runs.pop().map_or(0, |run| run.piece_count);
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

/// Places of runs remembered: as many as blocks that can be reported.
const RECENT_MAX: u8 = 4;
/// Holes kept, at most. A window of a megabyte with every second segment lost has about 360.
const RUNS_MAX: usize = 256;
/// Small segments kept, at most: with 2 KiB of memory behind each, 2 MiB a connection.
const PIECES_MAX: u32 = 1024;
/// Bytes from which on a segment is not small: what it takes of memory is at most four times what it holds, and the
/// window bounds that.
const SMALL: usize = 512;

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
    fn full_segments_are_bounded_by_the_window_alone() {
        let mut reass = Reass::new();
        let full = 1448;
        for i in 0..3 * PIECES_MAX {
            put(&mut reass, 100 + i * full..100 + (i + 1) * full);
        }
        assert_eq!(reass.take(seq(100)), Some(bytes(100..100 + 3 * PIECES_MAX * full)));
        assert_eq!(reass.piece_count, 0);
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
