//! A wire inside the process: two ends, frames from one to the other, several queues each way.
//!
//! Frames arrive in order within a flow, unless its queue is full; nothing is delayed, changed or looked at.
//! It does not depend on IP or TCP.
//!
//! # A lane, one for each queue and direction
//! Any thread appends to `arrived`, under its mutex. The one thread that receives exchanges it for its own, empty,
//! `taken` and then works on that without the mutex in its way, so both are bounded by `queue_len` frames.
//!
//! # Why no wake-up is lost
//! A sender appends first and rings afterwards; the receiver announces that it will sleep
//! (`Sleeper::prepare_sleep`), then looks at `arrived`, then sleeps. Whichever is second sees the other
//! (`sockeye_sync::Sleeper`). `interrupt` sets its flag and rings, the receiver looks at the flag in the same
//! place; it stays set. Several senders may append between one sender's append and its ring: each rings for
//! itself. A stack without threads is told by its [`Waking`], likewise behind the frames.
//!
//! # The end
//! An end that is dropped closes its incoming lanes: frames in them are dropped, with the references to the
//! sender's memory, and later frames are refused. `closed` is read and written under `arrived`'s mutex, so no
//! frame slips in behind.
//!
//! Rank: both mutexes are leaves, but that packet memory is allocated under `taken`'s. Tests: below, `crates/stack/tests/wire/transfers.rs`.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use sockeye_sync::facade::{Arc, AtomicBool, OnceLock, Ordering};
use sockeye_sync::fork::Origin;
use sockeye_sync::{Mutex, Sleeper, Spin};

use crate::shape::Shape;
use crate::{Netif, RxFrame, Sent, TxFrame, Waking};

/// Settings of a wire. Start from [`WireConfig::default`].
#[derive(Clone, Debug)]
pub struct WireConfig {
    /// Bytes of the largest IP packet, 1,280 to 65,536. Default 1500.
    pub mtu: u32,
    /// Queues in each direction, 1 to 64: so many input threads has each end. Default 1.
    pub queues: usize,
    /// Frames that a queue holds, 1 to 1,048,576; further frames are dropped and counted as
    /// `frames_queue_full` by the sender. Default 8,192.
    pub queue_len: usize,
    /// The ends trust each other's TCP checksums, as with devices that compute and check them. Default off:
    /// the sender sums up every byte and the receiver does it again.
    pub offload: bool,
    /// Bytes of the largest IP packet that one frame carries in place of several, `mtu` to 65,535, as devices with
    /// segmentation offload take them: such frames arrive uncut. Needs `offload`. Default 0: none.
    pub segment_max: u32,
}

impl Default for WireConfig {
    fn default() -> Self {
        Self { mtu: 1500, queues: 1, queue_len: 8192, offload: false, segment_max: 0 }
    }
}

/// Both ends of a new wire, to be attached to two stacks.
///
/// # Errors
/// `InvalidInput` if a field is out of its bounds.
pub fn wire(config: &WireConfig) -> io::Result<(WireEnd, WireEnd)> {
    let &WireConfig { mtu, queues, queue_len, offload, segment_max, .. } = config;
    let udp_segment_max = segment_max;
    Shape { config: "WireConfig", mtu, queues, queue_len, offload, segment_max, udp_segment_max }.check()?;
    let (left, right) = (Side::new(config.queues), Side::new(config.queues));
    let end = |from: &Arc<Side>, to: &Arc<Side>| WireEnd {
        from: Arc::clone(from),
        to: Arc::clone(to),
        config: config.clone(),
        origin: Origin::here(),
    };
    Ok((end(&left, &right), end(&right, &left)))
}

/// One end of a wire.
#[derive(Debug)]
pub struct WireEnd {
    /// Frames that come to us.
    from: Arc<Side>,
    /// Frames that go to the other end.
    to: Arc<Side>,
    config: WireConfig,
    origin: Origin,
}

/// The lanes towards one end.
#[derive(Debug)]
struct Side {
    lanes: Box<[Lane]>,
    /// By it the stack of this end is told of frames, if it has no threads.
    told: OnceLock<Waking>,
}

