//! The waiters for one buffer (`wait_list.rs`, `tasks.rs`): tasks against a `notify`, tasks that give up, a place that changes hands, threads and pollers
//! beside them, and a close.
//!
//! A task here is a thread that polls and then sleeps until its waker is called. A lost wake-up shows as a deadlock, which loom reports.

use std::convert::Infallible;
use std::task::{Poll, Waker};

use loom::sync::{Arc, Mutex as LoomMutex};
use loom::thread;
use sockeye_sync::tasks::{self, Waitable};
use sockeye_sync::{Key, Mutex, Poller, Spin, WaitList, WaitQueue};

use crate::parker::Parker;
use crate::{check, check_bounded};

const READ: u8 = 1;
const WRITE: u8 = 2;

struct Socket {
    buffer: Mutex<Buffer>,
    threads: WaitQueue,
}

struct Buffer {
    bytes: usize,
    is_closed: bool,
    list: WaitList<Marks>,
}

/// A poller's registration: the notifications that it got.
struct Marks(LoomMutex<u8>);

impl Poller for Marks {
    type Owed = Owed;
    fn interest(&self) -> u8 {
        READ
    }
    fn mark<O: From<Owed>>(this: &Arc<Self>, ready: u8, _owed: &mut Vec<O>) {
        *this.0.lock().unwrap() |= ready;
    }
}

enum Owed {
    Task(Waker),
    Threads,
}

impl From<Waker> for Owed {
    fn from(waker: Waker) -> Self {
        Self::Task(waker)
    }
}

impl Waitable for Socket {
    type Poller = Marks;
    type Want = ();
    type Error = Infallible;

    fn with_list<R>(&self, (): (), f: impl FnOnce(bool, &mut WaitList<Marks>) -> R) -> Result<R, Infallible> {
        let mut buffer = self.buffer.lock();
        let is_over = buffer.bytes > 0 || buffer.is_closed;
        Ok(f(is_over, &mut buffer.list))
    }

    fn is_ready_elsewhere(&self, (): ()) -> Result<bool, Infallible> {
        Ok(false)
    }
}

impl Socket {
    fn new() -> Arc<Self> {
        let buffer = Buffer { bytes: 0, is_closed: false, list: WaitList::new() };
        Arc::new(Self { buffer: Mutex::new(buffer), threads: WaitQueue::new() })
    }

    /// Checks, and joins the list if there is nothing.
    fn poll(&self, key: &mut Option<Key>, waker: &Waker) -> Poll<()> {
        let own = |list: &mut WaitList<Marks>| *key.get_or_insert_with(|| list.issue(READ));
        let Ok(is_over) = tasks::register(self, (), own, waker.clone(), drop);
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    }

    /// As dropping a future does.
    fn give_up(&self, key: Option<Key>) {
        if let Some(key) = key {
            let Ok(()) = tasks::leave(self, (), key, drop);
        }
    }

    /// A future that is awaited.
    fn readable(&self) {
        let ((parker, waker), mut key) = (Parker::new(), None);
        while self.poll(&mut key, &waker).is_pending() {
            parker.sleep();
        }
        self.give_up(key);
    }

    /// A blocked thread.
    fn wait(&self) {
        loop {
            let buffer = self.buffer.lock();
            if buffer.bytes > 0 || buffer.is_closed {
                return;
            }
            let ticket = self.threads.prepare();
            drop(buffer);
            self.threads.wait(ticket, None, Spin::OFF);
        }
    }

    fn append(&self) {
        let mut owed = Vec::new();
        let mut buffer = self.buffer.lock();
        buffer.bytes += 1;
        let _threads = buffer.list.notify(&self.threads, || Owed::Threads, READ, &mut owed);
        drop(buffer);
        self.fire(owed);
    }

    fn close(&self) {
        let mut owed = Vec::new();
        let mut buffer = self.buffer.lock();
        buffer.is_closed = true;
        let _threads = buffer.list.notify(&self.threads, || Owed::Threads, READ, &mut owed);
        let pollers = buffer.list.clear(&mut owed);
        drop(buffer);
        drop(pollers);
        self.fire(owed);
    }

