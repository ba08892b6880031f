//! The sockets in tokio's shape keep to tokio's cooperative budget: a task whose socket is always ready returns to the
//! runtime now and then, so that the other tasks of its thread run.
//!
//! The tests count polls, not time. Each operation below finds its socket ready whenever it is called, which is shown
//! first, outside of any runtime, where there is no budget. Then a task repeats it on a runtime of one thread, beside
//! another task that has to be polled a number of times.

use std::future::poll_fn;
use std::io::{IoSlice, IoSliceMut, Write};
use std::net::{IpAddr, SocketAddrV6};
use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::time::Duration;

use sockeye::netif::{ChannelConfig, channel};
use sockeye::tokio::unix::{UnixDatagram, UnixListener, UnixSeqListener, UnixSeqpacket, UnixStream};
use sockeye::tokio::{IcmpSocket, TcpListener, TcpStream, UdpSocket};
use sockeye::unix::{MsgFlags, RecvAncillary, SendAncillary, SocketAddr as UnixAddr};
use sockeye::{Config, MbufChain, Outgoing, RecvMeta, SendMeta, Stack};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};

/// How often the other task has to be polled.
const TURNS: usize = 10;
/// Operations within which that must have happened. Tokio's budget is 128 operations today; the test checks only that
/// there is a bound of that order.
const OPERATIONS_MAX: usize = TURNS * 512;
/// The least number of operations of a task between two returns to the runtime: with fewer it would do little else.
const OPERATIONS_MIN: usize = TURNS * 16;

/// A stack without threads: everything that becomes ready does so within the operation.
fn stack() -> Stack {
    Stack::new(Config { workers: 0, ..crate::common::base() }).unwrap()
}

/// Holds that `operation`, which never waits for its socket, leaves its thread to another task.
fn shares_its_thread(what: &str, mut operation: impl AsyncFnMut()) {
    let mut noop = Context::from_waker(Waker::noop());
    for _ in 0..300 {
        let done = pin!(operation()).poll(&mut noop);
        assert!(
            done.is_ready(),
            "{what} waits outside of a runtime, or for its socket: the test proves nothing"
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let other = tokio::spawn(async {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        });
        let mut operations = 0;
        while operations < OPERATIONS_MAX && !other.is_finished() {
            operation().await;
            operations += 1;
        }
        assert!(
            other.is_finished(),
            "{what}: {operations} times, and the other task was not polled {TURNS} times"
        );
        assert!(
            operations >= OPERATIONS_MIN,
            "{what}: only {operations} times in {TURNS} polls of the other task"
        );
    });
}

async fn read_some(mut from: impl AsyncRead + Unpin) {
    assert!(from.read(&mut [0; 64]).await.unwrap() > 0);
}

fn tcp_pair(stack: &Stack) -> (TcpStream, TcpStream) {
    let (a, b) = crate::common::pair(stack);
    for end in [&a, &b] {
        end.set_nodelay(true).unwrap();
    }
    (TcpStream::from_std(a).unwrap(), TcpStream::from_std(b).unwrap())
}

#[test]
fn a_tcp_stream_that_always_has_data_or_room_lets_other_tasks_run() {
    let (stack, byte) = (stack(), &[7][..]);
    let (a, mut b) = tcp_pair(&stack);
    let feed = || assert_eq!(a.try_write(byte).unwrap(), 1);
    shares_its_thread("read", async || {
        feed();
        read_some(&mut b).await;
    });
    shares_its_thread("recv_mbufs", async || {
        feed();
        assert_eq!(b.recv_mbufs(64).await.unwrap().len(), 1);
    });
    feed();
    shares_its_thread("peek", async || assert_eq!(b.peek(&mut [0]).await.unwrap(), 1));
    shares_its_thread("readable", async || b.readable().await.unwrap());
    shares_its_thread("writable", async || b.writable().await.unwrap());
    assert_eq!(b.try_read(&mut [0]).unwrap(), 1);
    let (mut a, b) = (b, a);
    let drain = || assert_eq!(b.try_read(&mut [0; 64]).unwrap(), 1);
    shares_its_thread("write", async || {
        a.write_all(byte).await.unwrap();
        drain();
    });
    shares_its_thread("write_vectored", async || {
        assert_eq!(a.write_vectored(&[IoSlice::new(byte)]).await.unwrap(), 1);
        drain();
    });
    shares_its_thread("send_mbufs", async || {
        let mut chain = MbufChain::copied(&stack, byte).unwrap();
        assert_eq!(a.send_mbufs(&mut chain).await.unwrap(), 1);
        drain();
    });
    let (mut reading, mut writing) = a.into_split();
    shares_its_thread("both halves", async || {
        writing.write_all(byte).await.unwrap();
        drain();
        assert_eq!(b.try_write(byte).unwrap(), 1);
        read_some(&mut reading).await;
    });
}

