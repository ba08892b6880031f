//! Datagrams of every size, fragments among them, to the kernel and back.

use std::io::IoSlice;
use std::net::{SocketAddr, UdpSocket as KernelSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sockeye::netif::Netif;
use sockeye::{MtuDiscover, SendMeta, UdpSocket};
use sockeye_drivers::TunConfig;

use crate::common::{bytes, hash, skipped};
use crate::testbed::{LAYERS, Testbed};

/// From nothing to the largest that IPv4 carries, and the edges of 1500 bytes on both versions of IP.
const SIZES: [usize; 14] = [0, 1, 7, 8, 1231, 1232, 1451, 1452, 1453, 1472, 1473, 9000, 32_000, 65_507];
/// Attempts for a datagram; a single loss is no failure, but a retry has to arrive.
const TRIES: usize = 20;

/// The operations that a test needs from a socket of either side.
trait Datagrams: Send + 'static {
    fn put(&self, data: &[u8], to: SocketAddr);
    fn take(&self, into: &mut [u8]) -> Option<(usize, SocketAddr)>;
    fn name(&self) -> SocketAddr;
}

macro_rules! datagrams {
    ($kind:ty) => {
        impl Datagrams for $kind {
            fn put(&self, data: &[u8], to: SocketAddr) {
                assert_eq!(self.send_to(data, to).unwrap(), data.len());
            }
            fn take(&self, into: &mut [u8]) -> Option<(usize, SocketAddr)> {
                self.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
                self.recv_from(into).ok()
            }
            fn name(&self) -> SocketAddr {
                self.local_addr().unwrap()
            }
        }
    };
}
datagrams!(KernelSocket);
datagrams!(UdpSocket);

/// Answers each datagram with its bytes in reverse, until it `is_over`.
fn answer(socket: &impl Datagrams, is_over: &AtomicBool) {
    let mut buffer = vec![0; 70_000];
    while !is_over.load(Ordering::Relaxed) {
        let Some((len, from)) = socket.take(&mut buffer) else { continue };
        buffer[..len].reverse();
        socket.put(&buffer[..len], from);
    }
}

/// Ends [`answer`], also when an answer is missing.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn ask(socket: &impl Datagrams, to: SocketAddr) {
    let mut buffer = vec![0; 70_000];
    for (seed, len) in SIZES.into_iter().enumerate() {
        let mut data = bytes(seed as u64, len);
        let answered = (0..TRIES).any(|_| {
            socket.put(&data, to);
            data.reverse();
            let right = loop {
                match socket.take(&mut buffer) {
                    Some((got, from)) if got == len => {
                        assert_eq!(from, to);
                        assert!(buffer[..got] == data, "{len} bytes");
                        break true;
                    }
                    // The late answer to an earlier try.
                    Some(_) => {}
                    None => break false,
                }
            };
            data.reverse();
            right
        });
        assert!(answered, "{len} bytes to {to}: no answer");
    }
}

/// Has `socket` answer while `asks` asks.
fn both(socket: &(impl Datagrams + Sync), asks: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| answer(socket, &is_over));
        let _over = Over(&is_over);
        asks();
    });
}

#[test]
fn datagrams_of_every_size_are_echoed_in_fragments_if_needed() {
    if skipped("datagrams") {
        return;
    }
    for layer in LAYERS {
        let testbed = Testbed::new(layer);
        for v6 in [false, true] {
            let ours = UdpSocket::bind_on(&testbed.lab.stack, testbed.lab.stack_addr(v6, 0)).unwrap();
            let at = testbed.lab.kernel_addr(v6, 0);
            let theirs = testbed.lab.kernel(move || KernelSocket::bind(at).unwrap()).join().unwrap();
            let (to_us, to_them) = (ours.name(), theirs.name());
            both(&ours, || ask(&theirs, to_us));
            both(&theirs, || ask(&ours, to_them));
        }
        assert!(testbed.lab.count("ip_reasm_oks") >= 6, "{}", testbed.lab.count("ip_reasm_oks"));
        assert!(testbed.lab.count("ip_frag_oks") >= 6, "{}", testbed.lab.count("ip_frag_oks"));
        testbed.assert_all_understood();
    }
}

