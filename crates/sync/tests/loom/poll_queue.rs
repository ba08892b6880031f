//! A poller's lists (`poll_queue.rs`, `slots.rs`, `polled.rs`): registrations that are added and removed and reuse numbers,
//! while their sockets are marked and the poller checks them.
//!
//! A socket is a count of bytes and a list of its waiters, under a mutex. The poller is a thread that sleeps until it finds
//! the event that it waits for: a mark without a wake-up is a deadlock, which loom reports.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use sockeye_sync::poll_queue::{self, Idle, PollQueue};
use sockeye_sync::polled::{Held, Polled, Source, Way};
use sockeye_sync::slots::{Numbered, Registered};
use sockeye_sync::{BriefMutex, Poller, Spin, WaitList};

use crate::{check_bounded, check_three};

const READ: u8 = 1;
const OWNED: Way = Way::Owned { believed: READ };

type Queue = PollQueue<Registration>;

struct Registration {
    queue: Arc<Queue>,
    polled: Polled,
    socket: Arc<Socket>,
}

struct Socket {
    so: BriefMutex<So>,
    /// How often the poller has reported it.
    reports: AtomicUsize,
    /// How many looks at it are to panic.
    panics: AtomicUsize,
}

struct So {
    bytes: usize,
    list: WaitList<Registration>,
}

/// A wake that is owed to a poller.
struct Owed(Arc<Queue>);

impl From<Waker> for Owed {
    fn from(_: Waker) -> Self {
        panic!("no task waits in these models")
    }
}

impl Registered for Registration {
    fn numbered(&self) -> &Numbered {
        self.polled.numbered()
    }
}

impl Poller for Registration {
    type Owed = Owed;

    fn interest(&self) -> u8 {
        self.polled.interest()
    }

    fn mark<O: From<Owed>>(this: &Arc<Self>, ready: u8, owed: &mut Vec<O>) {
        if this.polled.mark(ready).is_some_and(|entry| this.queue.push(entry)) {
            owed.push(Owed(Arc::clone(&this.queue)).into());
        }
    }
}

impl Source for Socket {
    fn ready(&self) -> u8 {
        // Relaxed: the poller's own.
        if self.panics.load(Ordering::Relaxed) > 0 {
            self.panics.store(0, Ordering::Relaxed);
            panic!("of a model");
        }
        if self.so.lock().bytes > 0 { READ } else { 0 }
    }

    fn settle(&self, settle: &mut dyn FnMut(u8)) {
        let so = self.so.lock();
        settle(if so.bytes > 0 { READ } else { 0 });
    }
}

impl Socket {
    fn new() -> Arc<Self> {
        let so = BriefMutex::new(So { bytes: 0, list: WaitList::new() });
        Arc::new(Self { so, reports: AtomicUsize::new(0), panics: AtomicUsize::new(0) })
    }

    fn deliver(&self) {
        let mut owed: Vec<Owed> = Vec::new();
        let mut so = self.so.lock();
        so.bytes += 1;
        so.list.mark(READ, &mut owed);
        drop(so);
        fire(owed);
    }

    fn read(&self) {
        let mut so = self.so.lock();
        so.bytes = 0;
        so.list.pollers().iter().for_each(|registration| registration.polled.lower(READ));
    }

    fn reports(&self) -> usize {
        // Relaxed: counted by the poller.
        self.reports.load(Ordering::Relaxed)
    }
}

fn fire(owed: Vec<Owed>) {
    owed.into_iter().for_each(|Owed(queue)| queue.wake());
}

/// Lists a socket. It has no bytes yet, so it is not marked.
fn register(queue: &Arc<Queue>, socket: &Arc<Socket>, way: Way) -> Arc<Registration> {
    let made = queue.admit(|numbered| Registration {
        queue: Arc::clone(queue),
        polled: Polled::new(numbered, way, READ, 0),
        socket: Arc::clone(socket),
    });
    let registration = made.expect("a number");
    socket.so.lock().list.add_poller(Arc::clone(&registration));
    registration
}

/// Takes it out of its set.
fn deregister(queue: &Queue, socket: &Socket) {
    let gone = socket.so.lock().list.remove_poller(|_| true);
    if let Some(gone) = gone {
        queue.forget(&gone);
    }
}

fn look(registration: &Registration, held: Held) -> bool {
    let Some(found) = registration.polled.look(held, &*registration.socket) else { return false };
    // Relaxed: counted by the poller.
    registration.socket.reports.fetch_add(1, Ordering::Relaxed);
    found.stays
}

