//! A stack with threads, one of everything that an application can hold of it, and threads that keep all of it busy.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use sockeye::netif::{
    CaptureConfig, CaptureHandle, Captured, Channel, ChannelConfig, ChannelPort, WireConfig, WireEnd,
    capture, channel, wire,
};
use sockeye::poll::{Interest, Poll, Token, Trigger};
use sockeye::unix::{self, UnixDatagram, UnixListener, UnixSeqpacket, UnixSocket, UnixStream};
use sockeye::{Config, IcmpSocket, MbufChain, Stack, Syn, TcpListener, TcpSocket, TcpStream, UdpSocket};
use sockeye_diag::{Published, publish_in};

/// The objects that the parent's threads use, and of which the child has copies.
pub struct World {
    pub stack: Stack,
    pub stream: TcpStream,
    pub listener: TcpListener,
    pub bound: TcpSocket,
    pub udp: UdpSocket,
    pub icmp: IcmpSocket,
    pub unix: UnixStream,
    pub unix_listener: UnixListener,
    pub datagram: UnixDatagram,
    pub seqpacket: UnixSeqpacket,
    pub unix_socket: UnixSocket,
    pub in_task: (sockeye::tokio::TcpStream, sockeye::tokio::UdpSocket, sockeye::tokio::unix::UnixStream),
    /// The other ends of those.
    pub _others: (TcpStream, UnixStream),
    pub task_listener: sockeye::tokio::TcpListener,
    pub poll: Poll,
    pub chain: MbufChain,
    pub syn: Syn,
    pub port: ChannelPort,
    pub capture: CaptureHandle,
    /// Interfaces that no stack has.
    pub spare: (Channel, ChannelPort, WireEnd, WireEnd, Captured<WireEnd>),
    /// Only to be dropped.
    pub _published: Published,
}

/// The threads.
pub struct Hammers {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Hammers {
    /// Rounds of all threads so far.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Ends them; panics if one of them has found something wrong.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads {
            thread.join().expect("the threads continue as if there had been no fork");
        }
    }
}

/// Repeats `round` on a thread until the end.
fn hammer(hammers: &mut Hammers, mut round: impl FnMut() + Send + 'static) {
    let (stop, rounds) = (Arc::clone(&hammers.stop), Arc::clone(&hammers.rounds));
    hammers.threads.push(std::thread::spawn(move || {
        while !stop.load(Ordering::Acquire) {
            round();
            rounds.fetch_add(1, Ordering::Relaxed);
        }
    }));
}

/// Echoes a pattern between two ends.
fn echo(mut here: impl Read + Write, mut there: impl Read + Write, seed: u8) {
    let (sent, mut got) = ([seed; 700], [0; 700]);
    here.write_all(&sent).expect("the connection stands");
    there.read_exact(&mut got).expect("the connection stands");
    there.write_all(&got).expect("the connection stands");
    here.read_exact(&mut got).expect("the connection stands");
    assert_eq!(sent, got);
}

