//! The out-of-order queue: data behind a hole.
//!
//! It has runs of bytes in a tree, sorted and without overlaps. Neighbours are joined when they meet, unless the second
//! is long ([`JOIN_MAX`]), because joining moves its data. If segments overlap, the byte held first stays, except that
//! a run is replaced if a new one contains it completely. It does not depend on windows: the caller has cut everything
//! to the receive window. This bounds the bytes, and so also the segments of [`SMALL`] bytes and more and their runs: a
//! slow start that overshoots leaves thousands. Tiny segments cost more memory than their bytes, so their number is
//! bounded ([`PIECES_MAX`]). One beyond the bound is dropped and not acknowledged, and the peer repeats it. To keep
//! room for the data needed first, the last run of tiny segments is dropped for an earlier one, and a segment that
//! continues the stream is always accepted. A segment costs one walk down the tree, regardless of what a peer sends.
//!
//! It also stores the runs to report: those that have grown since the last report, those in the last report (RFC 2018
//! section 4), and duplicates (RFC 2883). Tests: `reass/tests.rs` and, through the pcb, `tests/transfer.rs` and
//! `tests/sack.rs`.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use crate::seq::SeqNum;

use super::comp_sack::CompSack;
use super::sack::{SackBlock, SackBlocks};
use super::segment::{Payload, SACK_BLOCKS_MAX};

/// The queue. Allocated when the first hole appears, freed when the last is filled.
#[derive(Debug)]
pub(super) struct Reass<P> {
    /// Runs by their place in the stream, which does not wrap as a sequence number does.
    runs: BTreeMap<u64, Run<P>>,
    /// A sequence number and its place. Follows the data taken.
    origin: (SeqNum, u64),
    /// Number of small segments in all runs.
    piece_count: u32,
    /// Places where runs have grown and that no report has yet, in order of arrival.
    fresh: VecDeque<u64>,
    /// A place in each of the runs reported last, the latest first. A run may have been removed since then.
    recent: VecDeque<u64>,
    /// Duplicate bytes: one range for each segment that had some and is not reported yet. At most [`DUPLICATES_MAX`].
    duplicates: VecDeque<SackBlock>,
    /// SACK was negotiated: duplicates are stored.
    reports: bool,
    /// Acknowledgments that are left out.
    pub comp: CompSack,
    /// Where the peer's stream ends, if its FIN arrived early.
    fin: Option<SeqNum>,
}

/// Bytes without a hole.
#[derive(Debug)]
struct Run<P> {
    payload: P,
    /// Number of small segments in this run.
    piece_count: u32,
}

impl<P: Payload> Run<P> {
    fn len(&self) -> u64 {
        self.payload.len() as u64
    }
}

impl<P: Payload> Reass<P> {
    /// `nxt` is RCV.NXT; `reports` whether SACK was negotiated.
    pub fn new(nxt: SeqNum, reports: bool) -> Self {
        Self {
            runs: BTreeMap::new(),
            origin: (nxt, PLACE_OF_ORIGIN),
            piece_count: 0,
            fresh: VecDeque::new(),
            recent: VecDeque::new(),
            duplicates: VecDeque::new(),
            reports,
            comp: CompSack::default(),
            fin: None,
        }
    }