#[test]
fn a_pair_of_tcp_streams_in_one_task_lets_other_tasks_run() {
    let (mut a, mut b) = tcp_pair(&stack());
    shares_its_thread("an echo", async || {
        a.write_all(b"?").await.unwrap();
        read_some(&mut b).await;
        b.write_all(b"!").await.unwrap();
        read_some(&mut a).await;
    });
}

#[test]
fn an_endless_sequence_of_tcp_connections_lets_other_tasks_run() {
    let stack = stack();
    let listener = crate::common::listener(&stack);
    let addr = listener.local_addr().unwrap();
    let vanish = |stream: &sockeye::TcpStream| stream.set_linger(Some(Duration::ZERO)).unwrap();
    shares_its_thread("connect", async || {
        let client = TcpStream::connect_on(&stack, addr).await.unwrap();
        vanish(client.get_ref());
        drop(listener.accept().unwrap());
    });
    let listener = TcpListener::from_std(listener).unwrap();
    shares_its_thread("accept", async || {
        vanish(&sockeye::TcpStream::connect_on(&stack, addr).unwrap());
        drop(listener.accept().await.unwrap());
    });
}

#[test]
fn a_udp_socket_that_always_has_a_datagram_lets_other_tasks_run() {
    let stack = stack();
    let socket = sockeye::UdpSocket::bind_on(&stack, "127.0.0.1:0").unwrap();
    let from = sockeye::UdpSocket::bind_on(&stack, "127.0.0.1:0").unwrap();
    from.connect(socket.local_addr().unwrap()).unwrap();
    let socket = UdpSocket::from_std(socket).unwrap();
    let feed = || assert_eq!(from.send(b"x").unwrap(), 1);
    shares_its_thread("recv", async || {
        feed();
        socket.recv(&mut [0]).await.unwrap();
    });
    shares_its_thread("recv_from", async || {
        feed();
        socket.recv_from(&mut [0]).await.unwrap();
    });
    shares_its_thread("poll_recv", async || {
        feed();
        poll_fn(|cx| socket.poll_recv(cx, &mut ReadBuf::new(&mut [0]))).await.unwrap();
    });
    shares_its_thread("poll_recv_from", async || {
        feed();
        poll_fn(|cx| socket.poll_recv_from(cx, &mut ReadBuf::new(&mut [0]))).await.unwrap();
    });
    shares_its_thread("recv_msg", async || {
        feed();
        socket.recv_msg(&mut [IoSliceMut::new(&mut [0])]).await.unwrap();
    });
    let mut metas = [RecvMeta::default()];
    shares_its_thread("recv_batch", async || {
        feed();
        let got = socket.recv_batch(&mut [IoSliceMut::new(&mut [0])], &mut metas).await;
        assert_eq!(got.unwrap(), 1);
    });
    feed();
    shares_its_thread("peek", async || assert_eq!(socket.peek(&mut [0]).await.unwrap(), 1));
    shares_its_thread("peek_from", async || assert_eq!(socket.peek_from(&mut [0]).await.unwrap().0, 1));
    shares_its_thread("readable", async || socket.readable().await.unwrap());
}

