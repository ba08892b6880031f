//! A connection's remote-free lists: where buffers wait that were freed on another core than the one that allocates for this
//! connection, with `rx_free = slot` and `socket_list`.
//!
//! There are two, by which thread allocates. On `rx` lie buffers that the connection's *reader* has used up; the thread that brings its
//! packets allocated them (an input thread, or over loopback the peer's writer), and the thread that brings the next packet takes
//! them. On `tx` lie buffers that the peer has *acknowledged*; the connection's writer allocated them, and the next write takes them.
//!
//! It does not depend on pools, cores or when lists are swept: `remote_sweep.rs`. No lock guards anything here. Buffers on a list
//! reference nothing but memory.
//!
//! `listed` says whether the sweep knows of the connection. States, and which thread moves them:
//!
//! | from → to | by |
//! |---|---|
//! | unlisted → active | the thread that has put something on a list; enters the connection into the sweep's list |
//! | idle → active | the thread that has put something on a list |
//! | active → idle | the sweep, which keeps the entry |
//! | idle → unlisted | the sweep, which drops the entry and then empties the lists |
//!
//! Nothing is left on a list that is not swept: a thread puts a buffer on a list, then (a sequentially consistent fence between)
//! reads `listed`; the sweep writes *unlisted*, then (a fence between) empties the lists. Either the sweep finds
//! the buffer, or the thread finds *unlisted* and enters the connection anew.
//!
//! Tests: `tests/experiments/rx_free.rs`.

use sockeye_mbuf::{Freed, RemoteFreeList, RemoteFreeSlot};
use sockeye_sync::facade::{AtomicU8, Ordering, fence};

use crate::experiments::RxFree;

/// See the module's head.
pub(super) struct RemoteLists {
    pub rx: RemoteList,
    pub tx: RemoteList,
    /// (a)
    listed: AtomicU8,
}

/// One list.
pub(super) enum RemoteList {
    /// Nothing is kept here: the setting has no lists.
    None,
    Slot(RemoteFreeSlot),
    List(RemoteFreeList),
}

const UNLISTED: u8 = 0;
const IDLE: u8 = 1;
const ACTIVE: u8 = 2;

impl RemoteList {
    /// Whether connections have lists with this setting.
    pub fn is_used(setting: RxFree) -> bool {
        !matches!(Self::of(setting), Self::None)
    }

    fn of(setting: RxFree) -> Self {
        match setting {
            RxFree::Inline | RxFree::CoreList => Self::None,
            RxFree::Slot => Self::Slot(RemoteFreeSlot::new()),
            RxFree::SocketList => Self::List(RemoteFreeList::new()),
        }
    }

    /// Whether it was empty just now.
    #[inline]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::None => true,
            Self::Slot(slot) => slot.is_empty(),
            Self::List(list) => list.is_empty(),
        }
    }

    /// Empties it. When it is dropped its content goes to the caller's cache, so not under a lock.
    pub fn take(&self) -> Freed {
        match self {
            Self::None => Freed::new(),
            Self::Slot(slot) => slot.take(),
            Self::List(list) => list.take(),
        }
    }
}

impl RemoteLists {
    pub fn new(setting: RxFree) -> Self {
        Self { rx: RemoteList::of(setting), tx: RemoteList::of(setting), listed: AtomicU8::new(UNLISTED) }
    }

    /// Empties both.
    pub fn take_all(&self) -> Freed {
        let mut all = self.rx.take();
        all.append(self.tx.take());
        all
    }

    /// Notes that something was put on a list, after a fence. True if the connection has to be entered into the list.
    #[inline]
    pub fn mark_active(&self) -> bool {
        // Read first: most of the time it is active, and the line stays with the thread that reads it.
        self.listed.load(Ordering::Relaxed) != ACTIVE
            && self.listed.swap(ACTIVE, Ordering::Relaxed) == UNLISTED
    }

    /// One step of the sweep. True if the entry stays; if not, the lists are to be emptied.
    pub fn sweep(&self) -> bool {
        if self.listed.compare_exchange(ACTIVE, IDLE, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return true;
        }
        let is_dropped =
            self.listed.compare_exchange(IDLE, UNLISTED, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        // See the module's head.
        fence(Ordering::SeqCst);
        !is_dropped
    }
}
