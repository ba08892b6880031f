//! Programs of the blocking kind: they wait for virtual time, one at a time, and end with their hosts.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sockeye_sim::blocking::{self, TcpListener, TcpStream};
use sockeye_sim::{Capture, LinkConfig, Sim, time};

const MS: Duration = Duration::from_millis(1);

/// An echo between blocking programs on a lossy link. Returns the packets that crossed it.
fn history(seed: u64) -> Vec<u8> {
    Sim::exactly(seed).capture(Capture::All).run(|net| async move {
        let (client, server) = (net.host("client"), net.host("server"));
        net.link(&client, &server, LinkConfig { loss: 0.03, ..LinkConfig::rtt(20 * MS) });
        let addr = server.at(7);
        server.spawn(blocking::run(move || {
            let listener = TcpListener::bind(addr).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let mut buf = [0; 1000];
            loop {
                let bytes = stream.read(&mut buf).unwrap();
                if bytes == 0 {
                    return;
                }
                stream.write_all(&buf[..bytes]).unwrap();
            }
        }));
        let echoed = client.spawn(blocking::run(move || {
            let mut stream = TcpStream::connect(addr).unwrap();
            for number in 0..50u8 {
                stream.write_all(&[number; 100]).unwrap();
                let mut back = [0; 100];
                stream.read_exact(&mut back).unwrap();
                assert_eq!(back, [number; 100]);
                blocking::sleep(3 * MS);
            }
            50
        }));
        assert_eq!(echoed.await.unwrap(), 50);
        assert!(net.now() > 50 * 23 * MS, "{:?}", net.now());
        let mut file = Vec::new();
        net.write_pcap(&mut file).unwrap();
        file
    })
}

#[test]
fn blocking_programs_wait_for_virtual_time_and_are_as_deterministic_as_others() {
    let first = history(3);
    assert!(first.len() > 10_000 && first == history(3));
}

#[test]
fn a_crash_ends_a_blocking_program_in_its_waiting_call() {
    Sim::new(4).run(|net| async move {
        let host = net.host("host");
        let (begun, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        struct Ends(Arc<AtomicU32>);
        impl Drop for Ends {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (begin, end) = (Arc::clone(&begun), Ends(Arc::clone(&ended)));
        let program = host.spawn(blocking::run(move || {
            let _end = end;
            begin.fetch_add(1, Ordering::Relaxed);
            blocking::sleep(Duration::from_secs(1000));
            unreachable!("the host crashes before");
        }));
        time::sleep(MS).await;
        assert_eq!((begun.load(Ordering::Relaxed), ended.load(Ordering::Relaxed)), (1, 0));
        host.crash();
        assert!(program.await.is_err());
        assert_eq!(ended.load(Ordering::Relaxed), 1);
        assert_eq!(net.now(), MS);
    });
}

#[test]
#[should_panic(expected = "a blocking program's own failure")]
fn a_panic_of_a_blocking_program_fails_the_run() {
    Sim::new(5).run(|net| async move {
        let host = net.host("host");
        host.spawn(blocking::run(|| panic!("a blocking program's own failure"))).await.unwrap();
    });
}

#[test]
fn errors_are_those_of_std() {
    Sim::new(6).run(|net| async move {
        let (client, server) = (net.host("client"), net.host("server"));
        let addr = server.at(9);
        let error = client.spawn(blocking::run(move || TcpStream::connect(addr).unwrap_err().kind()));
        assert_eq!(error.await.unwrap(), ErrorKind::ConnectionRefused);
    });
}
