//! Signals in every call: a handler without `SA_RESTART` runs repeatedly on all threads of the process, those of
//! applications in blocking calls, of stacks, of a device and of a runtime. It ends no call, shortens no timeout,
//! and loses no transferred byte.
//!
//! All of it is in one process, so the tests run one at a time.

mod common;

use std::fmt::Debug;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use common::{Lab, bytes, hash, skipped};
use sockeye::poll::{Events, Interest, Poll, Token, Trigger};
use sockeye::unix::{self, UnixDatagram, UnixListener, UnixSeqpacket, UnixStream};
use sockeye::{Config, IcmpSocket, Stack, TcpListener, TcpSocket, TcpStream, UdpSocket};
use sockeye_drivers::testing::Signals;
use sockeye_drivers::{Layer, TunConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Between two signals to a thread.
const EVERY: Duration = Duration::from_micros(500);
/// Signals to a thread in a blocking call before the event that it waits for.
const SIGNALS: u64 = 40;
/// Of the calls that end by their time.
const TIMEOUT: Duration = Duration::from_millis(150);
/// The time that a busy machine may add to it.
const SLACK: Duration = Duration::from_secs(60);
/// Buffers, so small that a writer has to wait soon.
const BUFFER: u32 = 16 << 10;
/// The bytes that are written into them.
const LEN: usize = 1 << 20;
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// One test at a time has signals.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stack() -> Stack {
    let [sndbuf, sndbuf_max, rcvbuf, rcvbuf_max] = [BUFFER; 4];
    Stack::new(Config { sndbuf, sndbuf_max, rcvbuf, rcvbuf_max, ..Config::default() }).unwrap()
}

/// Makes `call` on a thread that gets signals while nothing else happens, then lets `release` end its wait.
fn stands<R: Send>(
    signals: &Signals,
    what: &str,
    call: impl FnOnce() -> R + Send,
    release: impl FnOnce(),
) -> R {
    let (begun, before) = (AtomicBool::new(false), Signals::handled());
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            begun.store(true, Ordering::Release);
            call()
        });
        while !begun.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        signals.pass(SIGNALS);
        assert!(!calling.is_finished(), "{what} has ended before its event");
        assert!(Signals::handled() >= before + SIGNALS, "{what} had no signals");
        release();
        calling.join().unwrap()
    })
}

/// Writes all of `data`, and does not bear that a write is interrupted, as `write_all` would.
fn write(mut to: impl Write, data: &[u8]) {
    let mut rest = data;
    while !rest.is_empty() {
        let len = to.write(rest).unwrap();
        rest = &rest[len..];
    }
}

/// Reads `len` bytes, and does not bear that a read is interrupted, as `read_exact` would. The hash of them.
fn read(mut from: impl Read, len: usize) -> [u8; 32] {
    let mut got = vec![0; len];
    let mut filled = 0;
    while filled < len {
        let read = from.read(&mut got[filled..]).unwrap();
        assert!(read > 0, "the end after {filled} bytes");
        filled += read;
    }
    hash(&got)
}

