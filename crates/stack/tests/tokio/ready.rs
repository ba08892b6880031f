//! Readiness in tokio's words: `ready`, `try_io`, `async_io`, and attempts that do not wait.

use std::future::poll_fn;
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::time::Duration;

use crate::common::watchdog;
use sockeye::tokio::unix::{UnixDatagram, UnixStream};
use sockeye::tokio::{TcpListener, TcpStream, UdpSocket};
use sockeye::unix::SocketAddr;
use sockeye::{Report, Timestamping};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, Interest, ReadBuf, Ready};
use tokio::time::timeout;

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(60);

async fn tcp_pair(stack: &sockeye::Stack) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind_on(stack, "127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect_on(stack, listener.local_addr().unwrap()).await.unwrap();
    let accepted = listener.accept().await.unwrap().0;
    // An accepted stream is assumed readable until a read has found nothing.
    assert_eq!(accepted.try_read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    (client, accepted)
}

async fn unix_pair(stack: &sockeye::Stack) -> (UnixStream, UnixStream) {
    UnixStream::pair_on(stack).unwrap()
}

#[tokio::test]
async fn a_receive_initializes_no_more_than_it_appends() {
    let _guard = watchdog("a_receive_initializes_no_more_than_it_appends");
    let stack = crate::common::stack();
    let udp = [0, 1].map(|_| sockeye::UdpSocket::bind_on(&stack, "127.0.0.1:0").unwrap());
    udp[1].send_to(b"four", udp[0].local_addr().unwrap()).unwrap();
    udp[1].send_to(b"more", udp[0].local_addr().unwrap()).unwrap();
    let [udp, _sender] = udp;
    let udp = UdpSocket::from_std(udp).unwrap();
    let (unix, peer) = UnixDatagram::pair_on(&stack).unwrap();
    peer.send(b"four").await.unwrap();
    peer.send(b"more").await.unwrap();
    let mut memory = [[const { MaybeUninit::uninit() }; 2048]; 2];
    let [udp_buf, unix_buf] = &mut memory;
    let (mut udp_buf, mut unix_buf) = (ReadBuf::uninit(udp_buf), ReadBuf::uninit(unix_buf));
    poll_fn(|cx| udp.poll_recv(cx, &mut udp_buf)).await.unwrap();
    poll_fn(|cx| udp.poll_recv_from(cx, &mut udp_buf)).await.unwrap();
    poll_fn(|cx| unix.poll_recv(cx, &mut unix_buf)).await.unwrap();
    poll_fn(|cx| unix.poll_recv_from(cx, &mut unix_buf)).await.unwrap();
    for buf in [udp_buf, unix_buf] {
        assert_eq!((buf.filled(), buf.initialized().len()), (&b"fourmore"[..], 8));
    }
}

/// The same for both kinds of streams: `$pair` makes one on a stack.
macro_rules! stream_tests {
    ($kind:ident, $pair:expr) => {
        mod $kind {
            use super::*;

            #[tokio::test]
            async fn a_read_initializes_no_more_than_it_appends() {
                let _guard = watchdog("a_read_initializes_no_more_than_it_appends");
                let stack = crate::common::stack();
                let (mut near, mut far) = $pair(&stack).await;
                near.write_all(b"hello").await.unwrap();
                drop(near);
                let mut memory = [const { MaybeUninit::uninit() }; 8192];
                let mut buf = ReadBuf::uninit(&mut memory);
                for filled in [&b"hello"[..], b"hello"] {
                    poll_fn(|cx| Pin::new(&mut far).poll_read(cx, &mut buf)).await.unwrap();
                    assert_eq!((buf.filled(), buf.initialized().len()), (filled, 5));
                }
            }

            #[tokio::test]
            async fn ready_says_which_of_the_asked_directions_do_not_block() {
                let _guard = watchdog("ready_says_which_of_the_asked_directions_do_not_block");
                let stack = crate::common::stack();
                let (mut near, far) = $pair(&stack).await;
                let both = Interest::READABLE | Interest::WRITABLE;
                assert_eq!(far.ready(both).await.unwrap(), Ready::WRITABLE);
                timeout(SHORT, far.ready(Interest::READABLE)).await.unwrap_err();
                near.write_all(b"x").await.unwrap();
                timeout(LONG, far.ready(Interest::READABLE)).await.unwrap().unwrap();
                assert_eq!(far.ready(both).await.unwrap(), Ready::READABLE | Ready::WRITABLE);
                near.shutdown().await.unwrap();
                let closed = async {
                    while !far.ready(Interest::READABLE).await.unwrap().is_read_closed() {
                        tokio::task::yield_now().await;
                    }
                };
                timeout(LONG, closed).await.unwrap();
                drop((near, far));
            }

            #[tokio::test]
            async fn a_wait_for_data_is_over_at_once_after_a_read_that_got_some_and_not_twice() {
                let _guard =
                    watchdog("a_wait_for_data_is_over_at_once_after_a_read_that_got_some_and_not_twice");
                let stack = crate::common::stack();
                let (mut near, mut far) = $pair(&stack).await;
                near.write_all(b"abcd").await.unwrap();
                far.read_exact(&mut [0; 2]).await.unwrap();
                timeout(LONG, far.readable()).await.unwrap().unwrap();
                assert_eq!(far.try_read(&mut [0; 9]).unwrap(), 2);
                assert_eq!(far.ready(Interest::READABLE).await.unwrap(), Ready::READABLE);
                timeout(SHORT, far.readable()).await.unwrap_err();
                near.write_all(b"e").await.unwrap();
                timeout(LONG, far.readable()).await.unwrap().unwrap();
                assert_eq!(far.try_read(&mut [0; 9]).unwrap(), 1);
                assert_eq!(far.try_read(&mut [0; 9]).unwrap_err().kind(), ErrorKind::WouldBlock);
                timeout(SHORT, far.readable()).await.unwrap_err();
            }

            #[tokio::test]
            async fn a_task_that_waits_for_both_directions_is_woken_by_either() {
                let _guard = watchdog("a_task_that_waits_for_both_directions_is_woken_by_either");
                let stack = crate::common::stack();
                let (near, far) = $pair(&stack).await;
                // Bytes that the peer's buffer takes make room once more.
                let mut full = fill(|| near.try_write(&[7; 4000]));
                while timeout(SHORT, near.writable()).await.is_ok() {
                    full += fill(|| near.try_write(&[7; 4000]));
                }
                let waits = near.ready(Interest::READABLE | Interest::WRITABLE);
                let mut waits = std::pin::pin!(waits);
                timeout(SHORT, waits.as_mut()).await.unwrap_err();
                assert_eq!(far.try_write(b"y").unwrap(), 1);
                assert_eq!(timeout(LONG, waits).await.unwrap().unwrap(), Ready::READABLE);
                assert_eq!(near.try_read(&mut [0; 9]).unwrap(), 1);
                assert_eq!(near.try_read(&mut [0; 9]).unwrap_err().kind(), ErrorKind::WouldBlock);
                let reads = async {
                    let mut left = full;
                    while left > 0 {
                        far.readable().await.unwrap();
                        left -= far.try_read(&mut [0; 9000]).unwrap_or(0);
                    }
                };
                timeout(LONG, reads).await.unwrap();
                let ready = timeout(LONG, near.ready(Interest::READABLE | Interest::WRITABLE)).await;
                assert_eq!(ready.unwrap().unwrap(), Ready::WRITABLE);
            }

            #[tokio::test]
            async fn try_reads_and_writes_take_vectored_and_growing_buffers() {
                let _guard = watchdog("try_reads_and_writes_take_vectored_and_growing_buffers");
                let stack = crate::common::stack();
                let (near, far) = $pair(&stack).await;
                let none = far.try_read_buf(&mut Vec::with_capacity(8)).unwrap_err();
                assert_eq!(none.kind(), ErrorKind::WouldBlock);
                let parts = [IoSlice::new(b"ab"), IoSlice::new(b"cdef")];
                assert_eq!(near.try_write_vectored(&parts).unwrap(), 6);
                timeout(LONG, far.readable()).await.unwrap().unwrap();
                let mut peeked = [0; 9];
                assert_eq!(far.peek(&mut peeked).await.unwrap(), 6);
                let (mut one, mut two) = ([0; 1], [0; 2]);
                let mut bufs = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
                assert_eq!(far.try_read_vectored(&mut bufs).unwrap(), 3);
                assert_eq!((&one, &two), (b"a", b"bc"));
                let mut rest = Vec::with_capacity(16);
                assert_eq!(far.try_read_buf(&mut rest).unwrap(), 3);
                assert_eq!(rest, b"def");
            }

            #[tokio::test]
            async fn an_operation_is_tried_when_ready_and_again_at_each_change() {
                let _guard = watchdog("an_operation_is_tried_when_ready_and_again_at_each_change");
                let stack = crate::common::stack();
                let (mut near, far) = $pair(&stack).await;
                let unasked = far.try_io::<()>(Interest::READABLE, || panic!("it is not ready"));
                let unasked = unasked.unwrap_err();
                assert_eq!((unasked.kind(), unasked.raw_os_error()), (ErrorKind::WouldBlock, Some(11)));
                // An application that wants four bytes, of which two come at a time.
                let calls = std::cell::Cell::new(0);
                let mut all = [0; 4];
                let four = far.async_io(Interest::READABLE, || {
                    calls.set(calls.get() + 1);
                    let len = far.get_ref().peek(&mut all)?;
                    if len == 4 { Ok(len) } else { Err(Error::from(ErrorKind::WouldBlock)) }
                });
                let mut four = std::pin::pin!(four);
                for _ in 0..2 {
                    timeout(SHORT, four.as_mut()).await.unwrap_err();
                    near.write_all(b"ab").await.unwrap();
                }
                assert_eq!(timeout(LONG, four).await.unwrap().unwrap(), 4);
                assert!(calls.get() < 20, "it waits for changes and does not spin: {} calls", calls.get());
                let read = far.try_io(Interest::READABLE, || far.try_read(&mut [0; 9]));
                assert_eq!(read.unwrap(), 4);
            }
        }
    };
}

stream_tests!(tcp, tcp_pair);
stream_tests!(unix, unix_pair);

#[tokio::test]
async fn ready_waits_for_urgent_data_the_end_and_errors() {
    let _guard = watchdog("ready_waits_for_urgent_data_the_end_and_errors");
    let stack = crate::common::stack();
    let (near, far) = tcp_pair(&stack).await;
    {
        let mut urgent = std::pin::pin!(far.ready(Interest::PRIORITY));
        timeout(SHORT, urgent.as_mut()).await.unwrap_err();
        near.try_write(b"x").unwrap();
        timeout(SHORT, urgent.as_mut()).await.unwrap_err();
        near.get_ref().send_urgent(b"!").unwrap();
        assert_eq!(timeout(LONG, urgent).await.unwrap().unwrap(), Ready::PRIORITY);
    }
    let (near, far) = tcp_pair(&stack).await;
    {
        let mut ends = std::pin::pin!(far.ready(Interest::PRIORITY));
        timeout(SHORT, ends.as_mut()).await.unwrap_err();
        near.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
        assert!(timeout(LONG, ends).await.unwrap().unwrap().is_read_closed());
    }
    let (near, far) = tcp_pair(&stack).await;
    let mut fails = std::pin::pin!(far.ready(Interest::ERROR));
    timeout(SHORT, fails.as_mut()).await.unwrap_err();
    near.set_zero_linger().unwrap();
    drop(near);
    assert_eq!(timeout(LONG, fails).await.unwrap().unwrap(), Ready::ERROR);
    assert_eq!(far.take_error().unwrap().unwrap().kind(), ErrorKind::ConnectionReset);
    let udp = UdpSocket::bind_on(&stack, "127.0.0.1:0").await.unwrap();
    let gone = UdpSocket::bind_on(&stack, "127.0.0.1:0").await.unwrap().local_addr().unwrap();
    udp.connect(gone).await.unwrap();
    let mut fails = std::pin::pin!(udp.ready(Interest::ERROR));
    timeout(SHORT, fails.as_mut()).await.unwrap_err();
    udp.send(b"?").await.unwrap();
    assert_eq!(timeout(LONG, fails).await.unwrap().unwrap(), Ready::ERROR);
}

#[tokio::test]
async fn a_report_ends_waits_for_errors_and_lets_their_operations_be_tried() {
    let _guard = watchdog("a_report_ends_waits_for_errors_and_lets_their_operations_be_tried");
    let stack = crate::common::stack();
    let (near, far) = tcp_pair(&stack).await;
    near.get_ref().set_timestamping(Timestamping::SENT).unwrap();
    let udp = UdpSocket::bind_on(&stack, "127.0.0.1:0").await.unwrap();
    udp.connect(udp.local_addr().unwrap()).await.unwrap();
    udp.get_ref().set_timestamping(Timestamping::SENT).unwrap();
    // The first is there before the wait, the second comes while a task waits.
    for waits_first in [false, true] {
        let mut tcp_report = std::pin::pin!(near.async_io(Interest::ERROR, || near.get_ref().recv_report()));
        let mut udp_report = std::pin::pin!(udp.async_io(Interest::ERROR, || udp.get_ref().recv_report()));
        if waits_first {
            timeout(SHORT, tcp_report.as_mut()).await.unwrap_err();
            timeout(SHORT, udp_report.as_mut()).await.unwrap_err();
        }
        assert_eq!(near.try_write(b"x").unwrap(), 1);
        udp.send(b"x").await.unwrap();
        for report in [timeout(LONG, tcp_report).await, timeout(LONG, udp_report).await] {
            let Report::Timestamp { what, .. } = report.unwrap().unwrap() else { panic!("another report") };
            assert_eq!(what, Timestamping::SENT);
        }
    }
    near.try_write(b"x").unwrap();
    udp.send(b"x").await.unwrap();
    assert_eq!(timeout(LONG, near.ready(Interest::ERROR)).await.unwrap().unwrap(), Ready::ERROR);
    assert_eq!(timeout(LONG, udp.ready(Interest::ERROR)).await.unwrap().unwrap(), Ready::ERROR);
    near.try_io(Interest::ERROR, || near.get_ref().recv_report()).unwrap();
    udp.try_io(Interest::ERROR, || udp.get_ref().recv_report()).unwrap();
    let none = [
        near.try_io(Interest::ERROR, || -> std::io::Result<()> { panic!("there is none") }),
        udp.try_io(Interest::ERROR, || -> std::io::Result<()> { panic!("there is none") }),
    ];
    assert!(none.iter().all(|none| none.as_ref().unwrap_err().kind() == ErrorKind::WouldBlock));
    drop(far);
}

/// Attempts until there is no room; returns the bytes sent. Fails if there always is.
fn fill(mut attempt: impl FnMut() -> std::io::Result<usize>) -> usize {
    let mut sent = 0;
    for _ in 0..1_000_000 {
        match attempt() {
            Ok(len) => sent += len,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return sent;
            }
        }
    }
    panic!("there is always room");
}

