//! Which thread wrote each cache line last, and which ones have read it since.
//!
//! A table beside the memory it speaks of, so that structures keep their layout. A line has one place in it, found by an
//! invertible mixing: the bits of the mixed number outside the index are kept there as a tag, so an entry never speaks of
//! another line. Two lines with one place take it from each other; the one that comes back is like one never written, so a
//! hand-off may be missed, none is invented. With [`PLACES`] places and a hundred thousand lines in use that concerns one
//! line in twenty.
//!
//! Memory that is freed and used anew keeps its lines' history, as the caches do.
//!
//! An entry is one word: a write swaps it, and the old word names the writer before; a read adds a mark. A read that marks an
//! entry just swapped marks the wrong line, and one transfer is missed. Tests: at the end, `apps/bench-counted/tests/words.rs`.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Reports a write; true if another thread wrote the line last.
#[inline]
pub(super) fn wrote(addr: usize) -> bool {
    let (place, tag) = place_of(addr);
    let me = thread();
    let mine = Entry::written(tag, me);
    let entry = &TABLE[place];
    if entry.load(Ordering::Relaxed) == mine.0 {
        return false;
    }
    let before = Entry(entry.swap(mine.0, Ordering::Relaxed));
    before.tag() == tag && before.is_of_another(me)
}

/// Reports a read; true if another thread has written the line since this one saw it.
#[inline]
pub(super) fn read(addr: usize) -> bool {
    let (place, tag) = place_of(addr);
    let me = thread();
    let entry = &TABLE[place];
    let is_news = |entry: Entry| entry.tag() == tag && entry.is_of_another(me) && !entry.is_read_by(me);
    is_news(Entry(entry.load(Ordering::Relaxed)))
        && is_news(Entry(entry.fetch_or(Entry::mark(me), Ordering::Relaxed)))
}

/// Tag, last writer and readers of a line; 0 if nothing was written there.
#[derive(Clone, Copy)]
struct Entry(u64);

impl Entry {
    fn written(tag: u64, by: u64) -> Self {
        Self((tag << (THREAD_BITS + READER_BITS)) | (by << READER_BITS))
    }

    fn mark(reader: u64) -> u64 {
        1 << (reader % u64::from(READER_BITS))
    }

    fn tag(self) -> u64 {
        self.0 >> (THREAD_BITS + READER_BITS)
    }

    fn writer(self) -> u64 {
        (self.0 >> READER_BITS) & (THREADS - 1)
    }

    fn is_of_another(self, thread: u64) -> bool {
        self.writer() != 0 && self.writer() != thread
    }

    fn is_read_by(self, thread: u64) -> bool {
        self.0 & Self::mark(thread) != 0
    }
}

/// The place of the line at `addr` in the table, and the rest of its mixed number.
#[inline]
fn place_of(addr: usize) -> (usize, u64) {
    let line = (addr as u64 / LINE_BYTES) & (LINES - 1);
    // An odd factor is a bijection of the numbers below a power of two.
    let mixed = line.wrapping_mul(FACTOR) & (LINES - 1);
    ((mixed >> TAG_BITS) as usize, mixed & (TAGS - 1))
}

/// A number for the calling thread, from 1. After 32,767 threads numbers come again.
#[inline]
fn thread() -> u64 {
    thread_local! {
        static MINE: Cell<u64> = const { Cell::new(0) };
    }
    static NEXT: AtomicU32 = AtomicU32::new(0);
    MINE.with(|mine| {
        if mine.get() == 0 {
            let number = u64::from(NEXT.fetch_add(1, Ordering::Relaxed));
            mine.set(number % (THREADS - 1) + 1);
        }
        mine.get()
    })
}

static TABLE: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// A cache line.
const LINE_BYTES: u64 = 64;
/// Lines of the address space of a process: 48 bits of addresses.
const LINES: u64 = 1 << (PLACE_BITS + TAG_BITS);
/// Places of the table: 16 MiB, of which only used pages become memory.
const PLACES: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 21;
const TAG_BITS: u32 = 21;
const TAGS: u64 = 1 << TAG_BITS;
const THREAD_BITS: u32 = 15;
const THREADS: u64 = 1 << THREAD_BITS;
/// Readers are distinguished modulo this.
const READER_BITS: u32 = 28;
/// 2^42 divided by the golden ratio, and odd: neighbours land far apart.
const FACTOR: u64 = 2_718_142_227_745;

const _: () = assert!(TAG_BITS + THREAD_BITS + READER_BITS == u64::BITS);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_line_has_one_place_and_no_other_line_its_tag_there() {
        let start = 0x7fff_1234_0000;
        let places: HashSet<_> = (0..100_000).map(|line| place_of(start + line * 64)).collect();
        assert_eq!(places.len(), 100_000);
        assert_eq!(place_of(start), place_of(start + 63));
    }

    #[test]
    fn neighbouring_lines_spread_over_the_table() {
        let places: HashSet<_> = (0..100_000).map(|line| place_of(0x5555_0000_0000 + line * 64).0).collect();
        assert!(places.len() > 95_000, "{}", places.len());
    }

    #[test]
    fn an_entry_returns_the_values_that_were_stored() {
        let entry = Entry::written(TAGS - 1, THREADS - 1);
        assert_eq!((entry.tag(), entry.writer()), (TAGS - 1, THREADS - 1));
        assert!(!entry.is_read_by(THREADS - 1));
        assert!(entry.is_of_another(1) && !entry.is_of_another(THREADS - 1));
        assert!(!Entry(0).is_of_another(1));
    }
}
