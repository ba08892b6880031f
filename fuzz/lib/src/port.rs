//! An interface of a stack whose other end is a fuzzer's input: it delivers frames one by one, and shows sent ones to an observer.
//!
//! Checksums count as verified by the device: a wrong one would hide everything behind it. It does not depend on the content
//! of frames. Tests: with the targets.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sockeye::Stack;
use sockeye::netif::{Checksum, LINK_HEADER_LEN, Medium, Netif, RxFrame, Sent, TxFrame};
use sockeye_mbuf::Chain;

/// Gets the frames that the stack sends.
pub trait Observer: Send + 'static {
    /// A frame, which begins with so many bytes of a link header.
    fn note(&mut self, frame: &TxFrame, link_len: usize);
}

/// See the module's head.
pub struct Port<O> {
    pub medium: Medium,
    inbox: Mutex<VecDeque<Vec<u8>>>,
    observer: Mutex<O>,
}

impl<O: Observer> Port<O> {
    pub fn new(medium: Medium, observer: O) -> Arc<Self> {
        Arc::new(Self { medium, inbox: Mutex::default(), observer: Mutex::new(observer) })
    }

    /// Puts a frame where the stack finds it.
    pub fn give(&self, frame: Vec<u8>) {
        locked(&self.inbox).push_back(frame);
    }

    /// Whether the stack has taken all of them.
    pub fn is_empty(&self) -> bool {
        locked(&self.inbox).is_empty()
    }

    pub fn observer(&self) -> MutexGuard<'_, O> {
        locked(&self.observer)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stack goes on after a panic in its own code, and after one in an interface or a hook, which a target's checks may be: so
/// each target asks at its end. `foreign` is how many its hooks were made to have.
pub fn assert_panics(stack: &Stack, foreign: usize) {
    let counters = stack.counters();
    let panics = ["panics_protocol", "panics_foreign"]
        .map(|name| counters.iter().find(|(known, _)| *known == name).expect("a counter of every stack").1);
    assert_eq!(panics, [0, foreign as u64], "panics of the stack's own code and of others'");
}

/// The stack's end: the port is shared with it.
pub struct Plug<O>(pub Arc<Port<O>>);

impl<O: Observer> Netif for Plug<O> {
    fn mtu(&self) -> u32 {
        1500
    }

    fn queue_count(&self) -> usize {
        1
    }

    fn medium(&self) -> Medium {
        self.0.medium
    }

    fn offloads_checksum(&self) -> bool {
        true
    }

    fn transmit(&self, _flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        let link_len = if self.0.medium == Medium::Ip { 0 } else { LINK_HEADER_LEN };
        let mut observer = self.0.observer();
        frames.drain(..).for_each(|frame| observer.note(&frame, link_len));
        Sent { queue: 0, dropped_count: 0 }
    }

    fn ring(&self, _queue: usize) {}

    fn receive(&self, _queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let rest = Chain::new();
        for count in 0..max {
            let Some(frame) = locked(&self.0.inbox).pop_front() else { return count };
            sink(RxFrame { checksum: Checksum::Device, ..RxFrame::new(&frame, &rest) });
        }
        max
    }

    fn wait(&self, _queue: usize, _spin: Duration) {}

    fn interrupt(&self, _queue: usize) {}
}
