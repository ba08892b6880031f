//! A message with a reply (`rcvd = sync`): the reader always gets it, whichever thread runs the owner's side, and a
//! close in between takes nothing away.
//!
//! The reader counts its request under the replies' mutex and posts; the owner takes the bits, then that mutex, and
//! answers all that are counted. Loom reports a reader that sleeps for ever as a deadlock.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use sockeye_sync::{Entry, Filled, Inside, Notify, Outcome, Post, Replies, RunQueue, Sleeper, Spin, Squeue};

use crate::check_bounded;
use crate::support::Guarded;

const REPLY: u32 = 1;
const CLOSE: u32 = 2;

/// An item in the queue of the connection's own squeue.
enum Work {
    Notify,
    Segment,
}

/// The actions of protocol code.
#[derive(Default)]
struct Pcb {
    is_closed: bool,
    /// Items that found the connection open, and closed.
    segments: [usize; 2],
    bits: u32,
}

struct Connection {
    squeue: Squeue<Work>,
    pcb: Guarded<Pcb>,
    notify: Notify,
    replies: Replies,
}

struct World {
    /// Held by the thread that works on it, as a queued item would hold it.
    connection: Connection,
    queue: RunQueue<()>,
    sleeper: Sleeper,
    /// The number of items that the worker has to run before it may end.
    is_over: AtomicUsize,
}

impl World {
    fn new() -> Arc<Self> {
        let squeue = Squeue::new();
        let pcb = Guarded::new(Pcb::default());
        let connection = Connection { squeue, pcb, notify: Notify::new(), replies: Replies::new() };
        let is_over = AtomicUsize::new(0);
        Arc::new(Self { connection, queue: RunQueue::new(), sleeper: Sleeper::new(), is_over })
    }

    fn step(&self, inside: &mut Inside<'_, Work>, work: Work, owed: &mut bool) {
        let conn = &self.connection;
        conn.pcb.with(inside, |pcb| match work {
            Work::Segment => pcb.segments[usize::from(pcb.is_closed)] += 1,
            Work::Notify => {
                let bits = conn.notify.take();
                pcb.bits |= bits;
                pcb.is_closed |= bits & CLOSE != 0;
                if bits & REPLY != 0 {
                    *owed |= conn.replies.reply();
                }
            }
        });
    }

    fn drain(&self, inside: Inside<'_, Work>, mut owed: bool) {
        let outcome = inside.drain(usize::MAX, |inside, work| self.step(inside, work, &mut owed));
        assert_eq!(outcome, Outcome::Left);
        if owed {
            self.connection.replies.queue().wake();
        }
    }

    /// A caller that may run protocol code.
    fn enter(&self, work: Work) {
        match self.connection.squeue.enter(work) {
            Entry::Queued => {}
            Entry::Poisoned(_) => panic!("no thread panicked"),
            Entry::Inside(mut inside, work) => {
                let mut owed = false;
                self.step(&mut inside, work, &mut owed);
                self.drain(inside, owed);
            }
        }
    }

    /// Sends the owner a message and sleeps for the reply.
    fn ask(&self) {
        let conn = &self.connection;
        let request = conn.replies.ask();
        if conn.notify.post(REPLY) == Post::Fire && conn.squeue.fill(Work::Notify) == Filled::WakeWorker {
            self.queue.push(());
            self.sleeper.wake_if_sleeping();
        }
        while let Some(ticket) = conn.replies.ticket(request) {
            conn.replies.queue().wait(ticket, None, Spin::OFF);
        }
    }

    /// A worker's loop, until it is stopped.
    fn work(&self) {
        loop {
            for () in self.queue.take_all() {
                if let Some(inside) = self.connection.squeue.resume() {
                    self.drain(inside, false);
                }
            }
            let drowsy = self.sleeper.prepare_sleep();
            if self.is_over.load(Ordering::Relaxed) == 1 {
                return drowsy.cancel();
            }
            if self.queue.is_empty() {
                drowsy.sleep(None, Spin::OFF);
            } else {
                drowsy.cancel();
            }
        }
    }

    fn end(&self) {
        self.is_over.store(1, Ordering::Relaxed);
        self.sleeper.wake_if_sleeping();
    }
}

#[test]
fn a_reader_gets_its_reply_from_the_worker() {
    check_bounded(|| {
        let world = World::new();
        let other = world.clone();
        let worker = thread::spawn(move || other.work());
        world.ask();
        world.end();
        worker.join().unwrap();
    });
}

#[test]
fn a_close_against_everything_queued_loses_no_reply_and_no_item() {
    check_bounded(|| {
        let world = World::new();
        let (peer, closer) = (world.clone(), world.clone());
        let peer = thread::spawn(move || peer.enter(Work::Segment));
        let closer = thread::spawn(move || {
            if closer.connection.notify.post(CLOSE) == Post::Fire {
                closer.enter(Work::Notify);
            }
        });
        // The reader also acts as a worker: it would wait for itself, so it does not wait, and checks for the reply
        // when all threads are done.
        let conn = &world.connection;
        let request = conn.replies.ask();
        let has_fired = conn.notify.post(REPLY) == Post::Fire;
        if has_fired && conn.squeue.fill(Work::Notify) == Filled::WakeWorker {
            let inside = conn.squeue.resume().expect("no other thread was notified");
            world.drain(inside, false);
        }
        peer.join().unwrap();
        closer.join().unwrap();
        let mut inside = conn.squeue.try_enter().expect("all threads have left");
        assert!(inside.take().is_empty());
        conn.pcb.with(&mut inside, |pcb| {
            assert!(pcb.is_closed && pcb.bits == REPLY | CLOSE && !conn.notify.is_queued());
            assert_eq!(pcb.segments.iter().sum::<usize>(), 1);
        });
        assert!(conn.replies.ticket(request).is_none());
        assert!(inside.leave().is_ok());
    });
}
