//! Listeners that ask before they answer, and listeners for every address and port.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use sockeye::netif::{WireConfig, wire};
use sockeye::{Config, Stack, Syn, TcpListener, TcpSocket, TcpStream, Unsent};

fn stack() -> Stack {
    crate::common::stack_with(|_| {})
}

fn listener(stack: &Stack, hook: impl Fn(Syn) + Send + Sync + 'static) -> TcpListener {
    let listener = TcpListener::bind_on(stack, "127.0.0.1:0").unwrap();
    listener.set_syn_hook(Some(Box::new(hook)));
    listener
}

fn hello(mut from: &TcpStream, mut to: &TcpStream) {
    from.write_all(b"hello").unwrap();
    let mut bytes = [0; 5];
    to.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
}

#[test]
fn a_hook_sees_the_addresses_and_accepts_or_refuses() {
    let stack = stack();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let refusing = Arc::new(AtomicUsize::new(0));
    let refuses = Arc::clone(&refusing);
    let listener = listener(&stack, move |syn| {
        noted.lock().unwrap().push((syn.local_addr(), syn.peer_addr(), syn.peer_mss().is_some()));
        if refuses.load(Ordering::Relaxed) == 0 { syn.accept() } else { syn.refuse() }
    });
    let addr = listener.local_addr().unwrap();
    let client = TcpStream::connect_on(&stack, addr).unwrap();
    let (server, peer) = listener.accept().unwrap();
    hello(&client, &server);
    assert_eq!(*seen.lock().unwrap(), [(addr, peer, true)]);
    refusing.store(1, Ordering::Relaxed);
    assert_eq!(TcpStream::connect_on(&stack, addr).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    listener.set_syn_hook(None);
    TcpStream::connect_on(&stack, addr).unwrap();
    assert_eq!(seen.lock().unwrap().len(), 2);
}

#[test]
fn a_rejected_syn_ends_the_connect_by_what_the_icmp_error_says() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        let stack = stack();
        let why = Arc::new(Mutex::new(Unsent::HostUnreachable));
        let says = Arc::clone(&why);
        let listener = TcpListener::bind_on(&stack, bind).unwrap();
        listener.set_syn_hook(Some(Box::new(move |syn: Syn| syn.reject(*says.lock().unwrap()))));
        let addr = listener.local_addr().unwrap();
        for (said, kind) in [
            (Unsent::HostUnreachable, ErrorKind::HostUnreachable),
            (Unsent::NetworkUnreachable, ErrorKind::NetworkUnreachable),
            (Unsent::PortUnreachable, ErrorKind::ConnectionRefused),
        ] {
            *why.lock().unwrap() = said;
            assert_eq!(TcpStream::connect_on(&stack, addr).unwrap_err().kind(), kind, "{bind} {said:?}");
        }
    }
}

#[test]
fn a_rejection_quotes_the_syn_in_the_name_of_the_host() {
    // What leaves the stack is read here, as a kernel on the other side would.
    let stack = crate::common::stack_with(|config| config.workers = 0);
    let (channel, ports) = sockeye::netif::channel(&sockeye::netif::ChannelConfig::default()).unwrap();
    let netif = stack.attach(channel, &["10.0.0.1/24".parse().unwrap()]).unwrap();
    stack.set_any_address(netif, true).unwrap();
    let mut socket = TcpSocket::new_v4(&stack);
    socket.set_transparent(true);
    let listener = socket.listen_any(8).unwrap();
    listener.set_syn_hook(Some(Box::new(|syn: Syn| syn.reject(Unsent::HostUnreachable))));
    let syn = syn_to(Ipv4Addr::new(192, 0, 2, 1), 0x1234_5678);
    ports[0].send(&syn[..], None).unwrap();
    stack.poll(Duration::ZERO);
    let frame = ports[0].recv(Some(Duration::from_secs(10))).unwrap();
    let mut bytes = vec![0; frame.len()];
    frame.copy_to(&mut bytes);
    assert_eq!((bytes[9], &bytes[12..16], &bytes[16..20]), (1, &[192, 0, 2, 1][..], &[10, 0, 0, 9][..]));
    assert_eq!(bytes[20..22], [3, 1], "destination unreachable, host");
    // Addresses, ports and sequence number, by which a kernel finds the socket.
    assert_eq!((&bytes[28 + 12..28 + 20], &bytes[28 + 20..28 + 28]), (&syn[12..20], &syn[20..28]));
}

