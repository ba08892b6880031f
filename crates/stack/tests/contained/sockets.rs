//! Panics in calls on UDP and UNIX sockets.

use std::io::{ErrorKind, Read, Write};

use crate::common::settings::{Setting, UnixLocking};
use rustix::io::Errno;
use sockeye::failpoints::arm;
use sockeye::unix::UnixStream;
use sockeye::{UdpBuilder, UdpFlowConfig, UdpSocket};

use crate::common;
use crate::world::{Medium, World};

#[test]
fn a_panic_over_a_datagram_loses_only_that_datagram() {
    let _turn = crate::turn();
    let _guard = common::watchdog("panics over datagrams");
    for medium in [Medium::Loopback, Medium::Wire] {
        let world = World::new(medium, |c| c.workers = 1);
        let ip = world.listener.local_addr().unwrap().ip();
        let bind = |port| UdpSocket::bind_on(&world.stacks[1], (ip, port));
        // In some copies of the table, and then in none.
        arm("udp.name", 0, 1, 4001);
        assert!(bind(4001).unwrap_err().to_string().contains("panicked"));
        let receivers = [bind(4001).unwrap(), bind(4002).unwrap()];
        let sender = UdpSocket::bind_on(
            &world.stacks[0],
            if medium == Medium::Wire { "10.9.0.1:0" } else { "127.0.0.1:0" },
        )
        .unwrap();
        let exchange = || {
            for receiver in &receivers {
                sender.send_to(b"hello", receiver.local_addr().unwrap()).unwrap();
                assert_eq!(receiver.recv(&mut [0; 9]).unwrap(), 5);
            }
        };
        exchange();
        // The datagram is queued and its receiver notified, although the panic was in the notification.
        arm("udp.deliver", 0, 1, 4001);
        let waiting = receivers[0].try_clone().unwrap();
        let waiting = std::thread::spawn(move || waiting.recv(&mut [0; 9]));
        match sender.send_to(b"again", receivers[0].local_addr().unwrap()) {
            Ok(len) => assert_eq!((medium, len), (Medium::Wire, 5)),
            Err(error) => assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error())),
        }
        assert_eq!(waiting.join().unwrap().unwrap(), 5);
        exchange();
        arm("udp.receive", 0, 1, 4001);
        sender.send_to(b"lost", receivers[0].local_addr().unwrap()).unwrap();
        let error = receivers[0].recv(&mut [0; 9]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
        exchange();
        drop((receivers, sender));
        world.end(3);
    }
}

#[test]
fn a_panic_while_a_flow_is_made_leaves_its_place_free() {
    let _turn = crate::turn();
    let _guard = common::watchdog("panics over flows");
    let world = World::new(Medium::Loopback, |c| c.workers = 1);
    let stack = &world.stacks[0];
    let mut config = UdpFlowConfig::default();
    (config.flows_max, config.backlog) = (2, 2);
    let listener =
        UdpBuilder::new_v4(stack).listen_flows("127.0.0.1:4003".parse().unwrap(), &config).unwrap();
    let client = || {
        let client = UdpSocket::bind_on(stack, "127.0.0.1:0").unwrap();
        client.connect("127.0.0.1:4003").unwrap();
        client
    };
    let mut panics = 0;
    // Its first datagram is in its queue, and it is in no table; it is in some copies of the table. More often than there are places.
    for point in ["udp.deliver", "udp.name"] {
        for _ in 0..3 {
            arm(point, 0, 1, 4003);
            let error = client().send(b"lost").unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
            panics += 1;
            assert_eq!((listener.flow_count(), stack.memory_in_use()), (0, 0), "{point}");
        }
    }
    // All places are free, and no flow was displaced.
    let clients = [client(), client()];
    clients.iter().for_each(|client| assert_eq!(client.send(b"x").unwrap(), 1));
    let flows = [0, 1].map(|_| listener.accept().unwrap().0);
    flows.iter().for_each(|flow| assert_eq!(flow.recv(&mut [0; 8]).unwrap(), 1));
    assert_eq!((listener.flow_count(), common::counter(stack, "udp_flows_displaced")), (2, 0));
    // At the bound the displaced flow has ended, whatever became of the new one.
    arm("udp.deliver", 0, 1, 4003);
    assert!(client().send(b"lost").is_err());
    panics += 1;
    assert_eq!((listener.flow_count(), common::counter(stack, "udp_flows_displaced")), (1, 1));
    client().send(b"next").unwrap();
    assert_eq!((listener.flow_count(), common::counter(stack, "udp_flows_displaced")), (2, 1));
    drop((listener, flows));
    world.end(panics);
}

#[test]
fn a_panic_in_a_call_on_a_unix_stream_ends_that_stream() {
    let _turn = crate::turn();
    let _guard = common::watchdog("panics in UNIX sockets");
    for locking in UnixLocking::ALL {
        let world = World::new(Medium::Loopback, |c| {
            c.workers = 1;
            locking.set(c);
        });
        let pair = || UnixStream::pair_on(&world.stacks[0]).unwrap();
        let other = pair();
        let mut panics = 0;
        for (point, len) in
            [("unix.send", 1), ("unix.send", 100_000), ("unix.receive", 1), ("unix.receive", 100_000)]
        {
            let (mut own, mut peer) = pair();
            let mut copy = peer.try_clone().unwrap();
            let waiting = std::thread::spawn(move || copy.read(&mut [0; 4]));
            if point == "unix.receive" {
                // The reader panics; the writer finds its peer closed.
                arm(point, 0, 1, 0);
                own.write_all(&vec![1; len]).unwrap_or_default();
                let error = waiting.join().unwrap().unwrap_err();
                assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
                assert_eq!(own.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
            } else {
                arm(point, 0, 1, 0);
                let error = own.write(&vec![1; len]).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
                // Bytes queued before the panic may be read before the end.
                let read = waiting.join().unwrap();
                let end = loop {
                    match peer.read(&mut [0; 65536]) {
                        Ok(0) => break None,
                        Ok(_) => {}
                        Err(error) => break Some(error.kind()),
                    }
                };
                let failed_with = read.err().map(|error| error.kind()).or(end);
                assert_eq!(failed_with, Some(ErrorKind::ConnectionReset));
                assert_eq!(peer.read(&mut [0]).unwrap(), 0);
            }
            assert_eq!(own.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
            panics += 1;
            for (from, to) in [(&other.0, &other.1), (&other.1, &other.0)] {
                (&*from).write_all(b"still here").unwrap();
                (&*to).read_exact(&mut [0; 10]).unwrap();
            }
        }
        drop(other);
        world.end(panics);
    }
}
