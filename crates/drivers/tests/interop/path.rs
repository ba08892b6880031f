//! A router between the stack and a host, whose link to the host has a smaller MTU than the stack's, from the start or later.

use std::net::{SocketAddr, UdpSocket as KernelSocket};

use sockeye::netif::Route;
use sockeye::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use sockeye_drivers::link::KernelLink;
use sockeye_drivers::testing::veth_pair;
use sockeye_drivers::{Layer, Namespace, TunConfig};

use crate::common::{self, addr, bytes, exchange, hash, skipped};
use crate::testbed::{LAYERS, Testbed, content, program, sysctl};

/// The router's addresses towards the host, and the host's.
const ROUTER: [&str; 2] = ["10.8.0.1/24", "fd08::1/64"];
const HOST: [&str; 2] = ["10.8.0.2/24", "fd08::2/64"];
const LEN: usize = 3_000_000;

/// A stack, a router and a host behind it.
struct Path {
    testbed: Testbed,
    host: Namespace,
}

impl Path {
    /// `None`, with a word why, without the program that sets routes.
    fn new(layer: Layer, offload: bool) -> Option<Self> {
        let testbed = Testbed::with(&TunConfig { layer, offload, ..TunConfig::default() }, |_| ());
        let host = Namespace::new().unwrap();
        let router = &testbed.lab.namespace;
        program(router, "ip -V")?;
        sysctl(router, "ipv4/ip_forward", "1");
        sysctl(router, "ipv6/conf/all/forwarding", "1");
        for which in ["all", "default"] {
            sysctl(&host, &format!("ipv6/conf/{which}/accept_dad"), "0");
        }
        veth_pair((router, "down"), (&host, "up")).unwrap();
        for (namespace, name, texts) in [(router, "down", ROUTER), (&host, "up", HOST)] {
            let set = || {
                let link = KernelLink::new(name);
                common::prefixes(texts).into_iter().try_for_each(|prefix| link.add_addr(prefix))?;
                link.set_up(true)
            };
            namespace.run(set).unwrap().unwrap();
        }
        content(&host, "ip route add default via 10.8.0.1");
        content(&host, "ip -6 route add default via fd08::1");
        for (host, router) in HOST.iter().zip(common::KERNEL) {
            let network = host.parse().unwrap();
            let gateway = addr(router);
            testbed.lab.stack.insert_route(Route::by(network, testbed.netif, gateway)).unwrap();
        }
        Some(Self { testbed, host })
    }

    /// Sets the MTU of the link between the router and the host, at both ends.
    fn set_mtu(&self, mtu: u32) {
        for (namespace, name) in [(&self.testbed.lab.namespace, "down"), (&self.host, "up")] {
            namespace.run(|| KernelLink::new(name).set_mtu(mtu).unwrap()).unwrap();
        }
    }

    /// Has the router believe that the way to the host takes no more; the host does not know it.
    fn limit_routes(&self, mtu: u32) {
        content(
            &self.testbed.lab.namespace,
            &format!("ip route replace 10.8.0.2/32 dev down mtu lock {mtu}"),
        );
        content(
            &self.testbed.lab.namespace,
            &format!("ip -6 route replace fd08::2/128 dev down mtu lock {mtu}"),
        );
    }

    fn in_host<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> std::thread::JoinHandle<R> {
        let entered = self.host.spawn(work).unwrap();
        std::thread::spawn(move || entered.join().unwrap().unwrap())
    }

    /// A connection between the stack and the host, opened by the stack.
    fn connection(&self, v6: bool) -> (TcpStream, std::net::TcpStream) {
        let at = SocketAddr::new(addr(HOST[usize::from(v6)]), 0);
        let listener = self.in_host(move || std::net::TcpListener::bind(at).unwrap()).join().unwrap();
        let ours = TcpStream::connect_on(&self.testbed.lab.stack, listener.local_addr().unwrap()).unwrap();
        (ours, listener.accept().unwrap().0)
    }
}

/// Both directions at once.
fn transfer(ours: TcpStream, theirs: std::net::TcpStream) {
    let server = std::thread::spawn(move || exchange(theirs, 3, LEN));
    let [sent, received] = exchange(ours, 4, LEN);
    assert_eq!(server.join().unwrap(), [received, sent]);
}

#[test]
fn streams_arrive_whole_through_a_router_with_a_smaller_mtu() {
    if skipped("a smaller MTU behind a router") {
        return;
    }
    for (layer, offload) in [(Layer::Ip, true), (Layer::Ip, false), (Layer::Ethernet, true)] {
        let Some(path) = Path::new(layer, offload) else { return };
        path.limit_routes(1300);
        for v6 in [false, true] {
            let before = path.testbed.lab.count("icmp_in_msgs");
            let (ours, theirs) = path.connection(v6);
            transfer(ours, theirs);
            let reports = path.testbed.lab.count("icmp_in_msgs") - before;
            assert!((1..1000).contains(&reports), "the router reported {reports} times");
        }
        path.testbed.assert_empties();
    }
}

