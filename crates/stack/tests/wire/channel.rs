//! A stack that receives and sends its frames by function call.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::common::{Random, counter, eventually, hash_of, receive_chunked, send_chunked};
use sockeye::netif::{
    ChannelConfig, ChannelPort, Checksum, FrameBytes, MacAddr, Medium, Netif, SendError, TxFrame, channel,
};
use sockeye::{Config, Stack, TcpListener, TcpStream};

const ADDRS: [&str; 2] = ["10.9.0.1/24", "10.9.0.2/24"];

/// Two stacks, and their ports.
fn stacks(config: &ChannelConfig) -> ([Stack; 2], [Vec<ChannelPort>; 2]) {
    let made = ADDRS.map(|addr| {
        let (netif, ports) = channel(config).unwrap();
        let stack = crate::common::stack_with(|_| ());
        stack.attach(netif, &[addr.parse().unwrap()]).unwrap();
        (stack, ports)
    });
    let [(left, left_ports), (right, right_ports)] = made;
    ([left, right], [left_ports, right_ports])
}

/// The frame as bytes, after the offloads that the sender has left to a device.
fn carry(frame: &TxFrame, to: &ChannelPort) {
    let mut bytes = vec![0; frame.len()];
    assert_eq!(frame.copy_to(&mut bytes), bytes.len());
    let incoming = FrameBytes { bytes: &bytes, checksum: frame.checksum, gso_size: frame.gso_size };
    // At the end the other stack may already have ended.
    let sent = to.send(incoming, None);
    assert!(matches!(sent, Ok(()) | Err(SendError::Detached)), "{sent:?}");
}

#[test]
fn two_stacks_transfer_whole_streams_when_a_program_carries_their_frames() {
    let _guard = crate::common::watchdog("channels");
    for (queues, queue_len, segment_max) in [(1, 1024, 0), (2, 1024, 65_535), (1, 40, 0)] {
        let config = ChannelConfig {
            queues,
            queue_len,
            segment_max,
            offload: segment_max > 0,
            ..ChannelConfig::default()
        };
        let (stacks, [left, right]) = stacks(&config);
        std::thread::scope(|scope| {
            for (from, to) in left.iter().zip(&right).chain(right.iter().zip(&left)) {
                scope.spawn(move || {
                    while let Some(frame) = from.recv(None) {
                        carry(&frame, to);
                    }
                });
            }
            let at: SocketAddr = "10.9.0.2:7".parse().unwrap();
            let listener = TcpListener::bind_on(&stacks[1], at).unwrap();
            let client = TcpStream::connect_on(&stacks[0], at).unwrap();
            let server = listener.accept().unwrap().0;
            let data = Random::new("channel").bytes(2_000_000);
            let expected = (data.len(), hash_of(&data));
            let sending = scope
                .spawn(move || send_chunked(&client, &data, 100_000, &mut Random::new("channel chunks")));
            let got = receive_chunked(&server, 100_000, false, &mut Random::new("channel reads"));
            assert_eq!(got, expected);
            sending.join().unwrap();
            drop((server, listener));
            for stack in &stacks {
                crate::common::assert_empty(stack);
                assert_eq!(counter(stack, "frames_malformed") + counter(stack, "frames_bad_checksum"), 0);
            }
            // The stacks' ends end the carriers.
            drop(stacks);
        });
    }
}

/// A stack without threads, and the port into it.
fn idle(queue_len: usize) -> (Stack, ChannelPort) {
    idle_on(&ChannelConfig { queue_len, ..ChannelConfig::default() })
}

fn idle_on(config: &ChannelConfig) -> (Stack, ChannelPort) {
    let (netif, mut ports) = channel(config).unwrap();
    let stack = Stack::new(Config { workers: 0, ..Config::default() }).unwrap();
    stack.attach(netif, &["10.9.0.1/24".parse().unwrap()]).unwrap();
    (stack, ports.remove(0))
}

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_full_queue_into_the_stack_holds_senders_back_and_loses_nothing() {
    let _guard = crate::common::watchdog("back-pressure");
    let (stack, port) = idle(3);
    let frame = &[0x45u8; 40][..];
    for _ in 0..3 {
        assert_eq!(port.try_send(frame), Ok(()));
    }
    assert_eq!(port.try_send(frame), Err(SendError::Full));
    assert_eq!(port.send(frame, Some(Duration::from_millis(1))), Err(SendError::TimedOut));
    let woken = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    assert_eq!(port.poll_send(&mut cx, frame), Poll::Pending);
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    stack.poll(Duration::ZERO);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert_eq!(port.poll_send(&mut cx, frame), Poll::Ready(Ok(())));
    assert_eq!(port.try_send_batch(&[FrameBytes::from(frame); 5]), Ok(2));
    assert_eq!(port.try_send_batch(&[FrameBytes::from(frame); 5]), Err(SendError::Full));
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(port.send(frame, None), Ok(())));
        eventually("the sender gets in", || {
            stack.poll(Duration::ZERO);
            counter(&stack, "frames_in") == 7
        });
    });
}

#[test]
fn short_frames_are_handled_together_where_a_frame_may_be_long() {
    let _guard = crate::common::watchdog("short frames");
    let config = ChannelConfig { segment_max: 65_535, offload: true, ..ChannelConfig::default() };
    let (stack, port) = idle_on(&config);
    let frame = &[0x45u8; 40][..];
    assert_eq!(port.try_send_batch(&[FrameBytes::from(frame); 40]), Ok(40));
    stack.poll(Duration::ZERO);
    assert_eq!((counter(&stack, "frames_in"), counter(&stack, "input_batches")), (40, 1));
}

