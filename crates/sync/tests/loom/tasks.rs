//! Tasks that wait for room (`tasks.rs`), some of which a writer has reserved and returns (`reserved.rs`); and for state under
//! another mutex than their list.
//!
//! A lost wake-up shows as a deadlock, which loom reports.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use loom::sync::Arc;
use loom::thread;
use sockeye_sync::reserved::Reserved;
use sockeye_sync::tasks::{self, Waitable};
use sockeye_sync::{BriefMutex, Mutex, NoPollers, WaitList, WaitQueue};

use crate::parker::Parker;
use crate::{check, check_bounded};

const WRITE: u8 = 1;
/// The bound of the buffer, bytes.
const HIWAT: u32 = 2;

struct Socket {
    so: BriefMutex<So>,
    threads: WaitQueue,
    /// Whether state under another mutex gives room.
    elsewhere: Mutex<bool>,
}

struct So {
    bytes: u32,
    reserved: Reserved,
    list: WaitList<NoPollers>,
}

impl So {
    fn space(&self) -> u32 {
        HIWAT - self.bytes - self.reserved.bytes()
    }
}

impl Waitable for Socket {
    type Poller = NoPollers;
    type Want = ();
    type Error = std::convert::Infallible;

    fn with_list<R>(
        &self,
        (): (),
        f: impl FnOnce(bool, &mut WaitList<NoPollers>) -> R,
    ) -> Result<R, Self::Error> {
        let mut so = self.so.lock();
        let is_over = so.space() > 0;
        Ok(f(is_over, &mut so.list))
    }

    fn is_ready_elsewhere(&self, (): ()) -> Result<bool, Self::Error> {
        Ok(*self.elsewhere.lock())
    }
}

impl Socket {
    fn new(bytes: u32) -> Arc<Self> {
        let so = So { bytes, reserved: Reserved::new(), list: WaitList::new() };
        Arc::new(Self { so: BriefMutex::new(so), threads: WaitQueue::new(), elsewhere: Mutex::new(false) })
    }

    /// A future that is awaited until there is room.
    fn writable(&self) {
        let ((parker, waker), mut key) = (Parker::new(), None);
        loop {
            let own = |list: &mut WaitList<NoPollers>| *key.get_or_insert_with(|| list.issue(WRITE));
            let Ok(is_over) = tasks::register(self, (), own, waker.clone(), drop);
            if is_over {
                break;
            }
            parker.sleep();
        }
        let Ok(()) = key.map_or(Ok(()), |key| tasks::leave(self, (), key, drop));
    }

    /// A writer that reserves all available room, and copies so many bytes without the mutex.
    fn write(&self, copied: u32) {
        let mut so = self.so.lock();
        let space = so.space();
        let reservation = so.reserved.take(space);
        drop(so);
        let used = copied.min(space);
        let mut owed: Vec<Waker> = Vec::new();
        let mut so = self.so.lock();
        so.bytes += used;
        if so.reserved.give_back(reservation, used as usize) {
            self.notify(&mut so, &mut owed);
        }
        drop(so);
        owed.into_iter().for_each(Waker::wake);
    }

    /// A reader of all that is there.
    fn read(&self) {
        let mut owed: Vec<Waker> = Vec::new();
        let mut so = self.so.lock();
        so.bytes = 0;
        if so.space() > 0 {
            self.notify(&mut so, &mut owed);
        }
        drop(so);
        owed.into_iter().for_each(Waker::wake);
    }

    /// Makes room under the other mutex, and notifies afterwards.
    fn open(&self) {
        *self.elsewhere.lock() = true;
        let mut owed: Vec<Waker> = Vec::new();
        self.notify(&mut self.so.lock(), &mut owed);
        owed.into_iter().for_each(Waker::wake);
    }

    fn notify(&self, so: &mut So, owed: &mut Vec<Waker>) {
        so.list.mark(WRITE, owed);
        let _no_thread = self.threads.notify();
    }
}

#[test]
fn a_task_is_notified_of_reserved_room_that_is_returned() {
    check_bounded(|| {
        let socket = Socket::new(0);
        let other = socket.clone();
        let task = thread::spawn(move || other.writable());
        socket.write(1);
        task.join().unwrap();
        assert_eq!(socket.so.lock().list.task_count(), 0);
    });
}

#[test]
fn a_task_is_notified_of_room_whether_writer_or_reader_ends_last() {
    for copied in [0, 1, HIWAT] {
        check_bounded(move || {
            let socket = Socket::new(1);
            let (task, writer) = (socket.clone(), socket.clone());
            let task = thread::spawn(move || task.writable());
            let writer = thread::spawn(move || {
                writer.write(copied);
                // Its bytes bring a reader.
                if copied == HIWAT {
                    writer.read();
                }
            });
            socket.read();
            writer.join().unwrap();
            task.join().unwrap();
        });
    }
}

#[test]
fn a_task_is_notified_of_state_outside_the_list() {
    check(|| {
        let socket = Socket::new(HIWAT);
        let other = socket.clone();
        let task = thread::spawn(move || other.writable());
        socket.open();
        task.join().unwrap();
        assert_eq!(socket.so.lock().list.task_count(), 0, "it may have continued while it was listed");
    });
}

/// Dropping the waker that a task has replaced panics. It is on the list with the other one, and all tasks are woken.
#[test]
fn a_waker_that_panics_prevents_no_other_wake_up() {
    check_bounded(|| {
        let socket = Socket::new(HIWAT);
        let ((_, first), (parker, second)) = (Parker::new(), Parker::new());
        let own = second.clone();
        let slot = socket.so.lock().list.issue(WRITE);
        let Ok(is_over) = tasks::register(&*socket, (), |_| slot, first, drop);
        assert!(!is_over);
        let other = socket.clone();
        let reader = thread::spawn(move || other.read());
        let mut was_replaced = false;
        let registered = catch_unwind(AssertUnwindSafe(|| {
            let discard = |unused: Waker| {
                was_replaced = !unused.will_wake(&own);
                drop(unused);
                panic!("of a model");
            };
            tasks::register(&*socket, (), |_| slot, second, discard)
        }));
        // The other one returns if there is room already.
        assert!(registered.is_err());
        if was_replaced {
            parker.sleep();
        }
        reader.join().unwrap();
        assert_eq!(socket.so.lock().list.task_count(), 0);
    });
}