    /// True if nothing waits here.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.fin.is_none() && self.duplicates.is_empty()
    }

    /// True if text waits behind a hole.
    pub fn has_text(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Discards the data behind holes, which was not acknowledged (RFC 2018 section 8). Returns it in any order, so
    /// that the caller can free its memory. The end of the stream stays known.
    pub fn prune(&mut self) -> P {
        let mut dropped = P::default();
        for run in core::mem::take(&mut self.runs).into_values() {
            dropped.append(run.payload);
        }
        self.piece_count = 0;
        self.fresh = VecDeque::new();
        self.recent = VecDeque::new();
        dropped
    }

    /// The peer's stream ends at `at`. A claim that contradicts earlier segments is ignored.
    pub fn note_fin(&mut self, at: SeqNum) {
        let place = self.place(at);
        if self.runs.last_key_value().is_none_or(|(start, run)| start + run.len() <= place) {
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

    /// A segment's bytes from `start` to `end` are duplicates. If they touch the last range, they are reported with it.
    pub fn note_duplicate(&mut self, start: SeqNum, end: SeqNum) {
        if !self.reports || self.extend_duplicate(start, end) {
            return;
        }
        if self.duplicates.len() >= DUPLICATES_MAX {
            self.duplicates.pop_back();
        }
        self.duplicates.push_back(SackBlock { start, end });
    }

    /// The same for more bytes of the segment whose first duplicates were noted last. Only one range per segment is
    /// reported (RFC 2883 section 4), so bytes that do not touch it are not. True if they do.
    fn extend_duplicate(&mut self, start: SeqNum, end: SeqNum) -> bool {
        let Some(last) = self.duplicates.back_mut() else { return false };
        let touches = start.at_or_before(last.end) && last.start.at_or_before(end);
        if touches {
            (last.start, last.end) = (last.start.min(start), last.end.max(end));
        }
        touches
    }

    /// Drops duplicates that are not reported yet.
    pub fn forget_duplicates(&mut self) {
        self.duplicates.clear();
    }

    /// True if a duplicate is not reported yet.
    pub fn has_duplicate(&self) -> bool {
        !self.duplicates.is_empty()
    }

    /// Notes which bytes from place `at` up to `end` are already held: their first range without a hole. `continues`:
    /// the segment's bytes before `at` were noted.
    fn note_overlap(&mut self, at: u64, end: u64, continues: bool) {
        let before = self.runs.range(..=at).next_back();
        let runs = before.into_iter().chain(self.runs.range(at + 1..end));
        let mut overlap: Option<(u64, u64)> = None;
        for (&start, run) in runs {
            let (from, to) = (start.max(at), (start + run.len()).min(end));
            match overlap.as_mut() {
                _ if from >= to => {}
                None => overlap = Some((from, to)),
                Some((_, known)) if *known == from => *known = to,
                Some(_) => break,
            }
        }
        let Some((from, to)) = overlap else { return };
        let (start, end) = (self.number(from), self.number(to));
        if continues {
            self.extend_duplicate(start, end);
        } else {
            self.note_duplicate(start, end);
        }
    }

    /// How many blocks there are to report, at most [`SACK_BLOCKS_MAX`].
    pub fn sack_count(&self) -> usize {
        (self.runs.len() + usize::from(self.has_duplicate())).min(SACK_BLOCKS_MAX)
    }

    /// At most `count` blocks to report, with `more` reports right after this one. First a duplicate, once; then the
    /// runs that have grown since the last report, as many as needed so that these reports name all; then those
    /// reported last, because a report may be lost.
    pub fn take_sack(&mut self, count: usize, more: u8) -> SackBlocks {
        let mut blocks = SackBlocks::NONE;
        if count > 0 {
            self.duplicates.pop_front().into_iter().for_each(|duplicate| blocks.push(duplicate));
        }
        let share = self.fresh.len().div_ceil(usize::from(more) + 1).max(1);
        let mut starts: [Option<u64>; SACK_BLOCKS_MAX] = [None; SACK_BLOCKS_MAX];
        let mut known = 0;
        let room = count - blocks.len();
        while known < room.min(share) {
            // The last report begins with the segment that caused it.
            let is_last = more == 0 && known == 0;
            let place = if is_last { self.fresh.pop_back() } else { self.fresh.pop_front() };
            let Some(place) = place else { break };
            known += usize::from(self.add_run(place, &mut starts, known));
        }
        let reported = known;
        let others = self.recent.iter().chain(self.runs.keys().take(SACK_BLOCKS_MAX));
        for &place in others {
            if known < room {
                known += usize::from(self.add_run(place, &mut starts, known));
            }
        }
        let mut recent = core::mem::take(&mut self.recent);
        for &start in starts.iter().take(reported).flatten().rev() {
            // A run that has grown to the left is listed there with an earlier beginning.
            recent.retain(|&other| self.run_at(other).is_some_and(|run| run != start));
            recent.push_front(start);
        }
        recent.truncate(SACK_BLOCKS_MAX);
        self.recent = recent;
        for (start, run) in starts.iter().flatten().filter_map(|start| self.runs.get_key_value(start)) {
            blocks.push(SackBlock { start: self.number(*start), end: self.number(start + run.len()) });
        }
        blocks
    }

    /// Whether two other runs have grown later than the last one grew before: reports with few blocks may not name it.
    pub fn is_late_block(&self) -> bool {
        let Some(last) = self.fresh.back() else { return false };
        let this = self.run_at(*last);
        let mut newer = None;
        for &place in self.fresh.iter().rev().skip(1).chain(&self.recent) {
            let run = self.run_at(place);
            if run == this {
                return false;
            }
            match newer {
                _ if run.is_none() => {}
                None => newer = run,
                Some(_) if newer == run => {}
                Some(_) => return true,
            }
        }
        false
    }

    /// Notes the run that contains `place` at index `at` of `starts`, unless it is already there or was removed.
    fn add_run(&self, place: u64, starts: &mut [Option<u64>], at: usize) -> bool {
        let start = self.run_at(place);
        let is_new = start.is_some() && !starts.contains(&start);
        if is_new && let Some(slot) = starts.get_mut(at) {
            *slot = start;
            return true;
        }
        false
    }

    /// The beginning of the run that contains `place`.
    fn run_at(&self, place: u64) -> Option<u64> {
        let (start, run) = self.runs.range(..=place).next_back()?;
        (place < start + run.len()).then_some(*start)
    }

    /// The run that contains `place` has grown.
    fn note_fresh(&mut self, place: u64) {
        // A block that continues at the end of the last one is the same news.
        if let Some(&last) = self.fresh.back()
            && self.run_at(last) == self.run_at(place)
        {
            return;
        }
        if self.fresh.len() >= FRESH_MAX {
            self.fresh.pop_front();
        }
        self.fresh.push_back(place);
    }

    /// Inserts `payload`, which begins at `start`. Data that continues the stream must be taken out right after.
    /// `continues`: bytes before it were noted as a duplicate.
    pub fn insert(&mut self, start: SeqNum, mut payload: P, continues: bool) {
        if let Some(fin) = self.fin {
            payload.truncate(fin.since(start) as usize);
        }
        let mut at = self.place(start);
        let end = at + payload.len() as u64;
        if at == end {
            return;
        }
        if self.reports {
            self.note_overlap(at, end, continues);
        }
        if let Some((before, run)) = self.runs.range(..=at).next_back() {
            let known = before + run.len();
            if end <= known {
                return self.note_fresh(at);
            }
            let overlap = known.saturating_sub(at);
            payload.trim_front(bytes(overlap));
            at += overlap;
        }
        self.drop_swallowed(at, end);
        if let Some((after, _)) = self.runs.range(at..).next() {
            payload.truncate(bytes(after - at));
        }
        let piece_count = u32::from(payload.len() < SMALL);
        if payload.is_empty() || !(at == self.origin.1 || self.make_room(at, piece_count)) {
            return;
        }
        self.piece_count += piece_count;
        self.runs.insert(at, Run { payload, piece_count });
        self.join(at);
        if let Some((&before, _)) = self.runs.range(..at).next_back() {
            self.join(before);
        }
        self.note_fresh(at);
    }

    /// Takes all bytes from `at`, which is RCV.NXT, up to the next hole or the end of a run. Data before `at` is
    /// discarded.
    pub fn take(&mut self, at: SeqNum) -> Option<P> {
        let place = self.place(at);
        self.origin = (at, place);
        while let Some(first) = self.runs.first_entry() {
            if *first.key() > place {
                return None;
            }
            let stale = place - first.key();
            let mut run = first.remove();
            run.payload.trim_front(bytes(stale));
            self.piece_count -= run.piece_count;
            if !run.payload.is_empty() {
                return Some(run.payload);
            }
        }
        None
    }

    /// Drops the runs that lie completely between `at` and `end`: the new one contains them.
    fn drop_swallowed(&mut self, at: u64, end: u64) {
        while let Some((&start, run)) = self.runs.range(at..end).next()
            && start + run.len() <= end
        {
            self.remove(start);
        }
    }

    fn remove(&mut self, start: u64) -> Option<Run<P>> {
        let run = self.runs.remove(&start)?;
        self.piece_count -= run.piece_count;
        Some(run)
    }

    /// Enforces the bound of small segments. False if the new run of `pieces` of them at `at` must be dropped.
    fn make_room(&mut self, at: u64, pieces: u32) -> bool {
        if self.piece_count + pieces <= PIECES_MAX {
            return true;
        }
        let Some((&last, run)) = self.runs.last_key_value() else { return true };
        // A run of full segments is not dropped for a small one.
        if last < at || run.payload.len() >= run.piece_count as usize * SMALL {
            return false;
        }
        self.remove(last);
        true
    }

    /// Joins the run at `start` with the next one if they touch.
    fn join(&mut self, start: u64) {
        let Some(end) = self.runs.get(&start).map(|run| start + run.len()) else { return };
        if self.runs.get(&end).is_none_or(|next| next.len() > JOIN_MAX) {
            return;
        }
        if let Some(next) = self.runs.remove(&end)
            && let Some(run) = self.runs.get_mut(&start)
        {
            run.piece_count += next.piece_count;
            run.payload.append(next.payload);
        }
    }

    /// The place of a sequence number, which is less than 2^31 away from the last one taken.
    fn place(&self, seq: SeqNum) -> u64 {
        let (origin, place) = self.origin;
        if seq.before(origin) {
            place - u64::from(origin.since(seq))
        } else {
            place + u64::from(seq.since(origin))
        }
    }

    /// The sequence number of a place.
    fn number(&self, place: u64) -> SeqNum {
        let (origin, at) = self.origin;
        // The receive window is below 2^31.
        let distance = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        if place < at { origin - distance(at - place) } else { origin + distance(place - at) }
    }
}

/// A distance inside the receive window, as a `usize`.
fn bytes(distance: u64) -> usize {
    usize::try_from(distance).unwrap_or(usize::MAX)
}

/// The place of RCV.NXT when the queue is made. Nothing can lie farther before it than sequence numbers distinguish.
const PLACE_OF_ORIGIN: u64 = 1 << 32;
/// Largest number of growths stored until they are reported: enough for some reports, and more than one batch of
/// segments makes.
const FRESH_MAX: usize = 64;
/// Largest number of duplicates stored until they are reported, one in each acknowledgment. Beyond that, the latest
/// replaces the one before it.
const DUPLICATES_MAX: usize = 16;
/// Largest run that is moved to join it with the one before, bytes.
const JOIN_MAX: u64 = 64 << 10;
/// Largest number of small segments kept: with 2 KiB of memory for each, 2 MiB per connection.
const PIECES_MAX: u32 = 1024;
/// A segment with this many bytes is not small: its memory is at most four times its data, and the window bounds that.
const SMALL: usize = 512;