/// See the module's head. Lanes lie on cache lines of their own: they are different threads'.
#[derive(Debug)]
#[repr(align(128))]
struct Lane {
    arrived: Mutex<Arrived>,
    /// Only the receiver's; the mutex is there for the compiler and is never contended.
    taken: Mutex<VecDeque<TxFrame>>,
    sleeper: Sleeper,
    interrupted: AtomicBool,
}

#[derive(Debug, Default)]
struct Arrived {
    frames: VecDeque<TxFrame>,
    closed: bool,
}

impl Side {
    fn new(queues: usize) -> Arc<Self> {
        let lane = |_| Lane {
            arrived: Mutex::new(Arrived::default()),
            taken: Mutex::new(VecDeque::new()),
            sleeper: Sleeper::new(),
            interrupted: AtomicBool::new(false),
        };
        Arc::new(Self { lanes: (0..queues).map(lane).collect(), told: OnceLock::new() })
    }
}

impl WireEnd {
    fn queue_of(&self, flow: u64) -> usize {
        // The upper half of a product spreads 32 bits of the hash evenly over any number of queues.
        let part = (flow & u64::from(u32::MAX)) * self.to.lanes.len() as u64;
        (part >> 32) as usize
    }
}

impl Netif for WireEnd {
    fn mtu(&self) -> u32 {
        self.config.mtu
    }

    fn queue_count(&self) -> usize {
        self.from.lanes.len()
    }

    fn offloads_checksum(&self) -> bool {
        self.config.offload
    }

    fn segment_max(&self) -> u32 {
        self.config.segment_max
    }

    fn udp_segment_max(&self) -> u32 {
        self.config.segment_max
    }

    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        let queue = self.queue_of(flow);
        let mut arrived = self.to.lanes[queue].arrived.lock();
        let room = if arrived.closed { 0 } else { self.config.queue_len - arrived.frames.len() };
        let fitting = frames.len().min(room);
        let dropped_count = frames.len() - fitting;
        arrived.frames.extend(frames.drain(..fitting));
        drop(arrived);
        frames.clear();
        Sent { queue, dropped_count }
    }

    fn ring(&self, queue: usize) {
        if let Some(lane) = self.to.lanes.get(queue) {
            lane.sleeper.wake_if_sleeping();
        }
        if let Some(told) = self.to.told.get() {
            told.announce();
        }
    }

    fn wakes_by(&self, waking: &Waking) {
        // It is called once.
        let _ = self.from.told.set(waking.clone());
    }

    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let Some(lane) = self.from.lanes.get(queue) else { return 0 };
        let mut taken = lane.taken.lock();
        if taken.is_empty() {
            std::mem::swap(&mut lane.arrived.lock().frames, &mut taken);
        }
        let count = taken.len().min(max);
        for frame in taken.drain(..count) {
            sink(frame.received());
        }
        count
    }

    fn wait(&self, queue: usize, spin: Duration) {
        let Some(lane) = self.from.lanes.get(queue) else { return };
        let drowsy = lane.sleeper.prepare_sleep();
        let interrupted = lane.interrupted.load(Ordering::Acquire);
        if interrupted || !lane.taken.lock().is_empty() || !lane.arrived.lock().frames.is_empty() {
            drowsy.cancel();
        } else {
            drowsy.sleep(None, Spin::up_to(spin));
        }
    }

    fn interrupt(&self, queue: usize) {
        if let Some(lane) = self.from.lanes.get(queue) {
            // Release, with the acquire in `wait`; the fences of the sleeper order it against its look.
            lane.interrupted.store(true, Ordering::Release);
            lane.sleeper.wake_if_sleeping();
        }
    }
}