fn tcp_pair(stack: &Stack) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind_on(stack, "127.0.0.1:0").unwrap();
    let client = TcpStream::connect_on(stack, listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// A listener that asks, and a SYN that it was asked about.
fn undecided(stack: &Stack) -> Syn {
    let listener = TcpListener::bind_on(stack, "127.0.0.1:0").unwrap();
    let asked = Arc::new(Mutex::new(None));
    let answer = Arc::clone(&asked);
    listener.set_syn_hook(Some(Box::new(move |syn| *answer.lock().unwrap() = Some(syn))));
    let mut client = TcpSocket::new_v4(stack);
    client.set_nonblocking(true);
    let _connecting = client.connect(listener.local_addr().unwrap()).unwrap();
    loop {
        if let Some(syn) = asked.lock().unwrap().take() {
            return syn;
        }
        std::thread::yield_now();
    }
}

/// Where a test may make files.
pub fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("sockeye-fork-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    folder
}

/// A connection and a listener that threads use.
fn busy_tcp(stack: &Stack, hammers: &mut Hammers) -> (TcpStream, TcpListener) {
    let (client, server) = tcp_pair(stack);
    let stream = client.try_clone().unwrap();
    hammer(hammers, move || echo(&client, &server, 1));
    let listener = TcpListener::bind_on(stack, "127.0.0.1:0").unwrap();
    let (churned, at) = (listener.try_clone().unwrap(), listener.local_addr().unwrap());
    let of = stack.clone();
    hammer(hammers, move || {
        let client = TcpStream::connect_on(&of, at).unwrap();
        echo(&client, churned.accept().unwrap().0, 2);
    });
    let of = stack.clone();
    hammer(hammers, move || {
        assert!(!of.counters().is_empty() && !of.sockets(true).is_empty());
        drop(of.unix_sockets());
        let chain = MbufChain::copied(&of, &[7; 5000]).unwrap();
        assert!(of.memory_in_use() >= chain.len());
    });
    (stream, listener)
}

/// Other sockets that threads use.
fn busy_others(stack: &Stack, hammers: &mut Hammers) -> (UdpSocket, UnixStream, UnixDatagram, UnixSeqpacket) {
    let udp = UdpSocket::bind_on(stack, "127.0.0.1:0").unwrap();
    let (own, to) = (udp.try_clone().unwrap(), udp.local_addr().unwrap());
    hammer(hammers, move || {
        own.send_to(&[3; 200], to).unwrap();
        assert_eq!(own.recv_from(&mut [0; 300]).unwrap(), (200, to));
    });
    let (here, there) = UnixStream::pair_on(stack).unwrap();
    let unix = here.try_clone().unwrap();
    hammer(hammers, move || echo(&here, &there, 4));
    let (datagram, other) = UnixDatagram::pair_on(stack).unwrap();
    let own = datagram.try_clone().unwrap();
    let (seqpacket, packets) = UnixSeqpacket::pair_on(stack).unwrap();
    let seq = seqpacket.try_clone().unwrap();
    hammer(hammers, move || {
        own.send(&[5; 90]).unwrap();
        seq.send(&[6; 3000]).unwrap();
        assert_eq!(other.recv(&mut [0; 100]).unwrap(), 90);
        assert_eq!(packets.recv(&mut [0; 4000]).unwrap(), 3000);
    });
    (udp, unix, datagram, seqpacket)
}

/// A poll that is marked all the time.
fn poll_of(stream: &TcpStream, udp: &UdpSocket, unix: &UnixStream) -> Poll {
    let poll = Poll::new(Duration::ZERO);
    poll.register(stream, Token(1), Interest::READABLE, Trigger::Level).unwrap();
    poll.register(udp, Token(2), Interest::READABLE, Trigger::Edge).unwrap();
    poll.register(unix, Token(3), Interest::READABLE, Trigger::Edge).unwrap();
    poll
}

impl World {
    /// One of everything, and the threads that use it.
    pub fn busy() -> (Self, Hammers) {
        let stack = Stack::new(Config { workers: 2, ..Config::default() }).unwrap();
        let mut hammers = Hammers { stop: Arc::default(), rounds: Arc::default(), threads: Vec::new() };
        let folder = folder();
        let (interface, mut ports) = channel(&ChannelConfig::default()).unwrap();
        let (interface, capture) = capture_to(interface, folder.join("stack.pcapng"));
        stack.attach(interface, &["10.7.0.1/24".parse().unwrap()]).unwrap();

        let (stream, listener) = busy_tcp(&stack, &mut hammers);
        let (udp, unix, datagram, seqpacket) = busy_others(&stack, &mut hammers);
        let port = ports.pop().unwrap();
        let poll = poll_of(&stream, &udp, &unix);
        let name = format!("/{}", std::process::id());
        let (task_tcp, other_tcp) = tcp_pair(&stack);
        let (task_unix, other_unix) = UnixStream::pair_on(&stack).unwrap();
        let task_udp = UdpSocket::bind_on(&stack, "127.0.0.1:0").unwrap();
        let task_listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
        let (spare, mut spare_ports) = channel(&ChannelConfig::default()).unwrap();
        let (left, right) = wire(&WireConfig::default()).unwrap();
        let (recorded, _other) = wire(&WireConfig::default()).unwrap();
        let (recorded, _handle) = capture_to(recorded, folder.join("spare.pcapng"));
        let world = Self {
            stream,
            listener,
            bound: {
                let mut socket = TcpSocket::new_v4(&stack);
                socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
                socket
            },
            udp,
            icmp: IcmpSocket::bind_on(&stack, "127.0.0.1".parse().unwrap()).unwrap(),
            unix,
            unix_listener: UnixListener::bind_on(&stack, name).unwrap(),
            datagram,
            seqpacket,
            unix_socket: UnixSocket::new_stream(&stack),
            in_task: (
                sockeye::tokio::TcpStream::from_std(task_tcp).unwrap(),
                sockeye::tokio::UdpSocket::from_std(task_udp).unwrap(),
                sockeye::tokio::unix::UnixStream::from_std(task_unix).unwrap(),
            ),
            _others: (other_tcp, other_unix),
            task_listener: sockeye::tokio::TcpListener::from_std(task_listener).unwrap(),
            poll,
            chain: MbufChain::copied(&stack, &[8; 100_000]).unwrap(),
            syn: undecided(&stack),
            port,
            capture,
            spare: (spare, spare_ports.pop().unwrap(), left, right, recorded),
            _published: publish_in(&folder, &stack, "busy").unwrap(),
            stack,
        };
        (world, hammers)
    }
}

fn capture_to<N: sockeye::netif::Netif>(netif: N, path: PathBuf) -> (Captured<N>, CaptureHandle) {
    capture(netif, &CaptureConfig::to(path)).unwrap()
}

/// Panics unless a call has failed as it does in a child.
#[track_caller]
pub fn refused<R: std::fmt::Debug>(done: std::io::Result<R>) {
    let error = done.expect_err("a child may not use its parent's stack");
    assert_eq!(error.kind(), ErrorKind::StaleNetworkFileHandle, "{error}");
    assert!(error.to_string().contains("make a new"), "{error}");
}

/// The name that a UNIX-domain socket of a test is bound to.
pub fn unix_name(path: &str) -> unix::SocketAddr {
    unix::SocketAddr::from_pathname(path).unwrap()
}