fn tcp_pair(stack: &Stack) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind_on(stack, (HERE, 0)).unwrap();
    let client = TcpStream::connect_on(stack, listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn name(text: &str) -> unix::SocketAddr {
    unix::SocketAddr::from_abstract_name(text).unwrap()
}

#[test]
fn tcp_continues_after_signals() {
    let _turn = turn();
    let (signals, stack) = (Signals::begin(EVERY).unwrap(), stack());
    let listener = TcpListener::bind_on(&stack, (HERE, 0)).unwrap();
    let to = listener.local_addr().unwrap();
    let connect = || TcpStream::connect_on(&stack, to);
    stands(&signals, "accept", || listener.accept(), || drop(connect().unwrap())).unwrap();
    // The SYN is answered when its hook accepts it.
    let (ask, asked) = mpsc::channel();
    let ask = Mutex::new(ask);
    listener.set_syn_hook(Some(Box::new(move |syn| ask.lock().unwrap().send(syn).unwrap())));
    stands(&signals, "connect", connect, || asked.recv().unwrap().accept()).unwrap();

    let (client, server) = tcp_pair(&stack);
    let len = stands(&signals, "peek", || server.peek(&mut [0; 9]), || write(&client, b"hello"));
    assert_eq!(len.unwrap(), 5);
    assert_eq!(read(&server, 5), hash(b"hello"));
    let got = stands(&signals, "read", || read(&server, 5), || write(&client, b"again"));
    assert_eq!(got, hash(b"again"));
    let data = bytes(7, LEN);
    stands(&signals, "write", || write(&client, &data), || assert_eq!(read(&server, LEN), hash(&data)));
}

#[test]
fn datagrams_and_echo_continue_after_signals() {
    let _turn = turn();
    let (signals, stack) = (Signals::begin(EVERY).unwrap(), stack());
    let (receiver, sender) = (UdpSocket::bind_on(&stack, (HERE, 0)).unwrap(), udp_socket(&stack));
    let to = receiver.local_addr().unwrap();
    let send = || assert_eq!(sender.send_to(b"hello", to).unwrap(), 5);
    let got = stands(&signals, "recv_from", || receiver.recv_from(&mut [0; 9]), send).unwrap();
    assert_eq!(got, (5, sender.local_addr().unwrap()));

    let ping = IcmpSocket::bind_on(&stack, HERE).unwrap();
    let ask = || ping.send_to(3, b"there?", HERE).unwrap();
    let reply = stands(&signals, "recv of an echo", || ping.recv(&mut [0; 9]), ask).unwrap();
    assert_eq!((reply.seq, reply.len), (3, 6));

    // A send waits where there is no packet memory.
    let small = Stack::new(Config { memory_max: 1 << 20, udp_rcvbuf: 2 << 20, ..Config::default() }).unwrap();
    let (hoarder, sender) = (udp_socket(&small), udp_socket(&small));
    let to = hoarder.local_addr().unwrap();
    sender.set_nonblocking(true).unwrap();
    let held = std::iter::from_fn(|| sender.send_to(&[7; 1024], to).ok()).count();
    sender.set_nonblocking(false).unwrap();
    let free = || (0..held).for_each(|_| assert_eq!(hoarder.recv(&mut [0; 2048]).unwrap(), 1024));
    assert_eq!(stands(&signals, "send_to", || sender.send_to(&[8; 1024], to), free).unwrap(), 1024);
    assert_eq!(hoarder.recv(&mut [0; 2048]).unwrap(), 1024, "the waiting connection was accepted");
}

fn udp_socket(stack: &Stack) -> UdpSocket {
    UdpSocket::bind_on(stack, (HERE, 0)).unwrap()
}

#[test]
fn unix_domain_sockets_continue_after_signals() {
    let _turn = turn();
    let (signals, stack) = (Signals::begin(EVERY).unwrap(), stack());
    let at = name("listener");
    let listener = UnixListener::bind_addr_on(&stack, &at).unwrap();
    listener.set_backlog(0).unwrap();
    let connect = || UnixStream::connect_addr_on(&stack, &at);
    stands(&signals, "accept", || listener.accept(), || drop(connect().unwrap())).unwrap();
    let first = connect().unwrap();
    let second = stands(&signals, "connect", connect, || drop(listener.accept().unwrap())).unwrap();
    drop((first, second));

    let (here, there) = UnixStream::pair_on(&stack).unwrap();
    assert_eq!(stands(&signals, "read", || read(&there, 5), || write(&here, b"hello")), hash(b"hello"));
    let data = bytes(8, LEN);
    stands(&signals, "write", || write(&here, &data), || assert_eq!(read(&there, LEN), hash(&data)));

    let (here, there) = UnixSeqpacket::pair_on(&stack).unwrap();
    let got = stands(&signals, "recv of a record", || there.recv(&mut [0; 9]), || drop(here.send(b"hello")));
    assert_eq!(got.unwrap(), 5);

    let (here, there) = UnixDatagram::pair_on(&stack).unwrap();
    let got =
        stands(&signals, "recv of a datagram", || there.recv(&mut [0; 9]), || drop(here.send(b"hello")));
    assert_eq!(got.unwrap(), 5);
    here.set_nonblocking(true).unwrap();
    let queued = std::iter::from_fn(|| here.send(&[1; 1000]).ok()).count();
    here.set_nonblocking(false).unwrap();
    let take = || (0..queued).for_each(|_| assert_eq!(there.recv(&mut [0; 1000]).unwrap(), 1000));
    assert_eq!(stands(&signals, "send of a datagram", || here.send(&[2; 10]), take).unwrap(), 10);
    assert_eq!(there.recv(&mut [0; 1000]).unwrap(), 10);
}

#[test]
fn a_wait_for_readiness_continues_after_signals() {
    let _turn = turn();
    let (signals, stack) = (Signals::begin(EVERY).unwrap(), stack());
    let (client, server) = tcp_pair(&stack);
    for spin in [Duration::ZERO, Duration::from_micros(50)] {
        let poll = Poll::new(spin);
        poll.register(&server, Token(7), Interest::READABLE, Trigger::Level).unwrap();
        let wait = || {
            let mut events = Events::with_capacity(4);
            poll.wait(&mut events, None).map(|count| (count, events.iter().next().map(|event| event.token())))
        };
        let got = stands(&signals, "wait", wait, || write(&client, b"hello")).unwrap();
        assert_eq!(got, (1, Some(Token(7))));
        assert_eq!(read(&server, 5), hash(b"hello"));
    }
}

#[test]
fn signals_neither_shorten_nor_restart_timeouts() {
    let _turn = turn();
    let (_signals, stack) = (Signals::begin(EVERY).unwrap(), stack());
    let some = Some(TIMEOUT);
    let (client, server) = tcp_pair(&stack);
    client.set_write_timeout(some).unwrap();
    server.set_read_timeout(some).unwrap();
    ends_in_time("read", || server.peek(&mut [0]), ErrorKind::WouldBlock);
    let write_on = |write: &dyn Fn(&[u8]) -> io::Result<usize>| -> io::Result<()> {
        loop {
            write(&[0; 4096])?;
        }
    };
    ends_in_time("write", || write_on(&|bytes| (&client).write(bytes)), ErrorKind::WouldBlock);
    let undecided = TcpListener::bind_on(&stack, (HERE, 0)).unwrap();
    undecided.set_syn_hook(Some(Box::new(sockeye::Syn::ignore)));
    let to = undecided.local_addr().unwrap();
    ends_in_time("connect", || TcpSocket::new_v4(&stack).connect_timeout(to, TIMEOUT), ErrorKind::TimedOut);

    let udp = udp_socket(&stack);
    udp.set_read_timeout(some).unwrap();
    ends_in_time("recv", || udp.recv(&mut [0]), ErrorKind::WouldBlock);
    let ping = IcmpSocket::bind_on(&stack, HERE).unwrap();
    ping.set_read_timeout(some).unwrap();
    ends_in_time("recv of an echo", || ping.recv(&mut [0]), ErrorKind::WouldBlock);

    let (here, there) = UnixStream::pair_on(&stack).unwrap();
    here.set_read_timeout(some).unwrap();
    here.set_write_timeout(some).unwrap();
    ends_in_time("read of a pair", || (&here).read(&mut [0]), ErrorKind::WouldBlock);
    ends_in_time("write to a pair", || write_on(&|bytes| (&here).write(bytes)), ErrorKind::WouldBlock);
    let listener = UnixListener::bind_addr_on(&stack, &name("timeouts")).unwrap();
    listener.set_read_timeout(some).unwrap();
    ends_in_time("accept", || listener.accept(), ErrorKind::WouldBlock);

    let poll = Poll::new(Duration::ZERO);
    poll.register(&client, Token(1), Interest::READABLE, Trigger::Level).unwrap();
    let nothing = || match poll.wait(&mut Events::with_capacity(1), some)? {
        0 => Err::<(), _>(ErrorKind::TimedOut.into()),
        events => panic!("{events} events"),
    };
    ends_in_time("wait", nothing, ErrorKind::TimedOut);
    drop((server, there));
}

/// A call that fails at the end of its time, and not before.
fn ends_in_time<R: Debug>(what: &str, call: impl FnOnce() -> io::Result<R>, kind: ErrorKind) {
    let begun = Instant::now();
    let error = call().unwrap_err();
    let took = begun.elapsed();
    assert_eq!(error.kind(), kind, "{what}: {error}");
    assert!((TIMEOUT..TIMEOUT + SLACK).contains(&took), "{what} took {took:?}");
}

/// An echo server on the kernel's sockets. Its own calls are interrupted, and continue.
fn kernel_echo(lab: &Lab) -> (SocketAddr, std::thread::JoinHandle<()>) {
    let at = lab.kernel_addr(false, 0);
    let listener = lab.kernel(move || std::net::TcpListener::bind(at).unwrap()).join().unwrap();
    let to = listener.local_addr().unwrap();
    let serving = lab.kernel(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 60_000];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return stream.shutdown(Shutdown::Write).unwrap(),
                Ok(len) => stream.write_all(&buffer[..len]).unwrap(),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted),
            }
        }
    });
    (to, serving)
}

