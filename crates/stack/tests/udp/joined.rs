//! Datagrams that cross a channel in one frame, in both directions, and frames with false metadata about that.

use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use crate::common::{Random, counter, watchdog};
use sockeye::netif::{ChannelConfig, ChannelPort, Checksum, FrameBytes, MacAddr, Medium, SendError, channel};
use sockeye::{Config, RecvMeta, SendMeta, Stack, UdpSocket};

/// A stack without threads, a socket of it, and the port of its interface.
struct Side {
    stack: Stack,
    socket: UdpSocket,
    port: ChannelPort,
}

impl Side {
    fn new(config: &ChannelConfig, last: u8, v6: bool) -> Self {
        let (netif, mut ports) = channel(config).unwrap();
        let stack = Stack::new(Config { workers: 0, ..Config::default() }).unwrap();
        let addrs =
            [format!("10.9.0.{last}/24"), format!("fd09::{last}/64")].map(|addr| addr.parse().unwrap());
        stack.attach(netif, &addrs).unwrap();
        let at = if v6 { format!("[fd09::{last}]:7") } else { format!("10.9.0.{last}:7") };
        let socket = UdpSocket::bind_on(&stack, at).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { stack, socket, port: ports.remove(0) }
    }

    /// Data that waits at the socket, as datagrams or joined buffers: the bytes, and the size of each datagram in
    /// them.
    fn received(&self) -> Vec<(Vec<u8>, u16)> {
        let (mut buf, mut got) = (vec![0; 70_000], Vec::new());
        while let Ok(RecvMeta { len, segment_size, .. }) =
            self.socket.recv_msg(&mut [IoSliceMut::new(&mut buf)])
        {
            got.push((buf[..len].to_vec(), segment_size));
        }
        got
    }
}

/// A frame as an embedder has it.
struct Frame {
    bytes: Vec<u8>,
    checksum: Checksum,
    gso_size: u16,
}

impl Frame {
    fn incoming(&self) -> FrameBytes<'_> {
        FrameBytes { bytes: &self.bytes, checksum: self.checksum, gso_size: self.gso_size }
    }
}

/// Everything that a stack has to say.
fn frames_of(side: &Side) -> Vec<Frame> {
    side.stack.poll(Duration::ZERO);
    let mut frames = Vec::new();
    while let Some(frame) = side.port.try_recv() {
        let mut bytes = vec![0; frame.len()];
        assert_eq!(frame.copy_to(&mut bytes), bytes.len());
        frames.push(Frame { bytes, checksum: frame.checksum, gso_size: frame.gso_size });
    }
    frames
}

/// Neighbors and groups are spoken of in frames that are shorter.
const PROTOCOLS_MAX: usize = 200;

/// Sends `data` from left to right in datagrams of `size`, and carries all frames both ways until there are none. Returns how
/// many of the left's had more than [`PROTOCOLS_MAX`] bytes.
fn transfer(left: &Side, right: &Side, data: &[u8], size: u16) -> usize {
    let to = right.socket.local_addr().unwrap();
    let meta = SendMeta { segment_size: Some(size), ..SendMeta::to(to) };
    left.socket.send_msg(&[IoSlice::new(data)], &meta).unwrap();
    let mut count = 0;
    loop {
        let (there, back) = (frames_of(left), frames_of(right));
        if there.is_empty() && back.is_empty() {
            return count;
        }
        count += there.iter().filter(|frame| frame.bytes.len() > PROTOCOLS_MAX).count();
        there.iter().for_each(|frame| right.port.try_send(frame.incoming()).unwrap());
        back.iter().for_each(|frame| left.port.try_send(frame.incoming()).unwrap());
        left.stack.poll(Duration::ZERO);
        right.stack.poll(Duration::ZERO);
    }
}

fn config(medium: Medium, udp_segment_max: u32) -> ChannelConfig {
    ChannelConfig { medium, offload: true, udp_segment_max, ..ChannelConfig::default() }
}

const MEDIA: [fn(u8) -> Medium; 2] =
    [|_| Medium::Ip, |last| Medium::Ethernet(MacAddr([2, 0, 0, 0, 0, last]))];

