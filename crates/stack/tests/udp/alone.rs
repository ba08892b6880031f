//! Features that have no safe call on the kernel's side, tested against Linux's documentation: segmentation offload, the
//! error queue, batches, ancillary data.

use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use sockeye::{Outgoing, RecvMeta, SendMeta, Stack, UdpBuilder, UdpSocket, Unsent};

use crate::common::{self, counter};

fn at(stack: &Stack, addr: &str) -> UdpSocket {
    let socket = UdpSocket::bind_on(stack, addr).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

fn two(stack: &Stack) -> (UdpSocket, UdpSocket) {
    (at(stack, "127.0.0.1:0"), at(stack, "127.0.0.1:0"))
}

fn to(socket: &UdpSocket) -> SendMeta {
    SendMeta::to(socket.local_addr().unwrap())
}

#[test]
fn a_buffer_with_a_segment_size_arrives_as_datagrams() {
    let stack = common::stack();
    let (a, b) = two(&stack);
    let bytes: Vec<u8> = (0..2500u32).map(|i| i as u8).collect();
    let meta = SendMeta { segment_size: Some(1000), ..to(&b) };
    assert_eq!(a.send_msg(&[IoSlice::new(&bytes)], &meta).unwrap(), 2500);
    let mut got = Vec::new();
    for len in [1000, 1000, 500] {
        let mut buf = [0; 2000];
        let meta = b.recv_msg(&mut [IoSliceMut::new(&mut buf)]).unwrap();
        assert_eq!((meta.len, meta.segment_size, meta.segment_count()), (len, 0, 1));
        got.extend_from_slice(&buf[..len]);
    }
    assert_eq!(got, bytes);
    assert_eq!((counter(&stack, "udp_out_datagrams"), counter(&stack, "udp_in_datagrams")), (3, 3));
}

#[test]
fn a_socket_that_asks_for_joined_datagrams_gets_the_buffer_as_it_was_sent() {
    let stack = common::stack();
    let (a, b) = two(&stack);
    b.set_gro(true).unwrap();
    a.connect(b.local_addr().unwrap()).unwrap();
    a.set_segment_size(1200).unwrap();
    assert_eq!(a.send(&vec![9; 50_000]).unwrap(), 50_000);
    let mut buf = vec![0; 65_536];
    let meta = b.recv_msg(&mut [IoSliceMut::new(&mut buf)]).unwrap();
    assert_eq!((meta.len, meta.segment_size, meta.segment_count()), (50_000, 1200, 42));
    // One datagram stays one.
    a.send(&[1; 1200]).unwrap();
    assert_eq!(b.recv_msg(&mut [IoSliceMut::new(&mut buf)]).unwrap().segment_size, 0);
}

#[test]
fn sends_beyond_the_bounds_of_segmentation_are_refused() {
    let stack = common::stack();
    let (a, b) = two(&stack);
    let send = |len: usize, size: u16| {
        let meta = SendMeta { segment_size: Some(size), ..to(&b) };
        a.send_msg(&[IoSlice::new(&vec![0; len])], &meta).map_err(|error| error.raw_os_error())
    };
    let errno = |errno: rustix::io::Errno| Err(Some(errno.raw_os_error()));
    assert_eq!(send(128, 1), Ok(128));
    assert_eq!(send(129, 1), errno(rustix::io::Errno::INVAL));
    assert_eq!(send(65_508, 1400), errno(rustix::io::Errno::MSGSIZE));
    assert_eq!(send(0, 100), Ok(0));
}

#[test]
fn ancillary_data_is_reported_with_each_datagram() {
    let stack = common::stack();
    let a = at(&stack, "0.0.0.0:0");
    let b = at(&stack, "0.0.0.0:0");
    a.set_tos(0x28).unwrap();
    a.set_ttl(33).unwrap();
    let dst = std::net::SocketAddr::new("127.0.0.9".parse().unwrap(), b.local_addr().unwrap().port());
    a.send_to(b"x", dst).unwrap();
    let here = SendMeta {
        src: Some("127.0.0.7".parse().unwrap()),
        traffic_class: Some(0x03),
        hop_limit: Some(7),
        ..SendMeta::to(dst)
    };
    a.send_msg(&[IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cd")], &here).unwrap();
    let mut buf = [0; 3];
    let one = b.recv_msg(&mut [IoSliceMut::new(&mut buf)]).unwrap();
    assert_eq!((one.dst, one.interface, one.traffic_class, one.hop_limit), (dst.ip(), 1, 0x28, 33));
    assert!(!one.is_truncated());
    let two = b.recv_msg(&mut [IoSliceMut::new(&mut buf)]).unwrap();
    assert_eq!((two.from.ip(), two.ecn(), two.hop_limit), ("127.0.0.7".parse().unwrap(), 3, 7));
    assert_eq!((two.len, two.datagram_len, two.is_truncated(), &buf), (3, 4, true, b"abc"));
    let foreign = SendMeta { src: Some("192.0.2.1".parse().unwrap()), ..SendMeta::to(dst) };
    assert!(a.send_msg(&[IoSlice::new(b"x")], &foreign).is_err());
}

#[test]
fn batches_arrive_in_order_for_every_destination() {
    let stack = common::stack();
    let (a, b) = two(&stack);
    let c = at(&stack, "[::1]:0");
    let six = at(&stack, "[::]:0");
    let numbers: Vec<[u8; 2]> = (0..50u16).map(u16::to_be_bytes).collect();
    let batch: Vec<_> = numbers.iter().map(|bytes| Outgoing { bytes, meta: to(&b) }).collect();
    assert_eq!(a.send_batch(&batch).unwrap(), 50);
    let mixed = [&b, &b, &c, &b].map(|socket| Outgoing { bytes: b"mixed", meta: to(socket) });
    assert_eq!(six.send_batch(&mixed).unwrap(), 4);
    let mut places = vec![[0u8; 8]; 60];
    let mut metas = vec![RecvMeta::EMPTY; 60];
    let mut bufs: Vec<_> = places.iter_mut().map(|place| IoSliceMut::new(place)).collect();
    assert_eq!(b.recv_batch(&mut bufs, &mut metas).unwrap(), 53);
    for (place, number) in numbers.iter().enumerate() {
        assert_eq!((metas[place].len, &places[place][..2]), (2, &number[..]));
    }
    assert!(metas[50..53].iter().all(|meta| meta.from.port() == six.local_addr().unwrap().port()));
    assert_eq!(c.recv(&mut [0; 8]).unwrap(), 5);
    assert_eq!(a.send_batch(&[]).unwrap(), 0);
    // An error ends a batch; the datagrams before it were sent.
    let bad = SendMeta { to: None, ..SendMeta::default() };
    let broken = [Outgoing { bytes: b"x", meta: to(&b) }, Outgoing { bytes: b"y", meta: bad }];
    assert_eq!(a.send_batch(&broken).unwrap(), 1);
    assert!(a.send_batch(&broken[1..]).is_err());
}

#[test]
fn every_error_is_reported_to_an_unconnected_socket_that_asked_for_errors() {
    let stack = common::stack();
    let (a, gone) = two(&stack);
    let unbound = gone.local_addr().unwrap();
    drop(gone);
    a.set_recv_err(true).unwrap();
    a.send_to(b"first", unbound).unwrap();
    assert_eq!(a.send_to(b"second", unbound).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    a.send_to(b"third", unbound).unwrap();
    let mut buf = [0; 4];
    let first = a.recv_err(&mut buf).unwrap();
    assert_eq!(
        (first.what, first.dst, first.offender.ip()),
        (Unsent::PortUnreachable, unbound, unbound.ip())
    );
    assert_eq!((&buf, first.len, first.is_truncated), (b"firs", 4, true));
    assert_eq!(first.errno, rustix::io::Errno::CONNREFUSED.raw_os_error());
    assert!(a.recv_err(&mut buf).is_some());
    assert!(a.recv_err(&mut buf).is_none());
    assert!(a.take_error().unwrap().is_none(), "the queue was emptied");
    assert_eq!(counter(&stack, "udp_no_ports"), 2);
}

#[test]
fn drops_are_counted_and_reported_with_the_next_datagram() {
    let stack = common::stack();
    let a = at(&stack, "127.0.0.1:0");
    let b = UdpBuilder::new_v4(&stack).recv_buffer_size(2048).bind("127.0.0.1:0".parse().unwrap()).unwrap();
    b.set_nonblocking(true).unwrap();
    for _ in 0..100 {
        a.send_to(&[0; 200], b.local_addr().unwrap()).unwrap();
    }
    let mut taken = 0;
    while b.recv(&mut [0; 300]).is_ok() {
        taken += 1;
    }
    assert!((1..100).contains(&taken));
    assert_eq!(counter(&stack, "udp_rcvbuf_errors"), 100 - taken);
    a.send_to(b"x", b.local_addr().unwrap()).unwrap();
    let meta = b.recv_msg(&mut [IoSliceMut::new(&mut [0; 8])]).unwrap();
    assert_eq!(u64::from(meta.drops), 100 - taken);
    drop((a, b));
    common::eventually("all packet memory is back", || stack.memory_in_use() == 0);
}

#[test]
fn a_receive_that_waits_is_woken_and_a_timeout_ends_it() {
    let stack = common::stack();
    let (a, b) = two(&stack);
    let other = b.try_clone().unwrap();
    let reader = std::thread::spawn(move || other.recv_from(&mut [0; 8]).unwrap().0);
    std::thread::sleep(Duration::from_millis(20));
    a.send_to(b"wake", b.local_addr().unwrap()).unwrap();
    assert_eq!(common::join(reader), 4);
    b.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    assert_eq!(b.read_timeout().unwrap(), Some(Duration::from_millis(5)));
    assert_eq!(b.recv(&mut [0; 8]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    assert!(b.set_read_timeout(Some(Duration::ZERO)).is_err());
}

#[test]
fn at_the_cap_of_memory_a_send_is_refused_or_waits_and_nothing_is_lost() {
    let stack = common::stack_with(|config| config.memory_max = 1 << 20);
    let a = at(&stack, "127.0.0.1:0");
    let big =
        UdpBuilder::new_v4(&stack).recv_buffer_size(64 << 20).bind("127.0.0.1:0".parse().unwrap()).unwrap();
    a.set_nonblocking(true).unwrap();
    let to = big.local_addr().unwrap();
    let mut sent = 0;
    let refused = loop {
        match a.send_to(&[1; 60_000], to) {
            Ok(_) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 1000, "there is a cap");
    };
    assert_eq!(refused.kind(), std::io::ErrorKind::OutOfMemory);
    assert_eq!(common::counter(&stack, "udp_mem_errors"), 1);
    a.set_nonblocking(false).unwrap();
    let writer = std::thread::spawn(move || a.send_to(&[2; 60_000], to).unwrap());
    let mut buf = vec![0; 65_536];
    for _ in 0..sent {
        assert_eq!(big.recv(&mut buf).unwrap(), 60_000);
    }
    assert_eq!(common::join(writer), 60_000);
    assert_eq!((big.recv(&mut buf).unwrap(), buf[0]), (60_000, 2));
}