#[test]
fn a_task_is_woken_by_a_frame_and_by_the_end_of_the_stack() {
    let _guard = crate::common::watchdog("wakers");
    let (stack, port) = idle(10);
    let woken = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    assert!(port.poll_recv(&mut cx).is_pending());
    let mut socket = sockeye::TcpSocket::new_v4(&stack);
    socket.set_nonblocking(true);
    let client = socket.connect("10.9.0.2:9".parse().unwrap()).unwrap();
    stack.poll(Duration::ZERO);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    let Poll::Ready(Some(syn)) = port.poll_recv(&mut cx) else { panic!("no frame") };
    assert_eq!((syn.head()[9], syn.checksum), (6, Checksum::Software));
    assert!(port.try_recv().is_none());
    assert!(port.recv(Some(Duration::from_millis(1))).is_none());
    assert!(port.poll_recv(&mut cx).is_pending());
    drop((client, stack));
    eventually("the stack's end is told", || woken.0.load(Ordering::Relaxed) > 1);
    eventually("nothing is left", || port.try_recv().is_none());
    assert!(matches!(port.poll_recv(&mut cx), Poll::Ready(None)));
    assert_eq!(port.try_send(&[0x45; 40][..]), Err(SendError::Detached));
}

#[test]
fn frames_without_a_stack_or_of_a_wrong_length_are_refused() {
    let mac = Medium::Ethernet(MacAddr([2, 0, 0, 0, 0, 1]));
    let (netif, ports) = channel(&ChannelConfig { medium: mac, ..ChannelConfig::default() }).unwrap();
    assert_eq!(netif.medium(), mac);
    assert_eq!(ports[0].try_send(&[0; 60][..]), Err(SendError::Detached));
    let stack = crate::common::stack_with(|_| ());
    stack.attach(netif, &[]).unwrap();
    assert_eq!(ports[0].try_send(&[][..]), Err(SendError::Length));
    assert_eq!(ports[0].try_send(&[0; 1515][..]), Err(SendError::Length));
    assert_eq!(ports[0].try_send(&[0; 1514][..]), Ok(()));
    for (config, name) in [
        (ChannelConfig { mtu: 1, ..ChannelConfig::default() }, "mtu"),
        (ChannelConfig { queues: 65, ..ChannelConfig::default() }, "queues"),
        (ChannelConfig { queue_len: 0, ..ChannelConfig::default() }, "queue_len"),
        (ChannelConfig { segment_max: 9000, ..ChannelConfig::default() }, "offload"),
        (
            ChannelConfig { udp_segment_max: 1499, offload: true, ..ChannelConfig::default() },
            "udp_segment_max",
        ),
        (
            ChannelConfig { udp_segment_max: 65_536, offload: true, ..ChannelConfig::default() },
            "udp_segment_max",
        ),
        (ChannelConfig { udp_segment_max: 9000, ..ChannelConfig::default() }, "offload"),
    ] {
        assert!(channel(&config).err().unwrap().to_string().contains(name));
    }
}

#[test]
fn a_program_that_drops_its_port_takes_the_interface_down() {
    let _guard = crate::common::watchdog("a port that goes");
    let (netif, ports) = channel(&ChannelConfig { queues: 2, ..ChannelConfig::default() }).unwrap();
    let [first, second] = <[ChannelPort; 2]>::try_from(ports).ok().unwrap();
    drop(first);
    assert!(!netif.is_down());
    drop(second);
    assert!(netif.is_down());
    let frame = || TxFrame::new(&[0x45; 40], sockeye_mbuf::Chain::new(), Checksum::Software).unwrap();
    assert_eq!(netif.transmit(7, &mut vec![frame(), frame()]).dropped_count, 2);
}

#[test]
fn a_program_without_tcp_can_read_the_frames_that_a_stack_sends() {
    let _guard = crate::common::watchdog("batches");
    let (stacks, [left, right]) = stacks(&ChannelConfig::default());
    let at: SocketAddr = "10.9.0.2:8".parse().unwrap();
    let listener = TcpListener::bind_on(&stacks[1], at).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut batch = Vec::new();
            loop {
                let moved = [(&left[0], &right[0]), (&right[0], &left[0])].map(|(from, to)| {
                    let count = from.try_recv_batch(7, &mut batch);
                    batch.drain(..).for_each(|frame| carry(&frame, to));
                    count
                });
                if done.load(Ordering::Acquire) {
                    return;
                }
                if moved == [0, 0] {
                    std::thread::yield_now();
                }
            }
        });
        let mut client = TcpStream::connect_on(&stacks[0], at).unwrap();
        client.write_all(b"hello").unwrap();
        let mut hello = [0; 5];
        listener.accept().unwrap().0.read_exact(&mut hello).unwrap();
        assert_eq!(&hello, b"hello");
        done.store(true, Ordering::Release);
    });
}

#[test]
fn an_interface_whose_addresses_are_refused_is_dropped_and_takes_no_place() {
    let stack = crate::common::stack_with(|_| ());
    let addr = ADDRS[0].parse().unwrap();
    for _ in 0..17 {
        let (netif, ports) = channel(&ChannelConfig::default()).unwrap();
        let refused = stack.attach(netif, &[addr, addr]).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
        assert!(matches!(ports[0].try_send(&b"a frame"[..]), Err(SendError::Detached)));
    }
    assert!(stack.addresses().is_empty());
    let (netif, _ports) = channel(&ChannelConfig::default()).unwrap();
    stack.attach(netif, &[addr]).unwrap();
}
