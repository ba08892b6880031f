//! Callers that sleep in an interface (`src/inet/input/leader.rs`), over one that moves flows to another queue, as a device may.
//! The other events that end the sleep are tested in `crates/drivers/tests/waits.rs`.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::lab::{Lab, as_its_end};
use sockeye::netif::{Netif, RxFrame, Sent, TxFrame, Waited, WireConfig, WireEnd, wire};

/// An end of a wire with two queues, whose frames all arrive in one of them.
struct Moving {
    end: WireEnd,
    /// The queue in which they arrive.
    now: Arc<AtomicUsize>,
    is_kicked: [AtomicBool; 2],
}

/// The polling interval of a waiting thread.
const SLICE: Duration = Duration::from_micros(200);

impl Netif for Moving {
    as_its_end!();
    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        self.end.transmit(flow, frames)
    }
    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        if queue != self.now.load(Ordering::SeqCst) {
            return 0;
        }
        (0..2).map(|lane| self.end.receive(lane, max / 2, sink)).sum()
    }
    fn wait(&self, _queue: usize, _spin: Duration) {
        std::thread::sleep(SLICE);
    }
    fn wait_until(&self, queue: usize, deadline: Option<Instant>) -> Waited {
        loop {
            std::thread::sleep(SLICE);
            // There may be frames: to return early is allowed.
            if self.is_kicked[queue].swap(false, Ordering::SeqCst) || queue == self.now.load(Ordering::SeqCst)
            {
                return Waited::Woken;
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Waited::TimedOut;
            }
        }
    }
    fn kick(&self, queue: usize) {
        self.is_kicked[queue].store(true, Ordering::SeqCst);
    }
}

/// A timeout that does not end a round.
const FILLER: u8 = 255;
/// Longer than any sleep that another thread ends.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_sleep_ends_even_if_the_flow_has_moved_to_another_queue() {
    let _guard = crate::common::watchdog("a flow that moves");
    let (left, right) = wire(&WireConfig { queues: 2, ..WireConfig::default() }).unwrap();
    let now = Arc::new(AtomicUsize::new(0));
    let right = Moving { end: right, now: Arc::clone(&now), is_kicked: Default::default() };
    let lab = Lab::between(left, right, |config| config.spin_max = Duration::ZERO);
    let (mut client, server) = lab.pair();
    client.set_nodelay(true).unwrap();
    // The reader looks again at the end of its sleep, and then finds the bytes that have arrived.
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    for round in 0..6 {
        let before = lab.count("input_leads");
        let mut reader = server.try_clone().unwrap();
        let reader = std::thread::spawn(move || {
            let mut last = [FILLER];
            while last == [FILLER] {
                reader.read_exact(&mut last).unwrap();
            }
            last
        });
        // As many in a row as it takes for the queue to count as this connection's.
        crate::common::eventually("a reader sleeps in the interface", || {
            client.write_all(&[FILLER]).unwrap();
            std::thread::sleep(SLICE);
            lab.count("input_leads") > before
        });
        crate::common::eventually("all was read", || server.available().unwrap() == 0);
        now.fetch_xor(1, Ordering::SeqCst);
        client.write_all(&[round]).unwrap();
        let since = Instant::now();
        assert_eq!(reader.join().unwrap(), [round]);
        assert!(since.elapsed() < PATIENCE, "only its time ended the sleep");
    }
    drop((client, server));
    lab.assert_empty();
}