/// A SYN of 10.0.0.9:4000 to a port 80.
fn syn_to(to: Ipv4Addr, seq: u32) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 9];
    ip.extend(to.octets());
    let mut tcp = [&4000u16.to_be_bytes()[..], &80u16.to_be_bytes(), &seq.to_be_bytes()].concat();
    tcp.extend([0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
    let sum = |bytes: &[&[u8]]| {
        let words =
            bytes.iter().flat_map(|part| part.chunks(2)).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
        let mut sum: u32 = words.sum();
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (!(sum as u16)).to_be_bytes()
    };
    let of_tcp = sum(&[&ip[12..20], &[0, 6, 0, 20], &tcp]);
    tcp[16..18].copy_from_slice(&of_tcp);
    let of_ip = sum(&[&ip]);
    ip[10..12].copy_from_slice(&of_ip);
    [ip, tcp].concat()
}

#[test]
fn a_decision_may_come_later_from_another_thread() {
    let stack = stack();
    let (ask, asked) = mpsc::channel();
    let ask = Mutex::new(ask);
    let listener = listener(&stack, move |syn| ask.lock().unwrap().send(syn).unwrap());
    let addr = listener.local_addr().unwrap();
    let connecting = {
        let stack = stack.clone();
        std::thread::spawn(move || TcpStream::connect_on(&stack, addr).unwrap())
    };
    let syn = asked.recv().unwrap();
    assert!(!connecting.is_finished());
    syn.accept();
    let client = connecting.join().unwrap();
    let (server, _) = listener.accept().unwrap();
    hello(&server, &client);
}

/// A stack without threads, driven with simulated time, and the SYNs that its hook is asked about.
struct Driven {
    stack: Stack,
    now: Duration,
    listener: TcpListener,
    asked: Arc<Mutex<Vec<Syn>>>,
}

impl Driven {
    fn new() -> Self {
        let stack = crate::common::stack_with(|c| c.workers = 0);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&asked);
        let listener = listener(&stack, move |syn| keep.lock().unwrap().push(syn));
        listener.set_nonblocking(true).unwrap();
        Self { stack, now: Duration::ZERO, listener, asked }
    }

    fn connect(&self) -> TcpStream {
        let mut socket = TcpSocket::new_v4(&self.stack);
        socket.set_nonblocking(true);
        socket.connect(self.listener.local_addr().unwrap()).unwrap()
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.stack.poll(self.now).filter(|next| *next <= end) {
            self.now = next.max(self.now + Duration::from_micros(1));
        }
        self.now = end;
        self.stack.poll(self.now);
    }

    fn take(&self) -> Option<Syn> {
        self.asked.lock().unwrap().pop()
    }
}

#[test]
fn a_repeated_syn_is_asked_for_again_only_once_the_first_was_ignored() {
    let mut driven = Driven::new();
    let client = driven.connect();
    driven.pass(Duration::from_secs(8));
    assert_eq!(driven.asked.lock().unwrap().len(), 1, "three repetitions, one question");
    driven.take().unwrap().ignore();
    driven.pass(Duration::from_secs(8));
    let syn = driven.take().unwrap();
    drop(syn);
    driven.pass(Duration::from_secs(16));
    driven.take().unwrap().accept();
    driven.pass(Duration::from_secs(1));
    let (server, _) = driven.listener.accept().unwrap();
    hello(&client, &server);
}