#[tokio::test]
async fn writable_is_reported_until_a_send_finds_no_room() {
    let _guard = watchdog("writable_is_reported_until_a_send_finds_no_room");
    let stack = crate::common::stack();
    let (near, far) = UnixDatagram::pair_on(&stack).unwrap();
    let mut count = 0;
    loop {
        timeout(LONG, near.writable()).await.unwrap().unwrap();
        match near.try_send(b"datagram") {
            Ok(_) => count += 1,
            Err(error) => break assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    assert!(count > 0);
    timeout(SHORT, near.writable()).await.unwrap_err();
    let mut buf = Vec::with_capacity(64);
    for _ in 0..count {
        assert_eq!(far.try_recv_buf(&mut buf).unwrap(), 8);
        buf.clear();
    }
    timeout(LONG, near.writable()).await.unwrap().unwrap();
}

#[tokio::test]
async fn datagrams_are_received_into_growing_buffers_with_their_sender() {
    let _guard = watchdog("datagrams_are_received_into_growing_buffers_with_their_sender");
    let stack = crate::common::stack();
    let one = UdpSocket::bind_on(&stack, "127.0.0.1:0").await.unwrap();
    let other = UdpSocket::bind_on(&stack, ("127.0.0.1", 0)).await.unwrap();
    let from = one.local_addr().unwrap();
    assert_eq!(other.try_peek_sender().unwrap_err().kind(), ErrorKind::WouldBlock);
    one.send_to(b"first", other.local_addr().unwrap()).await.unwrap();
    one.send_to(b"second", other.local_addr().unwrap()).await.unwrap();
    assert_eq!(timeout(LONG, other.peek_sender()).await.unwrap().unwrap(), from);
    let mut buf = Vec::with_capacity(64);
    assert_eq!(other.recv_buf_from(&mut buf).await.unwrap(), (5, from));
    assert_eq!(other.try_recv_buf(&mut buf).unwrap(), 6);
    assert_eq!(buf, b"firstsecond");
    other.set_tos_v4(0x120).unwrap();
    assert_eq!(other.tos_v4().unwrap(), 0x20);
}

#[tokio::test]
async fn a_buffer_with_little_room_gets_the_beginning_of_a_datagram_and_keeps_its_own_bytes() {
    let _guard =
        watchdog("a_buffer_with_little_room_gets_the_beginning_of_a_datagram_and_keeps_its_own_bytes");
    let stack = crate::common::stack();
    let long: Vec<u8> = (0..40_000u32).map(|i| i as u8).collect();
    let udp = UdpSocket::bind_on(&stack, "127.0.0.1:0").await.unwrap();
    udp.connect(udp.local_addr().unwrap()).await.unwrap();
    let (near, far) = UnixDatagram::pair_on(&stack).unwrap();
    for room in [1, 300, 30_000, 40_000] {
        let mut buf = Vec::from(*b"own");
        buf.reserve_exact(room);
        // The allocator may give more.
        let room = (buf.capacity() - buf.len()).min(long.len());
        udp.send(&long).await.unwrap();
        assert_eq!(timeout(LONG, udp.recv_buf(&mut buf)).await.unwrap().unwrap(), room);
        assert!(buf[..3] == *b"own" && buf[3..] == long[..room]);
        buf.truncate(3);
        near.send(&long).await.unwrap();
        assert_eq!(timeout(LONG, far.recv_buf(&mut buf)).await.unwrap().unwrap(), room);
        assert!(buf[..3] == *b"own" && buf[3..] == long[..room]);
    }
    assert_eq!(far.try_recv_buf(&mut Vec::with_capacity(9)).unwrap_err().kind(), ErrorKind::WouldBlock);
    far.shutdown(std::net::Shutdown::Read).unwrap();
    assert_eq!(timeout(LONG, far.recv_buf(&mut Vec::with_capacity(9))).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn paths_that_begin_with_a_nul_are_abstract_names() {
    let _guard = watchdog("paths_that_begin_with_a_nul_are_abstract_names");
    let name = SocketAddr::from_abstract_name("sockeye tokio_ready").unwrap();
    let socket = sockeye::tokio::UnixSocket::new_stream().unwrap();
    socket.bind("\0sockeye tokio_ready").unwrap();
    let listener = socket.listen(1).unwrap();
    assert_eq!(listener.local_addr().unwrap(), name);
    let stream = UnixStream::connect("\0sockeye tokio_ready").await.unwrap();
    assert_eq!(stream.peer_addr().unwrap(), name);
    let datagrams = sockeye::tokio::UnixSocket::new_datagram().unwrap();
    let refused = datagrams.connect("\0sockeye tokio_ready").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Other);
}

#[tokio::test]
async fn a_socket_takes_its_options_to_its_connection() {
    let _guard = watchdog("a_socket_takes_its_options_to_its_connection");
    let socket = sockeye::tokio::TcpSocket::new_v4().unwrap();
    assert_eq!(socket.local_addr().unwrap(), "0.0.0.0:0".parse().unwrap());
    socket.set_reuseaddr(true).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(8).unwrap();
    listener.set_ttl(9).unwrap();
    assert_eq!(listener.set_ttl(0).unwrap_err().raw_os_error(), Some(22));
    let socket = sockeye::tokio::TcpSocket::new_v4().unwrap();
    socket.set_nodelay(true).unwrap();
    socket.set_keepalive(true).unwrap();
    socket.set_linger(Some(Duration::from_secs(3))).unwrap();
    assert_eq!(socket.tclass_v6().unwrap_err().raw_os_error(), Some(95));
    let client = socket.connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    assert!(client.nodelay().unwrap() && client.get_ref().keepalive().unwrap());
    assert_eq!(client.linger().unwrap(), Some(Duration::from_secs(3)));
    assert_eq!((listener.ttl().unwrap(), server.ttl().unwrap()), (9, 9));
    client.set_quickack(false).unwrap();
    assert!(!client.quickack().unwrap());
    client.set_quickack(true).unwrap();
    assert!(client.quickack().unwrap());
}

#[tokio::test]
async fn lookup_host_resolves_addresses_and_refuses_text_without_a_port() {
    let _guard = watchdog("lookup_host_resolves_addresses_and_refuses_text_without_a_port");
    let addrs: Vec<_> = sockeye::tokio::lookup_host("127.0.0.1:80").await.unwrap().collect();
    assert_eq!(addrs, ["127.0.0.1:80".parse().unwrap()]);
    let many = ["127.0.0.1:1".parse().unwrap(), "[::1]:2".parse().unwrap()];
    assert_eq!(sockeye::tokio::lookup_host(&many[..]).await.unwrap().collect::<Vec<_>>(), many);
    let wrong = sockeye::tokio::lookup_host("no port").await.map(Iterator::count);
    assert_eq!(wrong.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn sockets_are_unwind_safe_send_sync_and_unpin() {
    fn check<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe + Send + Sync + Unpin>() {}
    check::<sockeye::TcpStream>();
    check::<sockeye::TcpListener>();
    check::<sockeye::UdpSocket>();
    check::<sockeye::unix::UnixStream>();
    check::<TcpStream>();
    check::<TcpListener>();
    check::<UdpSocket>();
    check::<UnixStream>();
    check::<UnixDatagram>();
}
