//! Items of several threads leave an outlet: each once, one thread at a time, those of one lock in order, none stranded.
//!
//! A thread makes an item under the lock of its flow and offers it there, and carries after it has released that, as the
//! stack does with frames (`stack/src/inet/netif/output.rs`). The thread at the device has to be alone there.

use std::collections::VecDeque;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use sockeye_sync::outlet::{Bounds, Claim, Offer, Outlet};

use crate::check_bounded;

struct World {
    /// A flow: how many items it has made.
    flow: Mutex<u32>,
    outlet: Outlet<u32>,
    /// Items as the device has got them.
    device: Mutex<Vec<u32>>,
    inside: AtomicUsize,
    /// How often a thread left items behind and requested another thread for them.
    calls: AtomicUsize,
}

const BOUNDS: Bounds = Bounds { count: 10, weight: 10 };

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            flow: Mutex::new(0),
            outlet: Outlet::new(),
            device: Mutex::new(Vec::new()),
            inside: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
        })
    }

    fn hand_over(&self, item: u32) {
        assert_eq!(self.inside.swap(1, Ordering::Relaxed), 0, "two at the device");
        self.device.lock().unwrap().push(item);
        self.inside.store(0, Ordering::Relaxed);
    }

    /// Makes an item of the flow, and carries if that falls to it, for so many rounds at most.
    fn send(&self, claim: Claim, rounds: usize) {
        let mut made = Vec::new();
        let mut flow = self.flow.lock().unwrap();
        *flow += 1;
        made.push(*flow);
        let offer = self.outlet.offer(&mut made, claim, BOUNDS, |item| item, |_| 1);
        drop(flow);
        match offer {
            Offer::Keep | Offer::Carry => self.carry(made, rounds),
            Offer::Left => {}
            Offer::Later => self.pick_up(rounds),
        }
    }

    fn pick_up(&self, rounds: usize) {
        if self.outlet.pick_up() {
            self.carry(Vec::new(), rounds);
        }
    }

    fn carry(&self, kept: Vec<u32>, rounds: usize) {
        kept.into_iter().for_each(|item| self.hand_over(item));
        let mut taken = VecDeque::new();
        for _ in 0..rounds {
            if !self.outlet.next(&mut taken) {
                return;
            }
            taken.drain(..).for_each(|item| self.hand_over(item));
        }
        if self.outlet.put_down() {
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn assert_all(&self, count: u32) {
        let expected: Vec<u32> = (1..=count).collect();
        assert_eq!(*self.device.lock().unwrap(), expected);
        // No thread carries, and nothing is left.
        let mut probe = vec![0];
        assert_eq!(self.outlet.offer(&mut probe, Claim::Wanted, BOUNDS, |item| item, |_| 1), Offer::Keep);
    }
}

#[test]
fn items_of_two_threads_are_sent_in_order_and_none_remains() {
    check_bounded(|| {
        let world = World::new();
        let other = world.clone();
        let thread = thread::spawn(move || {
            other.send(Claim::Wanted, usize::MAX);
            other.send(Claim::Wanted, usize::MAX);
        });
        world.send(Claim::Wanted, usize::MAX);
        world.send(Claim::Wanted, usize::MAX);
        thread.join().unwrap();
        world.assert_all(4);
    });
}

#[test]
fn items_that_a_carrier_leaves_are_taken() {
    check_bounded(|| {
        let world = World::new();
        let other = world.clone();
        let thread = thread::spawn(move || other.send(Claim::Wanted, 0));
        world.send(Claim::Wanted, 0);
        world.send(Claim::Wanted, 0);
        thread.join().unwrap();
        // The call that was asked for.
        if world.calls.load(Ordering::Relaxed) > 0 {
            world.pick_up(usize::MAX);
        }
        world.assert_all(3);
    });
}

#[test]
fn a_thread_that_may_not_carry_at_once_takes_the_items_afterwards() {
    check_bounded(|| {
        let world = World::new();
        let other = world.clone();
        let thread = thread::spawn(move || other.send(Claim::No, usize::MAX));
        world.send(Claim::Wanted, usize::MAX);
        thread.join().unwrap();
        world.assert_all(2);
    });
}
