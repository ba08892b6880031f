//! Frames that carry several packets' worth, and frames that arrive in the stack's own packet memory.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::common::{Random, eventually, hash_of, join_all, receive_chunked, send_chunked};
use crate::faults::mend_ip_checksum;
use crate::lab::{Lab, Tap, as_its_end};
use sockeye::netif::{Netif, Prefix, Route, RxFrame, Sent, TxFrame, WireConfig, WireEnd, wire};
use sockeye::{EcnMode, TcpStream};
use sockeye_mbuf::{CLUSTER_MAX, Pool};
use sockeye_proto::ip::Sum;

const BYTES: usize = 3_000_000;

/// Sends `BYTES` from left to right and back, at once.
fn transfer(lab: &Lab, name: &str) {
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
            assert_eq!(receive_chunked(&to, 100_000, false, &mut random), expected);
        }));
    }
    join_all(threads);
    drop((client, server));
    lab.assert_empty();
}

#[test]
fn a_device_that_segments_gets_large_frames_with_a_segment_size() {
    let _guard = crate::common::watchdog("large frames");
    for v6 in [false, true] {
        let config = WireConfig { offload: true, segment_max: 65_535, ..WireConfig::default() };
        let (left, right) = wire(&config).unwrap();
        // Timestamps take 12 bytes of each packet.
        let (large, mss) = (Arc::new(AtomicUsize::new(0)), 1500 - if v6 { 72 } else { 52 });
        let seen = Arc::clone(&large);
        let sending = move |frames: &mut Vec<TxFrame>| {
            for frame in frames {
                assert!(frame.len() <= 65_535);
                let is_large = frame.payload.len() > mss;
                assert_eq!(usize::from(frame.gso_size), if is_large { mss } else { 0 });
                seen.fetch_add(usize::from(is_large), Ordering::Relaxed);
            }
        };
        let left = Tap { end: left, sending, receiving: |_: RxFrame<'_>| true };
        let mut lab = Lab::between(left, right, |_| {});
        lab.v6 = v6;
        transfer(&lab, "large");
        assert!(large.load(Ordering::Relaxed) > 0);
        assert!(lab.count("frames_in") < (2 * BYTES / mss) as u64, "{}", lab.count("frames_in"));
    }
}

/// A device takes CWR for what it is in RFC 3168: of a frame that it cuts, the first packet's alone. In accurate ECN it is the middle bit of a counter, which is in each packet.
#[test]
fn a_counter_of_accurate_ecn_is_the_same_in_each_packet_of_a_large_segment() {
    let _guard = crate::common::watchdog("large frames with accurate ECN");
    let config = WireConfig { offload: true, segment_max: 65_535, ..WireConfig::default() };
    let (left, right) = wire(&config).unwrap();
    let [has_cwr, large, wrong] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
    let (seen, seen_large, seen_wrong) = (Arc::clone(&has_cwr), Arc::clone(&large), Arc::clone(&wrong));
    // A router marks the client's first packet with text: from then on the counter of the server has the bit.
    let marked = AtomicUsize::new(0);
    let marking = move |frames: &mut Vec<TxFrame>| {
        for frame in frames {
            if frame.gso_size == 0 && !frame.payload.is_empty() && marked.fetch_add(1, Ordering::Relaxed) == 0
            {
                frame.head_mut()[1] |= 3;
                mend_ip_checksum(frame.head_mut());
            }
        }
    };
    let looking = move |frames: &mut Vec<TxFrame>| {
        for frame in frames.iter().filter(|frame| !frame.payload.is_empty()) {
            let cwr = frame.head()[TCP_AT + 13] & 0x80 != 0;
            // The stack contains what panics here.
            let is_wrong = cwr && (frame.gso_size > 0 || frame.payload.len() > 1448);
            seen_wrong.fetch_add(usize::from(is_wrong), Ordering::Relaxed);
            seen.fetch_add(usize::from(cwr), Ordering::Relaxed);
            seen_large.fetch_add(usize::from(frame.gso_size > 0), Ordering::Relaxed);
        }
    };
    let left = Tap { end: left, sending: marking, receiving: |_: RxFrame<'_>| true };
    let right = Tap { end: right, sending: looking, receiving: |_: RxFrame<'_>| true };
    let lab = Lab::between(left, right, |c| c.tcp.ecn = EcnMode::Accurate);
    let (mut client, mut server) = lab.pair();
    let send = |server: &mut TcpStream, client: &mut TcpStream| {
        std::thread::scope(|scope| {
            scope.spawn(|| server.write_all(&vec![7; 500_000]).unwrap());
            client.read_exact(&mut vec![0; 500_000]).unwrap();
        });
    };
    send(&mut server, &mut client);
    let before = large.load(Ordering::Relaxed);
    assert!(before > 0 && has_cwr.load(Ordering::Relaxed) == 0);
    client.write_all(b"marked").unwrap();
    server.read_exact(&mut [0; 6]).unwrap();
    send(&mut server, &mut client);
    assert!(has_cwr.load(Ordering::Relaxed) >= 500_000 / 1448);
    assert_eq!((wrong.load(Ordering::Relaxed), large.load(Ordering::Relaxed)), (0, before));
    drop((client, server));
    lab.assert_empty();
}

/// An end of a wire that takes more than an IP packet can say, and cuts it as the device of a kernel would, into pieces that the wire
/// takes.
struct Cutting {
    end: WireEnd,
    takes: u32,
    long: Arc<AtomicUsize>,
}

/// The longest frame that it takes; the wire takes 65,535 bytes.
const TAKES: u32 = 200_000;
/// Offsets of the lengths and checksums of an IPv4 header without options, and of the TCP fields behind it.
const IP_LENGTH: usize = 2;
const IP_SUM: usize = 10;
const TCP_AT: usize = 20;

impl Netif for Cutting {
    as_its_end!(without segment_max);
    fn segment_max(&self) -> u32 {
        self.takes
    }
    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        let mut cut = Vec::new();
        for mut frame in frames.drain(..) {
            let takes = self.takes as usize;
            assert!(frame.len() <= takes.max(1500), "{} bytes for a device that takes {takes}", frame.len());
            assert!(takes > 0 || frame.gso_size == 0);
            if frame.len() > 65_535 {
                self.long.fetch_add(1, Ordering::Relaxed);
                assert_eq!(frame.head()[IP_LENGTH..][..2], [0, 0]);
                let part_len = 40 * usize::from(frame.gso_size);
                while frame.payload.len() > part_len {
                    let payload = frame.payload.split_front(part_len);
                    let mut part = TxFrame::new(frame.head(), payload, frame.checksum).unwrap();
                    part.gso_size = frame.gso_size;
                    // FIN and PSH are the last one's.
                    part.head_mut()[TCP_AT + 13] &= !0b1001;
                    say_length(&mut part);
                    cut.push(part);
                    let seq = &mut frame.head_mut()[TCP_AT + 4..TCP_AT + 8];
                    let next = u32::from_be_bytes(seq.try_into().unwrap()).wrapping_add(part_len as u32);
                    seq.copy_from_slice(&next.to_be_bytes());
                }
                say_length(&mut frame);
            }
            cut.push(frame);
        }
        self.end.transmit(flow, &mut cut)
    }
    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        self.end.receive(queue, max, sink)
    }
    fn wait(&self, queue: usize, spin: Duration) {
        self.end.wait(queue, spin);
    }
}

/// Writes the length of an IPv4 packet, and the sum of its header.
fn say_length(frame: &mut TxFrame) {
    let len = u16::try_from(frame.len()).unwrap().to_be_bytes();
    let head = frame.head_mut();
    head[IP_LENGTH..][..2].copy_from_slice(&len);
    head[IP_SUM..][..2].fill(0);
    let checksum = Sum::of(&head[..TCP_AT]).checksum();
    head[IP_SUM..][..2].copy_from_slice(&checksum.to_be_bytes());
}

#[test]
fn a_neighbor_gets_frames_beyond_the_ip_length_field_until_the_device_lowers_its_limit() {
    let _guard = crate::common::watchdog("frames longer than packets");
    for v6 in [false, true] {
        let config = WireConfig { offload: true, segment_max: 65_535, ..WireConfig::default() };
        let long = Arc::new(AtomicUsize::new(0));
        let ends = |takes| {
            let (left, right) = wire(&config).unwrap();
            (Cutting { end: left, takes, long: Arc::clone(&long) }, right)
        };
        let (left, right) = ends(TAKES);
        let mut lab = Lab::between(left, right, |_| {});
        lab.v6 = v6;
        transfer(&lab, "long");
        let longs = long.load(Ordering::Relaxed);
        assert!((longs > 0) != v6, "{longs} frames longer than packets, IPv6: {v6}");
        // The way changes: a connection that counts on much finds a device that takes a packet's worth, or cuts nothing.
        for (number, less) in [65_535, 20_000, 0].into_iter().enumerate() {
            let (client, server) = lab.pair();
            let (left, right) = ends(less);
            let network = |host| [format!("10.9.{}.{host}/24", number + 1).parse().unwrap()];
            let other = lab.stacks[0].attach(left, &network(1)).unwrap();
            lab.stacks[1].attach(right, &network(2)).unwrap();
            let whole = if v6 { 128 } else { 32 };
            let there: Prefix = format!("{}/{whole}", lab.addr(0).ip()).parse().unwrap();
            lab.stacks[0].add_route(there, other).unwrap();
            let data = Random::new("less").bytes(BYTES);
            let expected = (data.len(), hash_of(&data));
            let writes = &mut Random::new("less writes");
            std::thread::scope(|scope| {
                scope.spawn(|| send_chunked(&client, &data, 1_000_000, writes));
                let mut reads = Random::new("less reads");
                assert_eq!(receive_chunked(&server, 100_000, false, &mut reads), expected);
            });
            lab.stacks[0].remove_route(&Route::on_link(there, other)).unwrap();
        }
        assert_eq!(long.load(Ordering::Relaxed), longs);
        assert_eq!(lab.count("frames_unsendable"), 0);
    }
}

/// An end of a wire that reads frames into mbufs of its stack's pool, headers and payload together.
struct Reading {
    end: WireEnd,
    pool: OnceLock<Pool>,
    /// The first mbuf of a frame takes so many bytes, the rest the next ones.
    first_max: usize,
}

impl Netif for Reading {
    as_its_end!();
    fn attached(&self, pool: &Pool) {
        assert!(self.pool.set(pool.clone()).is_ok(), "reported once");
    }
    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        self.end.transmit(flow, frames)
    }
    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let pool = self.pool.get().expect("reported before anything else");
        self.end.receive(queue, max, &mut |frame| {
            let mut bytes = frame.head.to_vec();
            frame.rest.iter().for_each(|piece| bytes.extend_from_slice(piece));
            // As Ethernet pads: behind the packet, and not of it.
            bytes.extend([0xee; 7]);
            let (head, rest) = bytes.split_at(bytes.len().min(self.first_max));
            let mut first = pool.alloc(CLUSTER_MAX).unwrap();
            assert_eq!(first.try_extend(head), head.len());
            let rest = pool.copy_in(rest).unwrap();
            sink(RxFrame { checksum: frame.checksum, ..RxFrame::in_mbufs(&first, &rest) });
        })
    }
    fn wait(&self, queue: usize, spin: Duration) {
        self.end.wait(queue, spin);
    }
}

