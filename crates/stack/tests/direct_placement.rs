//! Payload that a driver reads straight into the buffer of a reader that waits for it.

mod common;
#[path = "common/lab.rs"]
mod lab;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{Random, hash_of, join_all, receive_chunked, send_chunked};
use lab::{Lab, as_its_end};
use sockeye::netif::{Checksum, Netif, RxDirect, RxFrame, Sent, TxFrame, WireConfig, WireEnd, wire};
use sockeye_mbuf::Chain;

const BYTES: usize = 4_000_000;

/// As long as can be: frames are to be taken by the thread that waits for them.
const SPIN_MAX: Duration = Duration::from_millis(10);

/// A frame's bytes, and which side has looked at its checksum.
type Frame = (Vec<u8>, Checksum);

/// An end of a wire that puts payload where it is wanted.
struct DirectEnd {
    end: WireEnd,
    /// Frames that were asked for with a place.
    asked: AtomicUsize,
    /// Every so many of those is lost; each after it comes behind its next one. 0 for none.
    spoils: usize,
    held: Mutex<Option<Frame>>,
    /// Bytes that are kept from the place and shown behind it.
    short_by: usize,
    /// Every so many of the placed frames has a byte changed; 0 for none.
    damages: usize,
    /// Frames that are waited for before the first is shown, for up to [`GROUP_MAX`]; 1 for none.
    together: usize,
    grouped: Mutex<Grouped>,
}

/// Frames that wait until there are enough of them.
#[derive(Default)]
struct Grouped {
    frames: VecDeque<(Vec<u8>, Checksum)>,
    since: Option<Instant>,
    is_open: bool,
}

/// The longest that a frame waits for others: a sender may have no more.
const GROUP_MAX: Duration = Duration::from_millis(2);
/// How long an end that groups frames keeps them from the input thread, for readers that are busy meanwhile.
const LEFT_TO_READERS: Duration = Duration::from_millis(50);

impl DirectEnd {
    fn new(end: WireEnd) -> Self {
        let asked = AtomicUsize::new(0);
        let (held, grouped) = (Mutex::new(None), Mutex::new(Grouped::default()));
        Self { end, asked, spoils: 0, held, short_by: 0, damages: 0, together: 1, grouped }
    }