#[test]
fn a_neighbor_behind_a_router_receives_everything_despite_a_smaller_mtu() {
    if skipped("a neighbor behind a router") {
        return;
    }
    let Some(path) = Path::new(Layer::Ip, true) else { return };
    // An address of the host's own network, which the router has a way to and stands in for.
    let (stack, own) = (&path.testbed.lab.stack, "10.8.0.77/24".parse().unwrap());
    stack.add_address(path.testbed.netif, own).unwrap();
    let router = &path.testbed.lab.namespace;
    content(router, &format!("ip route add 10.8.0.77/32 dev {}", path.testbed.device()));
    sysctl(router, "ipv4/conf/down/proxy_arp", "1");
    let at = SocketAddr::new(addr(HOST[0]), 0);
    let listener = path.in_host(move || std::net::TcpListener::bind(at).unwrap()).join().unwrap();
    let mut socket = TcpSocket::new_v4(stack);
    socket.bind(SocketAddr::new(own.addr(), 0)).unwrap();
    let ours = socket.connect(listener.local_addr().unwrap()).unwrap();
    let server = std::thread::spawn(move || exchange(listener.accept().unwrap().0, 3, 10 * LEN));
    let [sent, received] = exchange(ours, 4, 10 * LEN);
    assert_eq!(server.join().unwrap(), [received, sent]);
    path.testbed.assert_empties();
}

#[test]
fn a_smaller_mtu_during_a_transfer_does_not_end_it() {
    use std::io::{Read, Write};
    if skipped("an MTU that changes") {
        return;
    }
    for layer in LAYERS {
        let Some(path) = Path::new(layer, true) else { return };
        for v6 in [false, true] {
            path.set_mtu(1500);
            let (mut ours, mut theirs) = path.connection(v6);
            let data = bytes(11, LEN);
            let expected = hash(&data);
            let sender = std::thread::spawn(move || ours.write_all(&data).unwrap());
            let mut got = vec![0; LEN];
            let (first, rest) = got.split_at_mut(LEN / 3);
            theirs.read_exact(first).unwrap();
            path.set_mtu(1280);
            theirs.read_exact(rest).unwrap();
            sender.join().unwrap();
            assert_eq!(hash(&got), expected);
        }
    }
}

#[test]
fn a_link_that_silently_drops_large_packets_does_not_end_a_transfer() {
    if skipped("a black hole") {
        return;
    }
    let Some(path) = Path::new(Layer::Ip, true) else { return };
    // The router may report unreachable destinations once in eleven days.
    sysctl(&path.testbed.lab.namespace, "ipv4/icmp_ratemask", "8");
    sysctl(&path.testbed.lab.namespace, "ipv4/icmp_ratelimit", "1000000000");
    let (ours, theirs) = path.connection(false);
    path.set_mtu(1300);
    transfer(ours, theirs);
    assert_eq!(path.testbed.lab.count("icmp_in_dest_unreachs"), 0);
}

#[test]
fn datagrams_pass_a_smaller_mtu_in_fragments() {
    if skipped("datagrams through a smaller MTU") {
        return;
    }
    let Some(path) = Path::new(Layer::Ip, true) else { return };
    path.set_mtu(1300);
    for v6 in [false, true] {
        let at = SocketAddr::new(addr(HOST[usize::from(v6)]), 0);
        let theirs = path.in_host(move || KernelSocket::bind(at).unwrap()).join().unwrap();
        theirs.set_read_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
        let ours = UdpSocket::bind_on(&path.testbed.lab.stack, path.testbed.lab.stack_addr(v6, 0)).unwrap();
        for (seed, len) in [100, 1252, 1253, 1272, 1273, 1400, 1472, 4000].into_iter().enumerate() {
            let data = bytes(seed as u64, len);
            let mut got = vec![0; 5000];
            let arrived = (0..20).any(|_| {
                // The router's error about an earlier one is reported once.
                let _ = ours.send_to(&data, theirs.local_addr().unwrap());
                matches!(theirs.recv(&mut got), Ok(n) if got[..n] == data)
            });
            assert!(arrived, "{len} bytes, IPv6: {v6}");
        }
    }
}

#[test]
fn an_unreachable_network_is_reported_and_a_host_behind_the_router_answers_traceroute() {
    if skipped("routes through a router") {
        return;
    }
    let Some(path) = Path::new(Layer::Ip, true) else { return };
    let nowhere = "10.77.0.0/16".parse().unwrap();
    let gateway = addr(common::KERNEL[0]);
    path.testbed.lab.stack.insert_route(Route::by(nowhere, path.testbed.netif, gateway)).unwrap();
    let error = TcpStream::connect_on(&path.testbed.lab.stack, "10.77.0.1:80").unwrap_err();
    let known = [std::io::ErrorKind::NetworkUnreachable, std::io::ErrorKind::HostUnreachable];
    assert!(known.contains(&error.kind()), "{error:?}");

    let _listener = TcpListener::bind_on(&path.testbed.lab.stack, "[::]:80").unwrap();
    for to in common::STACK.map(addr) {
        let words = format!("traceroute -n -q 1 -m 4 -w 5 {to}");
        let Some(text) = content(&path.host, &words) else { return };
        assert!(text.lines().nth(2).is_some_and(|hop| hop.contains(&to.to_string())), "{text}");
    }
}
