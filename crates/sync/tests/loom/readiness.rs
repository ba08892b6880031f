//! A byte that arrives while a poller drops its entry, or a reader lowers: one of them always has an entry that is not void.
//!
//! The socket is a count of bytes under a mutex; the inbox is a list under another one. The last model is the
//! counter-example: with an idle word that is written outside the socket's mutex the byte is lost.

use std::sync::atomic::{AtomicBool as PlainBool, Ordering as PlainOrdering};

use loom::sync::Arc;
use loom::thread;
use sockeye_sync::{Generation, Look, Mutex, Readiness};

use crate::{check, check_bounded};

const READ: u8 = 1;

struct Socket {
    bytes: Mutex<usize>,
    word: Readiness,
    inbox: Mutex<Vec<Generation>>,
}

impl Socket {
    /// A byte has arrived and was reported: the poller holds the returned entry.
    fn with_a_reported_byte() -> (Arc<Self>, Generation) {
        let socket = Self {
            bytes: Mutex::new(0),
            word: Readiness::new(Generation::FIRST),
            inbox: Mutex::new(Vec::new()),
        };
        socket.deliver();
        let entry = socket.inbox.lock().pop().expect("it was idle");
        socket.word.report(entry);
        (Arc::new(socket), entry)
    }

    fn deliver(&self) {
        let mut bytes = self.bytes.lock();
        *bytes += 1;
        if let Some(entry) = self.word.raise(READ) {
            self.inbox.lock().push(entry);
        }
    }

    fn read(&self) {
        let mut bytes = self.bytes.lock();
        *bytes = 0;
        self.word.lower(READ);
    }

    /// Whether the poller keeps the entry.
    fn look(&self, entry: Generation) -> bool {
        match self.word.look(entry) {
            Look::Void => false,
            Look::Ready(bits) => {
                assert_eq!(bits, READ);
                self.word.report(entry);
                true
            }
            Look::Closer => {
                let bytes = self.bytes.lock();
                self.word.settle(entry, if *bytes > 0 { READ } else { 0 })
            }
        }
    }

    /// At the end: whether the poller has one entry for the remaining bytes.
    fn is_known(&self, held: Option<Generation>) -> bool {
        let inbox = std::mem::take(&mut *self.inbox.lock());
        let valid =
            held.into_iter().chain(inbox).filter(|entry| self.word.look(*entry) != Look::Void).count();
        assert!(valid <= 1, "reported twice");
        *self.bytes.lock() == 0 || valid == 1
    }
}

/// A byte arrives and another thread reads while the poller checks its entry; the poller has an entry for remaining bytes.
fn look_beside_a_writer_and_a_reader(socket: &Arc<Socket>, entry: Generation) {
    let [writer, reader] = [Socket::deliver, Socket::read].map(|act| {
        let socket = socket.clone();
        thread::spawn(move || act(&socket))
    });
    let held = socket.look(entry).then_some(entry);
    writer.join().unwrap();
    reader.join().unwrap();
    assert!(socket.is_known(held));
}

#[test]
fn a_byte_that_arrives_while_the_poller_checks_is_noticed() {
    check(|| {
        let (socket, entry) = Socket::with_a_reported_byte();
        socket.read();
        let writer = {
            let socket = socket.clone();
            thread::spawn(move || socket.deliver())
        };
        let held = socket.look(entry).then_some(entry);
        writer.join().unwrap();
        assert!(socket.is_known(held));
    });
}

#[test]
fn a_byte_that_arrives_during_a_read_is_noticed() {
    check_bounded(|| {
        let (socket, entry) = Socket::with_a_reported_byte();
        look_beside_a_writer_and_a_reader(&socket, entry);
    });
}

#[test]
fn an_entry_that_is_still_in_the_inbox_is_checked_and_settled() {
    check_bounded(|| {
        let (socket, entry) = Socket::with_a_reported_byte();
        socket.read();
        assert!(!socket.look(entry));
        // Delivered again; the reader runs before the poller takes the entry out of its inbox, or after.
        socket.deliver();
        let entry = socket.inbox.lock().pop().expect("it was idle");
        look_beside_a_writer_and_a_reader(&socket, entry);
    });
}

#[test]
fn a_shared_word_that_is_taken_is_checked_or_queued_again() {
    check(|| {
        let socket = Arc::new((Readiness::new(Generation::FIRST), loom::sync::atomic::AtomicUsize::new(0)));
        let entry = socket.0.raise_shared(READ).expect("it was idle");
        let writer = {
            let socket = socket.clone();
            thread::spawn(move || {
                socket.1.store(1, loom::sync::atomic::Ordering::Relaxed);
                socket.0.raise_shared(READ).is_some()
            })
        };
        assert_eq!(socket.0.take_shared(entry), Some(READ));
        let is_seen = socket.1.load(loom::sync::atomic::Ordering::Relaxed) == 1;
        assert!(writer.join().unwrap() || is_seen);
    });
}

#[test]
fn settling_outside_the_mutex_would_lose_an_entry() {
    let lost = std::sync::Arc::new(PlainBool::new(false));
    let found = lost.clone();
    check(move || {
        let (socket, entry) = Socket::with_a_reported_byte();
        *socket.bytes.lock() = 0;
        let writer = {
            let socket = socket.clone();
            thread::spawn(move || socket.deliver())
        };
        let bytes = *socket.bytes.lock();
        let held = socket.word.settle(entry, if bytes > 0 { READ } else { 0 }).then_some(entry);
        writer.join().unwrap();
        if !socket.is_known(held) {
            found.store(true, PlainOrdering::Relaxed);
        }
    });
    assert!(lost.load(PlainOrdering::Relaxed), "the model would not notice lost readiness");
}