fn collect(queue: &Queue) {
    let owed = queue.collect(&mut (), |()| false, |(), registration, held| look(registration, held));
    assert_eq!(owed, poll_queue::Owed::default(), "there is no descriptor, and nothing is left");
}

/// How often a round reports a socket. No other thread is at it.
fn reports_of_a_round(queue: &Queue, socket: &Socket) -> usize {
    let before = socket.reports();
    collect(queue);
    socket.reports() - before
}

/// A poller's wait, until this socket was reported.
fn wait_for(queue: &Queue, socket: &Socket) {
    loop {
        collect(queue);
        if socket.reports() > 0 {
            return;
        }
        match queue.idle() {
            Idle::Interrupted => panic!("no thread has"),
            Idle::Arrived => {}
            Idle::Wait(ticket, _) => {
                queue.wait(ticket, None, Spin::OFF);
            }
        }
    }
}

/// The wait of one of several threads, with room for one event.
fn wait_for_one(queue: &Queue) {
    loop {
        let mut found = 0;
        let is_full = |found: &usize| *found == 1;
        let owed = queue.collect(&mut found, is_full, |found, registration, held| {
            let before = registration.socket.reports();
            let stays = look(registration, held);
            *found += registration.socket.reports() - before;
            stays
        });
        if owed.wake {
            queue.wake();
        }
        if found == 1 {
            return;
        }
        match queue.idle() {
            Idle::Interrupted => panic!("no thread has"),
            Idle::Arrived => {}
            Idle::Wait(ticket, _) => {
                queue.wait(ticket, None, Spin::OFF);
            }
        }
    }
}

/// Marks a registration as the thread does that has listed it: without the mutex, maybe when it is off the list again.
fn mark_late(registration: &Arc<Registration>) {
    let mut owed: Vec<Owed> = Vec::new();
    Registration::mark(registration, READ, &mut owed);
    fire(owed);
}

/// A socket is marked while it leaves the set, and its number is given to another socket, which has a byte if `is_ready`.
/// The other one is reported if it has one, and once in each round.
fn number_is_used_again(way: Way, is_ready: bool) {
    let queue = Arc::new(Queue::new());
    let (old, new) = (Socket::new(), Socket::new());
    let first = register(&queue, &old, way);
    let marker = {
        let (old, first) = (old.clone(), first.clone());
        thread::spawn(move || if way == OWNED { old.deliver() } else { mark_late(&first) })
    };
    let changer = {
        let (queue, old, new) = (queue.clone(), old.clone(), new.clone());
        thread::spawn(move || {
            deregister(&queue, &old);
            let second = register(&queue, &new, way);
            if is_ready {
                new.deliver();
            }
            second
        })
    };
    if is_ready {
        wait_for(&queue, &new);
    } else {
        collect(&queue);
    }
    let _second = changer.join().unwrap();
    marker.join().unwrap();
    let is_told_again = is_ready && way != Way::Edge;
    assert_eq!(reports_of_a_round(&queue, &new), usize::from(is_told_again), "an entry of the first counts");
    assert!(is_ready || new.reports() == 0);
    // Remaining entries of the first do not affect how the second is marked.
    new.read();
    assert_eq!(reports_of_a_round(&queue, &new), 0);
    new.deliver();
    assert_eq!(reports_of_a_round(&queue, &new), 1);
    deregister(&queue, &new);
}

#[test]
fn a_mark_does_not_reach_a_reused_number() {
    for way in [OWNED, Way::Level, Way::Edge] {
        check_three(move || number_is_used_again(way, false));
    }
}

#[test]
fn a_mark_takes_nothing_from_a_reused_number() {
    for way in [OWNED, Way::Level, Way::Edge] {
        check_three(move || number_is_used_again(way, true));
    }
}

#[test]
fn a_poller_that_goes_to_sleep_finds_new_entries() {
    for way in [OWNED, Way::Level, Way::Edge] {
        check_bounded(move || {
            let (queue, socket) = (Arc::new(Queue::new()), Socket::new());
            let _registration = register(&queue, &socket, way);
            let other = socket.clone();
            let writer = thread::spawn(move || other.deliver());
            wait_for(&queue, &socket);
            writer.join().unwrap();
            deregister(&queue, &socket);
        });
    }
}

