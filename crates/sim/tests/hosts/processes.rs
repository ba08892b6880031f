//! Programs that are killed, stopped and started again, beside the kernel under them.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::{Host, Net, Sim, time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn pair(net: &Net) -> (Host, Host) {
    (net.host("client"), net.host("server"))
}

/// Accepts connections and keeps them, reading nothing.
async fn hoard() {
    let listener = TcpListener::bind("server:80").await.unwrap();
    let mut kept = Vec::new();
    loop {
        kept.push(listener.accept().await.unwrap());
    }
}

#[test]
fn a_killed_program_leaves_a_fin_or_a_reset_if_it_had_not_read_all() {
    Sim::new(1).run(|net| async move {
        let (client, server) = pair(&net);
        server.program(hoard);
        let outcome = |bytes: &'static [u8]| {
            client.spawn(async move {
                let mut stream = TcpStream::connect("server:80").await?;
                stream.write_all(bytes).await?;
                stream.read(&mut [0]).await
            })
        };
        let (read_all, left_some) = (outcome(b""), outcome(b"unread"));
        time::sleep(SECOND).await;
        server.kill();
        let fin = read_all.await.unwrap();
        assert_eq!(fin.unwrap(), 0);
        assert_eq!(left_some.await.unwrap().unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(net.now(), SECOND + MS);
        // The kernel answers that nobody listens.
        let refused = outcome(b"").await.unwrap();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert!(server.is_up());
    });
}

#[test]
fn a_crash_is_silent_where_a_kill_is_not() {
    Sim::new(1).run(|net| async move {
        let (client, server) = pair(&net);
        server.program(hoard);
        let waiting = client.spawn(async {
            let mut stream = TcpStream::connect("server:80").await.unwrap();
            time::timeout(60 * SECOND, stream.read(&mut [0])).await.is_err()
        });
        time::sleep(SECOND).await;
        server.crash();
        assert!(waiting.await.unwrap(), "nothing comes from a machine without power");
    });
}

#[test]
fn a_program_starts_anew_with_each_restart_and_keeps_only_what_is_outside_of_it() {
    Sim::new(1).run(|net| async move {
        let (client, server) = pair(&net);
        let starts = Rc::new(Cell::new(0u8));
        let counted = Rc::clone(&starts);
        server.program(move || {
            counted.set(counted.get() + 1);
            let number = counted.get();
            async move {
                let listener = TcpListener::bind("server:80").await.unwrap();
                loop {
                    listener.accept().await.unwrap().0.write_all(&[number]).await.unwrap();
                }
            }
        });
        let ask = || {
            let asked = client
                .spawn(async { TcpStream::connect("server:80").await.unwrap().read_u8().await.unwrap() });
            async { asked.await.unwrap() }
        };
        time::sleep(SECOND).await;
        assert_eq!(ask().await, 1);
        server.kill();
        server.restart();
        assert_eq!(ask().await, 2);
        server.crash();
        server.restart();
        assert_eq!(ask().await, 3);
        server.kill();
        server.restart_with(|| async {
            let listener = TcpListener::bind("server:80").await.unwrap();
            listener.accept().await.unwrap().0.write_all(b"n").await.unwrap();
        });
        assert_eq!((ask().await, starts.get()), (b'n', 3));
    });
}

#[test]
#[should_panic(expected = "server is up")]
fn a_host_whose_programs_run_cannot_be_started_again() {
    Sim::new(1).run(|net| async move { net.host("server").restart() });
}

