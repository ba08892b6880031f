//! Loops that hand each other packets (`exchange.rs`), and the bell that wakes them (`bell.rs`): each packet comes to its flow's owner, whatever loop reads it.
//!
//! A loop is a thread here, whose turn is the gateway's (`engine/driver.rs`, `engine/port.rs`): it follows the number of loops in use, empties its inbox, reads its sources, and sleeps if its bell was not rung and no
//! source has anything. A packet that is left behind shows as a deadlock, which loom reports.

use std::collections::VecDeque;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use loom::sync::{Arc, Mutex};
use loom::thread;
use sockeye_sync::Bell;
use sockeye_sync::exchange::{Bounds, Exchange};

use crate::parker::Parker;
use crate::{check, check_bounded, check_three};

/// Flows and packets are numbers.
type Packets = Exchange<u32, u32>;

const BOUNDS: Bounds = Bounds { inbox_max: 10, linger: Duration::MAX, ended_max: 10 };

#[test]
fn a_ring_between_any_two_steps_of_a_task_wakes_it() {
    check(|| {
        let bell = Arc::new(Bell::new());
        let made = Arc::new(Mutex::new(0));
        let (other, others) = (bell.clone(), made.clone());
        let maker = thread::spawn(move || {
            for _ in 0..2 {
                *others.lock().unwrap() += 1;
                other.ring();
            }
        });
        // The second task's waker takes the place of the first one's.
        let [first, second] = [(); 2].map(|()| Parker::new());
        let _ = bell.poll_rung(&mut Context::from_waker(&first.1));
        let (parker, waker) = second;
        while *made.lock().unwrap() < 2 {
            if bell.poll_rung(&mut Context::from_waker(&waker)).is_pending() {
                parker.sleep();
            }
        }
        maker.join().unwrap();
    });
}

#[test]
fn an_item_that_is_given_while_a_loop_goes_to_sleep_is_taken() {
    check(|| {
        let exchange = Arc::new(Packets::new(2, 2, BOUNDS));
        let giver = exchange.clone();
        let giver = thread::spawn(move || (1..=2).for_each(|item| giver.give(1, 1, || item)));
        let ((parker, waker), bell, mut taken) = (Parker::new(), exchange.bell(1), Vec::new());
        loop {
            taken.extend(std::iter::from_fn(|| exchange.take(1)));
            if taken.len() == 2 {
                break;
            }
            if bell.poll_rung(&mut Context::from_waker(&waker)).is_pending() {
                parker.sleep();
            }
        }
        giver.join().unwrap();
        assert_eq!(taken, [1, 2]);
    });
}

/// A source: a queue of a device. It tells those that wait at it when a packet comes, and whoever begins to wait whether there is one.
#[derive(Default)]
struct Source {
    packets: VecDeque<u32>,
    /// One place for each loop.
    readers: [Option<Waker>; 2],
}

struct World {
    exchange: Packets,
    /// That which the loops take turns to read. It is the second loop's while both are in use.
    source: Mutex<Source>,
    /// Packets as they came to each loop's flows.
    got: [Mutex<Vec<u32>>; 2],
}

impl World {
    fn new(in_use: usize) -> Arc<Self> {
        let exchange = Packets::new(2, in_use, BOUNDS);
        Arc::new(Self { exchange, source: Mutex::default(), got: [Mutex::default(), Mutex::default()] })
    }

    /// A packet comes by the source.
    fn send(&self, packet: u32) {
        let mut source = self.source.lock().unwrap();
        source.packets.push_back(packet);
        let readers = std::mem::take(&mut source.readers);
        drop(source);
        readers.into_iter().flatten().for_each(Waker::wake);
    }

    /// One packet of the source, as a loop reads it, whose flow has this number. Whether there was one.
    fn read(&self, index: usize, flow: u32) -> bool {
        let packet = self.source.lock().unwrap().packets.pop_front();
        let Some(packet) = packet else { return false };
        match self.exchange.elsewhere(index, || Some((flow, false))) {
            Some(other) => self.exchange.give(other, 1, || packet),
            None => self.got[index].lock().unwrap().push(packet),
        }
        true
    }

