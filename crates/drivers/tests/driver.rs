//! `sockeye::tokio::Driver` with a TUN device and the kernel on the other side, and the example that shows it; and with devices of machines.
//!
//! The kernel needs the right to create network namespaces and devices; without it the tests print that and pass.

#[path = "common/mod.rs"]
mod lab;
#[path = "../examples/tun_tokio.rs"]
mod tun_tokio;

use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lab::{client, eventually, skipped};
use sockeye::netif::{LinkOptions, MacAddr};
use sockeye::tokio::Driver;
use sockeye::{Config, Stack, TcpStream, UdpSocket};
use sockeye_drivers::testing::delete_link;
use sockeye_drivers::{FrameStream, Namespace, Tun, TunConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

/// The longest wait, so that a failing test ends.
const PATIENCE: Duration = Duration::from_secs(60);

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn stack() -> Stack {
    Stack::new(Config { workers: 0, ..Config::default() }).unwrap()
}

fn device(queues: usize) -> (Namespace, Tun) {
    let namespace = Namespace::new().unwrap();
    let config = TunConfig { queues, ..TunConfig::default() };
    let tun = namespace.run(|| tun_tokio::open(&config).unwrap()).unwrap();
    (namespace, tun)
}

/// Eight clients of a server on this runtime. The device is attached when the driver waits already.
fn serves_the_kernel(runtime: &Runtime, queues: usize) {
    let (namespace, tun) = device(queues);
    runtime.block_on(async {
        let stack = stack();
        let driven = tokio::spawn(Driver::new(&stack).unwrap());
        sleep(Duration::from_millis(5)).await;
        stack.attach(tun.clone(), &[tun_tokio::prefix(tun_tokio::SERVER).unwrap()]).unwrap();
        let listener = sockeye::tokio::TcpListener::bind_on(&stack, "10.9.0.2:7").await.unwrap();
        let serves = tokio::spawn(tun_tokio::serve(listener));
        let clients: Vec<_> = (0..8).map(|seed| namespace.spawn(move || client(seed)).unwrap()).collect();
        for client in clients {
            let joins = tokio::task::spawn_blocking(move || client.join().unwrap().unwrap());
            timeout(PATIENCE, joins).await.unwrap().unwrap();
        }
        assert!(!driven.is_finished());
        serves.abort();
        let _ = serves.await;
        drop(stack);
        timeout(PATIENCE, driven).await.unwrap().unwrap().unwrap();
    });
    let used = tun.counts().iter().filter(|queue| queue.frames_in > 0).count();
    assert!(used > queues / 2, "{used} of {queues} queues had frames");
}

#[test]
fn tasks_of_one_thread_serve_the_kernel() {
    if !skipped("a driver on one thread") {
        serves_the_kernel(&one_thread(), 1);
    }
}

#[test]
fn tasks_of_two_threads_serve_the_kernel_through_several_queues() {
    if !skipped("a driver of several queues") {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        serves_the_kernel(&runtime, 3);
    }
}

/// A connection of this thread, which blocks, to a server of the kernel, while a runtime drives the stack: only the driver takes frames.
fn leaves_the_device_to_the_driver(
    serve: impl FnOnce(std::net::TcpStream) + Send + 'static,
    run: impl FnOnce(TcpStream),
) {
    let (namespace, tun) = device(1);
    let listener = namespace.run(|| TcpListener::bind("10.9.0.1:7").unwrap()).unwrap();
    let server = std::thread::spawn(move || serve(listener.accept().unwrap().0));
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let stack = stack();
    stack.attach(tun, &[tun_tokio::prefix(tun_tokio::SERVER).unwrap()]).unwrap();
    let entered = runtime.enter();
    let _driven = runtime.spawn(Driver::new(&stack).unwrap());
    drop(entered);
    let stream = TcpStream::connect_on(&stack, SocketAddr::from(([10, 9, 0, 1], 7))).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    run(stream);
    server.join().unwrap();
    let counted = |name| stack.counters().into_iter().find(|(known, _)| *known == name).unwrap().1;
    assert_eq!(counted("input_by_callers") + counted("input_leads"), 0);
}

#[test]
fn a_thread_that_blocks_leaves_the_device_to_the_driver() {
    const TURNS: usize = 2000;
    if skipped("a blocking thread beside a driver") {
        return;
    }
    let answers = |mut stream: std::net::TcpStream| {
        let mut byte = [0];
        while stream.read(&mut byte).unwrap() > 0 {
            stream.write_all(&byte).unwrap();
        }
    };
    leaves_the_device_to_the_driver(answers, |mut stream| {
        for turn in 0..TURNS {
            let byte = turn.to_le_bytes()[0];
            stream.write_all(&[byte]).unwrap();
            let mut answer = [0];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer[0], byte);
        }
    });
}

