//! A file's bytes: as programs see them, and as they are on the disk.
//!
//! What a program has written since the last sync is a list of changes. A sync applies them to the disk's bytes. A power loss applies a part of them, which chance picks, by these rules:
//!
//! * The disk writes sectors of [`SECTOR`] bytes, each whole or not at all, in any order. A sector is written as the file's bytes were at some moment, so of the changes to one sector those until some moment are there, and none after it.
//! * The length follows the sectors: a file that grew ends where the last sector that was written does, and sectors before it that were not written are zeros. It never has bytes of other files.
//! * A length that was set (`set_len`, `O_TRUNC`) is there before all changes after it: no new byte is on the disk while a cut is not.
//!
//! Bounds: [`CHANGES_MAX`] changes and [`CHANGED_MAX`] bytes; beyond these the older half goes to the disk, as an operating system writes back. A write of more than [`WRITE_MAX`] bytes is several changes. Computes only. Tests: below.

use std::collections::{BTreeMap, VecDeque};

use crate::rng::Rng;

/// Bytes that a disk writes whole or not at all.
pub(crate) const SECTOR: u64 = 512;
/// Changes of a file that are not on the disk, at most.
const CHANGES_MAX: usize = 4096;
/// Bytes in them, at most.
const CHANGED_MAX: usize = 8 << 20;
/// Bytes of one change, at most: of a larger write, too, a part goes to the disk and a part does not.
const WRITE_MAX: usize = 1 << 20;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Content {
    now: Vec<u8>,
    stable: Vec<u8>,
    changes: VecDeque<Change>,
    /// Changes that have left `changes`.
    done: u64,
    changed_len: usize,
}

#[derive(Debug)]
enum Change {
    Write { at: usize, bytes: Box<[u8]> },
    SetLen(usize),
}

/// What became of changes that were not synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Loss {
    pub kept: usize,
    /// Some sectors of a write are there, others are not.
    pub torn: usize,
    pub lost: usize,
}

/// Which sectors of which changes are on the disk.
enum Draw {
    /// All until a sector of a change.
    InOrder { change: usize, sectors: usize },
    /// For each sector the number of changes that are there at most, and so for the length.
    Scattered { sectors: BTreeMap<usize, usize>, lens: usize },
}

impl Content {
    pub fn len(&self) -> usize {
        self.now.len()
    }

    /// Copies what is at `at`. Returns how much that is.
    pub fn read(&self, at: u64, buf: &mut [u8]) -> usize {
        let rest = usize::try_from(at).ok().and_then(|at| self.now.get(at..)).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        len
    }

    /// The caller has checked that there is room for it, so that `at` and the length are small.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        put(&mut self.now, at, bytes);
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            // Between sectors: each of them is written by one change.
            let len = (WRITE_MAX - at % SECTOR as usize).min(rest.len());
            let (piece, after) = rest.split_at(len);
            self.push(Change::Write { at, bytes: piece.into() });
            (at, rest) = (at + len, after);
        }
    }

    pub fn set_len(&mut self, len: usize) {
        if len != self.now.len() {
            self.now.resize(len, 0);
            self.push(Change::SetLen(len));
        }
    }

    fn push(&mut self, change: Change) {
        self.changed_len += change.len();
        self.changes.push_back(change);
        while self.changes.len() > CHANGES_MAX || self.changed_len > CHANGED_MAX {
            let half = self.changes.len().div_ceil(2);
            self.sync(self.done + half as u64);
        }
    }

    /// Changes so far: what a sync that begins now has to bring to the disk.
    pub fn mark(&self) -> u64 {
        self.done + self.changes.len() as u64
    }

    /// Changes that are not on the disk.
    pub fn pending(&self) -> usize {
        self.changes.len()
    }

    /// Brings the changes until this mark to the disk.
    pub fn sync(&mut self, mark: u64) {
        for change in self.take(mark) {
            match change {
                Change::Write { at, bytes } => put(&mut self.stable, at, &bytes),
                Change::SetLen(len) => self.stable.resize(len, 0),
            }
        }
    }

    /// Takes the power away: what is on the disk is what there is.
    pub fn lose_power(&mut self, rng: &mut Rng) -> Loss {
        let loss = self.fail(self.mark(), rng);
        self.now.clone_from(&self.stable);
        loss
    }

    /// Some of the changes until this mark are on the disk, and the others will never be.
    pub fn fail(&mut self, mark: u64, rng: &mut Rng) -> Loss {
        let changes = self.take(mark);
        let mut loss = Loss::default();
        if changes.is_empty() {
            return loss;
        }
        let draw = draw(&changes, rng);
        for (index, change) in changes.iter().enumerate() {
            let (kept, all) = self.apply(index, change, &draw);
            match kept {
                0 if all > 0 => loss.lost += 1,
                kept if kept < all => loss.torn += 1,
                _ => loss.kept += 1,
            }
        }
        loss
    }

    /// Applies the sectors of a change that were drawn. Returns how many those are, and of how many.
    fn apply(&mut self, index: usize, change: &Change, draw: &Draw) -> (usize, usize) {
        match change {
            Change::Write { at, bytes } => {
                let mut kept = 0;
                let pieces = pieces(*at, bytes);
                let all = pieces.clone().count();
                for (number, (sector, at, piece)) in pieces.enumerate() {
                    if draw.has(index, number, Some(sector)) {
                        put(&mut self.stable, at, piece);
                        kept += 1;
                    }
                }
                (kept, all)
            }
            Change::SetLen(len) => {
                let is_kept = draw.has(index, 0, None);
                if is_kept {
                    self.stable.resize(*len, 0);
                }
                (usize::from(is_kept), 1)
            }
        }
    }

    fn take(&mut self, mark: u64) -> VecDeque<Change> {
        let count = usize::try_from(mark.saturating_sub(self.done)).unwrap_or(usize::MAX);
        let rest = self.changes.split_off(count.min(self.changes.len()));
        let taken = std::mem::replace(&mut self.changes, rest);
        self.done += taken.len() as u64;
        self.changed_len -= taken.iter().map(Change::len).sum::<usize>();
        taken
    }
}

