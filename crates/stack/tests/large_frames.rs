//! Frames that carry several packets' worth, and frames that arrive in the stack's own packet memory.

mod common;
#[path = "common/lab.rs"]
mod lab;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use common::{Random, eventually, hash_of, join_all, receive_chunked, send_chunked};
use lab::{Lab, Tap, as_its_end};
use sockeye::netif::{Netif, RxFrame, Sent, TxFrame, WireConfig, WireEnd, wire};
use sockeye_mbuf::{CLUSTER_MAX, Pool};

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
fn a_device_that_cuts_gets_large_frames_that_say_into_what() {
    let _guard = common::watchdog("large frames");
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

/// An end of a wire that reads what arrives into mbufs of its stack's pool, headers and payload together.
struct Reading {
    end: WireEnd,
    pool: OnceLock<Pool>,
    /// The first mbuf of a frame takes so many bytes, the rest the next ones.
    first_max: usize,
}

impl Netif for Reading {
    as_its_end!();
    fn attached(&self, pool: &Pool) {
        assert!(self.pool.set(pool.clone()).is_ok(), "told once");
    }
    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        self.end.transmit(flow, frames)
    }
    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let pool = self.pool.get().expect("told before anything else");
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
fn frames_in_the_stacks_own_mbufs_are_kept_and_their_padding_is_not() {
    let _guard = common::watchdog("own mbufs");
    for (round, first_max) in [CLUSTER_MAX, 52, 53, 80, 1000].into_iter().enumerate() {
        let offload = round % 2 == 0;
        let segment_max = if offload { 40_000 } else { 0 };
        let config = WireConfig { offload, segment_max, ..WireConfig::default() };
        let (left, right) = wire(&config).unwrap();
        let [left, right] = [left, right].map(|end| Reading { end, pool: OnceLock::new(), first_max });
        // The longest headers are those of a SYN.
        let lab = Lab::between(left, right, |c| c.timestamps = first_max > 60);
        transfer(&lab, "own");
        for reason in ["bad_checksum", "malformed", "no_memory"] {
            assert_eq!(lab.count(&format!("frames_{reason}")), 0, "{reason}");
        }
    }
}

#[test]
fn a_frame_whose_first_mbuf_is_empty_or_short_is_dropped() {
    let _guard = common::watchdog("short first mbuf");
    for first_max in [0, 19, 33] {
        let (left, right) = wire(&WireConfig::default()).unwrap();
        let right = Reading { end: right, pool: OnceLock::new(), first_max };
        let lab = Lab::between(left, right, |c| c.syn_retries = 0);
        let listener = lab.listener();
        let client = lab.start(&listener);
        eventually("the SYN was dropped", || lab.count("frames_malformed") > 0);
        drop(client);
    }
}