#[test]
fn a_thread_that_blocks_in_a_long_write_leaves_the_device_to_the_driver() {
    const LEN: usize = 8 << 20;
    if skipped("a blocking writer beside a driver") {
        return;
    }
    let reads = |mut stream: std::net::TcpStream| {
        assert_eq!(std::io::copy(&mut stream, &mut std::io::sink()).unwrap(), LEN as u64);
    };
    leaves_the_device_to_the_driver(reads, |mut stream| stream.write_all(&vec![7; LEN]).unwrap());
}

#[test]
fn a_device_that_goes_ends_its_connections_and_not_the_driver() {
    if skipped("a device that goes under a driver") {
        return;
    }
    let (namespace, tun) = device(1);
    let listener = namespace.run(|| TcpListener::bind("10.9.0.1:7").unwrap()).unwrap();
    let held = std::thread::spawn(move || listener.accept().unwrap());
    one_thread().block_on(async {
        let stack = stack();
        stack.attach(tun.clone(), &[tun_tokio::prefix(tun_tokio::SERVER).unwrap()]).unwrap();
        let mut driver = Driver::new(&stack).unwrap();
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&polls);
        let driven = tokio::spawn(poll_fn(move |cx| {
            counted.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut driver).poll(cx)
        }));
        let to = SocketAddr::from(([10, 9, 0, 1], 7));
        let mut stream = sockeye::tokio::TcpStream::connect_on(&stack, to).await.unwrap();
        // Nothing is on its way, and no timer is near.
        sleep(Duration::from_secs(2)).await;
        delete_link(&namespace, tun.link().name()).unwrap();
        let read = timeout(Duration::from_secs(5), stream.read(&mut [0; 9])).await;
        assert_eq!(read.expect("the reader is told").unwrap_err().kind(), ErrorKind::NetworkDown);
        let before = polls.load(Ordering::Relaxed);
        sleep(Duration::from_millis(100)).await;
        let more = polls.load(Ordering::Relaxed) - before;
        assert!(more < 10, "the driver of a removed device is busy: {more} polls");
        let again = sockeye::tokio::TcpStream::connect_on(&stack, to).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::NetworkUnreachable);
        let listener = sockeye::tokio::TcpListener::bind_on(&stack, "127.0.0.1:0").await.unwrap();
        sockeye::tokio::TcpStream::connect_on(&stack, listener.local_addr().unwrap()).await.unwrap();
        assert!(!driven.is_finished());
        driven.abort();
    });
    drop(held.join().unwrap());
}

