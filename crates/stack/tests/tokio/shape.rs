//! The sockets in tokio's shape, on a runtime of several threads: many connections, halves, cancelled
//! futures, timeouts, and a search for lost wakers.

use std::io::{ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::time::Duration;

use crate::common::{Random, assert_empty, hash_of, scaled, stack_with, watchdog};
use sha2::{Digest, Sha256};
use sockeye::tokio::{TcpListener, TcpStream};
use sockeye::{MbufChain, SendFlags, Stack};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

const SHORT: Duration = Duration::from_millis(20);
/// The time within which an expected event must have happened.
const LONG: Duration = Duration::from_secs(60);

async fn listen(stack: &Stack) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind_on(stack, "127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

async fn pair(stack: &Stack) -> (TcpStream, TcpStream) {
    let (listener, addr) = listen(stack).await;
    let client = TcpStream::connect_on(stack, addr).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

/// Echoes every connection until the listener's task is aborted.
fn echo(listener: TcpListener) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let (mut read, mut write) = stream.into_split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundreds_of_connections_echo() {
    let _guard = watchdog("hundreds_of_connections_echo");
    let mut random = Random::new("echo");
    let stack = crate::common::stack();
    let (listener, addr) = listen(&stack).await;
    let server = echo(listener);
    let clients: Vec<_> = (0..scaled(300))
        .map(|_| {
            let (stack, mut random) = (stack.clone(), random.fork());
            tokio::spawn(async move {
                let len = random.size(60_000);
                let data = random.bytes(len);
                let stream = TcpStream::connect_on(&stack, addr).await.unwrap();
                let (mut read, mut write) = stream.into_split();
                let sent = hash_of(&data);
                let writer = tokio::spawn(async move {
                    for chunk in data.chunks(random.size(20_000)) {
                        write.write_all(chunk).await.unwrap();
                    }
                    write.shutdown().await.unwrap();
                });
                let mut back = Vec::new();
                read.read_to_end(&mut back).await.unwrap();
                writer.await.unwrap();
                assert_eq!((back.len(), hash_of(&back)), (len, sent));
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    server.abort();
    let _ = server.await;
    assert_empty(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_buffers_and_two_tasks_an_end_lose_no_waker() {
    let _guard = watchdog("small_buffers_and_two_tasks_an_end_lose_no_waker");
    let mut random = Random::new("wakers");
    let stack = stack_with(|c| (c.sndbuf, c.rcvbuf) = (8192, 8192));
    let mut tasks = Vec::new();
    for _ in 0..scaled(20) {
        let (client, server) = pair(&stack).await;
        for stream in [client, server] {
            stream.set_nodelay(true).unwrap();
            let mut random = random.fork();
            let (mut read, mut write) = stream.into_split();
            let data = random.bytes(300_000);
            let sent = hash_of(&data);
            let writer = tokio::spawn(async move {
                let mut rest = &data[..];
                while !rest.is_empty() {
                    let len = random.size(9000).min(rest.len());
                    write.write_all(&rest[..len]).await.unwrap();
                    rest = &rest[len..];
                    if random.chance(8) {
                        tokio::task::yield_now().await;
                    }
                }
                write.shutdown().await.unwrap();
                sent
            });
            let reader = tokio::spawn(async move {
                let (mut hash, mut buf) = (Sha256::new(), vec![0; 5000]);
                loop {
                    match read.read(&mut buf).await.unwrap() {
                        0 => return crate::common::Hash::from(hash.finalize()),
                        got => hash.update(&buf[..got]),
                    }
                }
            });
            tasks.push((writer, reader));
        }
        let (server_wrote, server_read) = tasks.pop().unwrap();
        let (client_wrote, client_read) = tasks.pop().unwrap();
        assert_eq!(client_wrote.await.unwrap(), server_read.await.unwrap());
        assert_eq!(server_wrote.await.unwrap(), client_read.await.unwrap());
    }
    assert_empty(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_read_takes_nothing() {
    let _guard = watchdog("a_cancelled_read_takes_nothing");
    let (mut client, mut server) = pair(&crate::common::stack()).await;
    let mut buf = [0; 8];
    timeout(SHORT, server.read(&mut buf)).await.unwrap_err();
    client.write_all(b"whole").await.unwrap();
    assert_eq!(timeout(LONG, server.read(&mut buf)).await.unwrap().unwrap(), 5);
    assert_eq!(&buf[..5], b"whole");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_write_leaves_the_stream_in_order() {
    let _guard = watchdog("a_cancelled_write_leaves_the_stream_in_order");
    let (mut client, mut server) = pair(&crate::common::stack()).await;
    let mut written = 0usize;
    let byte = |at: usize| (at % 251) as u8;
    loop {
        let data: Vec<u8> = (written..written + 50_000).map(byte).collect();
        match timeout(SHORT, client.write(&data)).await {
            Ok(taken) => written += taken.unwrap(),
            Err(_) => break,
        }
    }
    client.shutdown().await.unwrap();
    let mut got = Vec::new();
    server.read_to_end(&mut got).await.unwrap();
    assert_eq!(got.len(), written);
    assert!(got.iter().enumerate().all(|(at, b)| *b == byte(at)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_accept_loses_no_connection() {
    let _guard = watchdog("a_cancelled_accept_loses_no_connection");
    let stack = crate::common::stack();
    let (listener, addr) = listen(&stack).await;
    for _ in 0..scaled(200) {
        // The future is dropped at a random moment of a connect that is under way.
        let connecting = tokio::spawn({
            let stack = stack.clone();
            async move { TcpStream::connect_on(&stack, addr).await.unwrap() }
        });
        let accepted = timeout(Duration::from_micros(50), listener.accept()).await;
        let client = connecting.await.unwrap();
        let (server, _) = match accepted {
            Ok(accepted) => accepted.unwrap(),
            Err(_) => timeout(LONG, listener.accept()).await.unwrap().unwrap(),
        };
        assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
    }
    assert_empty(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_connect_leaves_nothing() {
    let _guard = watchdog("a_cancelled_connect_leaves_nothing");
    let stack = crate::common::stack();
    let mut socket = sockeye::TcpSocket::new_v4(&stack);
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let addr = listener.local_addr().unwrap();
    let first = TcpStream::connect_on(&stack, addr).await.unwrap();
    for _ in 0..5 {
        timeout(SHORT, TcpStream::connect_on(&stack, addr)).await.unwrap_err();
    }
    drop((first, listener));
    assert_empty(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_are_those_of_the_blocking_kind() {
    let _guard = watchdog("errors_are_those_of_the_blocking_kind");
    let stack = crate::common::stack();
    let refused = TcpStream::connect_on(&stack, "127.0.0.1:1").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let (mut client, server) = pair(&stack).await;
    let reader = tokio::spawn(async move { client.read(&mut [0]).await });
    tokio::time::sleep(SHORT).await;
    server.set_linger(Some(Duration::ZERO)).unwrap();
    drop(server);
    let reset = timeout(LONG, reader).await.unwrap().unwrap().unwrap_err();
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_write_half_ends_the_stream_and_reunited_halves_do_not() {
    let _guard = watchdog("a_dropped_write_half_ends_the_stream_and_reunited_halves_do_not");
    let stack = crate::common::stack();
    let (client, mut server) = pair(&stack).await;
    let (read, write) = client.into_split();
    let mut client = read.reunite(write).unwrap();
    client.write_all(b"one").await.unwrap();
    let mut buf = [0; 3];
    server.read_exact(&mut buf).await.unwrap();
    let (mut read, write) = client.into_split();
    drop(write);
    assert_eq!(timeout(LONG, server.read(&mut buf)).await.unwrap().unwrap(), 0);
    server.write_all(b"two").await.unwrap();
    read.read_exact(&mut buf).await.unwrap();
    assert_eq!(&buf, b"two", "the other direction still carries");
    let (other, _peer) = pair(&stack).await;
    let (_, stranger) = other.into_split();
    assert!(read.reunite(stranger).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readable_and_writable_wait_for_their_readiness() {
    let _guard = watchdog("readable_and_writable_wait_for_their_readiness");
    let (mut client, mut server) = pair(&crate::common::stack()).await;
    timeout(LONG, client.writable()).await.unwrap().unwrap();
    // Until a read has found nothing, an accepted stream is assumed readable.
    assert_eq!(server.try_read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    timeout(SHORT, server.readable()).await.unwrap_err();
    client.write_all(b"x").await.unwrap();
    timeout(LONG, server.readable()).await.unwrap().unwrap();
    server.read_exact(&mut [0]).await.unwrap();
    assert_eq!(server.try_read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    timeout(SHORT, server.readable()).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_waits_while_too_much_is_unsent_and_loses_no_waker() {
    let _guard = watchdog("a_task_waits_while_too_much_is_unsent_and_loses_no_waker");
    for lowat in [1, 5000, 100_000] {
        let (mut client, mut server) = pair(&stack_with(|c| (c.sndbuf, c.rcvbuf) = (1 << 20, 8192))).await;
        client.set_notsent_lowat(Some(lowat)).unwrap();
        assert_eq!(client.notsent_lowat().unwrap(), Some(lowat));
        let data = Random::new("unsent").bytes(500_000);
        let sent = data.clone();
        // There is room for all of it.
        let mut taken = 0;
        while let Ok(written) = timeout(SHORT, client.write(&data[taken..])).await {
            taken += written.unwrap();
        }
        assert!(taken < data.len(), "it was not held back");
        timeout(SHORT, client.writable()).await.unwrap_err();
        let mut got = vec![0; taken];
        server.read_exact(&mut got).await.unwrap();
        timeout(LONG, client.writable()).await.unwrap().unwrap();
        let writer = tokio::spawn(async move { client.write_all(&data[taken..]).await.unwrap() });
        let mut rest = vec![0; sent.len() - taken];
        server.read_exact(&mut rest).await.unwrap();
        writer.await.unwrap();
        assert!(got == sent[..taken] && rest == sent[taken..]);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn sends_and_receives_of_lent_bytes_wait_for_room_and_for_data() {
    let _guard = watchdog("sends_and_receives_of_lent_bytes_wait_for_room_and_for_data");
    let stack = stack_with(|c| (c.sndbuf, c.rcvbuf) = (64 << 10, 64 << 10));
    let (client, server) = pair(&stack).await;
    let page = MbufChain::copied(&stack, &vec![5; 1 << 20]).unwrap();
    let mut rest = page.clone();
    let writer = tokio::spawn(async move {
        while !rest.is_empty() {
            assert!(client.send_mbufs(&mut rest).await.unwrap() > 0);
        }
    });
    let mut got = 0;
    loop {
        let chain = timeout(LONG, server.recv_mbufs(100_000)).await.unwrap().unwrap();
        if chain.is_empty() {
            break;
        }
        assert!(chain.pieces().flatten().all(|byte| *byte == 5));
        got += chain.len();
    }
    writer.await.unwrap();
    assert_eq!(got, page.len());
}

#[tokio::test(flavor = "current_thread")]
async fn at_the_memory_cap_a_task_waits_and_does_not_hold_its_thread() {
    let _guard = watchdog("at_the_memory_cap_a_task_waits_and_does_not_hold_its_thread");
    // One thread for writer and reader: a writer that waits by looping would never let the reader run.
    let stack = stack_with(|c| {
        c.memory_max = 1 << 20;
        (c.sndbuf, c.rcvbuf) = (4 << 20, 4 << 20);
    });
    let (mut client, mut server) = pair(&stack).await;
    let data = vec![5; 8 << 20];
    let writer = tokio::spawn(async move {
        client.write_all(&data).await.unwrap();
        client.shutdown().await.unwrap();
    });
    // The writer runs first, into the cap.
    tokio::time::sleep(SHORT).await;
    let mut got = Vec::new();
    timeout(LONG, server.read_to_end(&mut got)).await.unwrap().unwrap();
    writer.await.unwrap();
    assert_eq!(got.len(), 8 << 20);
}

#[tokio::test(flavor = "current_thread")]
async fn at_the_memory_cap_a_write_with_flags_waits_and_does_not_hold_its_thread() {
    let _guard = watchdog("at_the_memory_cap_a_write_with_flags_waits_and_does_not_hold_its_thread");
    // Bytes that the peer's small buffer has no room for fill the memory from the writer's side, where there would be room for more.
    let stack = stack_with(|c| {
        c.memory_max = 1 << 20;
        (c.sndbuf, c.rcvbuf) = (4 << 20, 64 << 10);
    });
    let (client, mut server) = pair(&stack).await;
    let data = vec![5; 8 << 20];
    let writer = tokio::spawn(async move {
        let mut rest = &data[..];
        while !rest.is_empty() {
            let taken = client.send_with(&[IoSlice::new(rest)], SendFlags::NONE).await.unwrap();
            rest = &rest[taken..];
        }
    });
    // The writer runs first, into the cap.
    tokio::time::sleep(SHORT).await;
    let mut got = Vec::new();
    timeout(LONG, server.read_to_end(&mut got)).await.unwrap().unwrap();
    writer.await.unwrap();
    assert_eq!(got.len(), 8 << 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ping_pong_of_many_tasks_loses_no_waker() {
    let _guard = watchdog("ping_pong_of_many_tasks_loses_no_waker");
    let stack = crate::common::stack();
    let mut tasks = Vec::new();
    for _ in 0..50 {
        let (mut client, mut server) = pair(&stack).await;
        tasks.push(tokio::spawn(async move {
            for turn in 0..scaled(300) {
                client.write_all(&[turn as u8]).await.unwrap();
                let mut byte = [0];
                client.read_exact(&mut byte).await.unwrap();
                assert_eq!(byte[0], turn as u8);
            }
        }));
        tasks.push(tokio::spawn(async move {
            let mut byte = [0];
            while server.read_exact(&mut byte).await.is_ok() {
                if server.write_all(&byte).await.is_err() {
                    break;
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_empty(&stack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn halves_read_write_and_name_the_addresses_of_their_stream() {
    let _guard = watchdog("halves_read_write_and_name_the_addresses_of_their_stream");
    let (mut client, mut server) = pair(&crate::common::stack()).await;
    let (here, there) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
    let (mut read, mut write) = client.split();
    write.write_all(b"one").await.unwrap();
    server.write_all(b"two").await.unwrap();
    let mut buf = [0; 3];
    server.read_exact(&mut buf).await.unwrap();
    assert_eq!(&buf, b"one");
    read.read_exact(&mut buf).await.unwrap();
    assert_eq!(&buf, b"two");
    assert_eq!((read.local_addr().unwrap(), write.peer_addr().unwrap()), (here, there));

    let (read, write) = client.into_split();
    assert_eq!((write.local_addr().unwrap(), read.peer_addr().unwrap()), (here, there));
    assert_eq!(read.try_read(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
    timeout(LONG, write.writable()).await.unwrap().unwrap();
    assert_eq!(write.try_write(b"six").unwrap(), 3);
    server.read_exact(&mut buf).await.unwrap();
    server.write_all(b"ten").await.unwrap();
    timeout(LONG, read.readable()).await.unwrap().unwrap();
    assert_eq!((read.try_read(&mut buf).unwrap(), &buf), (3, b"ten"));
    let stream = write.reunite(read).unwrap();
    assert_eq!(stream.local_addr().unwrap(), here);
}
