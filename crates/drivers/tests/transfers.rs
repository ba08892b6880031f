//! The kernel's TCP and ours over a device: every transfer is hashed at both ends.
//!
//! Needs the right to make network namespaces and devices; without it the tests say so and pass.

mod common;

use std::io::{Read, Write};

use common::{Lab, eventually, exchange, skipped};
use sockeye::netif::Netif;
use sockeye::{TcpListener, TcpStream};
use sockeye_drivers::testing::say_skipped;
use sockeye_drivers::{Layer, TunConfig};

const LEN: usize = 20_000_000;

/// Both directions at once, over a connection that the kernel opens and one that we open.
fn transfer(lab: &Lab, v6: bool, len: usize) {
    let listener = TcpListener::bind_on(&lab.stack, lab.stack_addr(v6, 0)).unwrap();
    let to = listener.local_addr().unwrap();
    let client = lab.kernel(move || exchange(std::net::TcpStream::connect(to).unwrap(), 1, len));
    let [sent, received] = exchange(listener.accept().unwrap().0, 2, len);
    assert_eq!(client.join().unwrap(), [received, sent], "opened by the kernel");

    let at = lab.kernel_addr(v6, 0);
    let listener = lab.kernel(move || std::net::TcpListener::bind(at).unwrap()).join().unwrap();
    let to = listener.local_addr().unwrap();
    let server = lab.kernel(move || exchange(listener.accept().unwrap().0, 3, len));
    let [sent, received] = exchange(TcpStream::connect_on(&lab.stack, to).unwrap(), 4, len);
    assert_eq!(server.join().unwrap(), [received, sent], "opened by us");
}

/// Waits until more than `bytes` are counted as sent. A frame is counted after it was written: the peer may have it before.
fn wait_until_counted(lab: &Lab, bytes: u64) {
    let sent = || lab.tun.counts().iter().map(|count| count.bytes_out).sum::<u64>();
    eventually("all bytes are counted", || sent() > bytes);
}

fn assert_all_understood(lab: &Lab) {
    for reason in ["bad_checksum", "no_memory", "unsendable"] {
        assert_eq!(lab.count(&format!("frames_{reason}")), 0, "{reason}");
    }
}

#[test]
fn transfers_over_tun_arrive_whole_with_offloads_and_without_over_1_and_4_queues() {
    if skipped("transfers over TUN") {
        return;
    }
    for (offload, queues, v6) in
        [(true, 1, false), (true, 4, true), (true, 1, true), (false, 1, true), (false, 4, false)]
    {
        let config = TunConfig { offload, queues, ..TunConfig::default() };
        let lab = Lab::new(&config);
        transfer(&lab, v6, LEN);
        assert_all_understood(&lab);
        wait_until_counted(&lab, 2 * LEN as u64);
        let counts = lab.tun.counts();
        let bytes: u64 = counts.iter().map(|count| count.bytes_out).sum();
        let frames: u64 = counts.iter().map(|count| count.frames_out).sum();
        assert!(offload || bytes / frames <= 1500, "{counts:?}");
        assert_eq!(counts.iter().map(|count| count.failed_reads).sum::<u64>(), 0, "{counts:?}");
    }
}

#[test]
fn transfers_over_tap_arrive_whole_with_offloads_and_without_over_1_and_4_queues() {
    if skipped("transfers over TAP") {
        return;
    }
    for (offload, queues, v6) in [(true, 1, false), (true, 4, true), (false, 1, false), (false, 4, true)] {
        let config = TunConfig { layer: Layer::Ethernet, offload, queues, ..TunConfig::default() };
        let lab = Lab::new(&config);
        transfer(&lab, v6, LEN);
        assert_all_understood(&lab);
    }
}

#[test]
fn a_device_that_segments_sends_and_receives_frames_longer_than_its_mtu() {
    if skipped("long frames") {
        return;
    }
    let lab = Lab::new(&TunConfig::default());
    transfer(&lab, false, LEN);
    wait_until_counted(&lab, 2 * LEN as u64);
    let count = lab.tun.counts()[0];
    // Acknowledgments are counted too, so the mean is an underestimate.
    assert!(count.bytes_out / count.frames_out > 1500, "{count:?}");
    assert!(count.bytes_in / count.frames_in > 1500, "{count:?}");
}

#[test]
fn a_bulk_sender_sends_frames_beyond_the_ip_length_field() {
    if skipped("BIG TCP") {
        return;
    }
    let small = Lab::new(&TunConfig { big_tcp: false, ..TunConfig::default() });
    assert_eq!(small.tun.segment_max(), 65_535);
    let lab = Lab::new(&TunConfig::default());
    if lab.tun.segment_max() == 65_535 {
        return say_skipped("BIG TCP: a kernel before 6.3");
    }
    assert_eq!(lab.tun.segment_max(), 260 << 10);
    let at = lab.kernel_addr(false, 0);
    let listener = lab.kernel(move || std::net::TcpListener::bind(at).unwrap()).join().unwrap();
    let to = listener.local_addr().unwrap();
    let data = common::bytes(5, 64 << 20);
    let expected = common::hash(&data);
    let received = lab.kernel(move || {
        let mut received = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
        common::hash(&received)
    });
    let mut stream = TcpStream::connect_on(&lab.stack, to).unwrap();
    // The largest possible frames: one is enough, whatever window the reader advertises.
    let mut longest = 0;
    for chunk in data.chunks(4 << 20) {
        let before = lab.tun.counts()[0];
        stream.write_all(chunk).unwrap();
        let now = lab.tun.counts()[0];
        longest =
            longest.max((now.bytes_out - before.bytes_out) / (now.frames_out - before.frames_out).max(1));
    }
    drop(stream);
    assert_eq!(received.join().unwrap(), expected);
    assert!(longest > 65_535, "frames had {longest} bytes at most, on average over one write");
    assert_all_understood(&lab);
}