    /// A loop, until so many packets have come to the second one.
    fn run(&self, index: usize, flow: u32, wanted: usize) {
        let ((parker, waker), bell) = (Parker::new(), self.exchange.bell(index));
        let is_over = || self.got[1].lock().unwrap().len() == wanted;
        loop {
            let reads = 1 % self.exchange.in_use() == index;
            while let Some(packet) = self.exchange.take(index) {
                self.got[index].lock().unwrap().push(packet);
            }
            while reads && self.read(index, flow) {}
            if is_over() {
                // The other one has nothing else that ends it.
                return self.exchange.bell(1 - index).ring();
            }
            let is_rung = bell.poll_rung(&mut Context::from_waker(&waker)).is_ready();
            let mut source = self.source.lock().unwrap();
            source.readers[index] = reads.then(|| waker.clone());
            let has_some = reads && !source.packets.is_empty();
            drop(source);
            if !is_rung && !has_some {
                parker.sleep();
            }
        }
    }
}

/// The second loop's flow has packets on their way while that loop leaves, and again where it joins.
#[test]
fn a_loop_that_leaves_or_joins_gets_the_packets_that_are_on_their_way_to_it() {
    for (before, after) in [(2, 1), (1, 2)] {
        check_three(move || {
            let world = World::new(before);
            assert!(world.exchange.begin(1, 7, Instant::now()).is_some());
            world.send(1);
            let (first, second) = (world.clone(), world.clone());
            let first = thread::spawn(move || first.run(0, 7, 2));
            let second = thread::spawn(move || second.run(1, 7, 2));
            world.exchange.set_in_use(after);
            world.send(2);
            first.join().unwrap();
            second.join().unwrap();
            let mut got = world.got[1].lock().unwrap().clone();
            // Two may read at once while the number changes, so packets may overtake each other.
            got.sort_unstable();
            assert_eq!(got, [1, 2]);
            assert!(world.got[0].lock().unwrap().is_empty());
        });
    }
}

/// A loop begins a flow and answers; what the answer has caused comes by the other loop, in the middle of whatever that reads.
#[test]
fn a_packet_that_an_owners_answer_has_caused_finds_the_owner() {
    check(|| {
        let world = World::new(2);
        let other = world.clone();
        let owner = thread::spawn(move || {
            assert!(other.exchange.begin(0, 7, Instant::now()).is_some());
            other.send(1);
        });
        while world.read(1, 7) {}
        owner.join().unwrap();
        while world.read(1, 7) {}
        assert!(world.got[1].lock().unwrap().is_empty());
        assert_eq!(world.exchange.take(0), Some(1));
    });
}

/// Flows of one key end and begin at both loops, are forgotten, and are asked for: one owner at a time, and no loop's count is wrong.
#[test]
fn a_flow_has_one_owner_while_others_of_its_key_end_begin_and_are_forgotten() {
    let at_once = Bounds { ended_max: 0, ..BOUNDS };
    for bounds in [BOUNDS, at_once] {
        check_bounded(move || {
            let exchange = Arc::new(Packets::new(2, 2, bounds));
            let goes_on = Arc::new(Mutex::new([false; 2]));
            let turns = [0, 1].map(|index| {
                let (exchange, goes_on) = (exchange.clone(), goes_on.clone());
                move || {
                    for _ in 0..2 {
                        let Some(number) = exchange.begin(index, 7, Instant::now()) else { continue };
                        let mut flags = goes_on.lock().unwrap();
                        assert!(!flags[1 - index], "two owners");
                        flags[index] = true;
                        drop(flags);
                        // Where it goes on it is nobody else's.
                        assert_eq!(exchange.elsewhere(index, || Some((7, false))), None);
                        assert!([0, 1].iter().all(|index| exchange.owned(*index) <= 2), "less than none");
                        goes_on.lock().unwrap()[index] = false;
                        exchange.end(7, number, Instant::now());
                    }
                }
            });
            let [first, second] = turns;
            let first = thread::spawn(first);
            second();
            first.join().unwrap();
            let last = exchange.begin(0, 8, Instant::now()).unwrap();
            exchange.end(8, last, Instant::now());
            assert_eq!([0, 1].map(|index| exchange.owned(index)).iter().sum::<usize>(), exchange.known());
            assert!(exchange.owned(0) > 0 && exchange.owned(1) <= 1);
        });
    }
}