#[test]
fn a_port_without_a_socket_is_reported_to_both_sides() {
    if skipped("unreachable ports") {
        return;
    }
    let refused = std::io::ErrorKind::ConnectionRefused;
    for layer in LAYERS {
        let testbed = Testbed::new(layer);
        for v6 in [false, true] {
            let ours = UdpSocket::bind_on(&testbed.lab.stack, testbed.lab.stack_addr(v6, 0)).unwrap();
            ours.connect(testbed.lab.kernel_addr(v6, 9)).unwrap();
            ours.set_read_timeout(Some(crate::testbed::PATIENCE)).unwrap();
            ours.send(b"anybody?").unwrap();
            assert_eq!(ours.recv(&mut [0; 10]).unwrap_err().kind(), refused);
            let (at, to) = (testbed.lab.kernel_addr(v6, 0), testbed.lab.stack_addr(v6, 9));
            let receiver = testbed.lab.kernel(move || {
                let theirs = KernelSocket::bind(at).unwrap();
                theirs.connect(to).unwrap();
                theirs.set_read_timeout(Some(crate::testbed::PATIENCE)).unwrap();
                theirs.send(b"anybody?").unwrap();
                theirs.recv(&mut [0; 10]).unwrap_err().kind()
            });
            assert_eq!(receiver.join().unwrap(), refused);
        }
    }
}

/// Bytes of a buffer, and of the datagrams that it is cut into.
const CUTS: [(usize, u16); 6] =
    [(1449, 1448), (60_000, 1452), (65_000, 1400), (12_800, 100), (2000, 1999), (3000, 1000)];

/// Sends a buffer to be segmented, until all of its datagrams have arrived; a single loss is no failure, but a retry has to
/// arrive.
fn cut_and_compare(from: &UdpSocket, to: &KernelSocket, (len, size): (usize, u16)) {
    let data = bytes(u64::from(size), len);
    let meta = SendMeta { segment_size: Some(size), ..SendMeta::to(to.name()) };
    let wanted: Vec<usize> = data.chunks(usize::from(size)).map(<[u8]>::len).collect();
    let came = (0..TRIES).any(|_| {
        assert_eq!(from.send_msg(&[IoSlice::new(&data)], &meta).unwrap(), len);
        let mut buffer = vec![0; 70_000];
        let (mut whole, mut lens) = (Vec::new(), Vec::new());
        while whole.len() < len
            && let Some((got, sender)) = to.take(&mut buffer)
        {
            assert_eq!(sender, from.name());
            lens.push(got);
            whole.extend_from_slice(&buffer[..got]);
        }
        lens == wanted && hash(&whole) == hash(&data)
    });
    assert!(came, "{len} bytes cut every {size}");
}

#[test]
fn a_buffer_of_many_datagrams_leaves_as_one_frame_and_reaches_the_kernel_segmented() {
    if skipped("cut buffers") {
        return;
    }
    for layer in LAYERS {
        for offload in [true, false] {
            let testbed = Testbed::with(&TunConfig { layer, offload, ..TunConfig::default() }, |_| ());
            let frames_out = || testbed.lab.tun.counts().iter().map(|queue| queue.frames_out).sum::<u64>();
            for v6 in [false, true] {
                let ours = UdpSocket::bind_on(&testbed.lab.stack, testbed.lab.stack_addr(v6, 0)).unwrap();
                let at = testbed.lab.kernel_addr(v6, 0);
                let theirs = testbed.lab.kernel(move || KernelSocket::bind(at).unwrap()).join().unwrap();
                // So that the neighbor is known.
                ours.put(b"hello", theirs.name());
                assert!(theirs.take(&mut [0; 9]).is_some());
                CUTS.into_iter().for_each(|cut| cut_and_compare(&ours, &theirs, cut));
                let (frames, joined) = (frames_out(), testbed.lab.count("udp_out_joined"));
                cut_and_compare(&ours, &theirs, (60_000, 1400));
                let count = 60_000_u64.div_ceil(1400);
                let (frames, joined) = (frames_out() - frames, testbed.lab.count("udp_out_joined") - joined);
                if cuts(&testbed) {
                    // One more for each time that it was sent.
                    assert!(joined >= count && frames < count, "{frames} frames, {joined} datagrams");
                } else {
                    assert!(joined == 0 && frames >= count, "{frames} frames, {joined} datagrams");
                }
                // Datagrams that a router may fragment are sent packet by packet.
                ours.set_mtu_discover(MtuDiscover::Dont).unwrap();
                let joined = testbed.lab.count("udp_out_joined");
                cut_and_compare(&ours, &theirs, (3000, 1000));
                assert_eq!(testbed.lab.count("udp_out_joined") > joined, v6 && cuts(&testbed));
            }
            testbed.assert_all_understood();
        }
    }
}

/// Whether the device cuts datagrams: a kernel before 6.2 does not.
fn cuts(testbed: &Testbed) -> bool {
    testbed.lab.tun.udp_segment_max() > 0
}
