//! Two linked blocks: sends against sends, closes and new links. A deadlock, and a lost wake-up of a thread that waits to
//! link, is reported by loom; the pointer that changes to a third block in a thread's window, by the assertion
//! in `pair.rs`. The value that a mutex guards is incremented by a relaxed load and a store, so two threads under it
//! at a time, or one that does not see the last one's changes, lose a count.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use sockeye_sync::Mutex;
use sockeye_sync::pair::{self, Link, Linked, Remembered};

use crate::{check, check_bounded, check_three};

struct Pcb {
    link: Link<Pcb>,
    /// The only one that may send to it, by its place in [`in_order`]; changes with the link.
    only: Mutex<Option<usize>>,
    remembered: Remembered,
    /// Datagrams received; guarded by the pcb's mutex.
    received: AtomicU32,
}

impl Linked for Pcb {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

fn pcb() -> Arc<Pcb> {
    Arc::new(Pcb {
        link: Link::new(),
        only: Mutex::new(None),
        remembered: Remembered::new(),
        received: AtomicU32::new(0),
    })
}

/// Pcbs in the order of their addresses: a model has to be the same each time that it is run.
fn in_order<const N: usize>() -> [Arc<Pcb>; N] {
    let mut all = [(); N].map(|()| pcb());
    all.sort_by_key(|pcb| std::ptr::from_ref(&**pcb).addr());
    all
}

/// Two that are linked, the lower one first.
fn linked() -> (Arc<Pcb>, Arc<Pcb>) {
    let [a, b] = in_order();
    let _cost = pair::link_both(&a, &b);
    (a, b)
}

/// Sends to the peer; whether there was one.
fn send(from: &Pcb) -> bool {
    let (sent, _) = pair::with_peer(from, None, |peer| count(peer));
    sent.is_some()
}

fn count(pcb: &Pcb) {
    let before = pcb.received.load(Ordering::Relaxed);
    pcb.received.store(before + 1, Ordering::Relaxed);
}

fn received(pcb: &Pcb) -> u32 {
    pcb.link.locked(|| pcb.received.load(Ordering::Relaxed))
}

fn connect(from: &Pcb, to: &Arc<Pcb>) -> Option<Arc<Pcb>> {
    pair::relink(from, to, |_| Ok::<(), ()>(())).0.expect("no end refuses")
}

#[test]
fn sends_in_both_directions_take_both_mutexes_in_order() {
    check(|| {
        let (a, b) = linked();
        let other = b.clone();
        let sender = thread::spawn(move || assert!(send(&other)));
        assert!(send(&a));
        sender.join().unwrap();
        assert_eq!((received(&a), received(&b)), (1, 1));
        let _cost = pair::unlink_both(&*a, &*b);
    });
}

#[test]
fn a_send_reaches_a_closing_peer_or_finds_none() {
    // In both address orders: from the lower to the higher, and back.
    for is_swapped in [false, true] {
        check(move || {
            let (low, high) = linked();
            let (a, b) = if is_swapped { (high, low) } else { (low, high) };
            let (sender, peer) = (a.clone(), b.clone());
            let closer = thread::spawn(move || {
                let seen = received(&peer);
                let _cost = pair::unlink_both(&*peer, &*sender);
                seen
            });
            let is_sent = send(&a);
            let seen = closer.join().unwrap();
            assert_eq!(received(&b), u32::from(is_sent));
            assert!(seen <= u32::from(is_sent));
            assert!(!send(&a) && !send(&b));
        });
    }
}

#[test]
fn both_ends_close_at_once() {
    check(|| {
        let (a, b) = linked();
        let (sender, peer) = (a.clone(), b.clone());
        let closer = thread::spawn(move || {
            let _cost = pair::unlink_both(&*peer, &*sender);
        });
        let _cost = pair::unlink_both(&*a, &*b);
        closer.join().unwrap();
        assert!(a.link.peer().is_none() && b.link.peer().is_none());
    });
}

#[test]
fn a_new_link_waits_for_a_thread_in_the_window() {
    // The sender meets its peer's mutex taken by the peer's own send, and may have to let go.
    check_bounded(|| {
        // The peer is the lowest, so the way to it is the long one when it is taken.
        let [b, a, c] = in_order();
        let _cost = pair::link_both(&a, &b);
        let peer = b.clone();
        let back = thread::spawn(move || send(&peer));
        let (from, to) = (a.clone(), c.clone());
        let connector = thread::spawn(move || {
            let old = connect(&from, &to);
            drop(old);
        });
        assert!(send(&a), "a always has a peer");
        connector.join().unwrap();
        assert!(back.join().unwrap());
        assert_eq!(received(&b) + received(&c), 1);
        assert_eq!(received(&a), 1);
        let _old = (pair::unlink(&*a), pair::unlink(&*b));
    });
}

#[test]
fn a_send_that_is_relinked_in_its_window_reaches_one_of_the_two_peers() {
    check_bounded(|| {
        let [b, c, a] = in_order();
        let _cost = pair::link_both(&a, &b);
        let peer = b.clone();
        let holder = thread::spawn(move || peer.link.locked(|| count(&peer)));
        let (from, to) = (a.clone(), c.clone());
        let connector = thread::spawn(move || {
            drop(pair::unlink(&*from));
            assert!(connect(&from, &to).is_none());
        });
        let is_sent = send(&a);
        connector.join().unwrap();
        holder.join().unwrap();
        assert_eq!(received(&b) - 1 + received(&c), u32::from(is_sent));
        let _old = (pair::unlink(&*a), pair::unlink(&*b));
    });
}

#[test]
fn a_block_linked_to_itself_is_locked_once() {
    check(|| {
        let a = pcb();
        assert!(connect(&a, &a).is_none());
        let other = a.clone();
        let closer = thread::spawn(move || pair::unlink(&*other).0.is_some());
        let is_sent = send(&a);
        assert!(closer.join().unwrap());
        assert_eq!(received(&a), u32::from(is_sent));
    });
}

#[test]
fn a_loop_of_three_has_no_deadlock() {
    check_bounded(|| {
        let ring = in_order::<3>();
        for i in 0..3 {
            assert!(connect(&ring[i], &ring[(i + 1) % 3]).is_none());
        }
        let threads =
            [ring[1].clone(), ring[2].clone()].map(|from| thread::spawn(move || assert!(send(&from))));
        assert!(send(&ring[0]));
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(ring.iter().all(|pcb| received(pcb) == 1));
        for pcb in &ring {
            drop(pair::unlink(&**pcb));
        }
    });
}

/// Links `from` to `to`, which alone may send to it from then on.
fn connect_only(from: &Pcb, to: &Arc<Pcb>) -> Option<Arc<Pcb>> {
    let admit = |_: Option<&Arc<Pcb>>| {
        *from.only.lock() = Some(address(to));
        Ok::<(), ()>(())
    };
    pair::relink(from, to, admit).0.expect("no end refuses")
}

/// Unlinks `from`, if its peer is this one.
fn lose(from: &Pcb, dead: usize) -> Option<Arc<Pcb>> {
    let lost = pair::unlink_if(from, |peer| {
        let is_it = peer.is_some_and(|peer| address(peer) == dead);
        if is_it {
            *from.only.lock() = None;
        }
        is_it
    });
    lost.0
}

fn address(pcb: &Pcb) -> usize {
    std::ptr::from_ref(pcb).addr()
}

/// The peer that a send reaches: the one that the socket was created with, or the one under the mutex.
fn peer_of(from: &Pcb, known: &Arc<Pcb>) -> Option<Arc<Pcb>> {
    from.remembered.peer(Some(known)).cloned().or_else(|| from.link.peer())
}

/// A socket of a pair is linked anew, while others send from it. Sends that happen after a message of the new peer was
/// received reach the new peer; earlier ones reach one of the two.
#[test]
fn an_answer_to_a_new_peer_reaches_it() {
    check_bounded(|| {
        let [a, b, c] = in_order();
        assert!(connect_only(&a, &b).is_none());
        let (connector, sender) = ((a.clone(), c.clone()), (a.clone(), b.clone(), c.clone()));
        let connector = thread::spawn(move || {
            connector.0.remembered.forget();
            connect_only(&connector.0, &connector.1).is_some()
        });
        let sender = thread::spawn(move || {
            let (a, b, c) = sender;
            // The new peer may send from now on, and has.
            let is_new = *a.only.lock() == Some(address(&c));
            let to = peer_of(&a, &b).expect("there always is one");
            assert!(Arc::ptr_eq(&to, &c) || (!is_new && Arc::ptr_eq(&to, &b)));
        });
        let to = peer_of(&a, &b).expect("there always is one");
        assert!(Arc::ptr_eq(&to, &b) || Arc::ptr_eq(&to, &c));
        sender.join().unwrap();
        assert!(connector.join().unwrap(), "the old peer is left once");
        // The call has returned.
        assert!(peer_of(&a, &b).is_some_and(|to| Arc::ptr_eq(&to, &c)));
        drop(pair::unlink(&*a));
        assert!(peer_of(&a, &b).is_none());
    });
}

/// Two sends have found the peer dead, while another thread links the sender anew: the new link and its state stay.
#[test]
fn losing_a_peer_late_removes_no_new_link() {
    check_bounded(|| {
        let [a, b, c] = in_order();
        assert!(connect_only(&a, &b).is_none());
        let (sender, connector) = (a.clone(), (a.clone(), c.clone()));
        let dead = address(&b);
        let sender = thread::spawn(move || lose(&sender, dead).is_some());
        let connector = thread::spawn(move || connect_only(&connector.0, &connector.1).is_some());
        let is_lost = lose(&a, dead).is_some();
        let others = [sender.join().unwrap(), connector.join().unwrap()];
        assert_eq!(
            u32::from(is_lost) + others.map(u32::from).iter().sum::<u32>(),
            1,
            "the old peer is left once"
        );
        assert!(a.link.peer().is_some_and(|peer| Arc::ptr_eq(&peer, &c)));
        assert_eq!(*a.only.lock(), Some(address(&c)));
        drop(pair::unlink(&*a));
    });
}

/// The code under the mutexes panics: they are unlocked, and nothing has changed.
#[test]
fn a_panic_under_the_mutexes_leaves_the_link_as_it_was() {
    check_three(|| {
        let [b, a, c] = in_order();
        let _cost = pair::link_both(&a, &b);
        let other = b.clone();
        let back = thread::spawn(move || send(&other));
        let calls: [&dyn Fn(); 4] = [
            &|| drop(pair::unlink_if(&*a, |_| panic!("of a model"))),
            &|| drop(pair::relink(&*a, &c, |_| -> Result<(), ()> { panic!("of a model") })),
            &|| drop(pair::with_peer(&*a, None, |_| panic!("of a model"))),
            &|| drop(pair::with_both(&*a, &*c, || panic!("of a model"))),
        ];
        for call in calls {
            assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
        }
        assert!(back.join().unwrap() && send(&a));
        assert_eq!((received(&a), received(&b), received(&c)), (1, 1, 0));
        let _cost = pair::unlink_both(&*a, &*b);
    });
}
