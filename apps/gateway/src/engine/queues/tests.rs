//! Packets and their owners; and loops that join and leave all the time, on a device of the kernel's.

use std::fs::File;
use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::thread;

use sockeye_drivers::testing::skipped;
use sockeye_drivers::{Namespace, TunConfig};
use sockeye_mbuf::PoolConfig;

use super::*;
use crate::engine::forwards::By;
use crate::engine::hostile::packet;
use crate::engine::inward::Publish;
use crate::engine::load::System;
use crate::engine::port::Source;
use crate::engine::{Running, Shared};

const INSIDE: &str = "10.0.2.100:4000";
const OUTSIDE: &str = "192.0.2.1:80";

fn segment((from, to): (&str, &str), protocol: u8, flags: u8) -> Vec<u8> {
    let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    let rest = [&[0; 8][..], &[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]].concat();
    packet(from.ip(), to.ip(), protocol, [ports, rest].concat())
}

#[test]
fn the_ends_of_a_packet_are_read() {
    let end = |text: &str| text.parse::<SocketAddr>().map(|addr| (addr.ip(), addr.port())).unwrap();
    let v6 = ("[fd00::100]:4000", "[2001:db8::1]:443");
    for (ends, protocol, of) in [
        ((INSIDE, OUTSIDE), 6, Protocol::Tcp),
        ((INSIDE, OUTSIDE), 17, Protocol::Udp),
        (v6, 6, Protocol::Tcp),
    ] {
        let expected = (of, end(ends.0), end(ends.1));
        assert_eq!(ends_of(&segment(ends, protocol, 0x10)), Some((expected, false)));
        assert_eq!(ends_of(&segment(ends, protocol, 0x02)), Some((expected, protocol == 6)), "SYN");
        assert_eq!(ends_of(&segment(ends, protocol, 0x12)), Some((expected, false)), "SYN and ACK");
    }
    assert_eq!(ends_of(&segment((INSIDE, OUTSIDE), 1, 0)), None, "ICMP");
    let whole = segment((INSIDE, OUTSIDE), 6, 0);
    assert!((0..24).all(|len| ends_of(&whole[..len]).is_none()));
    let mut fragment = whole.clone();
    fragment[6] |= 0x20;
    assert_eq!(ends_of(&fragment), None, "more fragments");
    let mut options = whole;
    options[0] = 0x4f;
    assert_eq!(ends_of(&options), None, "longer than there are bytes");
}

#[test]
fn a_frame_goes_to_the_loop_that_has_its_flow() {
    let ends = (INSIDE.parse().unwrap(), OUTSIDE.parse().unwrap());
    assert!(of_loops(1).own(0, Protocol::Tcp, ends).unwrap().is_none());
    let queues = of_loops(2);
    let (syn, data) = (segment((INSIDE, OUTSIDE), 6, 2), segment((INSIDE, OUTSIDE), 6, 0x10));
    let owners = |index| [&syn, &data].map(|bytes| queues.elsewhere(index, bytes));
    assert_eq!((owners(0), owners(1)), ([None; 2], [None; 2]));
    let owned = queues.own(1, Protocol::Tcp, ends).unwrap();
    assert_eq!(queues.own(0, Protocol::Tcp, ends).err().unwrap().kind(), ErrorKind::AddrInUse);
    assert_eq!((owners(0), owners(1)), ([Some(1); 2], [None; 2]));
    drop(owned);
    assert_eq!(owners(0), [None, Some(1)], "its last segments still have an owner");
    let next = queues.own(0, Protocol::Tcp, ends).unwrap();
    assert_eq!((owners(0), owners(1)), ([None; 2], [Some(0); 2]));
    // Many others come and go: the one that goes on is kept, the earlier ends of its port are forgotten.
    for number in 0..2 * BOUNDS.ended_max {
        let other = SocketAddr::from(([10, 0, (number >> 8) as u8, number as u8], 9));
        drop(queues.own(1, Protocol::Udp, (other, ends.1)));
    }
    assert_eq!(owners(1), [Some(0); 2]);
    assert!(queues.exchange.known() <= BOUNDS.ended_max + 2);
    drop(next);
}