/// A level that was reported, and is read and rises again while the poller checks.
#[test]
fn a_level_that_rises_again_during_a_check_is_reported() {
    for way in [OWNED, Way::Level] {
        check_bounded(move || {
            let (queue, socket) = (Arc::new(Queue::new()), Socket::new());
            let _registration = register(&queue, &socket, way);
            socket.deliver();
            collect(&queue);
            let other = socket.clone();
            let reader = thread::spawn(move || {
                other.read();
                other.deliver();
            });
            collect(&queue);
            reader.join().unwrap();
            assert_eq!(reports_of_a_round(&queue, &socket), 1);
            deregister(&queue, &socket);
        });
    }
}

#[test]
fn an_interrupted_wait_ends_and_consumes_no_entry() {
    check_bounded(|| {
        let (queue, socket) = (Arc::new(Queue::new()), Socket::new());
        let _registration = register(&queue, &socket, Way::Edge);
        let (other, marked) = (queue.clone(), socket.clone());
        let waker = thread::spawn(move || {
            marked.deliver();
            if other.interrupt() {
                other.wake();
            }
        });
        loop {
            match queue.idle() {
                Idle::Interrupted => break,
                Idle::Arrived => collect(&queue),
                Idle::Wait(ticket, _) => {
                    queue.wait(ticket, None, Spin::OFF);
                }
            }
        }
        collect(&queue);
        assert_eq!(socket.reports(), 1);
        waker.join().unwrap();
        deregister(&queue, &socket);
    });
}

/// A look panics, the first one of its entry or a later one, while its socket is marked. The next round begins with the others, and none is lost.
fn a_look_panics(is_later: bool) {
    let (queue, bad, good) = (Arc::new(Queue::new()), Socket::new(), Socket::new());
    let _first = register(&queue, &bad, Way::Level);
    let _second = register(&queue, &good, Way::Edge);
    bad.deliver();
    if is_later {
        collect(&queue);
    }
    good.deliver();
    // Relaxed: the poller's own.
    bad.panics.store(1, Ordering::Relaxed);
    let other = bad.clone();
    let writer = thread::spawn(move || other.deliver());
    assert!(catch_unwind(AssertUnwindSafe(|| collect(&queue))).is_err());
    assert_eq!(good.reports(), 0);
    // One look and no more.
    let is_full = |looks: &usize| *looks == 1;
    let _there_is_no_descriptor = queue.collect(&mut 0, is_full, |looks, registration, held| {
        *looks += 1;
        look(registration, held)
    });
    assert_eq!(good.reports(), 1);
    writer.join().unwrap();
    // Twice, if it was marked in the moment of the panic: see `polled.rs`.
    assert!(matches!(reports_of_a_round(&queue, &bad), 1..=2), "it was lost");
    bad.read();
    assert_eq!(reports_of_a_round(&queue, &bad), 0);
    bad.deliver();
    assert_eq!(reports_of_a_round(&queue, &bad), 1);
    [bad, good].iter().for_each(|socket| deregister(&queue, socket));
}

#[test]
fn a_check_that_panics_loses_no_entry() {
    for is_later in [false, true] {
        check_bounded(move || a_look_panics(is_later));
    }
}

/// One of two threads takes over the entries of two sockets and has room for one event: the other thread gets the other event.
#[test]
fn an_entry_that_a_thread_leaves_is_found_by_another_one() {
    for way in [OWNED, Way::Level, Way::Edge] {
        check_bounded(move || {
            let (queue, sockets) = (Arc::new(Queue::new()), [Socket::new(), Socket::new()]);
            for socket in &sockets {
                register(&queue, socket, way);
            }
            let other = queue.clone();
            let other = thread::spawn(move || wait_for_one(&other));
            sockets.iter().for_each(|socket| socket.deliver());
            wait_for_one(&queue);
            other.join().unwrap();
            if way == Way::Edge {
                assert!(sockets.iter().all(|socket| socket.reports() == 1));
            }
            sockets.iter().for_each(|socket| deregister(&queue, socket));
        });
    }
}

#[test]
fn a_dropped_poller_leaves_no_registration_behind() {
    check_three(|| {
        let (queue, socket) = (Arc::new(Queue::new()), Socket::new());
        let registration = register(&queue, &socket, Way::Edge);
        let (writer, closer) = (socket.clone(), (queue.clone(), socket.clone()));
        let writer = thread::spawn(move || writer.deliver());
        // The socket closes meanwhile.
        let closer = thread::spawn(move || deregister(&closer.0, &closer.1));
        for left in queue.close() {
            let listed = left.socket.so.lock().list.remove_poller(|_| true);
            drop(listed);
        }
        writer.join().unwrap();
        closer.join().unwrap();
        assert!(socket.so.lock().list.pollers().is_empty());
        assert_eq!(Arc::strong_count(&registration), 1, "the table and the socket have let go of it");
    });
}
