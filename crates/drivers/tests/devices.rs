//! Devices: opened, adopted, refused, deleted under a connection, with a full queue.
//!
//! Needs the right to make network namespaces and devices; without it the tests say so and pass.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{KERNEL, Lab, STACK, addr, eventually, exchange, open, prefixes, skipped};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use sockeye::netif::{Checksum, MacAddr, Medium, Netif, TxFrame};
use sockeye::{Config, Stack, TcpListener, TcpStream};
use sockeye_drivers::link::KernelLink;
use sockeye_drivers::testing::{delete_link, veth_pair};
use sockeye_drivers::{Adopted, Layer, Namespace, Tun, TunConfig};
use sockeye_mbuf::{Chain, Pool, PoolConfig};

#[test]
fn a_device_matches_its_configuration_and_the_kernels_view() {
    if skipped("configuration of devices") {
        return;
    }
    let namespace = Namespace::new().unwrap();
    let name = "net7".to_owned();
    let config = TunConfig { name, mtu: Some(9000), queues: 3, big_tcp: false, ..TunConfig::default() };
    let tun = open(&namespace, &config);
    assert_eq!((tun.link().name(), tun.mtu(), tun.queue_count()), ("net7", 9000, 3));
    assert_eq!((tun.medium(), tun.offloads_checksum(), tun.segment_max()), (Medium::Ip, true, 65_535));
    namespace
        .run(|| {
            let link = KernelLink::new("net7");
            assert_eq!((link.mtu().unwrap(), link.is_up().unwrap()), (9000, true));
            assert_ne!(link.index().unwrap(), 0);
            link.set_up(false).unwrap();
            assert!(!link.is_up().unwrap());
            assert_eq!(KernelLink::new("net8").mtu().unwrap_err().raw_os_error(), Some(libc::ENODEV));
        })
        .unwrap();
}

#[test]
fn a_route_leads_to_its_interface() {
    if skipped("routes of the kernel") {
        return;
    }
    let namespace = Namespace::new().unwrap();
    let tun = open(&namespace, &TunConfig::default());
    let connect = |to: &str| {
        let to: SocketAddr = to.parse().unwrap();
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let connected = namespace.run(|| UdpSocket::bind(any).unwrap().connect(to)).unwrap();
        connected.map_err(|error| error.raw_os_error())
    };
    let add = |network: &str| namespace.run(|| tun.link().add_route(network.parse().unwrap())).unwrap();
    let places = ["198.51.100.7:9", "[2001:db8::7]:9"];
    for to in places {
        assert_eq!(connect(to), Err(Some(libc::ENETUNREACH)), "{to}");
    }
    // What lies behind the length of the network does not matter.
    for network in ["198.51.100.7/24", "2001:db8::7/32", "0.0.0.0/0", "::/0"] {
        add(network).unwrap();
        assert_eq!(add(network).unwrap_err().kind(), ErrorKind::AlreadyExists, "{network}");
    }
    for to in places {
        assert_eq!(connect(to), Ok(()), "{to}");
    }
    namespace.run(|| tun.link().set_up(false)).unwrap().unwrap();
    assert_eq!(add("203.0.113.0/24").unwrap_err().raw_os_error(), Some(libc::ENETDOWN));
}