#[test]
fn a_paused_program_stands_still_while_its_kernel_goes_on() {
    Sim::new(1).run(|net| async move {
        let (client, server) = pair(&net);
        let ticks = Rc::new(RefCell::new(Vec::new()));
        let noted = Rc::clone(&ticks);
        server.program(move || {
            let noted = Rc::clone(&noted);
            async move {
                let listener = TcpListener::bind("server:80").await.unwrap();
                sockeye_sim::spawn(async move {
                    loop {
                        time::sleep(SECOND).await;
                        noted.borrow_mut().push(time::Instant::now().since_start().as_secs());
                    }
                });
                loop {
                    listener.accept().await.unwrap().0.write_all(b"!").await.unwrap();
                }
            }
        });
        time::sleep(2 * SECOND + 500 * MS).await;
        server.pause();
        assert!(server.is_paused());
        let asked = client.spawn(async move {
            let start = time::Instant::now();
            let mut stream = TcpStream::connect("server:80").await.unwrap();
            let connected = start.elapsed();
            stream.read_u8().await.unwrap();
            (connected, start.elapsed())
        });
        time::sleep(10 * SECOND).await;
        server.resume();
        let (connected, answered) = asked.await.unwrap();
        assert_eq!(connected, 2 * MS, "the kernel accepts");
        assert_eq!(answered, 10 * SECOND + MS);
        time::sleep(2 * SECOND).await;
        // The timer that ended meanwhile is noticed late.
        assert_eq!(*ticks.borrow(), [1, 2, 12, 13, 14]);
        server.pause();
        server.crash();
        assert!(!server.is_paused());
    });
}

#[cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#[test]
fn tasks_of_tokio_are_killed_paused_and_resumed_with_their_host() {
    let run = || {
        Sim::exactly(3).tokio().run(|net| async move {
            let (client, server) = pair(&net);
            let noted = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
            let notes = noted.clone();
            let origin = tokio::time::Instant::now();
            server.program(move || {
                let noted = noted.clone();
                async move {
                    let listener = TcpListener::bind("server:80").await.unwrap();
                    tokio::spawn(async move {
                        let mut every = tokio::time::interval(SECOND);
                        loop {
                            every.tick().await;
                            noted.lock().unwrap().push(origin.elapsed().as_millis());
                        }
                    });
                    loop {
                        let (mut stream, _) = listener.accept().await.unwrap();
                        tokio::spawn(async move { stream.read_u8().await });
                    }
                }
            });
            let waiting = client.spawn(async { TcpStream::connect("server:80").await?.read_u8().await });
            tokio::time::sleep(1500 * MS).await;
            server.pause();
            tokio::time::sleep(3 * SECOND).await;
            server.resume();
            tokio::time::sleep(SECOND).await;
            server.kill();
            assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::UnexpectedEof);
            tokio::time::sleep(10 * SECOND).await;
            server.restart();
            tokio::time::sleep(1500 * MS).await;
            assert_eq!(net.now(), 17 * SECOND + MS);
            let notes = notes.lock().unwrap().clone();
            (notes, net.digest())
        })
    };
    let (notes, digest) = run();
    // The missed ticks come at once, as tokio does it; then a new process has new tasks.
    assert_eq!(notes, [0, 1000, 4500, 4500, 4500, 5000, 15_501, 16_501]);
    assert_eq!(run(), (notes, digest));
}

/// A program starts tasks before it returns its future: with the simulator's `spawn`, or with tokio's.
#[cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#[test]
fn what_a_program_starts_before_its_future_belongs_to_its_host() {
    async fn tick(ticks: std::sync::Arc<std::sync::atomic::AtomicU32>) {
        loop {
            time::sleep(SECOND).await;
            ticks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
    for end in [Host::crash, Host::kill] {
        for has_tokio in [false, true] {
            Sim::new(1).tokio().run(move |net| async move {
                let host = net.host("host");
                let ticks = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
                let counted = ticks.clone();
                let program = move || {
                    let ticking = tick(counted.clone());
                    if has_tokio {
                        drop(tokio::spawn(ticking));
                    } else {
                        drop(sockeye_sim::spawn(ticking));
                    }
                    std::future::pending()
                };
                let count = || ticks.load(std::sync::atomic::Ordering::Relaxed);
                host.program(program.clone());
                time::sleep(2 * SECOND + MS).await;
                end(&host);
                time::sleep(10 * SECOND).await;
                assert_eq!(count(), 2);
                host.restart_with(program);
                time::sleep(2 * SECOND + MS).await;
                end(&host);
                time::sleep(10 * SECOND).await;
                assert_eq!(count(), 4);
            });
        }
    }
}