#[test]
fn a_late_decision_has_no_effect() {
    let mut driven = Driven::new();
    // The client is closed.
    let client = driven.connect();
    let syn = driven.take().unwrap();
    drop(client);
    driven.pass(Duration::from_secs(1));
    syn.accept();
    driven.pass(Duration::from_secs(100));
    assert_eq!(driven.listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    // The listener is closed.
    let client = driven.connect();
    let syn = driven.take().unwrap();
    let stack = driven.stack.clone();
    drop(driven.listener);
    syn.accept();
    assert_eq!(client.take_error().unwrap().map(|e| e.kind()), Some(ErrorKind::ConnectionRefused));
    // The stack has ended.
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
    let kept = Arc::clone(&driven.asked);
    listener.set_syn_hook(Some(Box::new(move |syn| kept.lock().unwrap().push(syn))));
    let mut socket = TcpSocket::new_v4(&stack);
    socket.set_nonblocking(true);
    let client = socket.connect(listener.local_addr().unwrap()).unwrap();
    let syns = std::mem::take(&mut *driven.asked.lock().unwrap());
    assert_eq!(syns.len(), 1);
    drop((client, listener, stack, driven.stack));
    for syn in syns {
        syn.refuse();
    }
}

#[test]
fn undecided_syns_of_one_source_are_bounded() {
    let mut driven = Driven::new();
    let clients: Vec<_> = (0..1025).map(|_| driven.connect()).collect();
    assert_eq!(driven.asked.lock().unwrap().len(), 1024);
    let counters = driven.stack.counters();
    assert_eq!(counters.iter().find(|(name, _)| *name == "listen_overflows").map(|c| c.1), Some(1));
    driven.asked.lock().unwrap().drain(..).for_each(Syn::refuse);
    driven.pass(Duration::from_millis(1));
    let refused = clients.iter().filter(|c| c.take_error().unwrap().is_some()).count();
    assert_eq!(refused, 1024);
    driven.pass(Duration::from_secs(2));
    driven.take().expect("the client repeats the SYN that was dropped").refuse();
}

#[test]
fn a_hook_may_use_sockets_of_its_own() {
    let stack = stack();
    let behind = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
    let onward = behind.local_addr().unwrap();
    let through = stack.clone();
    let listener = listener(&stack, move |syn| match TcpStream::connect_on(&through, onward) {
        Ok(_) => syn.accept(),
        Err(_) => syn.refuse(),
    });
    let addr = listener.local_addr().unwrap();
    TcpStream::connect_on(&stack, addr).unwrap();
    drop(behind);
    assert_eq!(TcpStream::connect_on(&stack, addr).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

/// Connects when it is dropped.
struct Connects {
    stack: Stack,
    to: SocketAddr,
    result: Arc<Mutex<Option<std::io::Result<TcpStream>>>>,
}

impl Drop for Connects {
    fn drop(&mut self) {
        let result = TcpStream::connect_on(&self.stack, self.to);
        *self.result.lock().unwrap() = Some(result);
    }
}

#[test]
fn a_listener_that_is_dropped_has_ended_when_its_hook_is_dropped() {
    let stack = stack();
    let listener = listener(&stack, Syn::refuse);
    let result = Arc::new(Mutex::new(None));
    let to = listener.local_addr().unwrap();
    let connects = Connects { stack: stack.clone(), to, result: Arc::clone(&result) };
    listener.set_syn_hook(Some(Box::new(move |syn: Syn| {
        let _kept = &connects;
        syn.refuse();
    })));
    assert_eq!(TcpStream::connect_on(&stack, to).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    drop(listener);
    let result = result.lock().unwrap().take();
    let result = result.expect("the hook is dropped with its listener");
    assert_eq!(result.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

fn any(stack: &Stack, change: impl FnOnce(&mut TcpSocket)) -> std::io::Result<TcpListener> {
    let mut socket = TcpSocket::new_v4(stack);
    socket.set_transparent(true);
    change(&mut socket);
    socket.listen_any(16)
}

#[test]
fn a_listener_for_every_port_is_matched_last() {
    let stack = stack();
    let all = any(&stack, |_| {}).unwrap();
    let one = TcpListener::bind_on(&stack, "127.0.0.1:4711").unwrap();
    let _to_one = TcpStream::connect_on(&stack, "127.0.0.1:4711").unwrap();
    assert_eq!(one.accept().unwrap().0.local_addr().unwrap().port(), 4711);
    for to in ["127.0.0.1:9", "127.9.8.7:4712"] {
        let client = TcpStream::connect_on(&stack, to).unwrap();
        let (server, peer) = all.accept().unwrap();
        assert_eq!(server.local_addr().unwrap(), to.parse::<SocketAddr>().unwrap());
        assert_eq!(peer, client.local_addr().unwrap());
        hello(&client, &server);
    }
    assert_eq!(any(&stack, |_| {}).unwrap_err().kind(), ErrorKind::AddrInUse);
    let unasked = TcpSocket::new_v4(&stack).listen_any(1).unwrap_err();
    assert!(unasked.to_string().contains("set_transparent"), "{unasked}");
    drop(all);
    assert_eq!(
        TcpStream::connect_on(&stack, "127.0.0.1:9").unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    let shared = |socket: &mut TcpSocket| socket.set_reuse_port(true);
    let _two = [any(&stack, shared).unwrap(), any(&stack, shared).unwrap()];
}

#[test]
fn packets_to_any_host_are_accepted_on_interfaces_that_allow_it() {
    let (here, there) = wire(&WireConfig::default()).unwrap();
    let (client, proxy) = (Stack::new(Config::default()).unwrap(), Stack::new(Config::default()).unwrap());
    let out = client.attach(here, &["10.0.0.1/24".parse().unwrap()]).unwrap();
    client.add_route("0.0.0.0/0".parse().unwrap(), out).unwrap();
    let device = proxy.attach(there, &["10.0.0.2/24".parse().unwrap()]).unwrap();
    let all = any(&proxy, |_| {}).unwrap();
    let to = SocketAddr::from((Ipv4Addr::new(198, 51, 100, 7), 443));
    let unheard = TcpSocket::new_v4(&client).connect_timeout(to, Duration::from_millis(50)).unwrap_err();
    assert_eq!(unheard.kind(), ErrorKind::TimedOut);
    proxy.set_any_address(device, true).unwrap();
    let from_client = TcpStream::connect_on(&client, to).unwrap();
    let (server, _) = all.accept().unwrap();
    assert_eq!(server.local_addr().unwrap(), to);
    hello(&from_client, &server);
    hello(&server, &from_client);
    // In the name of that host the proxy can also connect.
    let listener = TcpListener::bind_on(&client, "10.0.0.1:0").unwrap();
    let mut socket = TcpSocket::new_v4(&proxy);
    assert_eq!(socket.bind(to).unwrap_err().kind(), ErrorKind::AddrNotAvailable);
    socket.set_transparent(true);
    socket.bind(SocketAddr::new(to.ip(), 0)).unwrap();
    let stream = socket.connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip(), to.ip());
    hello(&stream, &accepted);
}