#[test]
fn frames_in_the_stacks_own_mbufs_are_kept_without_their_padding() {
    let _guard = crate::common::watchdog("own mbufs");
    for (round, first_max) in [CLUSTER_MAX, 52, 53, 80, 1000].into_iter().enumerate() {
        let offload = round % 2 == 0;
        let segment_max = if offload { 40_000 } else { 0 };
        let config = WireConfig { offload, segment_max, ..WireConfig::default() };
        let (left, right) = wire(&config).unwrap();
        let [left, right] = [left, right].map(|end| Reading { end, pool: OnceLock::new(), first_max });
        // The longest headers are those of a SYN.
        let lab = Lab::between(left, right, |c| c.tcp.timestamps = first_max > 60);
        transfer(&lab, "own");
        for reason in ["bad_checksum", "malformed", "no_memory"] {
            assert_eq!(lab.count(&format!("frames_{reason}")), 0, "{reason}");
        }
    }
}

#[test]
fn a_frame_whose_first_mbuf_is_empty_or_short_is_dropped() {
    let _guard = crate::common::watchdog("short first mbuf");
    for first_max in [0, 19, 33] {
        let (left, right) = wire(&WireConfig::default()).unwrap();
        let right = Reading { end: right, pool: OnceLock::new(), first_max };
        let lab = Lab::between(left, right, |c| c.tcp.syn_retries = 0);
        let listener = lab.listener();
        let client = lab.start(&listener);
        eventually("the SYN was dropped", || lab.count("frames_malformed") > 0);
        drop(client);
    }
}