#[test]
fn a_namespace_is_found_by_its_path_and_its_process() {
    if skipped("namespaces") {
        return;
    }
    let name = |namespace: &Namespace| {
        namespace.run(|| std::fs::read_link("/proc/thread-self/ns/net").unwrap()).unwrap()
    };
    let (outside, made) = (Namespace::current().unwrap(), Namespace::new().unwrap());
    assert_ne!(name(&made), name(&outside));
    assert_eq!(name(&Namespace::of_process(std::process::id()).unwrap()), name(&outside));
    let mut child = made.run(|| Command::new("sleep").arg("60").spawn()).unwrap().unwrap();
    let of_child = Namespace::of_process(child.id());
    let sent = Namespace::from(made.as_fd().try_clone_to_owned().unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    let of_child = of_child.unwrap();
    drop(made);
    assert_eq!(name(&of_child), name(&sent), "alive by its descriptors, without its process");
    assert_eq!(Namespace::open("/proc/self/ns/none").unwrap_err().kind(), ErrorKind::NotFound);
    let other = Namespace::open("/proc/self/ns/uts").unwrap();
    assert_eq!(other.run(|| ()).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_tap_device_has_an_address_on_each_side() {
    if skipped("TAP") {
        return;
    }
    let namespace = Namespace::new().unwrap();
    let tap = TunConfig { layer: Layer::Ethernet, offload: false, ..TunConfig::default() };
    let made = open(&namespace, &tap);
    let kernel = namespace.run(|| made.link().mac().unwrap()).unwrap();
    let Medium::Ethernet(own) = made.medium() else { panic!("{:?}", made.medium()) };
    assert_ne!(own, kernel);
    assert_eq!((own.0[0] & 3, made.segment_max(), made.offloads_checksum()), (2, 0, false));
    let mac = Some(MacAddr([2, 0, 0, 0, 0, 9]));
    let given = namespace.run(|| Tun::open(&TunConfig { mac, ..tap })).unwrap().unwrap();
    assert_eq!(given.medium(), Medium::Ethernet(MacAddr([2, 0, 0, 0, 0, 9])));
}

#[test]
fn a_kernel_address_is_in_use_after_it_was_added() {
    if skipped("addresses of the kernel") {
        return;
    }
    // The kernel puts IPv6 addresses to use on a thread of its own, so this is a matter of chance where it is not
    // waited for: about one in three.
    for round in 0..30 {
        let layer = if round % 2 == 0 { Layer::Ip } else { Layer::Ethernet };
        let namespace = Namespace::new().unwrap();
        let tun = open(&namespace, &TunConfig { layer, queues: 4, ..TunConfig::default() });
        for (kernel, stack) in KERNEL.into_iter().zip(STACK) {
            let source = || {
                let any = if kernel == KERNEL[0] { "0.0.0.0:0" } else { "[::]:0" };
                let socket = UdpSocket::bind(any).unwrap();
                socket.connect(SocketAddr::new(addr(stack), 9)).unwrap();
                socket.local_addr().unwrap().ip()
            };
            assert_eq!(namespace.run(source).unwrap(), addr(kernel), "{layer:?}, device {round}");
        }
        drop(tun);
    }
}

#[test]
fn invalid_and_forbidden_settings_are_refused_with_a_message() {
    if skipped("refusals") {
        return;
    }
    let namespace = Namespace::new().unwrap();
    let refused = |config: &TunConfig| namespace.run(|| Tun::open(config).err().unwrap()).unwrap();
    for (config, word) in [
        (TunConfig { queues: 0, ..TunConfig::default() }, "queues"),
        (TunConfig { queues: 65, ..TunConfig::default() }, "queues"),
        (TunConfig { mtu: Some(1279), ..TunConfig::default() }, "MTU"),
        (TunConfig { name: "sixteen-letters-".to_owned(), ..TunConfig::default() }, "name"),
        (TunConfig { name: "lo".to_owned(), ..TunConfig::default() }, "another kind"),
    ] {
        let error = refused(&config);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{config:?}: {error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    let busy = TunConfig { name: "busy".to_owned(), ..TunConfig::default() };
    let _first = open(&namespace, &busy);
    let error = refused(&busy);
    assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
    assert!(error.to_string().contains("busy: another program"), "{error}");
    let without_rights = || {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::NET_ADMIN);
        set_capabilities(None, sets).unwrap();
        Tun::open(&TunConfig::default()).err().unwrap()
    };
    let error = namespace.run(without_rights).unwrap();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
}

#[test]
fn descriptors_of_a_device_are_adopted_and_others_refused() {
    if skipped("adoption") {
        return;
    }
    let file = std::fs::File::open("/proc/self/stat").unwrap();
    let not_one = Adopted { fds: vec![file.into()], mtu: None, mac: None, big_tcp: false };
    assert_eq!(Tun::adopt(not_one).err().unwrap().kind(), ErrorKind::InvalidInput);
    let none = Adopted { fds: Vec::new(), mtu: None, mac: None, big_tcp: false };
    assert_eq!(Tun::adopt(none).err().unwrap().kind(), ErrorKind::InvalidInput);

    for offload in [true, false] {
        let namespace = Namespace::new().unwrap();
        let opened = open(&namespace, &TunConfig { queues: 2, offload, ..TunConfig::default() });
        let fds = opened.descriptors().map(|fd| fd.try_clone_to_owned().unwrap()).collect();
        drop(opened);
        // The kernel is asked for the MTU in the namespace of the device.
        let tun = namespace
            .run(|| Tun::adopt(Adopted { fds, mtu: None, mac: None, big_tcp: false }))
            .unwrap()
            .unwrap();
        assert_eq!((tun.queue_count(), tun.mtu(), tun.offloads_checksum()), (2, 1500, offload));
        let stack = Stack::new(Config::default()).unwrap();
        stack.attach(tun.clone(), &prefixes(common::STACK)).unwrap();
        let lab = Lab { namespace, tun, stack };
        let listener = TcpListener::bind_on(&lab.stack, lab.stack_addr(false, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let client = lab.kernel(move || exchange(std::net::TcpStream::connect(to).unwrap(), 1, 300_000));
        let [sent, received] = exchange(listener.accept().unwrap().0, 2, 300_000);
        assert_eq!(client.join().unwrap(), [received, sent]);
    }
}

#[test]
fn a_device_that_persists_is_there_when_it_is_opened_again() {
    if skipped("persistence") {
        return;
    }
    let namespace = Namespace::new().unwrap();
    let config = TunConfig { name: "stays".to_owned(), persist: true, ..TunConfig::default() };
    drop(open(&namespace, &config));
    let index = || namespace.run(|| KernelLink::new("stays").index()).unwrap();
    let first = index().unwrap();
    let again = namespace.run(|| Tun::open(&config)).unwrap().unwrap();
    assert_eq!(index().unwrap(), first);
    drop(again);
    delete_link(&namespace, "stays").unwrap();
    assert!(index().is_err());
}

#[test]
fn a_device_that_is_refused_does_not_stay() {
    if skipped("persistence of a device that is refused") {
        return;
    }
    let namespace = Namespace::new().unwrap();
    // The kernel takes less by the length of a link's header.
    let config = TunConfig {
        name: "refused".to_owned(),
        layer: Layer::Ethernet,
        mtu: Some(65_535),
        persist: true,
        ..TunConfig::default()
    };
    assert!(namespace.run(|| Tun::open(&config).is_err()).unwrap());
    assert!(namespace.run(|| KernelLink::new("refused").index().is_err()).unwrap());
}

#[test]
fn a_wait_ends_with_a_frame_and_permanently_with_an_interruption() {
    if skipped("waits") {
        return;
    }
    let namespace = Namespace::new().unwrap();
    let tun = open(&namespace, &TunConfig::default());
    let send = || {
        let socket = std::net::UdpSocket::bind((common::addr(common::KERNEL[0]), 0)).unwrap();
        socket.send_to(b"frame", (common::addr(common::STACK[0]), 9)).unwrap();
    };
    let is_ours = |head: &[u8]| head.ends_with(b"frame");
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut seen = 0;
            while seen < 100 {
                tun.wait(0, Duration::from_micros(20));
                tun.receive(0, 10, &mut |frame| seen += usize::from(is_ours(frame.head)));
            }
        });
        namespace.run(|| (0..100).for_each(|_| send())).unwrap();
        receiver.join().unwrap();
        let waiting = scope.spawn(|| while tun.receive(0, 1, &mut |_| {}) > 0 {});
        waiting.join().unwrap();
        let waiting = scope.spawn(|| tun.wait(0, Duration::ZERO));
        tun.interrupt(0);
        waiting.join().unwrap();
        tun.wait(0, Duration::ZERO);
        // Another stack gets it.
        tun.attached(&Pool::new(PoolConfig::default()));
        let waiting = scope.spawn(|| {
            let (mut seen, mut waits) = (0, 0);
            while seen == 0 {
                tun.wait(0, Duration::ZERO);
                tun.receive(0, 10, &mut |frame| seen += usize::from(is_ours(frame.head)));
                waits += 1;
            }
            waits
        });
        std::thread::sleep(Duration::from_millis(20));
        namespace.run(send).unwrap();
        let waits = waiting.join().unwrap();
        assert!(waits < 20, "{waits} waits for a frame");
    });
}

#[test]
fn a_queue_holds_no_packet_memory_while_a_thread_waits_even_if_others_take_the_frames() {
    if skipped("memory of an idle queue") {
        return;
    }
    let namespace = Namespace::new().unwrap();
    let tun = open(&namespace, &TunConfig::default());
    let pool = Pool::new(PoolConfig::default());
    tun.attached(&pool);
    let send = || {
        let socket = UdpSocket::bind((addr(KERNEL[0]), 0)).unwrap();
        socket.send_to(&[7; 1000], (addr(STACK[0]), 9)).unwrap();
    };
    // The frame alone, so that the thread that takes it does not find the queue empty.
    let take = || {
        let mut is_ours = false;
        while !is_ours {
            tun.receive(0, 1, &mut |frame| is_ours = frame.head.ends_with(&[7; 1000]));
        }
    };
    namespace.run(send).unwrap();
    take();
    assert_ne!(pool.in_use(), 0, "the room behind a frame is for the next");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // It takes no frame itself: each time the others are faster.
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                tun.wait(0, Duration::ZERO);
            }
        });
        let _ends = Ends(&is_over, &tun);
        for _ in 0..20 {
            eventually("the queue holds no memory", || pool.in_use() == 0);
            namespace.run(send).unwrap();
            take();
        }
        eventually("the queue holds no memory", || pool.in_use() == 0);
    });
}

