//! Hand-offs of the whole stack, counted over real traffic.
//!
//! The counts are the process's, so this is one test in a process of its own.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::thread;

use sockeye::count::{self, Kind};
use sockeye::{TcpListener, TcpStream};

/// Round trips of one byte.
const ROUND_TRIPS: u64 = 500;

fn echo(mut stream: TcpStream) {
    let mut byte = [0];
    while stream.read(&mut byte).expect("the peer lives") == 1 {
        stream.write_all(&byte).expect("the peer reads");
    }
}

fn ask(mut stream: &TcpStream) {
    let mut byte = [7];
    for _ in 0..ROUND_TRIPS {
        stream.write_all(&byte).expect("the peer lives");
        stream.read_exact(&mut byte).expect("the peer answers");
    }
}

fn pair(at: &TcpListener, to: SocketAddr) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(to).expect("the listener is there");
    (client, at.accept().expect("a connection is there").0)
}

#[test]
fn a_connection_between_two_threads_costs_hand_offs_and_one_within_a_thread_none() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = listener.local_addr().expect("bound");
    let (client, server) = pair(&listener, at);
    let server = thread::spawn(|| echo(server));
    ask(&client);
    count::reset();
    ask(&client);
    let between = count::snapshot();
    drop(client);
    server.join().expect("no panic");
    // In each direction the buffer is handed over, and the lock under which it is left: less would mean missed hand-offs.
    assert!(between.total() >= 4 * ROUND_TRIPS, "{between:?}");
    assert!(between.lock >= ROUND_TRIPS && between.buffer >= ROUND_TRIPS, "{between:?}");
    let top = count::top(usize::MAX);
    assert!(!top.is_empty() && top.iter().all(|place| !place.site.contains("counted")), "{top:?}");
    let sum: u64 = top.iter().filter(|place| place.kind == Kind::Lock).map(|place| place.handoffs).sum();
    assert!(sum >= between.lock, "the places add up to the whole");

    let (client, mut server) = pair(&listener, at);
    let alone = |mut stream: &TcpStream, server: &mut TcpStream| {
        let mut byte = [7];
        for _ in 0..ROUND_TRIPS {
            stream.write_all(&byte).expect("the peer lives");
            server.read_exact(&mut byte).expect("a byte is there");
            server.write_all(&byte).expect("the peer lives");
            stream.read_exact(&mut byte).expect("a byte is there");
        }
    };
    alone(&client, &mut server);
    count::reset();
    alone(&client, &mut server);
    let within = count::snapshot();
    // Timers may bring a worker in now and then.
    assert!(within.total() * 10 < ROUND_TRIPS, "{within:?} {:?}", count::top(9));
}
