//! The counts of each place in the code.
//!
//! A table of fixed size, filled by the threads that come first: the key, by compare-exchange, then the description.
//! Places are never taken out. Beyond [`SITES_MAX`] all share the last entry. The counts are written by all threads,
//! which is slow and only done where a line has just come over from another core, which is slow already.
//!
//! Does not depend on cache lines. Tests: `apps/bench-counted/tests/words.rs`.

use core::panic::Location;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::OnceLock;

use super::Place;
use super::kind::{Kind, What};

/// A place in the code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Site {
    /// The place of a call.
    Here(&'static Location<'static>),
    /// The drop of a reference to a type, wherever that happens.
    Drop(&'static str),
}

impl Site {
    /// The place where the function was called that calls this.
    #[inline]
    #[track_caller]
    pub fn here() -> Self {
        Self::Here(Location::caller())
    }

    /// The drop of a reference to a `T`.
    #[inline]
    pub fn drop_to<T: ?Sized>() -> Self {
        Self::Drop(core::any::type_name::<T>())
    }

    /// Never 0, and different for different places; one place may have several.
    fn key(self) -> usize {
        match self {
            Self::Here(location) => core::ptr::from_ref(location).addr(),
            Self::Drop(name) => name.as_ptr().addr(),
        }
    }

    fn file(self) -> &'static str {
        match self {
            Self::Here(location) => location.file(),
            Self::Drop(_) => "",
        }
    }

    fn text(self) -> String {
        match self {
            Self::Here(location) => format!("{}:{}", shown(location.file()), location.line()),
            Self::Drop(name) => format!("drop of a reference to {}", name.replace("_counted::", "::")),
        }
    }
}

/// A source file's path without the detour that the instrumented packages take to it.
fn shown(file: &str) -> String {
    match file.rsplit_once("/../../") {
        Some((_, rest)) => format!("crates/{rest}"),
        None => file.to_owned(),
    }
}

/// The counts of a place for one kind.
pub(super) struct Counted {
    site: Option<Site>,
    pub(super) kind: Kind,
    pub(super) handoffs: u64,
    pub(super) transfers: u64,
}

impl Counted {
    pub(super) fn into_place(self) -> Place {
        let site = self.site.map_or_else(|| "elsewhere".to_owned(), Site::text);
        Place { site, kind: self.kind, handoffs: self.handoffs, transfers: self.transfers }
    }
}

/// An entry of the table.
pub(super) struct Counts {
    /// The site's key with its kind; 0 while the entry is free.
    key: AtomicUsize,
    /// Empty for a moment after `key` was set, and for ever in the last entry.
    site: OnceLock<(Site, Kind)>,
    handoffs: AtomicU64,
    transfers: AtomicU64,
}

impl Counts {
    const fn new() -> Self {
        Self {
            key: AtomicUsize::new(0),
            site: OnceLock::new(),
            handoffs: AtomicU64::new(0),
            transfers: AtomicU64::new(0),
        }
    }

    pub(super) fn handed_off(&self) {
        self.handoffs.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn transferred(&self) {
        self.transfers.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> Option<Counted> {
        let handoffs = self.handoffs.load(Ordering::Relaxed);
        let transfers = self.transfers.load(Ordering::Relaxed);
        if handoffs == 0 && transfers == 0 {
            return None;
        }
        let described = self.site.get();
        let kind = described.map_or(Kind::Other, |&(_, kind)| kind);
        Some(Counted { site: described.map(|&(site, _)| site), kind, handoffs, transfers })
    }
}

/// The entry of a place. Places are few, so that a search ends soon.
pub(super) fn count(site: Site, what: What) -> &'static Counts {
    // One place may reach several kinds of words through one call: the key has both, and is never 0.
    let key = (site.key() << WHAT_BITS | what as usize) + 1;
    let start = key.wrapping_mul(FACTOR) >> (usize::BITS - SITES_BITS);
    for step in 0..SITES_MAX - 1 {
        let counts = &TABLE[(start + step) % (SITES_MAX - 1)];
        let found = match counts.key.load(Ordering::Relaxed) {
            0 => counts
                .key
                .compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed)
                .unwrap_or_else(|now| now),
            taken => taken,
        };
        if found == 0 {
            let _ours = counts.site.set((site, Kind::of(what, site.file())));
            return counts;
        }
        if found == key {
            return counts;
        }
    }
    &TABLE[SITES_MAX - 1]
}

/// The places at which something was counted.
pub(super) fn all() -> impl Iterator<Item = Counted> {
    TABLE.iter().filter_map(Counts::read)
}

pub(super) fn reset() {
    for counts in &TABLE {
        counts.handoffs.store(0, Ordering::Relaxed);
        counts.transfers.store(0, Ordering::Relaxed);
    }
}

static TABLE: [Counts; SITES_MAX] = [const { Counts::new() }; SITES_MAX];

/// Places that are counted apart, and one entry for the rest. The stack has some hundreds.
const SITES_MAX: usize = 1 << SITES_BITS;
const SITES_BITS: u32 = 12;
/// Room for a [`What`] in a key, beside an address of 48 bits.
const WHAT_BITS: u32 = 3;
/// 2^64 divided by the golden ratio, made odd: neighbouring keys land far apart.
const FACTOR: usize = 0x9E37_79B9_7F4A_7C15;