#[test]
fn the_threads_of_a_device_continue_after_signals_and_its_streams_arrive_whole() {
    let _turn = turn();
    if skipped("signals to the threads of a device") {
        return;
    }
    for (layer, queues) in [(Layer::Ip, 1), (Layer::Ip, 2), (Layer::Ethernet, 1)] {
        let lab = Lab::new(&TunConfig { layer, queues, ..TunConfig::default() });
        let (to, serving) = kernel_echo(&lab);
        let (signals, before) = (Signals::begin(EVERY).unwrap(), Signals::handled());
        let stream = TcpStream::connect_on(&lab.stack, to).unwrap();
        let data = bytes(9, 8 * LEN);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Some of it, and then some time with signals only.
                for part in data.chunks(2 * LEN) {
                    write(&stream, part);
                    signals.pass(SIGNALS);
                }
                stream.shutdown(Shutdown::Write).unwrap();
            });
            assert_eq!(read(&stream, data.len()), hash(&data));
        });
        serving.join().unwrap();
        assert!(Signals::handled() > before + SIGNALS, "no thread had signals");
        assert_eq!(lab.tun.counts().iter().map(|count| count.failed_reads).sum::<u64>(), 0);
    }
}

#[cfg(feature = "vhost-user")]
#[test]
fn a_machines_card_keeps_its_front_end() {
    let _turn = turn();
    let signals = Signals::begin(EVERY).unwrap();
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let card = sockeye_drivers::VhostUser::new(sockeye::netif::MacAddr([2, 0, 0, 0, 0, 1]), 1500).unwrap();
    card.connect(ours).unwrap();
    signals.pass(SIGNALS);
    assert!(card.is_connected());
}