/// Ends a thread that waits at the device until this is true, also when the test fails.
struct Ends<'a>(&'a AtomicBool, &'a Tun);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        self.1.interrupt(0);
    }
}

#[test]
fn deleting_a_device_ends_its_connections_and_nothing_hangs() {
    if skipped("deletion of a device") {
        return;
    }
    let namespace = Namespace::new().unwrap();
    let tun = open(&namespace, &TunConfig { queues: 2, ..TunConfig::default() });
    let mut config = Config::default();
    (config.tcp.retries, config.tcp.rto_min) = (2, Duration::from_millis(20));
    let stack = Stack::new(config).unwrap();
    stack.attach(tun.clone(), &prefixes(common::STACK)).unwrap();
    let lab = Lab { namespace, tun, stack };
    let at = lab.kernel_addr(false, 0);
    let listener = lab.kernel(move || std::net::TcpListener::bind(at).unwrap()).join().unwrap();
    let to = listener.local_addr().unwrap();
    let reads = lab.kernel(move || {
        let mut server = listener.accept().unwrap().0;
        server.read_exact(&mut vec![0; 1_000_000]).unwrap();
        server
    });
    let mut client = TcpStream::connect_on(&lab.stack, to).unwrap();
    let sending = std::thread::spawn(move || {
        loop {
            if let Err(error) = client.write_all(&[1; 50_000]) {
                return error;
            }
        }
    });
    // Kept open: the device is removed, and not the peer.
    let _server = reads.join().unwrap();
    assert!(!lab.tun.is_down());
    delete_link(&lab.namespace, lab.tun.link().name()).unwrap();
    eventually("the device is known to be gone", || lab.tun.is_down());
    let error = sending.join().unwrap();
    let known = [ErrorKind::TimedOut, ErrorKind::NetworkDown, ErrorKind::NetworkUnreachable];
    assert!(known.contains(&error.kind()) || error.kind() == ErrorKind::ConnectionReset, "{error:?}");
    let mut frames = vec![TxFrame::new(&[0x45; 40], Chain::new(), Checksum::Software).unwrap()];
    assert_eq!(lab.tun.transmit(0, &mut frames).dropped_count, 1);
    let sleeps = lab.tun.counts()[0].sleeps;
    std::thread::sleep(Duration::from_millis(20));
    assert!(lab.tun.counts()[0].sleeps < sleeps + 10, "an input thread of a removed device is busy");
}

