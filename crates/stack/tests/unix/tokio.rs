//! UNIX-domain sockets in `tokio`'s shape: tasks that wait to read, to write, to accept and to send datagrams.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use crate::common::{Random, scaled, watchdog};
use sockeye::tokio::unix::{UnixDatagram, UnixListener, UnixSeqListener, UnixSeqpacket, UnixStream};
use sockeye::unix::{MsgFlags, RecvAncillary, SendAncillary, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn run<F: Future<Output = ()>>(name: &'static str, f: impl FnOnce(sockeye::Stack) -> F) {
    let _guard = watchdog(name);
    let stack = crate::common::stack_with(|c| c.sndbuf = 16 << 10);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(f(stack.clone()));
    drop(runtime);
    assert_eq!(stack.unix_rights_in_flight(), 0);
    crate::common::assert_empty(&stack);
}

#[test]
fn a_stream_larger_than_its_buffer_passes_between_tasks_by_halves() {
    run("a_stream_larger_than_its_buffer_passes_between_tasks_by_halves", |stack| async move {
        let data = Random::new("tokio stream").bytes(scaled(1 << 20));
        let sent = crate::common::hash_of(&data);
        let (a, b) = UnixStream::pair_on(&stack).unwrap();
        let (mut reading, mut writing) = a.into_split();
        let writer = tokio::spawn(async move {
            writing.write_all(&data).await.unwrap();
            // Dropping it ends the direction.
        });
        let echo = tokio::spawn(async move {
            let mut b = b;
            let (mut from, mut to) = b.split();
            tokio::io::copy(&mut from, &mut to).await.unwrap();
            to.shutdown().await.unwrap();
        });
        let mut back = Vec::new();
        reading.read_to_end(&mut back).await.unwrap();
        writer.await.unwrap();
        echo.await.unwrap();
        assert_eq!(crate::common::hash_of(&back), sent);
    });
}

#[test]
fn tasks_accept_and_connect_even_through_a_backlog_of_one() {
    run("tasks_accept_and_connect_even_through_a_backlog_of_one", |stack| async move {
        let name = SocketAddr::from_abstract_name("tokio").unwrap();
        let listener = UnixListener::bind_addr_on(&stack, &name).unwrap();
        listener.get_ref().set_backlog(0).unwrap();
        let count = scaled(50);
        let server = tokio::spawn(async move {
            for _ in 0..count {
                let (mut stream, from) = listener.accept().await.unwrap();
                assert!(from.is_unnamed());
                stream.write_all(b"hello").await.unwrap();
            }
        });
        let clients: Vec<_> = (0..count)
            .map(|_| {
                let (stack, name) = (stack.clone(), name.clone());
                tokio::spawn(async move {
                    let mut stream = UnixStream::connect_addr_on(&stack, &name).await.unwrap();
                    let mut hello = String::new();
                    stream.read_to_string(&mut hello).await.unwrap();
                    assert_eq!(hello, "hello");
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        server.await.unwrap();
    });
}

#[test]
fn packets_and_their_rights_wait_for_room_and_for_readers() {
    run("packets_and_their_rights_wait_for_room_and_for_readers", |stack| async move {
        let name = SocketAddr::from_abstract_name("packets").unwrap();
        let listener = UnixSeqListener::bind_addr_on(&stack, &name).unwrap();
        let a = UnixSeqpacket::connect_addr_on(&stack, &name).await.unwrap();
        let (b, _) = listener.accept().await.unwrap();
        let count = scaled(300);
        let writer = tokio::spawn(async move {
            for number in 0..count {
                let (_, right) = sockeye::unix::UnixStream::pair_on(a.get_ref().stack()).unwrap();
                let mut ancillary = SendAncillary::new();
                ancillary.add_right(right);
                let bytes = [number as u8; 1000];
                let bufs = [IoSlice::new(&bytes)];
                a.send_msg(&bufs, None, &mut ancillary, MsgFlags::NONE).await.unwrap();
            }
        });
        let mut buf = [0; 2000];
        for number in 0..count {
            let mut ancillary = RecvAncillary::with_capacity(1);
            let got =
                b.recv_msg(&mut [IoSliceMut::new(&mut buf)], &mut ancillary, MsgFlags::NONE).await.unwrap();
            assert_eq!((got.bytes, buf[0], ancillary.rights().len()), (1000, number as u8, 1));
        }
        writer.await.unwrap();
        assert_eq!(b.recv(&mut buf).await.unwrap(), 0);
    });
}

#[test]
fn many_tasks_send_datagrams_to_one() {
    run("many_tasks_send_datagrams_to_one", |stack| async move {
        let name = SocketAddr::from_abstract_name("sink").unwrap();
        let sink = UnixDatagram::bind_addr_on(&stack, &name).unwrap();
        let (senders, each) = (8, scaled(100));
        let shared = Arc::new(UnixDatagram::unbound_on(&stack).unwrap());
        let tasks: Vec<_> = (0..senders)
            .map(|index| {
                let (stack, name, shared) = (stack.clone(), name.clone(), shared.clone());
                tokio::spawn(async move {
                    // Half of them share a socket, and with it its share of the receiver's buffer.
                    let own = UnixDatagram::unbound_on(&stack).unwrap();
                    let socket = if index % 2 == 0 { &*shared } else { &own };
                    for _ in 0..each {
                        assert_eq!(socket.send_to_addr(b"datagram", &name).await.unwrap(), 8);
                    }
                })
            })
            .collect();
        let mut buf = [0; 10];
        for _ in 0..senders * each {
            assert_eq!(sink.recv(&mut buf).await.unwrap(), 8);
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}
