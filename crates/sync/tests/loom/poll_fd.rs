//! The descriptor of a poller (`poll_queue.rs`): a loop that looks only while the descriptor is readable misses nothing.
//!
//! The descriptor is a flag here: a write makes it true, and emptying it makes it false.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use loom::thread;
use sockeye_sync::poll_queue::PollQueue;
use sockeye_sync::polled::{Polled, Source, Way};
use sockeye_sync::slots::{Numbered, Registered};

use crate::check_bounded;

const READ: u8 = 1;

struct Set {
    queue: PollQueue<Registration>,
    is_readable: AtomicBool,
}

struct Registration {
    polled: Polled,
    socket: Socket,
}

/// The socket's readiness.
struct Socket(AtomicU8);

impl Registered for Registration {
    fn numbered(&self) -> &Numbered {
        self.polled.numbered()
    }
}

impl Source for Socket {
    fn ready(&self) -> u8 {
        self.0.load(Ordering::SeqCst)
    }

    fn settle(&self, settle: &mut dyn FnMut(u8)) {
        settle(self.ready());
    }
}

impl Set {
    /// A set with a descriptor, and one socket in it that is not ready.
    fn new(way: Way) -> (Arc<Self>, Arc<Registration>) {
        let set = Arc::new(Self { queue: PollQueue::new(), is_readable: AtomicBool::new(false) });
        let made = set.queue.admit(|numbered| Registration {
            polled: Polled::new(numbered, way, READ, 0),
            socket: Socket(AtomicU8::new(0)),
        });
        let registration = made.expect("a number");
        assert!(!set.queue.describe());
        (set, registration)
    }

    /// The socket becomes ready.
    fn mark(&self, registration: &Registration) {
        registration.socket.0.store(READ, Ordering::SeqCst);
        if registration.polled.mark(READ).is_some_and(|entry| self.queue.push(entry)) {
            self.queue.wake();
            self.is_readable.store(true, Ordering::SeqCst);
        }
    }

    fn is_readable(&self) -> bool {
        self.is_readable.load(Ordering::SeqCst)
    }

    /// A wait that does not block. How many events it has.
    fn wait(&self) -> usize {
        self.is_readable.store(false, Ordering::SeqCst);
        let mut found = 0;
        let owed = self.queue.collect(
            &mut found,
            |_| false,
            |found, registration, held| {
                let Some(event) = registration.polled.look(held, &registration.socket) else { return false };
                *found += 1;
                event.stays
            },
        );
        if owed.write {
            self.is_readable.store(true, Ordering::SeqCst);
        }
        found
    }

    /// As a loop that waits for the descriptor.
    fn run_while_readable(&self) -> usize {
        let mut found = 0;
        while self.is_readable() {
            found += self.wait();
        }
        found
    }
}

#[test]
fn an_edge_is_shown_until_it_is_found() {
    check_bounded(|| {
        let (set, registration) = Set::new(Way::Edge);
        let (other, socket) = (set.clone(), registration.clone());
        let writer = thread::spawn(move || {
            other.mark(&socket);
            other.mark(&socket);
        });
        // One wait that nothing has asked for, then as the descriptor says.
        let mut found = set.wait();
        found += set.run_while_readable();
        writer.join().unwrap();
        found += set.run_while_readable();
        assert!((1..=2).contains(&found));
        assert_eq!(set.wait(), 0, "an event was not shown");
        set.mark(&registration);
        assert!(set.is_readable(), "the descriptor shows nothing any more");
        assert_eq!(set.run_while_readable(), 1);
    });
}

#[test]
fn a_level_is_shown_for_as_long_as_it_lasts() {
    check_bounded(|| {
        let (set, registration) = Set::new(Way::Level);
        let (other, socket) = (set.clone(), registration.clone());
        let writer = thread::spawn(move || other.mark(&socket));
        set.wait();
        writer.join().unwrap();
        for _ in 0..2 {
            assert!(set.is_readable());
            assert_eq!(set.wait(), 1);
        }
        assert!(set.is_readable());
        registration.socket.0.store(0, Ordering::SeqCst);
        assert_eq!(set.run_while_readable(), 0);
        set.mark(&registration);
        assert!(set.is_readable());
    });
}