#[test]
fn the_threads_and_tasks_of_a_runtime_continue_after_signals() {
    let _turn = turn();
    let (signals, stack) = (Signals::begin(EVERY).unwrap(), stack());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let data = bytes(10, LEN);
    let expected = hash(&data);
    runtime.block_on(async {
        let listener = sockeye::tokio::TcpListener::bind_on(&stack, (HERE, 0)).await.unwrap();
        let to = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            let (mut from, mut back) = listener.accept().await.unwrap().0.into_split();
            tokio::io::copy(&mut from, &mut back).await.unwrap()
        });
        let stream = sockeye::tokio::TcpStream::connect_on(&stack, to).await.unwrap();
        let (mut answers, mut asks) = stream.into_split();
        let asking = tokio::spawn(async move {
            asks.write_all(&data).await.unwrap();
            asks.shutdown().await.unwrap();
        });
        let mut got = Vec::new();
        answers.read_to_end(&mut got).await.unwrap();
        assert_eq!(hash(&got), expected);
        asking.await.unwrap();
        assert_eq!(serving.await.unwrap(), LEN as u64);

        // A task that waits while its runtime's threads have nothing but signals.
        let socket = sockeye::tokio::UdpSocket::bind_on(&stack, (HERE, 0)).await.unwrap();
        let to = socket.local_addr().unwrap();
        let waiting = tokio::spawn(async move { socket.recv_from(&mut [0; 9]).await.unwrap().0 });
        tokio::task::block_in_place(|| signals.pass(SIGNALS));
        assert!(!waiting.is_finished());
        assert_eq!(udp_socket(&stack).send_to(b"hello", to).unwrap(), 5);
        assert_eq!(waiting.await.unwrap(), 5);
    });
}