    fn fire(&self, owed: Vec<Owed>) {
        for owed in owed {
            match owed {
                Owed::Task(waker) => waker.wake(),
                Owed::Threads => self.threads.wake(),
            }
        }
    }
}

#[test]
fn a_task_is_woken_whenever_it_registers() {
    check(|| {
        let socket = Socket::new();
        let other = socket.clone();
        let task = thread::spawn(move || other.readable());
        socket.append();
        task.join().unwrap();
    });
}

#[test]
fn a_close_wakes_every_waiter() {
    check(|| {
        let socket = Socket::new();
        let other = socket.clone();
        let task = thread::spawn(move || other.readable());
        let (parker, waker) = Parker::new();
        let key = socket.buffer.lock().list.issue(WRITE);
        assert!(socket.buffer.lock().list.register(key, waker).is_none());
        socket.close();
        parker.sleep();
        task.join().unwrap();
    });
}

#[test]
fn two_tasks_are_both_woken() {
    check_bounded(|| {
        let socket = Socket::new();
        let tasks = [(); 2].map(|()| {
            let other = socket.clone();
            thread::spawn(move || other.readable())
        });
        socket.append();
        tasks.into_iter().for_each(|task| task.join().unwrap());
    });
}

#[test]
fn a_cancelled_task_consumes_no_wake_up() {
    check_bounded(|| {
        let socket = Socket::new();
        let (fickle, patient) = (socket.clone(), socket.clone());
        let gives_up = thread::spawn(move || {
            let ((_parker, waker), mut key) = (Parker::new(), None);
            let _either = fickle.poll(&mut key, &waker);
            fickle.give_up(key);
        });
        let waits = thread::spawn(move || patient.readable());
        socket.append();
        gives_up.join().unwrap();
        waits.join().unwrap();
        assert_eq!(socket.buffer.lock().list.task_count(), 0);
    });
}

#[test]
fn a_late_cancellation_does_not_affect_a_later_task() {
    check_bounded(|| {
        let socket = Socket::new();
        let ((_parker, waker), mut key) = (Parker::new(), None);
        assert!(socket.poll(&mut key, &waker).is_pending());
        let (appended, late) = (socket.clone(), socket.clone());
        let appended = thread::spawn(move || appended.append());
        let late = thread::spawn(move || late.readable());
        // Its place may have been given up by the notify, and the list have other tasks.
        socket.give_up(key);
        appended.join().unwrap();
        late.join().unwrap();
    });
}

#[test]
fn the_last_of_two_tasks_in_one_entry_is_woken() {
    check_bounded(|| {
        let socket = Socket::new();
        let ((_first, old), (last, new)) = (Parker::new(), Parker::new());
        let mut slot = Some(socket.buffer.lock().list.issue(READ));
        assert!(socket.poll(&mut slot, &old).is_pending());
        let other = socket.clone();
        let writer = thread::spawn(move || other.append());
        if socket.poll(&mut slot, &new).is_pending() {
            last.sleep();
        }
        writer.join().unwrap();
    });
}

#[test]
fn one_notify_reaches_a_thread_a_task_and_a_poller() {
    check_bounded(|| {
        let socket = Socket::new();
        let marks = Arc::new(Marks(LoomMutex::new(0)));
        socket.buffer.lock().list.add_poller(marks.clone());
        let (one, other) = (socket.clone(), socket.clone());
        let blocked = thread::spawn(move || one.wait());
        let task = thread::spawn(move || other.readable());
        socket.append();
        blocked.join().unwrap();
        task.join().unwrap();
        assert_eq!(*marks.0.lock().unwrap(), READ);
    });
}

#[test]
fn a_poller_that_leaves_gets_no_later_notification() {
    check(|| {
        let socket = Socket::new();
        let marks = Arc::new(Marks(LoomMutex::new(0)));
        socket.buffer.lock().list.add_poller(marks.clone());
        let other = socket.clone();
        let writer = thread::spawn(move || other.append());
        let gone = socket.buffer.lock().list.remove_poller(|_| true);
        assert!(gone.is_some());
        let appended = *marks.0.lock().unwrap();
        writer.join().unwrap();
        assert_eq!(*marks.0.lock().unwrap(), appended);
    });
}
