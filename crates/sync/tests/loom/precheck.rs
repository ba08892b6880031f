//! The precheck of `recv`: the reader decides under the connection's lock whether a window update is due, and posts and runs its message
//! only then.
//!
//! The owner computes the window and stores the edge that it advertises in one hold of the lock; the reader unlinks data and evaluates
//! `due` in one hold. Then either the owner has seen the space or the reader sees the new edge. Lock and message are those that
//! ship; the buffer is two numbers. The last model is the counter-example: with the edge stored in a hold of its own, an update
//! is lost.

use std::sync::atomic::{AtomicBool as PlainBool, Ordering as PlainOrdering};

use loom::sync::Arc;
use loom::thread;
use sockeye_sync::socket_lock::{Left, Locked, SocketLock, Turn};
use sockeye_sync::{Notify, Post};

use crate::check;

/// The part of `so_rcv` that matters: room for two segments of one byte.
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

enum Work {
    /// The peer has filled the window that it knew of.
    Segment,
    Notify,
}

struct Connection {
    so: SocketLock<SoRcv, Work>,
    notify: Notify,
}

impl Connection {
    /// Runs `first` and the waiting items, with output after them, until nothing is left.
    fn serve(&self, mut locked: Locked<'_, SoRcv, Work>, first: Option<Work>) {
        let mut first = first;
        loop {
            let (so_rcv, mut backlog) = locked.parts();
            let mut next = first.take().or_else(|| backlog.pop());
            while let Some(work) = next {
                match work {
                    Work::Segment => so_rcv.bytes += std::mem::take(&mut so_rcv.advertised),
                    Work::Notify => assert_ne!(self.notify.take(), 0),
                }
                next = backlog.pop();
            }
            so_rcv.advertised = so_rcv.space();
            match locked.run() {
                Ok(()) => return,
                Err(again) => locked = again,
            }
        }
    }

    /// A segment has arrived.
    fn bring(&self) {
        match self.so.try_run(Work::Segment) {
            Turn::Mine(locked, work) => self.serve(locked, work),
            Turn::Left(Left::First) => {
                if let Some(locked) = self.so.look() {
                    self.serve(locked, None);
                }
            }
            Turn::Left(Left::Behind) => {}
            Turn::Left(Left::Dead(_)) => panic!("no thread panicked"),
        }
    }

    /// A receive of all there is.
    fn recv(&self) {
        let mut locked = self.so.enter();
        let so_rcv = locked.parts().0;
        let taken = std::mem::take(&mut so_rcv.bytes);
        let owes = taken > 0 && so_rcv.is_update_due();
        if owes && self.notify.post(1) == Post::Fire {
            self.serve(locked, Some(Work::Notify));
        } else if let Err(locked) = locked.run() {
            self.serve(locked, None);
        }
    }
}

#[test]
fn the_precheck_loses_no_update() {
    check(|| {
        let so_rcv = SoRcv { bytes: 1, advertised: 1 };
        let conn = Arc::new(Connection { so: SocketLock::new(so_rcv), notify: Notify::new() });
        let peer = conn.clone();
        let peer = thread::spawn(move || peer.bring());
        conn.recv();
        peer.join().unwrap();
        conn.recv();
        let so_rcv = conn.so.lock();
        assert_eq!(so_rcv.bytes, 0);
        assert_eq!(so_rcv.advertised, HIWAT, "the peer has been advertised all the room");
        assert!(!conn.notify.is_queued());
    });
}

/// The buffer is full, and room for a segment was advertised to the peer; the owner advertises the rest with an edge stored
/// apart, while the reader empties the buffer. True if all the room is advertised in the end, or the owner is notified.
fn update_reaches_the_peer_with_an_edge_stored_apart() -> bool {
    let so_rcv = SoRcv { bytes: HIWAT, advertised: HIWAT };
    let conn = Arc::new(Connection { so: SocketLock::new(so_rcv), notify: Notify::new() });
    let reader = {
        let conn = conn.clone();
        thread::spawn(move || {
            let mut so_rcv = conn.so.lock();
            so_rcv.bytes = 0;
            let is_due = so_rcv.is_update_due();
            drop(so_rcv);
            is_due && conn.notify.post(1) == Post::Fire
        })
    };
    let window = conn.so.lock().space();
    conn.so.lock().advertised = window;
    let is_fired = reader.join().unwrap();
    let so_rcv = conn.so.lock();
    is_fired || !so_rcv.is_update_due()
}

#[test]
fn an_edge_stored_apart_would_lose_one() {
    let lost = std::sync::Arc::new(PlainBool::new(false));
    let found = lost.clone();
    check(move || {
        if !update_reaches_the_peer_with_an_edge_stored_apart() {
            found.store(true, PlainOrdering::Relaxed);
        }
    });
    assert!(lost.load(PlainOrdering::Relaxed), "the model would not notice a lost update");
}