#[test]
fn a_buffer_of_datagrams_crosses_a_channel_that_allows_it_in_one_frame_unchanged() {
    let _guard = watchdog("a buffer of datagrams in one frame");
    let data = Random::new("joined datagrams").bytes(50_000);
    for medium in MEDIA {
        for v6 in [false, true] {
            // Off; on; on, and less than the buffer.
            for (segment_max, frames) in [(0, 50), (65_535, 1), (20_000, 50)] {
                let left = Side::new(&config(medium(1), segment_max), 1, v6);
                let right = Side::new(&config(medium(2), segment_max), 2, v6);
                // So that the neighbor is known, before which few packets wait.
                transfer(&left, &right, b"hello", 1000);
                assert_eq!(right.received().len(), 1);
                assert_eq!(transfer(&left, &right, &data, 1000), frames, "{segment_max} {v6}");
                let expected: Vec<_> = data.chunks(1000).map(|chunk| (chunk.to_vec(), 0)).collect();
                assert!(right.received() == expected, "one by one, for a socket that does not ask");
                right.socket.set_gro(true).unwrap();
                assert_eq!(transfer(&left, &right, &data[..49_500], 1000), frames);
                assert!(
                    right.received() == [(data[..49_500].to_vec(), 1000)],
                    "joined, for a socket that asks"
                );
                let joined = if frames == 1 { 100 } else { 0 };
                assert_eq!(counter(&left.stack, "udp_out_joined"), joined);
                for name in ["udp_in_errors", "frames_malformed", "frames_bad_checksum", "udp_rcvbuf_errors"]
                {
                    assert_eq!(counter(&right.stack, name), 0, "{name}");
                }
            }
        }
    }
}

#[test]
fn datagrams_longer_than_the_mtu_are_fragmented_as_without_offload() {
    let _guard = watchdog("joined datagrams that are too long");
    let left = Side::new(&config(Medium::Ip, 65_535), 1, false);
    let right = Side::new(&config(Medium::Ip, 65_535), 2, false);
    let data = Random::new("long datagrams").bytes(9100);
    // Each of the first six in two fragments, of which the second is short.
    assert_eq!(transfer(&left, &right, &data, 1473), 7);
    let lens: Vec<_> = right.received().iter().map(|(bytes, _)| bytes.len()).collect();
    assert_eq!(lens, [1473, 1473, 1473, 1473, 1473, 1473, 262]);
    assert_eq!(counter(&left.stack, "udp_out_joined"), 0);
}

/// A frame of 20 datagrams of 1,000 bytes that a stack has made for another.
fn joined_frame() -> Frame {
    let left = Side::new(&config(Medium::Ip, 65_535), 1, false);
    let meta = SendMeta { segment_size: Some(1000), ..SendMeta::to("10.9.0.2:7".parse().unwrap()) };
    left.socket.send_msg(&[IoSlice::new(&[7; 20_000])], &meta).unwrap();
    frames_of(&left).pop().unwrap()
}

/// Where the UDP header's length stands behind an IPv4 header.
const UDP_LEN_AT: usize = 24;

#[test]
fn a_frame_with_wrong_metadata_about_its_datagrams_is_refused_or_dropped_and_counted() {
    let _guard = watchdog("joined datagrams that lie");
    let right = Side::new(&config(Medium::Ip, 30_000), 2, false);
    let mut frame = joined_frame();
    let mut offer = |change: &dyn Fn(&mut Frame)| {
        let (bytes, gso_size) = (frame.bytes.clone(), frame.gso_size);
        change(&mut frame);
        let sent = right.port.try_send(frame.incoming());
        (frame.bytes, frame.gso_size) = (bytes, gso_size);
        right.stack.poll(Duration::ZERO);
        let lens: Vec<_> = right.received().iter().map(|(bytes, _)| bytes.len()).collect();
        (sent, lens, counter(&right.stack, "udp_in_bad_length"))
    };
    assert_eq!(offer(&|_| ()), (Ok(()), vec![1000; 20], 0));
    // 128 datagrams are the most, in 157 bytes each.
    assert_eq!(offer(&|frame| frame.gso_size = 157), (Ok(()), [vec![157; 127], vec![61]].concat(), 0));
    assert_eq!(offer(&|frame| frame.gso_size = 156), (Ok(()), vec![], 1));
    assert_eq!(offer(&|frame| frame.gso_size = 1), (Ok(()), vec![], 2));
    // Without a size it is one datagram, as its header says.
    assert_eq!(offer(&|frame| frame.gso_size = 0), (Ok(()), vec![20_000], 2));
    assert_eq!(offer(&|frame| frame.gso_size = 1501), (Err(SendError::Length), vec![], 2));
    assert_eq!(offer(&|frame| frame.gso_size = u16::MAX), (Err(SendError::Length), vec![], 2));
    assert_eq!(offer(&|frame| frame.bytes.resize(30_001, 0)), (Err(SendError::Length), vec![], 2));
    // Bytes behind the datagrams belong to none of them; a length beyond the frame, or below the header's own, is wrong.
    assert_eq!(offer(&|frame| frame.bytes.resize(30_000, 0)), (Ok(()), vec![1000; 20], 2));
    let with_len = |len: u16| {
        move |frame: &mut Frame| frame.bytes[UDP_LEN_AT..UDP_LEN_AT + 2].copy_from_slice(&len.to_be_bytes())
    };
    assert_eq!(offer(&with_len(20_009)), (Ok(()), vec![], 3));
    assert_eq!(offer(&with_len(7)), (Ok(()), vec![], 4));
    assert_eq!(offer(&with_len(8)), (Ok(()), vec![0], 4));
    assert_eq!(offer(&with_len(1500)), (Ok(()), vec![1000, 492], 4));
    assert_eq!(counter(&right.stack, "udp_in_errors"), 4);
}