/// Frames for the device that the kernel has dropped, as its own counters have it. In the namespace of the device.
fn dropped_by_kernel(name: &str) -> u64 {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = table.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}:"))).unwrap();
    // Eight columns for reception, then bytes, packets, errors, drops.
    line.split_whitespace().nth(11).unwrap().parse().unwrap()
}

/// Each way. Most segments meet a full queue, so each window of them takes a timeout.
const FLOODED_BYTES: usize = 100_000;

#[test]
fn a_flood_that_fills_the_devices_queue_loses_no_acknowledged_data_and_drops_are_counted() {
    if skipped("a full queue") {
        return;
    }
    let lab = Lab::new(&TunConfig { offload: false, ..TunConfig::default() });
    lab.namespace.run(|| lab.tun.link().set_queue_len(3).unwrap()).unwrap();
    let listener = TcpListener::bind_on(&lab.stack, lab.stack_addr(false, 0)).unwrap();
    let to = listener.local_addr().unwrap();
    let (at, name) = (lab.stack_addr(false, 9), lab.tun.link().name().to_owned());
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let flood = lab.kernel(move || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        // Until there were drops, and for as long as the transfers take.
        while !stopped.load(Ordering::Acquire) || dropped_by_kernel(&name) == 0 {
            (0..200).for_each(|_| drop(socket.send_to(&[7; 1000], at)));
            std::thread::sleep(Duration::from_millis(1));
        }
        dropped_by_kernel(&name)
    });
    let client = lab.kernel(move || exchange(std::net::TcpStream::connect(to).unwrap(), 1, FLOODED_BYTES));
    let [sent, received] = exchange(listener.accept().unwrap().0, 2, FLOODED_BYTES);
    assert_eq!(client.join().unwrap(), [received, sent]);
    stop.store(true, Ordering::Release);
    assert!(flood.join().unwrap() > 0);
    assert!(lab.count("udp_no_ports") > 0, "some of the flood came through");
}