    fn show(
        &self,
        (bytes, checksum): &Frame,
        head_len: usize,
        place: &mut [u8],
        sink: &mut dyn FnMut(RxDirect<'_>),
    ) {
        // What a reader may find behind its bytes.
        place.fill(0xee);
        let (head, text) = bytes.split_at(bytes.len().min(head_len));
        let room = place.len().saturating_sub(self.short_by);
        let (placed, rest) = text.split_at(text.len().min(room));
        place[..placed.len()].copy_from_slice(placed);
        let placed = &place[..placed.len()];
        sink(RxDirect { head, placed, rest, checksum: *checksum, gso_size: 0 });
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

impl Netif for DirectEnd {
    as_its_end!();
    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        self.end.transmit(flow, frames)
    }
    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let next = || self.held.lock().unwrap().take().or_else(|| self.next(queue));
        let shown = std::iter::from_fn(next).take(max);
        let show =
            |(bytes, checksum): Frame| sink(RxFrame { checksum, ..RxFrame::new(&bytes, &Chain::new()) });
        shown.map(show).count()
    }
    fn receive_into(
        &self,
        queue: usize,
        head_len: usize,
        place: &mut [u8],
        sink: &mut dyn FnMut(RxDirect<'_>),
    ) -> Option<usize> {
        let late = self.held.lock().unwrap().take();
        let Some(mut frame) = late.or_else(|| self.next(queue)) else { return Some(0) };
        let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        if self.spoils > 0 && asked.is_multiple_of(self.spoils) {
            frame = self.next(queue).unwrap_or(frame);
        }
        if self.spoils > 0
            && asked % self.spoils == 1
            && let Some(next) = self.next(queue)
        {
            *self.held.lock().unwrap() = Some(std::mem::replace(&mut frame, next));
        }
        if self.damages > 0
            && asked.is_multiple_of(self.damages)
            && let Some(last) = frame.0.last_mut()
        {
            *last ^= 1;
        }
        self.show(&frame, head_len, place, sink);
        Some(1)
    }
    fn wait(&self, queue: usize, spin: Duration) {
        if self.together > 1 {
            std::thread::sleep(LEFT_TO_READERS);
        } else if self.held.lock().unwrap().is_none() {
            self.end.wait(queue, spin);
        }
    }
}

fn lab(v6: bool, change: impl Fn(&mut DirectEnd)) -> Lab {
    lab_over(&WireConfig { offload: true, segment_max: 65_535, ..WireConfig::default() }, v6, change)
}

fn lab_over(config: &WireConfig, v6: bool, change: impl Fn(&mut DirectEnd)) -> Lab {
    let (left, right) = wire(config).unwrap();
    let [left, right] = [left, right].map(|end| {
        let mut end = DirectEnd::new(end);
        change(&mut end);
        end
    });
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

/// So many of them that some text was placed, however the threads come about.
fn transfers(lab: &Lab, name: &str, read_max: usize) {
    while lab.count("input_direct") < 10 {
        transfer(lab, name, read_max);
    }
}

#[test]
fn what_comes_while_a_reader_waits_is_put_into_his_buffer_and_arrives_whole() {
    let _guard = common::watchdog("placed");
    for (v6, read_max) in [(false, 300_000), (true, 70_000)] {
        let lab = lab(v6, |_| {});
        transfers(&lab, "placed", read_max);
        for reason in ["bad_checksum", "malformed", "no_memory"] {
            assert_eq!(lab.count(&format!("frames_{reason}")), 0, "{reason}");
        }
    }
}

#[test]
fn packets_that_nobody_has_checked_are_placed_and_damaged_ones_are_not() {
    let _guard = common::watchdog("placed packets");
    let lab = lab_over(&WireConfig::default(), true, |end| end.damages = 97);
    // Until some were damaged, however the threads come about.
    while lab.count("frames_bad_tcp_checksum") == 0 {
        transfers(&lab, "packets", 300_000);
        transfer(&lab, "packets", 300_000);
    }
}

#[test]
fn many_small_frames_are_taken_together_whatever_a_reader_has_room_for() {
    let _guard = common::watchdog("placed batches");
    for (offload, room) in [(false, 300_000), (false, 5000), (true, 300_000), (true, 5000)] {
        let config = WireConfig { offload, ..WireConfig::default() };
        let (left, right) = wire(&config).unwrap();
        let right = DirectEnd { together: 32, ..DirectEnd::new(right) };
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
        let of = |name| common::counter(&lab.stacks[1], name);
        let (packets, acquisitions) = (of("input_packets"), of("input_acquisitions"));
        // The sender's first windows, and its last, are less than is waited for.
        assert!(acquisitions * 5 < packets, "{offload} {room}: {acquisitions} for {packets}");
    }
}

#[test]
fn a_round_trip_is_placed_and_what_is_behind_it_in_the_buffer_is_not_returned() {
    let _guard = common::watchdog("placed round trips");
    let lab = lab(false, |_| {});
    let (mut client, mut server) = lab.pair();
    let echo = std::thread::spawn(move || {
        let mut buf = [0; 100];
        while let Ok(read @ 1..) = server.read(&mut buf) {
            server.write_all(&buf[..read]).unwrap();
        }
    });
    // So many that some find the reader busy at the queue, however the threads come about.
    let mut round = 0u32;
    while lab.count("input_direct") < 100 {
        round += 1;
        client.write_all(&round.to_be_bytes()).unwrap();
        let mut buf = [0; 4];
        client.read_exact(&mut buf).unwrap();
        assert_eq!(u32::from_be_bytes(buf), round);
    }
    drop(client);
    echo.join().unwrap();
}

#[test]
fn frames_that_are_lost_or_late_spoil_nothing() {
    let _guard = common::watchdog("spoiled guesses");
    for spoils in [7, 50] {
        let lab = lab(false, |end| end.spoils = spoils);
        transfers(&lab, "spoiled", 300_000);
    }
}

#[test]
fn what_finds_no_room_is_read_later() {
    let _guard = common::watchdog("short places");
    // The guess is that there is room for as much as came last, so the driver has to be the one that refuses.
    let lab = lab(false, |end| end.short_by = 1000);
    transfers(&lab, "short", 300_000);
}

#[test]
fn two_connections_that_share_a_queue_disturb_no_guess_for_long() {
    let _guard = common::watchdog("two connections");
    let lab = lab(false, |_| {});
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