impl Drop for WireEnd {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            // In a child of fork(2): the wire is its parent's.
            std::mem::forget((Arc::clone(&self.from), Arc::clone(&self.to)));
            return;
        }
        for lane in &self.from.lanes {
            let mut arrived = lane.arrived.lock();
            arrived.closed = true;
            let late = std::mem::take(&mut arrived.frames);
            drop(arrived);
            let taken = std::mem::take(&mut *lane.taken.lock());
            // Outside the mutexes: the frames give packet memory back.
            drop((late, taken));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Checksum;
    use sockeye_mbuf::Chain;

    fn frame(number: u8) -> TxFrame {
        TxFrame::new(&[number], Chain::new(), Checksum::Software).unwrap()
    }

    fn ends(queues: usize, queue_len: usize) -> (WireEnd, WireEnd) {
        wire(&WireConfig { queues, queue_len, ..WireConfig::default() }).unwrap()
    }

    fn received(end: &WireEnd, queue: usize, max: usize) -> Vec<u8> {
        let mut seen = Vec::new();
        end.receive(queue, max, &mut |frame| seen.push(frame.head[0]));
        seen
    }

    #[test]
    fn frames_arrive_at_the_other_end_in_order_and_in_pieces() {
        let (left, right) = ends(1, 100);
        assert_eq!(left.transmit(7, &mut (0..5).map(frame).collect()).dropped_count, 0);
        assert_eq!(left.transmit(7, &mut (5..9).map(frame).collect()).dropped_count, 0);
        assert!(received(&left, 0, 100).is_empty());
        assert_eq!(received(&right, 0, 3), [0, 1, 2]);
        assert_eq!(left.transmit(7, &mut vec![frame(9)]).dropped_count, 0);
        assert_eq!(received(&right, 0, 100), [3, 4, 5, 6, 7, 8]);
        assert_eq!(received(&right, 0, 100), [9]);
    }

    #[test]
    fn a_full_queue_keeps_its_frames_and_drops_new_ones() {
        let (left, right) = ends(1, 3);
        let mut frames: Vec<_> = (0..5).map(frame).collect();
        assert_eq!(left.transmit(0, &mut frames), Sent { queue: 0, dropped_count: 2 });
        assert!(frames.is_empty());
        assert_eq!(left.transmit(0, &mut vec![frame(9)]).dropped_count, 1);
        assert_eq!(received(&right, 0, 100), [0, 1, 2]);
    }

    #[test]
    fn flows_spread_over_the_queues_and_each_keeps_to_its_own() {
        let (left, _right) = ends(4, 10_000);
        let mut counts = [0; 4];
        for flow in 0..4000u64 {
            let hash = flow.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
            let queue = left.transmit(hash, &mut vec![frame(0)]).queue;
            assert_eq!(left.transmit(hash, &mut vec![frame(0)]).queue, queue);
            counts[queue] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_dropped_end_discards_its_frames_and_refuses_more() {
        let pool = sockeye_mbuf::Pool::new(sockeye_mbuf::PoolConfig::default());
        let (left, right) = ends(1, 10);
        let with_payload = || {
            let payload = pool.copy_in(&[1; 3000]).unwrap();
            vec![TxFrame::new(&[0], payload, Checksum::Software).unwrap()]
        };
        left.transmit(0, &mut with_payload());
        assert!(pool.in_use() > 0);
        drop(right);
        assert_eq!(pool.in_use(), 0);
        assert_eq!(left.transmit(0, &mut with_payload()).dropped_count, 1);
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn a_wait_ends_with_a_frame_or_an_interruption_in_either_order() {
        let (left, right) = ends(1, 10);
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                let mut seen = 0;
                while seen < 1000 {
                    right.wait(0, Duration::from_micros(20));
                    seen += right.receive(0, 10, &mut |_| {});
                }
            });
            let mut sent = 0;
            while sent < 1000 {
                sent += 1 - left.transmit(0, &mut vec![frame(0)]).dropped_count;
                left.ring(0);
            }
            receiver.join().unwrap();
            let waiting = scope.spawn(|| right.wait(0, Duration::ZERO));
            right.interrupt(0);
            waiting.join().unwrap();
            right.wait(0, Duration::ZERO);
        });
    }

    #[test]
    fn a_wire_out_of_bounds_is_refused_by_the_name_of_the_field() {
        for (config, name) in [
            (WireConfig { mtu: 1279, ..WireConfig::default() }, "mtu"),
            (WireConfig { queues: 0, ..WireConfig::default() }, "queues"),
            (WireConfig { queue_len: 0, ..WireConfig::default() }, "queue_len"),
            (WireConfig { segment_max: 1499, offload: true, ..WireConfig::default() }, "segment_max"),
            (WireConfig { segment_max: 9000, ..WireConfig::default() }, "offload"),
        ] {
            assert!(wire(&config).unwrap_err().to_string().contains(name));
        }
    }
}