/// Queues of loops without a device.
fn of_loops(count: usize) -> Arc<Queues> {
    let fds = (0..count).map(|_| File::open("/dev/null").unwrap().into()).collect();
    Queues::new(fds, true, count, None)
}

#[test]
fn no_frame_of_an_inbox_waits_for_ever() {
    let queues = of_loops(2);
    const FRAMES: usize = 20_000;
    let giver = {
        let queues = Arc::clone(&queues);
        thread::spawn(move || {
            for number in 0..FRAMES {
                queues.give(1, &RxFrame::new(&number.to_be_bytes(), &Chain::new()));
                if number % 64 == 0 {
                    thread::sleep(Duration::from_micros(50));
                }
            }
        })
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bell = queues.bell(1);
    runtime.block_on(async {
        let mut next = 0;
        while next < FRAMES {
            while let Some(held) = queues.exchange.take(1) {
                assert_eq!(held.bytes, next.to_be_bytes());
                next += 1;
            }
            if next < FRAMES {
                let rung = poll_fn(|task| bell.poll_rung(task));
                let rung = tokio::time::timeout(Duration::from_secs(20), rung).await;
                rung.unwrap_or_else(|_| panic!("no bell after frame {next}"));
            }
        }
    });
    giver.join().unwrap();
}

/// How long the number of loops changes.
const CHANGES: Duration = Duration::from_secs(4);
/// The port that is published inside.
const PORT: u16 = 7;

/// A server that returns what it gets, for ever.
fn echo(listener: TcpListener) {
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut bytes = [0; 16 << 10];
                while let Ok(len @ 1..) = stream.read(&mut bytes) {
                    if stream.write_all(&bytes[..len]).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// A client of such a server, until told: blocks of many lengths, with pauses. How many have come back.
fn ask(to: &str, seed: usize, is_over: &AtomicBool, stays: bool) -> usize {
    let mut stream = TcpStream::connect(to).unwrap();
    let mut blocks = 0;
    while !is_over.load(Ordering::Relaxed) || blocks == 0 {
        let block: Vec<u8> = (0..1 + (seed * 7919 + blocks * 104_729) % 60_000)
            .map(|at| (at * 31 + seed + blocks) as u8)
            .collect();
        let mut back = vec![0; block.len()];
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(&block).unwrap();
        stream.read_exact(&mut back).unwrap_or_else(|error| panic!("client {seed}, block {blocks}: {error}"));
        assert!(back == block, "client {seed}, block {blocks}");
        blocks += 1;
        if !stays {
            stream = TcpStream::connect(to).unwrap();
        } else if seed.is_multiple_of(3) {
            thread::sleep(Duration::from_millis(100));
        }
    }
    blocks
}

/// A flow of datagrams, whose server says from which port they come: always the same.
fn ask_datagrams(to: &str, is_over: &AtomicBool) -> usize {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let (mut port, mut answers) = (None, 0);
    while !is_over.load(Ordering::Relaxed) || answers == 0 {
        socket.send(b"from where?").unwrap();
        let mut said = [0; 2];
        match socket.recv(&mut said) {
            Ok(_) => {
                let said = u16::from_be_bytes(said);
                assert_eq!(*port.get_or_insert(said), said, "after {answers} answers");
                answers += 1;
            }
            // Lost, as datagrams may be.
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        thread::sleep(Duration::from_millis(2));
    }
    answers
}

fn port_echo(socket: UdpSocket) {
    thread::spawn(move || {
        while let Ok((_, from)) = socket.recv_from(&mut [0; 64]) {
            let _ = socket.send_to(&from.port().to_be_bytes(), from);
        }
    });
}

/// The device inside.
fn device() -> Vec<OwnedFd> {
    let config = TunConfig { name: "tun0".to_owned(), queues: 3, mtu: Some(65_520), ..TunConfig::default() };
    let tun = Tun::open(&config).unwrap();
    tun.link().add_addr("10.0.2.100/24".parse().unwrap()).unwrap();
    tun.link().add_route("0.0.0.0/0".parse().unwrap()).unwrap();
    echo(TcpListener::bind(("0.0.0.0", PORT)).unwrap());
    tun.descriptors().map(|fd| fd.try_clone_to_owned().unwrap()).collect()
}

/// While a loop reads a batch, another one begins a flow: the packets of that flow which stand in the same batch are the other one's. They may be what its answer has caused.
#[test]
fn what_begins_at_another_loop_in_the_middle_of_a_batch_is_handed_over() {
    if skipped() {
        return;
    }
    const PACKETS: usize = 8;
    let inside = Namespace::new().unwrap();
    let queues = Queues::new(inside.run(device).unwrap(), true, 1, None);
    let handle = Handle(Share::new(&queues, 0, 65_520).unwrap());
    handle.attached(&Pool::new(PoolConfig::default()));
    let from = inside.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect(OUTSIDE).unwrap();
        (0..PACKETS).for_each(|number| assert_eq!(socket.send(&[number as u8]).unwrap(), 1));
        socket.local_addr().unwrap()
    });
    let ends = (from.unwrap(), OUTSIDE.parse().unwrap());
    let (mut own, mut owned) = (0, None);
    handle.receive(0, 256, &mut |frame| {
        let is_of_flow =
            ends_of(frame.head).is_some_and(|(ends, _)| ends.0 == Protocol::Udp && ends.2.1 == 80);
        if is_of_flow {
            own += 1;
            owned = queues.own(1, Protocol::Udp, ends).unwrap();
        }
    });
    let given = std::iter::from_fn(|| queues.exchange.take(1)).count();
    assert_eq!((own, given), (1, PACKETS - 1));
    drop(owned);
}

/// Flows of all kinds, to both directions, while the number of loops changes: each gets all of its bytes.
fn flows_stay_whole(measure: Option<Box<dyn Measure>>, changes: impl FnOnce(&Queues) + Send) {
    let (host, inside) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    let queues = Queues::new(inside.run(device).unwrap(), true, 1, measure);
    let is_over = AtomicBool::new(false);
    let run = || {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let [tcp, udp] = [server.local_addr().unwrap(), datagrams.local_addr().unwrap()]
            .map(|addr| format!("10.0.2.2:{}", addr.port()));
        echo(server);
        port_echo(datagrams);
        let shared = Shared::for_tests(&["127.0.0.1".to_owned()], (4096, 256 << 20), 65_520);
        let start = |index| {
            Running::start(Arc::clone(&shared), (Source::Shared(Arc::clone(&queues), index), None), index)
                .unwrap()
        };
        let loops: Vec<_> = (0..queues.count()).map(start).collect();
        shared.forwards.set_loops(loops.iter().map(|running| running.opens.clone()).collect());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // One for each loop.
        let published = [9001, 9002, 9003];
        for port in published {
            let publish: Publish = format!("127.0.0.1:{port}:{PORT}").parse().unwrap();
            runtime.block_on(shared.forwards.add(publish, By::Ctl)).unwrap();
        }
        thread::scope(|scope| {
            let mut clients = Vec::new();
            for seed in 0..12 {
                let (inside, tcp, is_over) = (&inside, &tcp, &is_over);
                clients.push(scope.spawn(move || inside.run(|| ask(tcp, seed, is_over, seed < 8)).unwrap()));
            }
            for (seed, port) in published.iter().cycle().enumerate().take(9) {
                let is_over = &is_over;
                clients.push(
                    scope.spawn(move || ask(&format!("127.0.0.1:{port}"), 100 + seed, is_over, seed < 6)),
                );
            }
            for _ in 0..6 {
                let (inside, udp, is_over) = (&inside, &udp, &is_over);
                clients.push(scope.spawn(move || inside.run(|| ask_datagrams(udp, is_over)).unwrap()));
            }
            changes(&queues);
            is_over.store(true, Ordering::Relaxed);
            let blocks: Vec<usize> = clients.into_iter().map(|client| client.join().unwrap()).collect();
            println!("blocks and answers of each client: {blocks:?}");
        });
        loops.into_iter().for_each(|running| running.stop().unwrap());
    };
    host.run(run).unwrap();
}

#[test]
fn every_flow_stays_whole_while_loops_join_and_leave_all_the_time() {
    if skipped() {
        return;
    }
    flows_stay_whole(None, |queues| {
        let begun = Instant::now();
        for number in 0.. {
            if begun.elapsed() > CHANGES {
                break;
            }
            queues.set_in_use(1 + [0, 1, 2, 1, 0, 2][number % 6]);
            thread::sleep(Duration::from_millis([3, 40, 11, 150][number % 4]));
        }
    });
}

/// Times as a test gives them.
struct Given {
    since: Instant,
    /// How much the first loop works, parts of a hundred of the time: that of all loops.
    work: Arc<AtomicU32>,
    /// When that was read last, and the work until then.
    worked: Mutex<(Instant, Duration)>,
}

impl Measure for Given {
    fn cpu_time(&self, index: usize) -> Duration {
        if index > 0 {
            return Duration::ZERO;
        }
        let (at, worked) = &mut *self.worked.lock().unwrap();
        *worked += at.elapsed() * self.work.load(Ordering::Relaxed) / 100;
        *at = Instant::now();
        *worked
    }

    /// A processor does nothing.
    fn idle(&self) -> Option<Duration> {
        Some(self.since.elapsed())
    }
}

/// What the first loop measures is given; that it decides, that the others read and begin flows, and that all leave, is real.
#[test]
fn loops_join_when_they_measure_much_work_serve_flows_and_leave_and_nothing_is_lost() {
    if skipped() {
        return;
    }
    let (now, work) = (Instant::now(), Arc::new(AtomicU32::new(0)));
    let given = Given { since: now, work: Arc::clone(&work), worked: Mutex::new((now, Duration::ZERO)) };
    flows_stay_whole(Some(Box::new(given)), |queues| {
        let until = |what: &str, is_so: &dyn Fn() -> bool| {
            let deadline = Instant::now() + Duration::from_secs(20);
            while !is_so() {
                let owned = [0, 1, 2].map(|index| queues.exchange.owned(index));
                assert!(Instant::now() < deadline, "{what}: {} in use, flows {owned:?}", queues.in_use());
                thread::sleep(Duration::from_millis(1));
            }
        };
        for _ in 0..2 {
            let before = [1, 2].map(|index| queues.exchange.owned(index));
            assert_eq!(queues.in_use(), 1);
            // More than loops can: as what is told may be of a little earlier, it is much in each window.
            work.store(500, Ordering::Relaxed);
            until("they join", &|| queues.in_use() == 3);
            until("they begin flows", &|| {
                (1..=2).all(|index| queues.exchange.owned(index) > before[index - 1])
            });
            work.store(0, Ordering::Relaxed);
            until("they leave", &|| queues.in_use() == 1);
            // Their flows go on.
            thread::sleep(Duration::from_millis(300));
        }
    });
}

#[test]
fn loops_without_work_leave_and_the_first_serves_all_queues() {
    if skipped() {
        return;
    }
    let (host, inside) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    // A system that is never idle, so none joins.
    let path = std::env::temp_dir().join(format!("sockeye-gateway-stat-{}", std::process::id()));
    std::fs::write(&path, "cpu 0 0 0 100 0\n").unwrap();
    let queues =
        Queues::new(inside.run(device).unwrap(), true, 3, Some(Box::new(System(File::open(&path).unwrap()))));
    std::fs::remove_file(&path).unwrap();
    let run = || {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = format!("10.0.2.2:{}", server.local_addr().unwrap().port());
        echo(server);
        let shared = Shared::for_tests(&["127.0.0.1".to_owned()], (4096, 256 << 20), 65_520);
        let start = |index| {
            Running::start(Arc::clone(&shared), (Source::Shared(Arc::clone(&queues), index), None), index)
                .unwrap()
        };
        let loops: Vec<_> = (0..queues.count()).map(start).collect();
        let deadline = Instant::now() + Duration::from_secs(20);
        while queues.in_use() > 1 {
            assert!(Instant::now() < deadline, "{} are in use", queues.in_use());
            thread::sleep(Duration::from_millis(5));
        }
        // Two thirds of them come by the queues of those that have left.
        let over = AtomicBool::new(true);
        inside.run(|| (0..60).for_each(|seed| assert!(ask(&to, seed, &over, false) == 1))).unwrap();
        let owned = [0, 1, 2].map(|index| queues.exchange.owned(index));
        assert!(matches!(owned, [60..=usize::MAX, 0, 0]), "who has begun them: {owned:?}");
        loops.into_iter().for_each(|running| running.stop().unwrap());
    };
    host.run(run).unwrap();
}