impl Change {
    fn len(&self) -> usize {
        match self {
            Self::Write { bytes, .. } => bytes.len(),
            Self::SetLen(_) => 0,
        }
    }
}

impl Draw {
    fn has(&self, index: usize, number: usize, sector: Option<usize>) -> bool {
        match self {
            Self::InOrder { change, sectors } => (index, number) < (*change, *sectors),
            Self::Scattered { sectors, lens } => {
                let until = sector.map_or(Some(lens), |sector| sectors.get(&sector));
                index < *until.unwrap_or(&0)
            }
        }
    }
}

/// Draws what of the changes is on the disk: nothing, all, the first ones, or some sectors and others not.
fn draw(changes: &VecDeque<Change>, rng: &mut Rng) -> Draw {
    let below = |rng: &mut Rng, bound: usize| usize::try_from(rng.below(bound as u64)).unwrap_or(0);
    match rng.below(4) {
        0 => Draw::InOrder { change: 0, sectors: 0 },
        1 => Draw::InOrder { change: changes.len(), sectors: 0 },
        2 => {
            let change = below(rng, changes.len());
            let all = match &changes[change] {
                Change::Write { at, bytes } => pieces(*at, bytes).count(),
                Change::SetLen(_) => 1,
            };
            Draw::InOrder { change, sectors: below(rng, all + 1) }
        }
        _ => {
            // After a length that is not there, nothing is.
            let is_length =
                |(index, change): (usize, &Change)| matches!(change, Change::SetLen(_)).then_some(index);
            let mut ends: Vec<usize> = changes.iter().enumerate().filter_map(is_length).collect();
            ends.push(changes.len());
            let end = ends[below(rng, ends.len())];
            let mut by_sector: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
            for (index, change) in changes.iter().enumerate().take(end) {
                if let Change::Write { at, bytes } = change {
                    pieces(*at, bytes)
                        .for_each(|(sector, ..)| by_sector.entry(sector).or_default().push(index));
                }
            }
            let until = |indices: Vec<usize>, rng: &mut Rng| match below(rng, indices.len() + 1) {
                0 => 0,
                count => indices[count - 1] + 1,
            };
            let sectors =
                by_sector.into_iter().map(|(sector, indices)| (sector, until(indices, rng))).collect();
            Draw::Scattered { sectors, lens: end }
        }
    }
}

/// The parts of a write by sector: its number, and the part's place and bytes.
fn pieces(at: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, usize, &[u8])> + Clone {
    let sector_len = SECTOR as usize;
    let mut rest = bytes;
    let mut at = at;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let len = (sector_len - at % sector_len).min(rest.len());
        let (piece, after) = rest.split_at(len);
        let found = (at / sector_len, at, piece);
        (rest, at) = (after, at + len);
        Some(found)
    })
}

