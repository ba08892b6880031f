//! Readers that take frames from their interface themselves while they wait (`src/inet/input/busy.rs`): nothing is lost, and the order
//! is kept.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Random, hash_of, join_all, receive_chunked, send_chunked};
use crate::lab::{Lab, as_its_end};
use sockeye::netif::{Checksum, Netif, RxFrame, Sent, TxFrame, WireConfig, WireEnd, wire};
use sockeye_mbuf::Chain;

const BYTES: usize = 4_000_000;

/// As long as can be: frames are to be taken by the thread that waits for them.
const SPIN_MAX: Duration = Duration::from_millis(10);

/// A frame's bytes, and which side has looked at its checksum.
type Frame = (Vec<u8>, Checksum);

/// An end of a wire that shows frames to readers in a way of its own.
struct Odd {
    end: WireEnd,
    /// Frames that readers have asked for.
    asked: AtomicUsize,
    /// Drop every n-th of those frames and swap the one after it with its successor. 0 for none.
    spoils: usize,
    held: Mutex<Option<Frame>>,
    /// Frames that are waited for before the first is shown, for up to [`GROUP_MAX`]; 1 for none.
    together: usize,
    grouped: Mutex<Grouped>,
}

/// Frames that wait until there are enough of them.
#[derive(Default)]
struct Grouped {
    frames: VecDeque<Frame>,
    since: Option<Instant>,
    is_open: bool,
}

/// The longest that a frame waits for others: a sender may have no more.
const GROUP_MAX: Duration = Duration::from_millis(2);
/// How long an end that groups frames keeps them from the input thread, for readers that are busy meanwhile.
const LEFT_TO_READERS: Duration = Duration::from_millis(50);

impl Odd {
    fn new(end: WireEnd) -> Self {
        let asked = AtomicUsize::new(0);
        let (held, grouped) = (Mutex::new(None), Mutex::new(Grouped::default()));
        Self { end, asked, spoils: 0, held, together: 1, grouped }
    }

    /// The frame that is shown next.
    fn shown(&self, queue: usize) -> Option<Frame> {
        let late = self.held.lock().unwrap().take();
        let frame = late.or_else(|| self.next(queue))?;
        if self.spoils == 0 || is_input_thread() {
            return Some(frame);
        }
        let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        if asked.is_multiple_of(self.spoils) {
            return self.next(queue);
        }
        if asked % self.spoils == 1
            && let Some(next) = self.next(queue)
        {
            *self.held.lock().unwrap() = Some(frame);
            return Some(next);
        }
        Some(frame)
    }

    /// The next frame, whole.
    fn next(&self, queue: usize) -> Option<Frame> {
        let mut grouped = self.grouped.lock().unwrap();
        let frames = &mut grouped.frames;
        self.end.receive(queue, self.together.saturating_sub(frames.len()), &mut |frame| {
            let mut bytes = frame.head.to_vec();
            frame.rest.iter().for_each(|piece| bytes.extend_from_slice(piece));
            frames.push_back((bytes, frame.checksum));
        });
        let count = frames.len();
        if count == 0 {
            (grouped.since, grouped.is_open) = (None, false);
        } else {
            let since = *grouped.since.get_or_insert_with(Instant::now);
            grouped.is_open |= count >= self.together || since.elapsed() >= GROUP_MAX;
            if self.together > 1 && is_input_thread() && since.elapsed() < LEFT_TO_READERS {
                return None;
            }
        }
        if grouped.is_open { grouped.frames.pop_front() } else { None }
    }
}

fn is_input_thread() -> bool {
    std::thread::current().name().is_some_and(|name| name.starts_with("sockeye-in"))
}

impl Netif for Odd {
    as_its_end!();
    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        self.end.transmit(flow, frames)
    }
    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let shown = std::iter::from_fn(|| self.shown(queue)).take(max);
        let show =
            |(bytes, checksum): Frame| sink(RxFrame { checksum, ..RxFrame::new(&bytes, &Chain::new()) });
        shown.map(show).count()
    }
    fn wait(&self, queue: usize, spin: Duration) {
        if self.together > 1 {
            std::thread::sleep(LEFT_TO_READERS);
        } else if self.held.lock().unwrap().is_none() {
            self.end.wait(queue, spin);
        }
    }
}

/// Two stacks over a wire that carries large frames.
fn lab(v6: bool, spoils: usize) -> Lab {
    let (left, right) =
        wire(&WireConfig { offload: true, segment_max: 65_535, ..WireConfig::default() }).unwrap();
    let [left, right] = [left, right].map(|end| Odd { spoils, ..Odd::new(end) });
    Lab { v6, ..Lab::between(left, right, |_| {}) }
}

/// Sends `BYTES` from left to right and back at once, in reads of up to `read_max`.
fn transfer(lab: &Lab, name: &str, read_max: usize) {
    let (client, server) = lab.pair();
    let mut threads = Vec::new();
    for (from, to, way) in [(&client, &server, 0), (&server, &client, 1)] {
        let data = Random::new(&format!("{name} {way}")).bytes(BYTES);
        let expected = (data.len(), hash_of(&data));
        let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        let mut random = Random::new(&format!("{name} chunks {way}"));
        threads.push(std::thread::spawn(move || send_chunked(&from, &data, 100_000, &mut random)));
        let mut random = Random::new(&format!("{name} reads {way}"));
        threads.push(std::thread::spawn(move || {
            assert_eq!(receive_chunked(&to, read_max, false, &mut random), expected);
        }));
    }
    join_all(threads);
    drop((client, server));
    lab.assert_empty();
}

