//! Programs of the blocking kind: they wait for virtual time, one at a time, and end with their hosts.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sockeye_sim::blocking::{self, TcpListener, TcpStream, fs};
use sockeye_sim::{Capture, Host, LinkConfig, Sim, time};

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

/// Writes what it kept, and waits, when it is dropped.
struct Late {
    stream: TcpStream,
    file: fs::File,
    errors: Arc<AtomicU32>,
}

impl Drop for Late {
    fn drop(&mut self) {
        blocking::sleep(MS);
        let failed = [
            self.stream.write_all(b"late").err(),
            self.stream.read(&mut [0]).err(),
            self.file.write_all(b"late").err(),
            self.file.sync_all().err(),
            TcpListener::bind("0.0.0.0:1").err(),
        ];
        let failed = failed.iter().flatten().filter(|error| error.kind() == ErrorKind::BrokenPipe);
        self.errors.fetch_add(failed.count() as u32, Ordering::Relaxed);
    }
}

/// A server that reads until the end, and the program of `client` that keeps something for its destructor.
fn keeps_something(client: &Host, server: &Host, errors: &Arc<AtomicU32>) {
    let (addr, errors) = (server.at(5), Arc::clone(errors));
    server.spawn(blocking::run(move || {
        let (mut stream, _) = TcpListener::bind(addr).unwrap().accept().unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    }));
    client.spawn(blocking::run(move || {
        blocking::sleep(MS);
        let stream = TcpStream::connect(addr).unwrap();
        let file = fs::File::create("file").unwrap();
        let _late = Late { stream, file, errors };
        blocking::sleep(1_000_000 * MS);
    }));
}

#[test]
fn blocking_calls_of_destructors_fail_when_the_program_is_ended() {
    let errors = Arc::new(AtomicU32::new(0));
    Sim::exactly(7).run(|net| {
        let errors = Arc::clone(&errors);
        async move {
            let (client, server) = (net.host("client"), net.host("server"));
            keeps_something(&client, &server, &errors);
            time::sleep(10 * MS).await;
            client.kill();
            time::sleep(MS).await;
            assert_eq!(errors.load(Ordering::Relaxed), 5, "killed");
            let empty = client.spawn(async { sockeye_sim::fs::read("file").await.unwrap().is_empty() });
            assert!(empty.await.unwrap(), "a killed program has written to its file");
            // This one is ended with the run.
            keeps_something(&server, &client, &errors);
            time::sleep(10 * MS).await;
        }
    });
    assert_eq!(errors.load(Ordering::Relaxed), 10, "the end of the run");
}

/// A destructor that waits when the program has failed by itself, and whose host then crashes.
#[test]
fn a_program_that_fails_can_be_ended_in_a_destructor() {
    struct Sleeps(Arc<AtomicU32>);
    impl Drop for Sleeps {
        fn drop(&mut self) {
            blocking::sleep(MS);
            self.0.fetch_add(1, Ordering::Relaxed);
            blocking::sleep(1000 * MS);
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    Sim::exactly(8).run(|net| async move {
        let host = net.host("host");
        let steps = Arc::new(AtomicU32::new(0));
        let sleeps = Sleeps(Arc::clone(&steps));
        let program = host.spawn(blocking::run(move || {
            let _sleeps = sleeps;
            std::panic::resume_unwind(Box::new("its own failure"));
        }));
        time::sleep(10 * MS).await;
        assert_eq!(steps.load(Ordering::Relaxed), 1);
        host.crash();
        assert!(program.await.is_err());
        assert_eq!(steps.load(Ordering::Relaxed), 2);
    });
}

/// Changes its disk when it is dropped.
struct Farewell(Arc<AtomicU32>);

impl Drop for Farewell {
    fn drop(&mut self) {
        let failed = [
            fs::write("/state", "bye").err(),
            fs::remove_file("/state").err(),
            fs::rename("/state", "/gone").err(),
            fs::create_dir_all("/made").err(),
            fs::File::options().append(true).open("/state").err(),
            fs::read("/state").err(),
        ];
        let failed = failed.iter().flatten().filter(|error| error.kind() == ErrorKind::BrokenPipe);
        self.0.fetch_add(failed.count() as u32, Ordering::Relaxed);
    }
}

#[test]
fn a_program_that_is_ended_does_nothing_to_its_disk() {
    for (seed, ends) in [(9, Host::kill as fn(&Host)), (10, Host::crash)] {
        Sim::exactly(seed).run(|net| async move {
            let host = net.host("host");
            let errors = Arc::new(AtomicU32::new(0));
            let farewell = Farewell(Arc::clone(&errors));
            host.spawn(blocking::run(move || {
                let _farewell = farewell;
                fs::write("/state", "saved").unwrap();
                let file = fs::File::options().append(true).open("/state").unwrap();
                file.sync_all().unwrap();
                fs::File::open("/").unwrap().sync_all().unwrap();
                struct Open(fs::File, Arc<AtomicU32>);
                impl Drop for Open {
                    fn drop(&mut self) {
                        let failed = [self.0.set_len(0).err(), self.0.write_at(b"bye", 0).err()];
                        let kinds = failed.iter().flatten().map(std::io::Error::kind);
                        let failed = kinds.filter(|kind| *kind == ErrorKind::BrokenPipe);
                        self.1.fetch_add(failed.count() as u32, Ordering::Relaxed);
                    }
                }
                let _open = Open(file, Arc::clone(&_farewell.0));
                blocking::sleep(1_000_000 * MS);
            }));
            time::sleep(100 * MS).await;
            ends(&host);
            time::sleep(MS).await;
            assert_eq!(errors.load(Ordering::Relaxed), 8);
            host.restart();
            let state = host.spawn(sockeye_sim::fs::read_to_string("/state")).await.unwrap();
            assert_eq!(state.unwrap(), "saved");
            assert_eq!(host.disk().used(), 5);
            assert!(!host.spawn(sockeye_sim::fs::try_exists("/made")).await.unwrap().unwrap());
        });
    }
}
