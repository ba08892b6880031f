//! Cross-core hand-offs: how often a shared cache line is written by another thread than the one before.
//!
//! That is the cost of sharing between cores: the second writer waits until the line has come over from the first one's cache. The
//! counting facade (`facade/counted.rs`) reports each access to a shared word here. This module knows which thread wrote each cache
//! line last (`lines.rs`), and how often each place in the code met a line that another thread had written (`sites.rs`).
//!
//! [`Kind`] names the counted things. Each is counted by cache line, so two words on one line count as one, and a word on
//! the line of a lock that its user has just taken does not count again. The value in a lock or a squeue, and the content of
//! a buffer, counts as one line however many are touched: the counts are a lower bound.
//!
//! Not seen: memory of the application's, of the allocator's, of the kernel's, and of threads' own wake-ups
//! (`std::thread::park`). A thread stands for a core: a thread that moves takes its lines with it, which is not counted.
//! Counting takes time in itself and so shifts which threads meet; speed is measured without.
//!
//! Does not depend on the protocols, except the names of their files (`kind.rs`). All is relaxed: nothing is
//! ordered by being counted. Tests: `apps/bench-counted/tests/words.rs`, and the ends of the files.

mod kind;
mod lines;
mod sites;

use core::ops::Sub;

pub use kind::Kind;
pub(crate) use kind::What;
pub(crate) use sites::Site;

/// Hand-offs by kind, and reads of lines that another thread had written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Handoffs {
    /// Words of locks and of squeues.
    pub lock: u64,
    /// Heads and links of queues, and the words through which threads and work items find each other.
    pub queue: u64,
    /// Statistics and quotas.
    pub counter: u64,
    /// Counts of references to connections, listeners and pools.
    pub references: u64,
    /// Buffers of packet memory: their headers, and their bytes as one line a buffer.
    pub buffer: u64,
    /// Values in locks and squeues, as one line each.
    pub guarded: u64,
    /// Every other word.
    pub other: u64,
    /// Reads of a line that another thread had written since this one saw it last; in no other field. Exact for up to
    /// 28 threads; of more, some share a mark and the first of them to read is counted.
    pub transfers: u64,
}

impl Handoffs {
    /// All hand-offs.
    pub fn total(&self) -> u64 {
        [self.lock, self.queue, self.counter, self.references, self.buffer, self.guarded, self.other]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// The count of one kind.
    pub fn of(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Lock => self.lock,
            Kind::Queue => self.queue,
            Kind::Counter => self.counter,
            Kind::References => self.references,
            Kind::Buffer => self.buffer,
            Kind::Guarded => self.guarded,
            Kind::Other => self.other,
        }
    }

    fn add(&mut self, kind: Kind, count: u64) {
        let sum = match kind {
            Kind::Lock => &mut self.lock,
            Kind::Queue => &mut self.queue,
            Kind::Counter => &mut self.counter,
            Kind::References => &mut self.references,
            Kind::Buffer => &mut self.buffer,
            Kind::Guarded => &mut self.guarded,
            Kind::Other => &mut self.other,
        };
        *sum = sum.saturating_add(count);
    }
}

impl Sub for Handoffs {
    type Output = Self;

    /// The counts since `earlier`; nothing where there was a reset in between.
    fn sub(self, earlier: Self) -> Self {
        Self {
            lock: self.lock.saturating_sub(earlier.lock),
            queue: self.queue.saturating_sub(earlier.queue),
            counter: self.counter.saturating_sub(earlier.counter),
            references: self.references.saturating_sub(earlier.references),
            buffer: self.buffer.saturating_sub(earlier.buffer),
            guarded: self.guarded.saturating_sub(earlier.guarded),
            other: self.other.saturating_sub(earlier.other),
            transfers: self.transfers.saturating_sub(earlier.transfers),
        }
    }
}

/// A place in the code, and its counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The file and line of the access, or the type to which a reference was dropped.
    pub site: String,
    /// Kind of the line.
    pub kind: Kind,
    /// Writes of lines that another thread had written last.
    pub handoffs: u64,
    /// Reads of such lines.
    pub transfers: u64,
}

/// The counts of all threads of the process since the start or the last [`reset`]. Never blocks; the latest may be
/// missing.
pub fn snapshot() -> Handoffs {
    let mut sums = Handoffs::default();
    for place in sites::all() {
        sums.add(place.kind, place.handoffs);
        sums.transfers = sums.transfers.saturating_add(place.transfers);
    }
    sums
}

/// Begins anew. The last writer of each line is kept: the next write by another thread counts.
pub fn reset() {
    sites::reset();
}

/// The `n` places with the most hand-offs, most first; places with none are left out.
pub fn top(n: usize) -> Vec<Place> {
    let mut places: Vec<Place> = sites::all().map(sites::Counted::into_place).collect();
    places.sort_by(|a, b| (&a.site, a.kind).cmp(&(&b.site, b.kind)));
    // The compiler may have made several copies of one place.
    places.dedup_by(|copy, first| {
        let is_same = (&copy.site, copy.kind) == (&first.site, first.kind);
        if is_same {
            first.handoffs = first.handoffs.saturating_add(copy.handoffs);
            first.transfers = first.transfers.saturating_add(copy.transfers);
        }
        is_same
    });
    places.retain(|place| place.handoffs > 0);
    places.sort_by_key(|place| core::cmp::Reverse(place.handoffs));
    places.truncate(n);
    places
}

/// The calling thread is about to write to the line of `place`.
#[inline]
pub(crate) fn wrote<T: ?Sized>(place: *const T, what: What, site: Site) {
    if lines::wrote(place.addr()) {
        sites::count(site, what).handed_off();
    }
}

/// The calling thread is about to read from the line of `place`.
#[inline]
pub(crate) fn read<T: ?Sized>(place: *const T, what: What, site: Site) {
    if lines::read(place.addr()) {
        sites::count(site, what).transferred();
    }
}
