//! Ten thousand connections at once.

use std::io::{Read, Write};
use std::net::SocketAddr;

use sockeye::{TcpListener, TcpStream};
use sockeye_drivers::Layer;
use sockeye_drivers::testing::say_skipped;

use crate::common::{bytes, skipped};
use crate::testbed::Testbed;

/// Connections. The kernel's end of each is a descriptor.
const COUNT: usize = 10_000;
/// Descriptors beside them.
const SPARE: u64 = 500;
const LEN: usize = 700;

/// Whether the process may have so many descriptors; tries to get the right.
fn descriptors() -> bool {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let wanted = COUNT as u64 + SPARE;
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
    let enough = current.is_none_or(|current| current >= wanted);
    if !enough {
        say_skipped(&format!("no more than {current:?} descriptors"));
    }
    enough
}

/// Writes to all of the one side, reads from all of the other, and back.
fn ping_all(left: &mut [impl Read + Write], right: &mut [impl Read + Write]) {
    let mut got = vec![0; LEN];
    for round in 0..2_u64 {
        for (index, stream) in left.iter_mut().enumerate() {
            stream.write_all(&bytes(round << 32 | index as u64, LEN)).unwrap();
        }
        for (index, stream) in right.iter_mut().enumerate() {
            stream.read_exact(&mut got).unwrap();
            assert!(got == bytes(round << 32 | index as u64, LEN), "{index}");
            stream.write_all(&got).unwrap();
        }
        for (index, stream) in left.iter_mut().enumerate() {
            stream.read_exact(&mut got).unwrap();
            assert!(got == bytes(round << 32 | index as u64, LEN), "{index}");
        }
    }
}

#[test]
fn ten_thousand_connections_are_open_at_once_and_each_carries_its_own_bytes() {
    if skipped("many connections") || !descriptors() {
        return;
    }
    let testbed = Testbed::new(Layer::Ip);
    testbed.sysctl("ipv4/ip_local_port_range", "1024 65000");
    testbed.sysctl("core/somaxconn", "16384");
    let half = COUNT / 2;

    let listener = TcpListener::bind_on(&testbed.lab.stack, testbed.lab.stack_addr(false, 0)).unwrap();
    let to = listener.local_addr().unwrap();
    let clients = testbed
        .lab
        .kernel(move || (0..half).map(|_| std::net::TcpStream::connect(to).unwrap()).collect::<Vec<_>>());
    let mut ours: Vec<TcpStream> = (0..half).map(|_| listener.accept().unwrap().0).collect();
    let mut theirs = clients.join().unwrap();
    // In the order in which they were opened, on both sides.
    let port = |stream: &TcpStream| stream.peer_addr().as_ref().map(SocketAddr::port).unwrap();
    let place = |stream: &std::net::TcpStream| stream.local_addr().as_ref().map(SocketAddr::port).unwrap();
    ours.sort_by_key(port);
    theirs.sort_by_key(place);

    let at = testbed.lab.kernel_addr(true, 0);
    let listener = testbed.lab.kernel(move || std::net::TcpListener::bind(at).unwrap()).join().unwrap();
    let to = listener.local_addr().unwrap();
    for _ in 0..half {
        ours.push(TcpStream::connect_on(&testbed.lab.stack, to).unwrap());
        theirs.push(listener.accept().unwrap().0);
    }
    assert!(testbed.lab.stack.connection_count() >= COUNT);
    ping_all(&mut ours, &mut theirs);
    ping_all(&mut theirs, &mut ours);
    testbed.assert_all_understood();
    drop((ours, theirs));
    testbed.assert_empties();
}