#[test]
fn a_device_is_read_by_whoever_has_it_after_a_driver() {
    if skipped("a device after its driver") {
        return;
    }
    let (namespace, tun) = device(1);
    let at: SocketAddr = "10.9.0.2:9".parse().unwrap();
    let send = || {
        let sends = || std::net::UdpSocket::bind("10.9.0.1:0").unwrap().send_to(b"hello", at).unwrap();
        namespace.run(sends).unwrap();
    };
    let attach = |stack: &Stack| {
        stack.attach(tun.clone(), &[tun_tokio::prefix(tun_tokio::SERVER).unwrap()]).unwrap();
        let socket = UdpSocket::bind_on(stack, at).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    let has_come = |socket: &UdpSocket| socket.recv_from(&mut [0; 9]).is_ok();
    let driven = stack();
    let socket = attach(&driven);
    one_thread().block_on(async {
        let driver = tokio::spawn(Driver::new(&driven).unwrap());
        // It waits by then, and hears of the frame.
        sleep(Duration::from_millis(20)).await;
        send();
        let comes = async {
            while !has_come(&socket) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, comes).await.expect("by the driver");
        driver.abort();
        let _ = driver.await;
    });
    send();
    eventually("by the program", || {
        driven.poll(Duration::from_secs(100));
        has_come(&socket)
    });
    // The last that is known is that there are no frames.
    one_thread().block_on(async {
        let driver = tokio::spawn(Driver::new(&driven).unwrap());
        // It waits by then, and hears of the frame.
        sleep(Duration::from_millis(20)).await;
        send();
        sleep(Duration::from_millis(20)).await;
        drop((socket, driven));
        let _ = timeout(PATIENCE, driver).await.expect("it ends with its stack");
    });
    let threaded = Stack::new(Config::default()).unwrap();
    let socket = attach(&threaded);
    send();
    eventually("by another stack", || has_come(&socket));
}

#[test]
fn frames_of_a_stream_socket_come_to_tasks_and_all_that_they_send_leaves() {
    const LEN: usize = 4 << 20;
    let attach = |stack: &Stack, socket: UnixStream, last: u8| {
        let stream = FrameStream::new(MacAddr([2, 0, 0, 0, 0, last]), 9000).unwrap();
        let options = LinkOptions { accept_ra: false, detect_duplicates: false, ..LinkOptions::default() };
        let addr = format!("10.9.0.{last}/24").parse().unwrap();
        stack.attach_with(stream.clone(), &[addr], &options).unwrap();
        stream.connect(socket.into()).unwrap();
    };
    let (ours, theirs) = UnixStream::pair().unwrap();
    let other = Stack::new(Config::default()).unwrap();
    attach(&other, theirs, 1);
    one_thread().block_on(async {
        let stack = stack();
        let driven = tokio::spawn(Driver::new(&stack).unwrap());
        sleep(Duration::from_millis(5)).await;
        attach(&stack, ours, 2);
        let listener = sockeye::tokio::TcpListener::bind_on(&stack, "10.9.0.2:7").await.unwrap();
        let client = tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect_on(&other, "10.9.0.2:7").unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
        });
        let (mut server, _) = timeout(PATIENCE, listener.accept()).await.expect("the driver hears").unwrap();
        server.write_all(&vec![7; LEN]).await.unwrap();
        server.shutdown().await.unwrap();
        assert_eq!(timeout(PATIENCE, client).await.unwrap().unwrap(), LEN as u64);
        assert!(!driven.is_finished());
        driven.abort();
    });
}

#[cfg(feature = "vhost-user")]
#[test]
fn a_driver_hears_of_a_machines_card() {
    one_thread().block_on(async {
        let stack = stack();
        let card = sockeye_drivers::VhostUser::new(MacAddr([2, 0, 0, 0, 0, 1]), 1500).unwrap();
        stack.attach(card.clone(), &["10.9.0.2/24".parse().unwrap()]).unwrap();
        let listener = sockeye::tokio::TcpListener::bind_on(&stack, "10.9.0.2:7").await.unwrap();
        let driven = tokio::spawn(Driver::new(&stack).unwrap());
        let to = SocketAddr::from(([10, 9, 0, 9], 7));
        let connecting = tokio::spawn(async move {
            let connected = sockeye::tokio::TcpStream::connect_on(&stack, to).await;
            connected.unwrap_err().kind()
        });
        sleep(Duration::from_millis(5)).await;
        card.end();
        let kind = timeout(Duration::from_secs(20), connecting).await.expect("it is told").unwrap();
        assert_eq!(kind, ErrorKind::NetworkDown);
        drop(listener);
        driven.abort();
    });
}
