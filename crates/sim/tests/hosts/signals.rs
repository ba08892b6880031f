//! Programs that are asked to end.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use sockeye_sim::signal::unix::{SignalKind, signal};
use sockeye_sim::signal::{self, ctrl_c};
use sockeye_sim::{Aborted, Sim, time};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_program_that_waits_for_ctrl_c_gets_it_and_lives() {
    Sim::new(1).tokio().run(|net| async move {
        let host = net.host("h");
        let program = host.spawn(async {
            // In a task of tokio's, as a server's graceful shutdown has it.
            let told = tokio::spawn(async { ctrl_c().await.unwrap() });
            told.await.unwrap();
            tokio::time::sleep(SECOND).await;
            "in order"
        });
        time::sleep(SECOND).await;
        host.ctrl_c();
        assert_eq!(program.await, Ok("in order"));
        host.ctrl_c();
        assert!(host.is_up() && host.spawn(async {}).await.is_ok(), "who has asked once is not ended by it");
    });
}

/// As a server has it that says `sockeye::tokio` for `tokio::net` and for `tokio::signal`.
#[test]
fn a_server_that_swaps_its_modules_stops_in_order() {
    use sockeye::tokio::{TcpListener, TcpStream, signal};
    use tokio::io::AsyncReadExt;

    async fn serve(listener: TcpListener) -> usize {
        let mut stop = signal::unix::signal(signal::unix::SignalKind::terminate()).unwrap();
        let mut accepted = Vec::new();
        loop {
            tokio::select! {
                biased;
                connection = listener.accept() => accepted.push(connection.unwrap()),
                _ = stop.recv() => return accepted.len(),
            }
        }
    }

    Sim::new(1).tokio().run(|net| async move {
        let (client, servers) = (net.host("client"), ["left", "right"].map(|name| net.host(name)));
        let served = servers.each_ref().map(|host| {
            let addr = host.at(80);
            host.spawn(async move {
                let listener = TcpListener::bind(addr).await.unwrap();
                tokio::spawn(serve(listener)).await.unwrap()
            })
        });
        let ended = client.spawn(async {
            let mut streams = Vec::new();
            for server in ["left:80", "right:80", "right:80"] {
                streams.push(TcpStream::connect(server).await.unwrap());
            }
            let mut ends = Vec::new();
            for mut stream in streams {
                stream.read_to_end(&mut Vec::new()).await.unwrap();
                ends.push(tokio::time::Instant::now());
            }
            ends
        });
        time::sleep(SECOND).await;
        servers[1].signal(SignalKind::terminate());
        time::sleep(SECOND).await;
        servers[0].signal(SignalKind::terminate());
        let [left, right] = served;
        assert_eq!((left.await, right.await), (Ok(1), Ok(2)), "each host has signals of its own");
        assert_eq!(ended.await.unwrap().len(), 3);
    });
}

#[test]
fn signals_that_do_nothing_by_themselves_end_nobody() {
    Sim::new(1).run(|net| async move {
        let host = net.host("h");
        let end = host.spawn(time::sleep(SECOND));
        for kind in [SignalKind::child(), SignalKind::window_change(), SignalKind::pipe()] {
            host.signal(kind);
        }
        host.pause();
        host.signal(SignalKind::child());
        host.resume();
        assert_eq!(end.await, Ok(()));
        let caught = host.spawn(async { signal(SignalKind::child()).unwrap().recv().await });
        time::sleep(SECOND).await;
        host.signal(SignalKind::child());
        assert_eq!(caught.await, Ok(Some(())));
        let refused = host.spawn(async { signal(SignalKind::from_raw(9)).unwrap_err().to_string() });
        assert_eq!(refused.await, Ok("signal 9 cannot be caught".to_owned()));
        let end = host.spawn(time::sleep(SECOND));
        host.signal(SignalKind::from_raw(9));
        assert_eq!(end.await, Err(Aborted));
    });
}

#[test]
fn a_program_that_does_not_is_killed_until_it_is_started_again() {
    Sim::new(1).run(|net| async move {
        let host = net.host("h");
        let starts = Rc::new(Cell::new(0));
        let counted = Rc::clone(&starts);
        host.program(move || {
            counted.set(counted.get() + 1);
            let number = counted.get();
            async move {
                if number == 2 {
                    signal(SignalKind::terminate()).unwrap().recv().await;
                }
                std::future::pending::<()>().await;
            }
        });
        time::sleep(SECOND).await;
        let other = host.spawn(std::future::pending::<()>());
        host.signal(SignalKind::terminate());
        assert_eq!(other.await, Err(Aborted));
        host.signal(SignalKind::terminate());
        host.restart();
        time::sleep(SECOND).await;
        let other = host.spawn(time::sleep(SECOND));
        host.signal(SignalKind::terminate());
        assert_eq!(other.await, Ok(()), "the second has asked for it");
        let other = host.spawn(time::sleep(SECOND));
        host.ctrl_c();
        assert_eq!(other.await, Err(Aborted), "for that one, not for another");
        host.restart();
        time::sleep(SECOND).await;
        let other = host.spawn(time::sleep(SECOND));
        host.signal(SignalKind::terminate());
        assert_eq!((other.await, starts.get()), (Err(Aborted), 3), "a new process has asked for nothing");
    });
}

#[test]
fn signals_that_are_not_taken_become_one_and_each_receiver_gets_it() {
    Sim::new(1).run(|net| async move {
        let host = net.host("h");
        let counts = [(); 2].map(|()| {
            host.spawn(async {
                let mut hangups = signal(SignalKind::hangup()).unwrap();
                time::sleep(SECOND).await;
                let mut count = 0;
                while time::timeout(SECOND, hangups.recv()).await == Ok(Some(())) {
                    count += 1;
                }
                count
            })
        });
        time::sleep(SECOND / 2).await;
        (0..5).for_each(|_| host.signal(SignalKind::hangup()));
        for count in counts {
            assert_eq!(count.await, Ok(1));
        }
        assert!(signal::ctrl_c().await.is_err(), "the main program is no process");
    });
}

#[test]
fn a_paused_program_ends_when_it_is_resumed() {
    Sim::new(1).run(|net| async move {
        let host = net.host("h");
        let end = host.spawn(time::sleep(SECOND));
        host.pause();
        host.ctrl_c();
        time::sleep(5 * SECOND).await;
        assert!(!end.is_finished());
        host.resume();
        assert_eq!(end.await, Err(Aborted));
    });
}
