//! The examples, with the kernel on both sides: a sandbox whose packets all enter a stack, and an outside.
//!
//! Needs the right to create network namespaces and devices; without it the tests print that and pass.

#[path = "../examples/gateway/allow.rs"]
mod allow;
#[path = "../examples/byo_loop.rs"]
mod byo_loop;
#[path = "../examples/common/mod.rs"]
mod common;
#[path = "common/hidden.rs"]
mod hidden;
#[path = "common/mod.rs"]
mod lab;
#[path = "../examples/gateway/reach.rs"]
mod reach;
#[path = "../examples/tun_http.rs"]
mod tun_http;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use allow::AllowList;
use common::{Policy, sandbox, tcp, udp};
use hidden::{HIDDEN, HIDDEN_OWN, OWN, packet};
use lab::{bytes, eventually, exchange, hash, skipped};
use sockeye::{Config, Stack};
use sockeye_drivers::Namespace;
use sockeye_drivers::link::KernelLink;

/// Where servers are.
const OUTSIDE: [&str; 2] = ["198.51.100.7", "2001:db8::7"];
/// The longest wait of a read, so that a failing test ends.
const PATIENCE: Duration = Duration::from_secs(60);

struct World {
    outside: Namespace,
    inside: Namespace,
    stack: Stack,
}

impl World {
    fn new(policy: Arc<Policy>) -> Self {
        let outside = Namespace::new().unwrap();
        let start = || {
            for (addr, len) in OUTSIDE.iter().zip([32, 128]) {
                KernelLink::new("lo").add_addr(format!("{addr}/{len}").parse().unwrap()).unwrap();
            }
            let (inside, tun) = sandbox::sandbox().unwrap();
            let stack = Stack::new(Config::default()).unwrap();
            sandbox::attach(&stack, tun).unwrap();
            tcp::serve(&stack, Arc::clone(&policy)).unwrap();
            udp::serve(&stack, policy).unwrap();
            (inside, stack)
        };
        let (inside, stack) = outside.run(start).unwrap();
        Self { outside, inside, stack }
    }

    fn open() -> Self {
        Self::new(Arc::new(|_, _| true))
    }

    fn listener(&self, v6: bool) -> TcpListener {
        self.outside.run(|| TcpListener::bind((OUTSIDE[usize::from(v6)], 0)).unwrap()).unwrap()
    }

    /// A socket that echoes datagrams, until it receives none for a long time.
    fn udp_echo(&self, v6: bool) -> SocketAddr {
        let socket = self.outside.run(|| UdpSocket::bind((OUTSIDE[usize::from(v6)], 0)).unwrap()).unwrap();
        let addr = socket.local_addr().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((len, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&buffer[..len], from);
            }
        });
        addr
    }

    fn udp_client(&self, to: SocketAddr) -> UdpSocket {
        let wildcard = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = self.inside.run(|| UdpSocket::bind(wildcard).unwrap()).unwrap();
        socket.connect(to).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    fn connect(&self, to: SocketAddr) -> std::io::Result<TcpStream> {
        let stream = self.inside.run(|| TcpStream::connect(to)).unwrap()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// A client inside, and its server outside.
    fn connected(&self) -> (TcpStream, TcpStream) {
        let listener = self.listener(false);
        let client = self.connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        (client, server)
    }

    fn inside<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> JoinHandle<std::io::Result<R>> {
        self.inside.spawn(work).unwrap()
    }
}

#[test]
fn a_proxy_carries_connections_whole_in_both_directions() {
    if skipped("connections through tun2proxy") {
        return;
    }
    let world = World::open();
    for (v6, len) in [(false, 10_000_000), (true, 3_000_000), (false, 1), (true, 0)] {
        let listener = world.listener(v6);
        let to = listener.local_addr().unwrap();
        let client = world.inside(move || exchange(TcpStream::connect(to).unwrap(), 1, len));
        let [sent, received] = exchange(listener.accept().unwrap().0, 2, len);
        assert_eq!(client.join().unwrap().unwrap(), [received, sent], "{to}: {len} bytes");
    }
}

#[test]
fn a_proxy_keeps_half_closed_connections() {
    if skipped("half-closed connections through tun2proxy") {
        return;
    }
    let world = World::open();
    let data = bytes(5, 2_000_000);
    let (mut client, mut server) = world.connected();
    let question = data.clone();
    let asking = std::thread::spawn(move || {
        client.write_all(&question).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        answer
    });
    let mut question = Vec::new();
    // It gets the end of the stream although the client still reads; answers after that arrive.
    server.read_to_end(&mut question).unwrap();
    server.write_all(&question).unwrap();
    drop(server);
    assert_eq!(hash(&asking.join().unwrap()), hash(&data));
}

#[test]
fn a_proxy_stops_the_writer_when_the_other_side_does_not_read() {
    if skipped("back-pressure through tun2proxy") {
        return;
    }
    let world = World::open();
    let (mut client, mut server) = world.connected();
    client.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let (chunk, mut written) = (vec![7; 64 << 10], 0);
    // Everything between the two ends is bounded: their buffers, which grow by themselves, and the proxy's.
    let stopped = loop {
        match client.write(&chunk) {
            Ok(len) => written += len,
            Err(error) => break error,
        }
        assert!(written < 512 << 20, "nothing stops the writer");
    };
    assert_eq!(stopped.kind(), ErrorKind::WouldBlock);
    drop(client);
    let mut rest = Vec::new();
    server.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), written);
}