/// Writes into `file`, which grows if need be; a gap is zeros.
fn put(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[at..end].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stable_after(seed: u64, old: &[u8], change: impl FnOnce(&mut Content)) -> (Vec<u8>, Loss) {
        let mut content = Content::default();
        content.write(0, old);
        content.sync(content.mark());
        change(&mut content);
        let loss = content.lose_power(&mut Rng::new(seed));
        assert_eq!((content.pending(), &content.now), (0, &content.stable));
        (content.now, loss)
    }

    #[test]
    fn what_was_synced_stays_and_what_was_not_is_kept_torn_or_lost() {
        let (mut kept, mut torn, mut lost) = (0, 0, 0);
        for seed in 0..400 {
            let (now, loss) = stable_after(seed, &[1; 2000], |content| content.write(500, &[2; 1000]));
            assert!(now.len() == 2000 && now[..500] == [1; 500] && now[1500..] == [1; 500]);
            // Sectors are whole.
            for sector in [500..512, 512..1024, 1024..1500] {
                assert!(now[sector.clone()].iter().all(|byte| *byte == now[sector.start]));
            }
            (kept, torn, lost) = (kept + loss.kept, torn + loss.torn, lost + loss.lost);
            let twos = now.iter().filter(|byte| **byte == 2).count();
            assert_eq!((twos == 1000, twos == 0), (loss.kept == 1, loss.lost == 1));
        }
        assert!(kept > 80 && torn > 80 && lost > 80, "{kept} {torn} {lost}");
    }

    #[test]
    fn a_sector_is_as_it_was_at_some_moment() {
        for seed in 0..400 {
            let (now, _) = stable_after(seed, &[0; 10], |content| {
                (1..=9).for_each(|byte| content.write(byte, &[1]));
            });
            assert!(now.is_sorted_by(|one, next| one >= next || now[0] == 0), "{now:?}");
            let ones = now.iter().skip(1).take_while(|byte| **byte == 1).count();
            assert_eq!(now.iter().map(|byte| usize::from(*byte)).sum::<usize>(), ones, "{now:?}");
        }
    }

    #[test]
    fn new_bytes_are_not_mixed_with_those_before_a_cut() {
        let mut seen = [false; 3];
        for seed in 0..400 {
            let (now, _) = stable_after(seed, &[1; 3000], |content| {
                content.set_len(0);
                content.write(0, &[2; 3000]);
            });
            let is_old = now == [1; 3000];
            assert!(is_old || !now.contains(&1), "seed {seed}");
            seen[if is_old { 0 } else { usize::from(now.is_empty()) + 1 }] = true;
        }
        assert_eq!(seen, [true; 3], "old, new in part, empty");
    }

    #[test]
    fn a_sync_covers_what_was_there_when_it_began() {
        for seed in 0..100 {
            let (now, _) = stable_after(seed, b"", |content| {
                content.write(0, b"first");
                let mark = content.mark();
                content.write(5, b"second");
                content.sync(mark);
                assert_eq!(content.pending(), 1);
                content.sync(mark);
            });
            assert!(now == b"first" || now == b"firstsecond", "{now:?}");
        }
    }

    #[test]
    fn a_write_beyond_the_bound_is_not_on_the_disk_as_a_whole() {
        let bytes = vec![2; CHANGED_MAX + (1 << 20)];
        let mut torn = 0;
        for seed in 0..20 {
            let (now, loss) = stable_after(seed, &[1; 300], |content| content.write(300, &bytes));
            let whole = SECTOR as usize - 300;
            let sectors = now[300..].split_at(whole.min(now.len() - 300));
            let is_whole = |part: &[u8]| part.iter().all(|byte| *byte == part[0]);
            assert!(
                now[..300] == [1; 300]
                    && is_whole(sectors.0)
                    && sectors.1.chunks(SECTOR as usize).all(is_whole)
            );
            torn += usize::from(loss.torn > 0 && now[300..] != bytes);
        }
        assert!(torn > 0);
    }

    #[test]
    fn changes_beyond_the_bound_are_written_back() {
        let mut content = Content::default();
        for at in 0..3 * CHANGES_MAX {
            content.write(at, b"x");
            assert!(content.pending() <= CHANGES_MAX);
        }
        content.write(0, &vec![1; CHANGED_MAX + 1]);
        assert!(content.changed_len <= CHANGED_MAX && content.stable.len() > CHANGES_MAX);
    }
}