#[test]
fn a_stack_without_threads_takes_many_short_frames_at_a_time_few_long_ones_and_looks_when_it_is_told() {
    if skipped("turns of a driver") {
        return;
    }
    let config = TunConfig { mtu: Some(65_520), ..TunConfig::default() };
    let lab = Lab::with(&config, Config { workers: 0, udp_rcvbuf: 4 << 20, ..Config::default() });
    let at = lab.stack_addr(false, 9);
    let socket = sockeye::UdpSocket::bind_on(&lab.stack, at).unwrap();
    socket.set_nonblocking(true).unwrap();
    let send = |count: usize, len: usize| {
        let send = || {
            let (socket, bytes) = (UdpSocket::bind("0.0.0.0:0").unwrap(), vec![7; len]);
            (0..count).for_each(|_| assert_eq!(socket.send_to(&bytes, at).unwrap(), len));
        };
        lab.namespace.run(send).unwrap();
    };
    let polled = || {
        lab.stack.poll(Duration::ZERO);
        let mut buffer = [0; 8192];
        std::iter::from_fn(|| socket.recv_from(&mut buffer).ok()).count()
    };
    // The kernel has frames of its own in between.
    send(100, 64);
    assert_eq!(polled(), 100);
    send(64, 8192);
    let long = polled();
    assert!((8..=32).contains(&long), "{long} long ones at a time");
    while polled() > 0 {}

    lab.tun.announce();
    assert_eq!(polled(), 0);
    send(1, 64);
    assert_eq!(polled(), 0, "it was found empty, and nothing is said");
    lab.tun.announce();
    assert_eq!(polled(), 1);
    send(300, 64);
    lab.tun.announce();
    let first = polled();
    assert!(
        first < 300 && first + polled() == 300,
        "what is left of a long turn is taken without another word"
    );
}

#[test]
fn a_burst_of_many_connections_waits_in_the_devices_queue_until_it_is_read() {
    if skipped("a burst") {
        return;
    }
    // More than the kernel's own length of the queue.
    const BURST: u64 = 2000;
    let namespace = Namespace::new().unwrap();
    let tun = open(&namespace, &TunConfig { offload: false, ..TunConfig::default() });
    let name = tun.link().name().to_owned();
    let dropped = namespace
        .run(|| {
            tun.link().add_addr("10.9.0.1/24".parse().unwrap()).unwrap();
            let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
            (0..BURST).for_each(|_| assert_eq!(socket.send_to(&[7; 1000], "10.9.0.2:9").unwrap(), 1000));
            dropped_by_kernel(&name)
        })
        .unwrap();
    assert_eq!(dropped, 0);
    let (mut datagrams, mut frames) = (0, 1);
    while frames > 0 {
        frames = tun
            .receive(0, 64, &mut |frame| datagrams += u64::from(frame.head.len() + frame.rest.len() > 1000));
    }
    assert_eq!(datagrams, BURST);
}

#[test]
fn two_namespaces_are_connected_by_a_pair_of_interfaces() {
    if skipped("veth") {
        return;
    }
    let (here, there) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    veth_pair((&here, "left"), (&there, "right")).unwrap();
    assert!(veth_pair((&here, "left"), (&there, "other")).is_err());
    for (namespace, name, prefix) in [(&here, "left", "10.8.0.1/24"), (&there, "right", "10.8.0.2/24")] {
        let set = || {
            let link = KernelLink::new(name);
            link.add_addr(prefix.parse().unwrap()).unwrap();
            link.set_up(true).unwrap();
        };
        namespace.run(set).unwrap();
    }
    let listener = there.run(|| std::net::TcpListener::bind("10.8.0.2:0").unwrap()).unwrap();
    let to = listener.local_addr().unwrap();
    let client = here.spawn(move || std::net::TcpStream::connect(to).unwrap().write_all(b"hello")).unwrap();
    let mut hello = [0; 5];
    listener.accept().unwrap().0.read_exact(&mut hello).unwrap();
    client.join().unwrap().unwrap().unwrap();
    assert_eq!(&hello, b"hello");
}