#[test]
fn a_udp_socket_that_always_has_room_lets_other_tasks_run() {
    let stack = stack();
    let sink = sockeye::UdpSocket::bind_on(&stack, "127.0.0.1:0").unwrap();
    let to = sink.local_addr().unwrap();
    let socket = sockeye::UdpSocket::bind_on(&stack, "127.0.0.1:0").unwrap();
    socket.connect(to).unwrap();
    let socket = UdpSocket::from_std(socket).unwrap();
    let drain = || assert_eq!(sink.recv(&mut [0]).unwrap(), 1);
    shares_its_thread("send", async || {
        socket.send(b"x").await.unwrap();
        drain();
    });
    shares_its_thread("send_to", async || {
        socket.send_to(b"x", to).await.unwrap();
        drain();
    });
    shares_its_thread("send_msg", async || {
        socket.send_msg(&[IoSlice::new(b"x")], &SendMeta::default()).await.unwrap();
        drain();
    });
    shares_its_thread("send_batch", async || {
        let datagram = Outgoing { bytes: b"x", meta: SendMeta::default() };
        assert_eq!(socket.send_batch(&[datagram]).await.unwrap(), 1);
        drain();
    });
    shares_its_thread("writable", async || socket.writable().await.unwrap());
}

#[test]
fn an_icmp_socket_that_is_always_answered_lets_other_tasks_run() {
    let stack = stack();
    let here = IpAddr::from([127, 0, 0, 1]);
    let socket = IcmpSocket::bind_on(&stack, here).unwrap();
    let mut data = [0; 8];
    shares_its_thread("recv", async || {
        socket.get_ref().send_to(1, b"x", here).unwrap();
        assert_eq!(socket.recv(&mut data).await.unwrap().len, 1);
    });
    shares_its_thread("send_to", async || {
        socket.send_to(1, b"x", here).await.unwrap();
        assert_eq!(socket.try_recv(&mut data).unwrap().len, 1);
    });
    socket.get_ref().connect(here).unwrap();
    shares_its_thread("send", async || {
        socket.send(1, b"x").await.unwrap();
        assert_eq!(socket.try_recv(&mut data).unwrap().len, 1);
    });
    socket.get_ref().send(1, b"x").unwrap();
    shares_its_thread("readable", async || socket.readable().await.unwrap());
    let here = SocketAddrV6::new(std::net::Ipv6Addr::LOCALHOST, 0, 0, 0);
    let socket = IcmpSocket::bind_on(&stack, (*here.ip()).into()).unwrap();
    shares_its_thread("send_to_scoped", async || {
        socket.send_to_scoped(1, b"x", here).await.unwrap();
        assert_eq!(socket.try_recv(&mut data).unwrap().len, 1);
    });
}

#[test]
fn a_channel_that_always_has_a_frame_or_room_lets_other_tasks_run() {
    let stack = stack();
    let (netif, ports) = channel(&ChannelConfig::default()).unwrap();
    stack.attach(netif, &["10.0.0.1/24".parse().unwrap()]).unwrap();
    let port = &ports[0];
    let socket = sockeye::UdpSocket::bind_on(&stack, "10.0.0.1:9").unwrap();
    socket.connect("10.0.0.2:9").unwrap();
    let frame = {
        socket.send(b"x").unwrap();
        let frame = port.try_recv().unwrap();
        let mut bytes = vec![0; frame.len()];
        let head = frame.head().len();
        bytes[..head].copy_from_slice(frame.head());
        bytes
    };
    shares_its_thread("recv", async || {
        socket.send(b"x").unwrap();
        assert!(poll_fn(|cx| port.poll_recv(cx)).await.is_some());
    });
    shares_its_thread("send", async || {
        poll_fn(|cx| port.poll_send(cx, &frame[..])).await.unwrap();
        stack.poll(Duration::ZERO);
    });
}

/// Room for nothing but bytes.
fn none() -> (SendAncillary, RecvAncillary) {
    (SendAncillary::new(), RecvAncillary::new())
}