#[test]
fn a_waiting_caller_takes_frames_itself_and_the_input_thread_takes_them_otherwise() {
    if skipped("frames taken by callers") {
        return;
    }
    let lab = Lab::new(&TunConfig::default());
    let listener = TcpListener::bind_on(&lab.stack, lab.stack_addr(false, 0)).unwrap();
    let to = listener.local_addr().unwrap();
    let echo = lab.kernel(move || {
        let mut stream = std::net::TcpStream::connect(to).unwrap();
        let mut byte = [0];
        while stream.read(&mut byte).unwrap() > 0 {
            stream.write_all(&byte).unwrap();
        }
    });
    let mut waiting = listener.accept().unwrap().0;
    let other = lab.kernel(move || std::net::TcpStream::connect(to).unwrap());
    let mut idle = listener.accept().unwrap().0;
    let mut other = other.join().unwrap();
    idle.set_nonblocking(true).unwrap();
    for round in 0..3 {
        let before = lab.count("input_by_callers");
        eventually("a reader takes the frame that it waits for", || {
            waiting.write_all(&[7]).unwrap();
            waiting.read_exact(&mut [0]).unwrap();
            lab.count("input_by_callers") > before
        });
        // No thread waits now, and the input thread may still defer.
        other.write_all(&[round]).unwrap();
        let mut byte = [u8::MAX];
        eventually("a frame without a waiter arrives", || idle.read(&mut byte).is_ok());
        assert_eq!(byte, [round]);
    }
    drop(waiting);
    echo.join().unwrap();
}

#[test]
fn a_connection_stays_with_one_queue_in_both_directions() {
    if skipped("one queue for a connection") {
        return;
    }
    let lab = Lab::new(&TunConfig { queues: 4, ..TunConfig::default() });
    let before = lab.tun.counts();
    let listener = TcpListener::bind_on(&lab.stack, lab.stack_addr(false, 0)).unwrap();
    let to = listener.local_addr().unwrap();
    let client = lab.kernel(move || exchange(std::net::TcpStream::connect(to).unwrap(), 1, 3_000_000));
    exchange(listener.accept().unwrap().0, 2, 3_000_000);
    client.join().unwrap();
    wait_until_counted(&lab, before.iter().map(|count| count.bytes_out).sum::<u64>() + 3_000_000);
    let after = lab.tun.counts();
    let out: Vec<u64> = after.iter().zip(&before).map(|(a, b)| a.bytes_out - b.bytes_out).collect();
    let into: Vec<u64> = after.iter().zip(&before).map(|(a, b)| a.bytes_in - b.bytes_in).collect();
    let queue = out.iter().position(|bytes| *bytes > 3_000_000);
    let queue = queue.unwrap_or_else(|| panic!("no queue has it all: {out:?}"));
    assert!(out.iter().enumerate().all(|(index, bytes)| index == queue || *bytes == 0), "{out:?}");
    // Frames before the kernel had learnt our choice of queue used the kernel's own hash.
    let elsewhere: u64 = into.iter().enumerate().filter(|(index, _)| *index != queue).map(|(_, n)| n).sum();
    assert!(into[queue] > 3_000_000 && elsewhere < 10_000, "{queue}: {into:?}");
}

#[test]
fn datagrams_that_the_kernel_joins_are_split_again() {
    if skipped("joined datagrams") {
        return;
    }
    const SEGMENT: usize = 1000;
    const UDP_SEGMENT: libc::c_int = 103;
    for v6 in [false, true] {
        let lab = Lab::new(&TunConfig::default());
        let ours = sockeye::UdpSocket::bind_on(&lab.stack, lab.stack_addr(v6, 0)).unwrap();
        let (to, from) = (ours.local_addr().unwrap(), lab.kernel_addr(v6, 0));
        let sent: Vec<u8> = common::bytes(7, 20 * SEGMENT + 300);
        let bytes = sent.clone();
        let sender = lab.kernel(move || {
            let socket = std::net::UdpSocket::bind(from).unwrap();
            let size = libc::c_int::try_from(SEGMENT).unwrap();
            // SAFETY: the option's value is an int, which lives as long as the call.
            let set = unsafe {
                libc::setsockopt(
                    std::os::fd::AsRawFd::as_raw_fd(&socket),
                    libc::SOL_UDP,
                    UDP_SEGMENT,
                    std::ptr::from_ref(&size).cast(),
                    size_of::<libc::c_int>() as libc::socklen_t,
                )
            };
            assert_eq!(set, 0);
            assert_eq!(socket.send_to(&bytes, to).unwrap(), bytes.len());
        });
        sender.join().unwrap();
        let mut buf = [0; 4096];
        for expected in sent.chunks(SEGMENT) {
            let len = ours.recv(&mut buf).unwrap();
            assert!(buf[..len] == *expected, "a datagram of {len} bytes");
        }
        let counts = lab.tun.counts()[0];
        assert!(counts.frames_in < 21, "they arrived in one frame; counters: {counts:?}");
    }
}
