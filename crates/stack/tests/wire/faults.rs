//! Frames from outside may be anything: damaged, truncated, foreign and random.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::settings::{Input, Setting};
use crate::common::{Random, counter, eventually};
use crate::lab::{Lab, Tap, addrs};
use proptest::prelude::*;
use sockeye::netif::{Checksum, HEAD_MAX, Netif, RxFrame, TxFrame, WireConfig, wire};
use sockeye_mbuf::{Pool, PoolConfig};

/// Fate of a frame that is sent.
type Damage = fn(&mut TxFrame);

/// Sends 500,000 bytes while `damage` may change each frame that leaves; returns the lab.
fn transfer_through(config: &WireConfig, input: Input, damage: Damage) -> Lab {
    let (left, right) = wire(config).unwrap();
    let sent = AtomicUsize::new(0);
    let sending = move |frames: &mut Vec<TxFrame>| {
        for frame in frames.iter_mut() {
            // Not the handshake, and not all that is sent again.
            if sent.fetch_add(1, Ordering::Relaxed) % 17 == 10 {
                damage(frame);
            }
        }
    };
    let left = Tap { end: left, sending, receiving: |_: RxFrame<'_>| true };
    let lab = Lab::between(left, right, |c| {
        input.set(c);
        c.tcp.rto_min = Duration::from_millis(5);
    });
    let (mut client, mut server) = lab.pair();
    let data = Random::new("damaged").bytes(500_000);
    let writer = {
        let data = data.clone();
        std::thread::spawn(move || client.write_all(&data).unwrap())
    };
    let mut got = vec![0; data.len()];
    server.read_exact(&mut got).unwrap();
    assert!(got == data);
    writer.join().unwrap();
    drop(server);
    lab
}

/// Fills in the checksum of an IPv4 header.
pub fn mend_ip_checksum(head: &mut [u8]) {
    head[10..12].fill(0);
    let sum: u32 = head[..20].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    head[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
}

#[test]
fn damaged_frames_are_counted_by_reason_and_dropped_and_tcp_sends_them_again() {
    let _guard = crate::common::watchdog("damaged frames");
    let flip_port = |frame: &mut TxFrame| frame.head_mut()[20] ^= 1;
    let flip_payload = |frame: &mut TxFrame| {
        let mut bytes = vec![0; frame.payload.len()];
        frame.payload.copy_to(0, &mut bytes);
        if let Some(byte) = bytes.last_mut() {
            *byte ^= 0x40;
            frame.payload = Pool::new(PoolConfig::default()).copy_in(&bytes).unwrap();
        } else {
            frame.head_mut()[30] ^= 1;
        }
    };
    let flip_ip = |frame: &mut TxFrame| frame.head_mut()[8] ^= 1;
    let cut = |frame: &mut TxFrame| frame.truncate_head(33);
    let foreign = |frame: &mut TxFrame| {
        frame.head_mut()[19] += 1;
        mend_ip_checksum(frame.head_mut());
    };
    let protocol = |frame: &mut TxFrame| {
        frame.head_mut()[9] = 253;
        mend_ip_checksum(frame.head_mut());
    };
    let cases: [(&str, Damage); 6] = [
        ("frames_bad_checksum", flip_port),
        ("frames_bad_checksum", flip_payload),
        ("frames_bad_checksum", flip_ip),
        ("frames_malformed", cut),
        ("frames_not_for_us", foreign),
        ("frames_unknown_protocol", protocol),
    ];
    for (round, (name, damage)) in cases.into_iter().enumerate() {
        let input = Input::ALL[round % Input::ALL.len()];
        let lab = transfer_through(&WireConfig::default(), input, damage);
        let dropped = counter(&lab.stacks[1], name);
        assert!(dropped > 10, "{name}: {dropped}");
        // Not at any moment: the closes are still on their way.
        eventually("each frame is a packet or was dropped for a reason", || {
            let of = |name: &str| counter(&lab.stacks[1], name);
            let reasons = ["malformed", "bad_checksum", "not_for_us", "unknown_protocol", "no_memory"];
            let dropped: u64 = reasons.iter().map(|reason| of(&format!("frames_{reason}"))).sum();
            of("frames_in") == of("input_packets") + dropped
        });
    }
}

#[test]
fn a_wrong_checksum_field_is_ignored_if_the_device_checks_it() {
    let _guard = crate::common::watchdog("offload");
    let config = WireConfig { offload: true, ..WireConfig::default() };
    let lab = transfer_through(&config, Input::Batched, |frame| frame.head_mut()[36] ^= 0xff);
    assert_eq!(lab.count("frames_bad_checksum"), 0);
}

/// Injects one frame into a stack with a listener; returns the result.
fn inject(head: &[u8], rest: &[u8], trusted: bool, input: Input) -> Vec<(&'static str, u64)> {
    let checksum = if trusted { Checksum::Device } else { Checksum::Software };
    let rest = Pool::new(PoolConfig::default()).copy_in(rest).unwrap();
    let (outside, inside) = wire(&WireConfig::default()).unwrap();
    outside.transmit(0, &mut vec![TxFrame::new(head, rest, checksum).unwrap()]);
    let stack = crate::common::stack_with(|c| {
        input.set(c);
        c.workers = 0;
    });
    stack.attach(inside, &addrs(1)).unwrap();
    let _listener = sockeye::TcpListener::bind_on(&stack, "[::]:7").unwrap();
    stack.poll(Duration::ZERO);
    stack.poll(Duration::from_secs(1));
    stack.counters()
}

fn accounted(counters: &[(&'static str, u64)]) -> bool {
    let of = |name: &str| counters.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count);
    let reasons = ["malformed", "bad_checksum", "not_for_us", "unknown_protocol", "no_memory"];
    let dropped: u64 = reasons.iter().map(|reason| of(&format!("frames_{reason}"))).sum();
    // Fragments, and packets that are not TCP, are counted by IP.
    let is_ips =
        |name: &str| ["ip_in_receives", "ip_frag", "ip_reasm"].iter().any(|start| name.starts_with(start));
    let by_ip: u64 = counters.iter().filter(|(name, _)| is_ips(name)).map(|(_, count)| count).sum();
    of("frames_in") == 1 && (dropped + of("input_packets") == 1 || by_ip > 0)
}

/// A packet to port 7 of the stack that is nearly right: some of its bytes are random.
fn nearly_right() -> impl Strategy<Value = Vec<u8>> {
    let header = (any::<bool>(), any::<[u8; 20]>(), prop::collection::vec(any::<u8>(), 0..60), any::<u8>());
    (header, prop::collection::vec((0usize..120, any::<u8>()), 0..4)).prop_map(
        |((v6, mut tcp, tail, offset), changes)| {
            tcp[2..4].copy_from_slice(&7u16.to_be_bytes());
            tcp[12] = (5 + offset % 12) << 4;
            let len = (tcp.len() + tail.len()) as u16;
            let mut packet = Vec::new();
            if v6 {
                packet.extend([0x60, 0, 0, 0]);
                packet.extend(len.to_be_bytes());
                packet.extend([6, 64, 0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
                packet.extend([0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
            } else {
                packet.extend([0x45, 0]);
                packet.extend((len + 20).to_be_bytes());
                packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
                let sum: u32 = packet.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
                let folded = (sum & 0xffff) + (sum >> 16);
                packet[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
            }
            packet.extend(tcp);
            packet.extend(tail);
            for (at, byte) in changes {
                if let Some(old) = packet.get_mut(at) {
                    *old = byte;
                }
            }
            packet
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_dropped_for_a_reason_and_never_panic(
        head in prop::collection::vec(any::<u8>(), 0..=HEAD_MAX),
        rest in prop::collection::vec(any::<u8>(), 0..150),
        trusted in any::<bool>(),
    ) {
        prop_assert!(accounted(&inject(&head, &rest, trusted, Input::Batched)));
    }

    #[test]
    fn nearly_valid_packets_are_answered_or_dropped_wherever_the_frame_is_split(
        packet in nearly_right(),
        cut in any::<prop::sample::Index>(),
        padding in 0usize..10,
        trusted in any::<bool>(),
        setting in 0..Input::ALL.len(),
    ) {
        let cut = cut.index(packet.len().min(HEAD_MAX) + 1);
        let mut rest = packet[cut..].to_vec();
        rest.resize(rest.len() + padding, 0xee);
        prop_assert!(accounted(&inject(&packet[..cut], &rest, trusted, Input::ALL[setting])));
    }
}

#[test]
fn a_valid_syn_is_answered_which_shows_that_injected_frames_arrive() {
    let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
    mend_ip_checksum(&mut packet);
    packet.extend([0x30, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
    let counters = inject(&packet, &[], true, Input::Batched);
    assert!(counters.contains(&("frames_out", 2)), "the SYN-ACK, and again a second later: {counters:?}");
    let counters = inject(&packet, &[], false, Input::Batched);
    assert!(counters.contains(&("frames_bad_checksum", 1)) && counters.contains(&("frames_out", 0)));
}