#[test]
fn a_unix_stream_that_always_has_data_or_room_lets_other_tasks_run() {
    let (a, mut b) = UnixStream::pair_on(&stack()).unwrap();
    let (mut sent, mut received) = none();
    let feed = || assert_eq!(a.try_write(b"x").unwrap(), 1);
    shares_its_thread("read", async || {
        feed();
        read_some(&mut b).await;
    });
    shares_its_thread("recv_msg", async || {
        feed();
        b.recv_msg(&mut [IoSliceMut::new(&mut [0])], &mut received, MsgFlags::NONE).await.unwrap();
    });
    feed();
    shares_its_thread("peek", async || assert_eq!(b.peek(&mut [0]).await.unwrap(), 1));
    shares_its_thread("readable", async || b.readable().await.unwrap());
    shares_its_thread("writable", async || b.writable().await.unwrap());
    assert_eq!(b.try_read(&mut [0]).unwrap(), 1);
    let (mut a, b) = (b, a);
    let drain = || assert_eq!(b.try_read(&mut [0; 64]).unwrap(), 1);
    shares_its_thread("write", async || {
        a.write_all(b"x").await.unwrap();
        drain();
    });
    shares_its_thread("send_msg", async || {
        a.send_msg(&[IoSlice::new(b"x")], None, &mut sent, MsgFlags::NONE).await.unwrap();
        drain();
    });
    let (mut reading, mut writing) = a.split();
    shares_its_thread("borrowed halves", async || {
        writing.write_all(b"x").await.unwrap();
        drain();
        (&mut b.get_ref()).write_all(b"x").unwrap();
        read_some(&mut reading).await;
    });
    let (mut reading, mut writing) = a.into_split();
    shares_its_thread("owned halves", async || {
        writing.write_all(b"x").await.unwrap();
        drain();
        assert_eq!(b.try_write(b"x").unwrap(), 1);
        read_some(Pin::new(&mut reading)).await;
    });
}

#[test]
fn an_endless_sequence_of_unix_connections_lets_other_tasks_run() {
    let stack = stack();
    let name = UnixAddr::from_abstract_name("hog").unwrap();
    let listener = UnixListener::bind_addr_on(&stack, &name).unwrap();
    shares_its_thread("connect", async || {
        drop(UnixStream::connect_addr_on(&stack, &name).await.unwrap());
        drop(listener.get_ref().accept().unwrap());
    });
    shares_its_thread("accept", async || {
        drop(sockeye::unix::UnixStream::connect_addr_on(&stack, &name).unwrap());
        drop(listener.accept().await.unwrap());
    });
    let listener = UnixSeqListener::bind_addr_on(&stack, &name).unwrap();
    shares_its_thread("connect of packets", async || {
        drop(UnixSeqpacket::connect_addr_on(&stack, &name).await.unwrap());
        drop(listener.get_ref().accept().unwrap());
    });
    shares_its_thread("accept of packets", async || {
        drop(sockeye::unix::UnixSeqpacket::connect_addr_on(&stack, &name).unwrap());
        drop(listener.accept().await.unwrap());
    });
}

#[test]
fn a_unix_datagram_socket_that_is_always_ready_lets_other_tasks_run() {
    let stack = stack();
    let path = "/hog";
    let addr = UnixAddr::from_pathname(path).unwrap();
    let b = UnixDatagram::bind_addr_on(&stack, &addr).unwrap();
    let a = UnixDatagram::unbound_on(&stack).unwrap();
    a.connect(path).unwrap();
    let feed = || assert_eq!(a.try_send(b"x").unwrap(), 1);
    shares_its_thread("recv", async || {
        feed();
        b.recv(&mut [0]).await.unwrap();
    });
    shares_its_thread("poll_recv", async || {
        feed();
        poll_fn(|cx| b.poll_recv(cx, &mut ReadBuf::new(&mut [0]))).await.unwrap();
    });
    shares_its_thread("recv_from", async || {
        feed();
        b.recv_from(&mut [0]).await.unwrap();
    });
    feed();
    shares_its_thread("readable", async || b.readable().await.unwrap());
    let drain = || assert_eq!(b.try_recv(&mut [0]).unwrap(), 1);
    drain();
    shares_its_thread("send", async || {
        a.send(b"x").await.unwrap();
        drain();
    });
    shares_its_thread("send_to", async || {
        a.send_to(b"x", path).await.unwrap();
        drain();
    });
    shares_its_thread("send_to_addr", async || {
        a.send_to_addr(b"x", &addr).await.unwrap();
        drain();
    });
    shares_its_thread("writable", async || a.writable().await.unwrap());
}

#[test]
fn a_unix_packet_socket_that_is_always_ready_lets_other_tasks_run() {
    let (a, b) = UnixSeqpacket::pair_on(&stack()).unwrap();
    shares_its_thread("recv", async || {
        a.get_ref().send(b"x").unwrap();
        b.recv(&mut [0]).await.unwrap();
    });
    shares_its_thread("send", async || {
        a.send(b"x").await.unwrap();
        assert_eq!(b.get_ref().recv(&mut [0]).unwrap(), 1);
    });
}
