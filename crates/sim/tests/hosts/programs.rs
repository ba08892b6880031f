//! Programs: time, tasks, crashes, and the cost of idleness.

use std::cell::Cell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use sockeye_sim::net::{TcpListener, TcpStream, UdpSocket};
use sockeye_sim::{Aborted, LinkConfig, Sim, time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn time_jumps_to_the_next_event_and_sleeps_end_in_order() {
    Sim::new(1).run(|net| async move {
        let mut sleepers = Vec::new();
        for seconds in [3, 1, 2] {
            sleepers.push(sockeye_sim::spawn(async move {
                time::sleep(seconds * SECOND).await;
                time::Instant::now().since_start()
            }));
        }
        let mut woke = Vec::new();
        for sleeper in sleepers {
            woke.push(sleeper.await.unwrap());
        }
        assert_eq!(woke, [3 * SECOND, SECOND, 2 * SECOND]);
        assert_eq!(net.now(), 3 * SECOND);
    });
}

#[test]
fn a_timeout_drops_a_late_future_and_keeps_a_timely_one() {
    Sim::new(1).run(|_| async {
        let late = time::timeout(SECOND, time::sleep(2 * SECOND)).await;
        assert_eq!(late, Err(time::Elapsed));
        assert_eq!(time::Instant::now().since_start(), SECOND);
        let early = time::timeout(SECOND, async { 7 }).await;
        assert_eq!(early, Ok(7));
        assert_eq!(std::io::Error::from(time::Elapsed).kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn an_idle_pair_costs_no_events() {
    Sim::new(2).run(|net| async move {
        let (client, server) = (net.host("client"), net.host("server"));
        let addr = server.at(80);
        let held = server.spawn(async move {
            let listener = TcpListener::bind(addr).await.unwrap();
            listener.accept().await.unwrap()
        });
        let stream = client.spawn(async move { TcpStream::connect(addr).await.unwrap() }).await.unwrap();
        let held = held.await.unwrap();
        time::sleep(SECOND).await;
        let (before, start) = (net.events(), net.now());
        time::sleep(1000 * SECOND).await;
        assert!(net.events() - before < 20, "{} events in 1,000 idle seconds", net.events() - before);
        assert_eq!(net.now() - start, 1000 * SECOND);
        drop((stream, held));
    });
}

#[test]
fn a_crash_ends_programs_silently_and_the_peer_learns_of_it_when_it_sends() {
    Sim::new(3).run(|net| async move {
        let (client, server) = (net.host("client"), net.host("server"));
        let addr = server.at(80);
        let serve = move || async move {
            let listener = TcpListener::bind(addr).await.unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut byte = [0; 1];
            while stream.read(&mut byte).await.unwrap() > 0 {
                stream.write_all(&byte).await.unwrap();
            }
        };
        let program = server.spawn(serve());
        let mut stream = client.spawn(async move { TcpStream::connect(addr).await.unwrap() }).await.unwrap();
        stream.write_all(b"a").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'a');
        let from_server = (addr, stream.local_addr().unwrap());
        let sent = net.flow(from_server.0, from_server.1);
        server.crash();
        assert!(!server.is_up() && server.stack().is_none());
        assert_eq!(program.await, Err(Aborted));
        time::sleep(SECOND).await;
        assert_eq!(net.flow(from_server.0, from_server.1), sent, "a host without power sends nothing");
        server.restart();
        server.spawn(serve());
        // The new stack does not know the connection, and sends a reset.
        stream.write_all(b"b").await.unwrap();
        let error = stream.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let mut again = client.spawn(async move { TcpStream::connect(addr).await.unwrap() }).await.unwrap();
        again.write_all(b"c").await.unwrap();
        assert_eq!(again.read_u8().await.unwrap(), b'c');
    });
}

#[test]
fn a_connect_to_a_host_that_is_down_times_out() {
    Sim::new(4).run(|net| async move {
        let (client, server) = (net.host("client"), net.host("server"));
        net.link(&client, &server, LinkConfig::rtt(10 * MS));
        server.crash();
        let addr = server.at(80);
        let error = client.spawn(async move { TcpStream::connect(addr).await.unwrap_err() }).await.unwrap();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        // 1 + 2 + 4 + ... + 64 seconds.
        assert!(net.now() > 126 * SECOND && net.now() < 130 * SECOND, "{:?}", net.now());
        assert_eq!(net.stats().cut, 7);
    });
}

#[test]
fn an_aborted_task_drops_its_values() {
    Sim::new(5).run(|net| async move {
        let (client, server) = (net.host("client"), net.host("server"));
        let addr = server.at(80);
        let ended = server.spawn(async move {
            let listener = TcpListener::bind(addr).await.unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read(&mut [0; 1]).await
        });
        let holds = client.spawn(async move {
            let _stream = TcpStream::connect(addr).await.unwrap();
            std::future::pending::<()>().await;
        });
        time::sleep(SECOND).await;
        assert!(!holds.is_finished() && !ended.is_finished());
        holds.abort();
        assert_eq!(ended.await.unwrap().unwrap(), 0);
        assert_eq!(holds.await, Err(Aborted));
    });
}

/// A thousand datagrams through a host's loopback. How many events that took.
async fn talks_to_itself(net: sockeye_sim::Net) -> u64 {
    let host = net.host("host");
    let talk = host.spawn(async {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let own = socket.local_addr().unwrap();
        for _ in 0..1000 {
            socket.send_to(b"?", own).await.unwrap();
            assert_eq!(socket.recv(&mut [0; 4]).await.unwrap(), 1);
        }
    });
    talk.await.unwrap();
    net.events()
}

#[test]
fn a_run_inside_a_task_of_tokio_does_not_depend_on_that_task_s_budget() {
    let outside = Sim::new(8).run(talks_to_itself);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let inside = runtime.block_on(async { Sim::new(8).run(talks_to_itself) });
    assert_eq!(inside, outside);
}

#[test]
fn the_memory_of_both_stacks_returns_when_their_sockets_are_gone() {
    Sim::new(6).run(|net| async move {
        let (client, server) = (net.host("client"), net.host("server"));
        let addr = server.at(80);
        server.spawn(async move {
            let listener = TcpListener::bind(addr).await.unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut sink = vec![0; 1 << 16];
            while stream.read(&mut sink).await.unwrap() > 0 {}
        });
        client
            .spawn(async move {
                let mut stream = TcpStream::connect(addr).await.unwrap();
                stream.write_all(&vec![1; 1 << 20]).await.unwrap();
            })
            .await
            .unwrap();
        time::sleep(120 * SECOND).await;
        for host in [&client, &server] {
            let stack = host.stack().unwrap();
            assert_eq!((stack.connection_count(), stack.memory_in_use()), (0, 0), "{host:?}");
        }
        assert_eq!(net.in_flight(), 0);
    });
}

/// Programs of a host that is down, begun in a run with or without tokio. Returns the run's digest.
fn starts_nothing(sim: Sim) -> u64 {
    sim.run(|net| async move {
        let host = net.host("host");
        host.crash();
        let alive = Rc::new(());
        let kept = Rc::clone(&alive);
        let bound = host.spawn(async move {
            let _kept = kept;
            TcpListener::bind("0.0.0.0:80").await.map(drop)
        });
        assert!(bound.is_finished() && Rc::strong_count(&alive) == 1);
        assert!(matches!(bound.await, Err(Aborted)));
        let slept = host.spawn(async { tokio::time::sleep(SECOND).await });
        assert_eq!(slept.await, Err(Aborted));
        host.restart();
        let itself = host.clone();
        host.spawn(async move {
            itself.crash();
            assert_eq!(itself.spawn(async {}).await, Err(Aborted));
        });
        time::sleep(SECOND).await;
        net.digest()
    })
}

#[test]
fn a_program_that_is_started_on_a_host_that_is_down_ends_at_once() {
    assert_eq!(starts_nothing(Sim::exactly(7)), starts_nothing(Sim::exactly(7)));
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        let with_tokio = || starts_nothing(Sim::exactly(7).tokio());
        assert_eq!(with_tokio(), with_tokio());
    }
}

/// What is dropped with a crashed host's programs asks for a stack: it is none of the machine's.
#[test]
fn what_a_crash_drops_is_on_a_stack_of_the_run() {
    use sockeye::unix::UnixListener;
    struct Asks(Rc<Cell<Option<bool>>>);
    impl Drop for Asks {
        fn drop(&mut self) {
            let own = UnixListener::bind("/crashed");
            let global = sockeye::Stack::global().scope(|| UnixListener::bind("/crashed"));
            self.0.set(Some(own.is_ok() && global.is_ok()));
        }
    }
    Sim::new(7).run(|net| async move {
        let host = net.host("host");
        let is_own = Rc::new(Cell::new(None));
        let asks = Asks(Rc::clone(&is_own));
        host.spawn(async move {
            let _asks = asks;
            std::future::pending::<()>().await;
        });
        time::sleep(SECOND).await;
        host.crash();
        time::sleep(SECOND).await;
        assert_eq!(is_own.get(), Some(true));
    });
}