/// So many of them that callers have taken some frames, however the threads are scheduled.
fn transfers(lab: &Lab, name: &str, read_max: usize) {
    while lab.count("input_by_callers") < 10 {
        transfer(lab, name, read_max);
    }
}

#[test]
fn streams_arrive_whole_while_readers_poll_the_interface() {
    let _guard = crate::common::watchdog("busy polling");
    for (v6, read_max) in [(false, 300_000), (true, 70_000)] {
        let lab = lab(v6, 0);
        transfers(&lab, "polled", read_max);
        for reason in ["bad_checksum", "malformed", "no_memory"] {
            assert_eq!(lab.count(&format!("frames_{reason}")), 0, "{reason}");
        }
    }
}

#[test]
fn many_small_frames_are_taken_together_whatever_the_size_of_the_readers_buffer() {
    let _guard = crate::common::watchdog("batches of readers");
    for (offload, room) in [(false, 300_000), (false, 5000), (true, 300_000), (true, 5000)] {
        let config = WireConfig { offload, ..WireConfig::default() };
        let (left, right) = wire(&config).unwrap();
        let right = Odd { together: 32, ..Odd::new(right) };
        let lab = Lab::between(left, right, |config| config.spin_max = SPIN_MAX);
        let (client, mut server) = lab.pair();
        let data = Random::new("together").bytes(BYTES);
        std::thread::scope(|scope| {
            let bytes = &data;
            scope.spawn(move || send_chunked(&client, bytes, 100_000, &mut Random::new("chunks")));
            // Always with as much room.
            let (mut got, mut buf) = (Vec::new(), vec![0; room]);
            while let Ok(read @ 1..) = server.read(&mut buf) {
                got.extend_from_slice(&buf[..read]);
            }
            assert!(got == data);
        });
        let of = |name| crate::common::counter(&lab.stacks[1], name);
        let (packets, acquisitions) = (of("input_packets"), of("input_acquisitions"));
        // The sender's first windows, and its last, are less than is waited for.
        assert!(acquisitions * 5 < packets, "{offload} {room}: {acquisitions} for {packets}");
    }
}

#[test]
fn each_round_trip_brings_its_own_answer_to_a_reader_that_takes_it() {
    let _guard = crate::common::watchdog("round trips of readers");
    let lab = lab(false, 0);
    let (mut client, mut server) = lab.pair();
    let echo = std::thread::spawn(move || {
        let mut buf = [0; 100];
        while let Ok(read @ 1..) = server.read(&mut buf) {
            server.write_all(&buf[..read]).unwrap();
        }
    });
    // So many that some find the reader polling the queue, however the threads are scheduled.
    let mut round = 0u32;
    while lab.count("input_by_callers") < 100 {
        round += 1;
        client.write_all(&round.to_be_bytes()).unwrap();
        let mut buf = [0; 4];
        client.read_exact(&mut buf).unwrap();
        assert_eq!(u32::from_be_bytes(buf), round);
    }
    drop(client);
    echo.join().unwrap();
}

/// A new connection's first frame is that of the handshake: it comes in at the only queue there is.
#[test]
fn a_thread_that_connects_takes_the_answer_itself() {
    let _guard = crate::common::watchdog("connects that poll");
    let lab = lab(false, 0);
    let is_by_caller = || crate::common::counter(&lab.stacks[0], "input_by_callers") > 0;
    // So many that one finds its thread polling the queue, however the threads are scheduled.
    for _ in 0..1000 {
        if is_by_caller() {
            return;
        }
        drop(lab.pair());
    }
    panic!("the input thread took every answer");
}

#[test]
fn frames_that_are_lost_or_late_while_readers_take_them_are_repaired() {
    let _guard = crate::common::watchdog("lost and late frames");
    for spoils in [7, 50] {
        transfers(&lab(false, spoils), "spoiled", 300_000);
    }
}

#[test]
fn two_connections_that_share_a_queue_both_arrive_whole() {
    let _guard = crate::common::watchdog("two connections");
    let lab = lab(false, 0);
    std::thread::scope(|scope| {
        let both = [scope.spawn(|| streams(&lab, "one")), scope.spawn(|| streams(&lab, "two"))];
        both.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// One direction of a connection.
fn streams(lab: &Lab, name: &str) {
    let (client, server) = lab.pair();
    let data = Random::new(name).bytes(BYTES);
    std::thread::scope(|scope| {
        let (mut chunks, mut reads) = (Random::new("chunks"), Random::new("reads"));
        let bytes = &data;
        scope.spawn(move || send_chunked(&client, bytes, 100_000, &mut chunks));
        assert_eq!(receive_chunked(&server, 200_000, false, &mut reads), (data.len(), hash_of(&data)));
    });
}
