//! Code of an application that misbehaves: its actions, and wakers that carry them out.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

use crate::common::Random;

/// A handle whose last reference misbehaving code may drop.
pub type Baggage = Box<dyn Any + Send>;
/// A call into the stack.
pub type Callback = Box<dyn Fn() + Send + Sync>;

/// Handles that wait to be dropped, at most.
const BAG_MAX: usize = 64;
/// The prefix of every deliberate panic's message.
const ON_PURPOSE: &str = "on purpose";

/// Chooses the action of misbehaving code, and counts it.
pub struct Mischief {
    random: Mutex<Random>,
    bag: Mutex<Vec<Baggage>>,
    callbacks: Mutex<Arc<Vec<Callback>>>,
    is_retired: AtomicBool,
    /// Panics so far.
    pub panics: AtomicU64,
    /// Calls of the stacks' panic hooks.
    pub reports: AtomicU64,
}

impl Mischief {
    pub fn new(random: &mut Random) -> Arc<Self> {
        Arc::new(Self {
            random: Mutex::new(random.fork()),
            bag: Mutex::default(),
            callbacks: Mutex::default(),
            is_retired: AtomicBool::new(false),
            panics: AtomicU64::new(0),
            reports: AtomicU64::new(0),
        })
    }

    pub fn set_callbacks(&self, callbacks: Vec<Callback>) {
        *self.callbacks.lock().unwrap() = Arc::new(callbacks);
    }

    /// Keeps `what` until some misbehaving code drops it. If the bag is full, drops it here.
    pub fn pack(&self, what: impl Any + Send) {
        let mut bag = self.bag.lock().unwrap();
        if bag.len() < BAG_MAX && !self.is_retired.load(Ordering::Relaxed) {
            bag.push(Box::new(what));
        }
    }

    /// One act: mostly nothing.
    pub fn strike(&self) {
        if self.is_retired.load(Ordering::Relaxed) {
            return;
        }
        let (act, pick) = {
            let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
            (random.below(10), random.u64() as usize)
        };
        match act {
            0 | 1 => self.panic(),
            2 => std::thread::sleep(Duration::from_micros(pick as u64 % 1000)),
            3 | 4 => {
                let thing = self.bag.lock().unwrap().pop();
                // Outside the bag's lock, as its drop may run more of this.
                drop(thing);
            }
            5 | 6 => {
                let callbacks = Arc::clone(&self.callbacks.lock().unwrap());
                if !callbacks.is_empty() {
                    callbacks[pick % callbacks.len()]();
                }
            }
            _ => {}
        }
    }

    /// A chance of one in `one_in` of a [`strike`](Self::strike).
    pub fn sometimes(&self, one_in: usize) {
        let hit = self.random.lock().unwrap_or_else(PoisonError::into_inner).chance(one_in);
        if hit {
            self.strike();
        }
    }

    fn panic(&self) {
        // A second panic while the first one unwinds would end the process.
        if !std::thread::panicking() {
            self.panics.fetch_add(1, Ordering::Relaxed);
            panic!("{ON_PURPOSE}");
        }
    }

    /// Ends all misbehaviour and drops the values that are kept.
    pub fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
        self.set_callbacks(Vec::new());
        let bag = std::mem::take(&mut *self.bag.lock().unwrap());
        drop(bag);
    }

    /// A waker that misbehaves when it is called and when it is dropped.
    pub fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::new(Misbehaving(Arc::clone(self))))
    }
}

struct Misbehaving(Arc<Mischief>);

impl Wake for Misbehaving {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.strike();
    }
}

impl Drop for Misbehaving {
    fn drop(&mut self) {
        self.0.sometimes(4);
    }
}

/// Keeps deliberate panics off the test's output; others are printed as ever.
pub fn silence_expected_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let is_expected = info.payload_as_str().is_some_and(|text| text.starts_with(ON_PURPOSE));
        if !is_expected {
            before(info);
        }
    }));
}
