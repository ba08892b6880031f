//! The precheck of `recv`: the reader decides under the mutex of `so_rcv` whether a window update is
//! due, and posts only then.
//!
//! The owner computes the window and stores the edge it advertises in one section of that mutex;
//! the reader unlinks data and evaluates `due` in one section. Then either the owner has seen the
//! space or the reader sees the new edge. The second model is the counter-example: with the edge
//! stored in a section of its own, an update is lost.

use std::sync::atomic::{AtomicBool as PlainBool, Ordering as PlainOrdering};

use loom::sync::Arc;
use loom::thread;
use sockeye_sync::{Mutex, Notify, Post};

use crate::check;

/// The part of `so_rcv` that matters: room for one segment of `HIWAT` bytes.
struct SoRcv {
    /// Bytes in the buffer.
    bytes: usize,
    /// Window last advertised.
    advertised: usize,
}

const HIWAT: usize = 2;

impl SoRcv {
    fn space(&self) -> usize {
        HIWAT - self.bytes
    }

    /// The predicate of both sides: the window has grown by half of the buffer.
    fn is_update_due(&self) -> bool {
        self.space().saturating_sub(self.advertised) >= HIWAT / 2
    }
}

/// The buffer is full and the peer knew of room for a segment; the owner has just taken it in and
/// advertises what is left, while the reader empties the buffer. True if the peer ends up knowing
/// of the room, or the owner is told to look.
fn update_reaches_the_peer(is_edge_stored_with_the_window: bool) -> bool {
    let so_rcv = Arc::new(Mutex::new(SoRcv { bytes: HIWAT, advertised: HIWAT }));
    let notify = Arc::new(Notify::new());
    let reader = {
        let (so_rcv, notify) = (so_rcv.clone(), notify.clone());
        thread::spawn(move || {
            let mut so_rcv = so_rcv.lock();
            so_rcv.bytes = 0;
            let is_due = so_rcv.is_update_due();
            drop(so_rcv);
            is_due && notify.post(1) == Post::Fire
        })
    };
    if is_edge_stored_with_the_window {
        let mut so_rcv = so_rcv.lock();
        so_rcv.advertised = so_rcv.space();
    } else {
        let window = so_rcv.lock().space();
        so_rcv.lock().advertised = window;
    }
    let is_fired = reader.join().unwrap();
    let so_rcv = so_rcv.lock();
    is_fired || !so_rcv.is_update_due()
}

#[test]
fn the_precheck_loses_no_update() {
    check(|| assert!(update_reaches_the_peer(true)));
}

#[test]
fn an_edge_stored_apart_would_lose_one() {
    let lost = std::sync::Arc::new(PlainBool::new(false));
    let found = lost.clone();
    check(move || {
        if !update_reaches_the_peer(false) {
            found.store(true, PlainOrdering::Relaxed);
        }
    });
    assert!(lost.load(PlainOrdering::Relaxed), "the model would not notice a lost update");
}