#[test]
fn a_channel_without_segmentation_takes_no_frame_longer_than_a_packet() {
    let _guard = watchdog("joined datagrams where there are none");
    let right = Side::new(&config(Medium::Ip, 0), 2, false);
    assert_eq!(right.port.try_send(joined_frame().incoming()), Err(SendError::Length));
}

#[test]
fn the_fragments_of_a_datagram_count_as_one_whatever_their_metadata() {
    let _guard = watchdog("fragments that are said to be joined");
    let left = Side::new(&config(Medium::Ip, 0), 1, false);
    let right = Side::new(&config(Medium::Ip, 65_535), 2, false);
    let data = Random::new("fragments").bytes(5000);
    left.socket.send_to(&data, "10.9.0.2:7").unwrap();
    let fragments = frames_of(&left);
    assert_eq!(fragments.len(), 4);
    for mut fragment in fragments {
        fragment.gso_size = 100;
        right.port.try_send(fragment.incoming()).unwrap();
    }
    right.stack.poll(Duration::ZERO);
    assert!(right.received() == [(data, 0)]);
}

#[test]
fn arbitrary_sizes_and_bytes_end_in_datagrams_or_counters() {
    let _guard = watchdog("arbitrary joined frames");
    let mut random = Random::new("arbitrary joined frames");
    let right = Side::new(&config(Medium::Ip, 65_535), 2, false);
    right.socket.set_gro(true).unwrap();
    let good = joined_frame();
    for _ in 0..3000 {
        let mut frame = Frame {
            bytes: good.bytes.clone(),
            checksum: Checksum::Device,
            gso_size: random.below(2000) as u16,
        };
        // One in three is cut off; of the rest half are damaged in the header of UDP alone, which is then looked at.
        let damaged = match random.below(3) {
            0 => {
                frame.bytes.truncate(1 + random.below(frame.bytes.len()));
                0..frame.bytes.len().min(UDP_LEN_AT + 4)
            }
            1 => 0..UDP_LEN_AT + 4,
            _ => UDP_LEN_AT - 4..UDP_LEN_AT + 4,
        };
        for _ in 0..random.below(3) {
            let at = damaged.start + random.below(damaged.len());
            frame.bytes[at] = random.below(256) as u8;
        }
        match right.port.try_send(frame.incoming()) {
            Ok(()) | Err(SendError::Length) => {}
            other => panic!("{other:?}"),
        }
        right.stack.poll(Duration::ZERO);
        for (bytes, size) in right.received() {
            assert!(size == 0 || bytes.len() <= 128 * usize::from(size));
        }
        while right.port.try_recv().is_some() {}
    }
    assert!(counter(&right.stack, "frames_malformed") > 0 && counter(&right.stack, "udp_in_bad_length") > 0);
    right.port.try_send(good.incoming()).unwrap();
    right.stack.poll(Duration::ZERO);
    assert!(right.received() == [(vec![7; 20_000], 1000)], "and a valid one still arrives");
}
