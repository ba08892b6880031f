//! UDP in `tokio`'s shape: tasks that wait for datagrams, each of several for one socket.

use std::io::IoSlice;
use std::sync::Arc;

use crate::common::{scaled, watchdog};
use sockeye::SendMeta;
use sockeye::tokio::{IcmpSocket, UdpSocket};
use tokio::io::ReadBuf;

fn run<F: Future<Output = ()>>(name: &'static str, f: impl FnOnce(sockeye::Stack) -> F) {
    let _guard = watchdog(name);
    let stack = crate::common::stack();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(f(stack.clone()));
    drop(runtime);
    crate::common::eventually("all packet memory is back", || stack.memory_in_use() == 0);
}

#[test]
fn a_question_is_answered_between_tasks() {
    run("a_question_is_answered_between_tasks", |stack| async move {
        let server = UdpSocket::bind_on(&stack, "127.0.0.1:0").await.unwrap();
        let addr = server.local_addr().unwrap();
        let count = scaled(500);
        let answering = tokio::spawn(async move {
            let mut buf = [0; 64];
            for _ in 0..count {
                let (len, from) = server.recv_from(&mut buf).await.unwrap();
                server.send_to(&buf[..len], from).await.unwrap();
            }
        });
        let client = UdpSocket::bind_on(&stack, "127.0.0.1:0").await.unwrap();
        client.connect(addr).await.unwrap();
        for i in 0..count {
            let question = i.to_be_bytes();
            client.send(&question).await.unwrap();
            client.readable().await.unwrap();
            let mut room = [0; 64];
            let mut buf = ReadBuf::new(&mut room);
            std::future::poll_fn(|cx| client.poll_recv(cx, &mut buf)).await.unwrap();
            assert_eq!(buf.filled(), question);
        }
        answering.await.unwrap();
        // The other socket is closed.
        client.send(b"?").await.unwrap();
        client.readable().await.unwrap();
        let refused = client.recv(&mut [0; 8]).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_task_that_sends_an_echo_request_is_woken_only_by_its_own_answer() {
    run("a_task_that_sends_an_echo_request_is_woken_only_by_its_own_answer", |stack| async move {
        let here = std::net::IpAddr::from([127, 0, 0, 1]);
        let (one, other) = (
            IcmpSocket::bind_on(&stack, here).unwrap(),
            Arc::new(IcmpSocket::bind_on(&stack, here).unwrap()),
        );
        let waiting = {
            let other = Arc::clone(&other);
            tokio::spawn(async move { other.recv(&mut [0; 8]).await.unwrap().seq })
        };
        let mut data = [0; 64];
        for seq in 0..scaled(500) as u16 {
            one.send_to(seq, b"there?", here).await.unwrap();
            one.readable().await.unwrap();
            let reply = one.recv(&mut data).await.unwrap();
            assert_eq!((reply.seq, reply.from, &data[..reply.len]), (seq, here, &b"there?"[..]));
        }
        assert_eq!(one.try_recv(&mut data).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        assert!(!waiting.is_finished());
        other.get_ref().connect(here).unwrap();
        other.send(7, b"mine").await.unwrap();
        assert_eq!(waiting.await.unwrap(), 7);
    });
}

#[test]
fn every_task_that_waits_gets_a_datagram_and_one_batch_wakes_them() {
    run("every_task_that_waits_gets_a_datagram_and_one_batch_wakes_them", |stack| async move {
        let server = Arc::new(UdpSocket::bind_on(&stack, "127.0.0.1:0").await.unwrap());
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let server = Arc::clone(&server);
                tokio::spawn(async move { server.recv(&mut [0; 8]).await.unwrap() })
            })
            .collect();
        tokio::task::yield_now().await;
        let client = UdpSocket::bind_on(&stack, "127.0.0.1:0").await.unwrap();
        let meta = SendMeta { segment_size: Some(4), ..SendMeta::to(server.local_addr().unwrap()) };
        client.send_msg(&[IoSlice::new(&[1; 32])], &meta).await.unwrap();
        for task in tasks {
            assert_eq!(task.await.unwrap(), 4);
        }
        assert_eq!(server.try_recv(&mut [0; 8]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    });
}

#[test]
fn what_is_peeked_at_stays() {
    run("what_is_peeked_at_stays", |stack| async move {
        let server = UdpSocket::bind_on(&stack, "127.0.0.1:0").await.unwrap();
        let client = UdpSocket::bind_on(&stack, "127.0.0.1:0").await.unwrap();
        assert_eq!(server.try_peek(&mut [0; 8]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        client.send_to(b"hello", server.local_addr().unwrap()).await.unwrap();
        let mut room = [0; 3];
        let mut buf = ReadBuf::new(&mut room);
        std::future::poll_fn(|cx| server.poll_peek(cx, &mut buf)).await.unwrap();
        assert_eq!(buf.filled(), b"hel");
        let mut bytes = [0; 8];
        assert_eq!((server.try_peek(&mut bytes).unwrap(), &bytes[..5]), (5, &b"hello"[..]));
        assert_eq!(server.recv(&mut bytes).await.unwrap(), 5);
        assert_eq!(server.try_peek(&mut bytes).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    });
}