#[test]
fn a_proxy_refuses_connections_that_its_target_refuses() {
    if skipped("refusals through tun2proxy") {
        return;
    }
    let world = World::open();
    let gone = world.listener(false).local_addr().unwrap();
    assert_eq!(world.connect(gone).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    eventually("all connections end", || world.stack.connection_count() == 0);
}

#[test]
fn a_proxy_carries_datagrams_and_their_answers() {
    if skipped("datagrams through tun2proxy") {
        return;
    }
    let world = World::open();
    for v6 in [false, true] {
        let (one, other) = (world.udp_echo(v6), world.udp_echo(v6));
        // Connected sockets receive only from their peer.
        let clients = [one, other, one].map(|to| world.udp_client(to));
        for (index, client) in clients.iter().enumerate() {
            for len in [0, 1, 1200] {
                let question = bytes(index as u64, len);
                client.send(&question).unwrap();
                let mut answer = [0; 2048];
                assert_eq!(client.recv(&mut answer).unwrap(), len);
                assert_eq!(answer[..len], question);
            }
        }
    }
}

#[test]
fn a_proxy_passes_on_that_a_port_is_closed() {
    if skipped("refused datagrams through tun2proxy") {
        return;
    }
    let world = World::open();
    for v6 in [false, true] {
        let closed = world.outside.run(|| UdpSocket::bind((OUTSIDE[usize::from(v6)], 0)).unwrap()).unwrap();
        let client = world.udp_client(closed.local_addr().unwrap());
        drop(closed);
        client.send(b"anybody?").unwrap();
        assert_eq!(client.recv(&mut [0; 16]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
}

#[test]
fn a_gateway_passes_listed_destinations_and_reports_others() {
    if skipped("an allow list") {
        return;
    }
    let lines = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::new(Mutex::new(None::<AllowList>));
    let asked = Arc::clone(&list);
    // The servers' ports are known only when they are there.
    let world = World::new(Arc::new(move |protocol, to| {
        asked.lock().unwrap().as_ref().unwrap().permits(protocol, to)
    }));
    let (allowed, forbidden) = (world.listener(false), world.listener(false));
    let [good, bad] = [&allowed, &forbidden].map(|listener| listener.local_addr().unwrap());
    let (heard, unheard) = (world.udp_echo(true), world.udp_echo(true));
    let log = Arc::clone(&lines);
    // They are addresses of the host that the gateway runs on, so they have to be named one by one.
    let patterns = [good.to_string(), heard.to_string()];
    *list.lock().unwrap() =
        Some(AllowList::new(&patterns, move |line| log.lock().unwrap().push(line.to_owned())).unwrap());

    let client = world.connect(good).unwrap();
    let server = allowed.accept().unwrap().0;
    assert_eq!(world.connect(bad).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(world.connect(bad).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    forbidden.set_nonblocking(true).unwrap();
    assert_eq!(forbidden.accept().unwrap_err().kind(), ErrorKind::WouldBlock);

    let (refused, asked) = (world.udp_client(unheard), world.udp_client(heard));
    refused.send(b"anybody?").unwrap();
    asked.send(b"anybody?").unwrap();
    assert_eq!(asked.recv(&mut [0; 16]).unwrap(), 8);
    assert_eq!(refused.recv(&mut [0; 16]).unwrap_err().kind(), ErrorKind::PermissionDenied);

    let logged = lines.lock().unwrap().clone();
    assert_eq!(logged, [format!("refused Tcp to {bad}"), format!("refused Udp to {unheard}")]);
    assert_eq!(list.lock().unwrap().as_ref().unwrap().refused()[&bad], 2);
    drop((client, server));
}

#[test]
fn an_allow_list_accepts_addresses_networks_and_wildcards_and_names_errors() {
    let permits = |pattern: &str, to: &str| {
        let patterns: Vec<String> = pattern.split(' ').map(str::to_owned).collect();
        let is_own = |addr| OWN.iter().any(|own| own.parse() == Ok(addr));
        let list = AllowList::with(&patterns, is_own, |_| {}).unwrap();
        list.permits(common::Protocol::Tcp, to.parse().unwrap())
    };
    for (pattern, to) in [
        ("10.0.0.1:80", "10.0.0.1:80"),
        ("10.0.0.0/8:*", "10.9.8.7:1"),
        ("*:53", "[2001:db8::1]:53"),
        ("*:*", "10.0.0.1:1"),
        ("[2001:db8::1]:443", "[2001:db8::1]:443"),
        ("[2001:db8::/32]:443", "[2001:db8:1::1]:443"),
        // Listed destinations, in either form of an address.
        ("[::ffff:10.0.0.1]:80", "10.0.0.1:80"),
        ("10.0.0.1:80", "[::ffff:10.0.0.1]:80"),
        ("127.0.0.1:80", "127.0.0.1:80"),
        ("127.0.0.0/8:80", "127.9.9.9:80"),
        ("[::1]:80", "[::1]:80"),
        ("169.254.169.254:80", "169.254.169.254:80"),
        ("10.1.1.1:80", "10.1.1.1:80"),
        ("[2001:db8::1:1]:80", "[2001:db8::1:1]:80"),
        // Addresses that embed another, if both are listed.
        ("*:80", "[64:ff9b::8.8.8.8]:80"),
        ("[64:ff9b::/96]:80 8.8.8.8:80", "[64:ff9b::8.8.8.8]:80"),
        ("[64:ff9b:1::/48]:80", "[64:ff9b:1::8.8.8.8]:80"),
    ] {
        assert!(permits(pattern, to), "{pattern} {to}");
    }
    for (pattern, to) in [
        ("10.0.0.1:80", "10.0.0.1:81"),
        ("10.0.0.1:80", "10.0.0.2:80"),
        ("10.0.0.0/8:*", "11.0.0.1:80"),
        ("*:53", "10.0.0.1:54"),
        ("[2001:db8::/32]:443", "[2001:db9::1]:443"),
        // An address that carries another one is judged by both.
        ("[64:ff9b::/96]:80", "[64:ff9b::8.8.8.8]:80"),
        ("[2000::/3]:80", "[2002:808:808::1]:80"),
        ("8.8.8.8:80", "[2002:808:808::1]:80"),
    ] {
        assert!(!permits(pattern, to), "{pattern} {to}");
    }
    // "Everything" does not include the host itself, its link, or groups, in any form of address.
    for everything in [
        "*:80",
        "0.0.0.0/0:80 [::/0]:80",
        "0.0.0.0/1:80 128.0.0.0/1:80 [::/1]:80 [8000::/1]:80 10.0.0.0/8:80",
    ] {
        for to in HIDDEN.iter().chain(&HIDDEN_OWN) {
            assert!(!permits(everything, &format!("{to}:80")), "{everything} {to}");
        }
        assert!(permits(everything, "8.8.8.8:80") && permits(everything, "[2620:fe::9]:80"), "{everything}");
    }
    for wrong in ["", "10.0.0.1", "10.0.0.1:", ":80", "10.0.0.1:65536", "10.0.0.0/33:80", "2001:db8::g:80"] {
        assert!(AllowList::new(&[wrong.to_owned()], |_| {}).is_err(), "{wrong:?}");
    }
}

#[test]
fn the_kernel_reads_files_from_a_server_behind_a_device() {
    if skipped("HTTP through a TUN") {
        return;
    }
    let root = std::env::temp_dir().join(format!("sockeye-tun-http-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    let data = bytes(9, 5_000_000);
    std::fs::write(root.join("data"), &data).unwrap();
    let namespace = Namespace::new().unwrap();
    let (_tun, listener) = namespace.run(|| tun_http::start(&root, "").unwrap()).unwrap();
    let to = listener.local_addr().unwrap();
    let served = root.clone();
    std::thread::spawn(move || tun_http::serve(&listener, &served));
    let get = |path: &str| {
        let mut stream = namespace.run(|| TcpStream::connect(to).unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let body = answer.split_off(end);
        (String::from_utf8(answer).unwrap(), body)
    };
    let (head, body) = get("/data");
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("Content-Length: 5000000\r\n"),
        "{head}"
    );
    assert_eq!(hash(&body), hash(&data));
    assert_eq!(get("/").1, b"data\n");
    for outside in ["/../data", "/none", "data", "//etc/passwd"] {
        assert!(get(outside).0.starts_with("HTTP/1.1 404 "), "{outside}");
    }
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn one_thread_serves_the_kernel_from_a_loop_of_its_own() {
    if skipped("a loop of one's own") {
        return;
    }
    let namespace = Namespace::new().unwrap();
    let mut looped = namespace.run(|| byo_loop::Looped::new("").unwrap()).unwrap();
    let clients: Vec<_> = (0..4)
        .map(|seed| {
            let client = move || {
                let mut stream = TcpStream::connect("10.9.0.2:7").unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let data = bytes(seed, 1_000_000);
                let mut reader = stream.try_clone().unwrap();
                let reading = std::thread::spawn(move || {
                    let mut all = Vec::new();
                    reader.read_to_end(&mut all).unwrap();
                    all
                });
                stream.write_all(&data).unwrap();
                // A pause in which nothing is on its way: the loop has to sleep, and to be woken by the next frame.
                std::thread::sleep(Duration::from_millis(100));
                stream.write_all(&data).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                assert_eq!(hash(&reading.join().unwrap()), hash(&[&data[..], &data[..]].concat()));
            };
            namespace.spawn(client).unwrap()
        })
        .collect();
    let mut turns = 0;
    while clients.iter().any(|client| !client.is_finished()) {
        let next = looped.turn().unwrap();
        // So that the loop notices the end of the test: otherwise it would sleep until its deadline.
        let soon = looped.now() + Duration::from_millis(50);
        looped.sleep(Some(next.map_or(soon, |next| next.min(soon)))).unwrap();
        turns += 1;
    }
    clients.into_iter().for_each(|client| client.join().unwrap().unwrap());
    assert!(turns < 200_000, "{turns} iterations: it does not sleep");
}

/// Services of a host, of both families and for datagrams, on one port.
struct Services {
    port: u16,
    tcp: [TcpListener; 2],
    udp: [UdpSocket; 2],
}

impl Services {
    fn at([v4, v6]: [&str; 2]) -> Self {
        let tcp = TcpListener::bind((v4, 0)).unwrap();
        let port = tcp.local_addr().unwrap().port();
        let services = Self {
            port,
            tcp: [tcp, TcpListener::bind((v6, port)).unwrap()],
            udp: [v4, v6].map(|addr| UdpSocket::bind((addr, port)).unwrap()),
        };
        services.tcp.iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
        services.udp.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        services
    }

    fn assert_untouched(&self, by: &str) {
        for listener in &self.tcp {
            assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "{by}");
        }
        for socket in &self.udp {
            assert_eq!(socket.recv(&mut [0; 16]).unwrap_err().kind(), ErrorKind::WouldBlock, "{by}");
        }
    }
}

#[test]
fn a_gateway_that_allows_everything_still_refuses_the_host_itself() {
    if skipped("a gateway that is to lead to its host") {
        return;
    }
    let list = Arc::new(Mutex::new(None::<AllowList>));
    let asked = Arc::clone(&list);
    let world = World::new(Arc::new(move |protocol, to| {
        asked.lock().unwrap().as_ref().unwrap().permits(protocol, to)
    }));
    let start = || {
        // The addresses outside have taken the place of the loopback's: it gets its own again, under another label.
        KernelLink::new("lo:0").add_addr("127.0.0.1/8".parse().unwrap()).unwrap();
        [Services::at(["127.0.0.1", "::1"]), Services::at(OUTSIDE)]
    };
    let [services, at_own] = world.outside.run(start).unwrap();
    let patterns = [services.port, at_own.port].map(|port| format!("*:{port}"));
    *list.lock().unwrap() = Some(AllowList::new(&patterns, |_| {}).unwrap());
    // The forms that the sandbox's kernel lets programs use; those that it refuses are in the test with packets.
    let own = OUTSIDE.map(|own| SocketAddr::new(own.parse().unwrap(), at_own.port).to_string());
    let ways = [
        "[::127.0.0.1]",
        "[2002:7f00:1::1]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b:1::127.0.0.1]",
        "169.254.169.254",
    ];
    for to in ways.map(|way| format!("{way}:{}", services.port)).into_iter().chain(own) {
        let to: SocketAddr = to.parse().unwrap();
        let connect = move || TcpStream::connect_timeout(&to, Duration::from_millis(300));
        assert!(world.inside.run(connect).unwrap().is_err(), "{to}");
        let _ = world.udp_client(to).send(b"anybody?");
        services.assert_untouched(&to.to_string());
        at_own.assert_untouched(&to.to_string());
    }
    // The list is asked, and lets everything else through.
    let other = list
        .lock()
        .unwrap()
        .as_ref()
        .unwrap()
        .permits(common::Protocol::Tcp, ([192, 0, 2, 9], services.port).into());
    assert!(other);
}

/// Packets that no kernel would send, on the gateway's stack without a device: none is answered as if from an existing host,
/// and no connection is made through the kernel.
#[test]
fn a_gateway_forwards_no_packet_to_the_host_itself() {
    let (channel, ports) = sockeye::netif::channel(&sockeye::netif::ChannelConfig::default()).unwrap();
    let stack = Stack::new(Config::default()).unwrap();
    let netif =
        stack.attach(channel, &["10.64.0.2/24", "fd64::2/64"].map(|own| own.parse().unwrap())).unwrap();
    for network in ["0.0.0.0/0", "::/0"] {
        stack.add_route(network.parse().unwrap(), netif).unwrap();
    }
    stack.set_any_address(netif, true).unwrap();
    let services = Services::at(["127.0.0.1", "::1"]);
    let list = Arc::new(AllowList::new(&[format!("*:{}", services.port)], |_| {}).unwrap());
    let (for_tcp, for_udp) = (Arc::clone(&list), Arc::clone(&list));
    tcp::serve(&stack, Arc::new(move |protocol, to| for_tcp.permits(protocol, to))).unwrap();
    udp::serve(&stack, Arc::new(move |protocol, to| for_udp.permits(protocol, to))).unwrap();
    let frames_in = || stack.counters().iter().find(|(name, _)| *name == "frames_in").unwrap().1;
    let mut given = 0;
    for way in HIDDEN.iter().filter(|way| !way.contains('%')) {
        let to: SocketAddr = format!("{way}:{}", services.port).parse().unwrap();
        for is_tcp in [true, false] {
            ports[0].send(&packet(to, is_tcp)[..], None).unwrap();
            given += 1;
        }
    }
    eventually("the stack has taken everything", || frames_in() >= given);
    // A destination of no host, requested after all others, so all their effects began before.
    ports[0].send(&packet(SocketAddr::from(([192, 0, 2, 9], services.port + 1)), true)[..], None).unwrap();
    let mut answers = Vec::new();
    while let Some(frame) = ports[0].recv(Some(PATIENCE)) {
        let mut bytes = vec![0; frame.len()];
        frame.copy_to(&mut bytes);
        let is_v4 = bytes[0] >> 4 == 4;
        let is_last = is_v4 && bytes[12..16] == [192, 0, 2, 9];
        let flags = if is_v4 { bytes[33] } else { bytes[53] };
        if is_v4 && bytes[9] == 6 || !is_v4 && bytes[6] == 6 {
            answers.push(flags);
        }
        if is_last {
            break;
        }
    }
    assert!(answers.iter().all(|flags| flags & 4 != 0), "only resets: {answers:x?}");
    services.assert_untouched("packets");
    // Addresses that the stack passes and the list refuses: 6to4, Teredo, NAT64, ISATAP and site-local addresses.
    assert!(list.refused().len() >= 10, "{:?}", list.refused());
}

#[test]
fn a_sandbox_without_rights_names_them_and_a_remedy() {
    let refused = sandbox::needs(std::io::Error::from(ErrorKind::PermissionDenied));
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    assert!(
        refused.to_string().contains("CAP_NET_ADMIN") && refused.to_string().contains("sudo"),
        "{refused}"
    );
    assert_eq!(sandbox::needs(ErrorKind::NotFound.into()).to_string(), "entity not found");
}
