//! Ordinary programs of tokio: its tasks, its time and libraries on it, in simulated time, per host and per seed.
#![cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

mod common;

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::{Capture, LinkConfig, Net, Sim};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinSet, LocalSet, spawn_blocking};
use tokio::time::{self, Instant};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Echoes each connection in a task of its own, as a library would.
async fn echo(listener: TcpListener) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let (mut reader, mut writer) = stream.split();
            tokio::io::copy(&mut reader, &mut writer).await
        });
    }
}

#[test]
fn tasks_timers_and_sets_of_tokio_work_on_a_host_and_in_the_main_program() {
    async fn all_of_it() {
        let start = Instant::now();
        let (sender, mut receiver) = mpsc::channel(1);
        let sending = tokio::spawn(async move {
            let mut every = time::interval(10 * MS);
            for number in 0..5 {
                every.tick().await;
                sender.send(number).await.unwrap();
            }
        });
        let mut got = Vec::new();
        while let Some(number) = receiver.recv().await {
            got.push(number);
        }
        sending.await.unwrap();
        assert_eq!((got, start.elapsed()), (vec![0, 1, 2, 3, 4], 40 * MS));

        let mut set = JoinSet::new();
        for number in [3u64, 1, 2] {
            set.spawn(async move {
                time::sleep(Duration::from_secs(number)).await;
                number
            });
        }
        let aborted = set.spawn(std::future::pending());
        let mut order = Vec::new();
        while let Some(done) = set.join_next().await {
            order.push(done.ok());
            if order.len() == 3 {
                aborted.abort();
            }
        }
        assert_eq!(order, [Some(1), Some(2), Some(3), None]);
        assert_eq!(start.elapsed(), 3 * SECOND + 40 * MS);

        let late = time::timeout_at(Instant::now() + SECOND, std::future::pending::<()>()).await;
        assert!(late.is_err());
        let (tell, told) = oneshot::channel::<()>();
        let which = tokio::select! {
            biased;
            () = time::sleep(SECOND) => 1,
            _ = told => 2,
        };
        assert!(which == 1 && tell.is_closed());
        let local = LocalSet::new();
        let count = Rc::new(Cell::new(0));
        let counted = Rc::clone(&count);
        local
            .run_until(async move {
                tokio::task::spawn_local(async move {
                    time::sleep(SECOND).await;
                    counted.set(7);
                })
                .await
                .unwrap();
            })
            .await;
        assert_eq!((count.get(), start.elapsed()), (7, 6 * SECOND + 40 * MS));
    }
    Sim::new(1).tokio().run(|net| async move {
        net.host("host").spawn(all_of_it()).await.unwrap();
        assert_eq!(net.now(), 6 * SECOND + 40 * MS);
        all_of_it().await;
        assert_eq!(net.now(), 12 * SECOND + 80 * MS);
    });
}

#[test]
fn tokio_and_the_network_have_one_clock_and_timers_end_at_whole_milliseconds() {
    Sim::new(2).tokio().run(|net| async move {
        let step = Duration::from_micros(300);
        let (client, server) = (net.host("client"), net.host("server"));
        net.link(&client, &server, LinkConfig { delay: step, ..LinkConfig::default() });
        server.spawn(async { echo(TcpListener::bind("server:80").await.unwrap()).await });
        let clock = net.now();
        let (tokio, std, simulated) = client
            .spawn(async {
                let (tokio, std) = (Instant::now(), std::time::Instant::now());
                let simulated = sockeye_sim::time::Instant::now();
                TcpStream::connect("server:80").await.unwrap();
                (tokio.elapsed(), std.elapsed(), simulated.elapsed())
            })
            .await
            .unwrap();
        assert_eq!((tokio, std, simulated), (2 * step, 2 * step, 2 * step));
        assert_eq!(net.now() - clock, 2 * step);
        time::sleep(MS).await;
        assert_eq!(net.now() - clock, 2 * MS, "0.6 ms and 1 ms, at the next whole one");
        sockeye_sim::time::sleep(step).await;
        assert_eq!(net.now() - clock, 2 * MS + step);
        let year = Duration::from_secs(86_400 / 4);
        let (long, start) = (time::sleep(year), net.now());
        client.spawn(long).await.unwrap();
        assert!(
            net.now() - start >= year && net.now() - start < year + MS,
            "it was made in the main program"
        );
    });
}

#[test]
fn a_crash_ends_the_tasks_that_libraries_spawned_and_no_others() {
    struct Dropped(Arc<AtomicU32>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    Sim::new(3).tokio().run(|net| async move {
        let hosts = [net.host("one"), net.host("two")];
        let (ticks, dropped) =
            (Arc::new([AtomicU32::new(0), AtomicU32::new(0)]), Arc::new(AtomicU32::new(0)));
        for (index, host) in hosts.iter().enumerate() {
            let (ticks, dropped) = (Arc::clone(&ticks), Dropped(Arc::clone(&dropped)));
            host.spawn(async move {
                let listener = TcpListener::bind("0.0.0.0:80").await.unwrap();
                tokio::spawn(async move {
                    tokio::spawn(async move {
                        let _held = (dropped, listener);
                        loop {
                            time::sleep(SECOND).await;
                            ticks[index].fetch_add(1, Ordering::Relaxed);
                        }
                    })
                    .await
                });
            });
        }
        let count = |index: usize| ticks[index].load(Ordering::Relaxed);
        time::sleep(10 * SECOND + MS).await;
        assert_eq!((count(0), count(1)), (10, 10));
        hosts[0].crash();
        time::sleep(10 * SECOND).await;
        assert_eq!((count(0), count(1), dropped.load(Ordering::Relaxed)), (10, 20, 1));
        hosts[0].restart();
        let again = hosts[0].spawn(async {
            tokio::spawn(async { TcpListener::bind("one:80").await.map(drop) }).await.unwrap()
        });
        again.await.unwrap().unwrap();
        // By a task of its own.
        let itself = hosts[1].clone();
        hosts[1].spawn(async move {
            tokio::spawn(async move { sockeye_sim::time::sleep(SECOND).await });
            time::sleep(SECOND).await;
            itself.crash();
        });
        time::sleep(10 * SECOND).await;
        assert!((21..=22).contains(&count(1)), "{}", count(1));
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn blocking_closures_run_one_at_a_time_while_the_clock_stands() {
    Sim::new(4).tokio().run(|net| async move {
        let host = net.host("host");
        let done = host.spawn(async {
            let (start, running) = (Instant::now(), Arc::new(AtomicU32::new(0)));
            let closures: Vec<_> = (0..20)
                .map(|number| {
                    let running = Arc::clone(&running);
                    spawn_blocking(move || {
                        assert_eq!(running.fetch_add(1, Ordering::Relaxed), 0);
                        let now = std::time::Instant::now();
                        (0..100).for_each(|_| std::thread::yield_now());
                        assert_eq!(now.elapsed(), Duration::ZERO);
                        running.fetch_sub(1, Ordering::Relaxed);
                        number
                    })
                })
                .collect();
            let mut got = Vec::new();
            for closure in closures {
                got.push(closure.await.unwrap());
            }
            assert_eq!((got, start.elapsed()), ((0..20).collect(), Duration::ZERO));
            let nested = spawn_blocking(|| tokio::runtime::Handle::current().spawn(time::sleep(SECOND)));
            nested.await.unwrap().await.unwrap();
            assert_eq!(start.elapsed(), SECOND);
            let sleeps = spawn_blocking(|| std::thread::sleep(SECOND)).await;
            assert!(sleeps.unwrap_err().is_panic(), "a closure must not sleep for real");
        });
        done.await.unwrap();
    });
}

/// A service of hyper and its clients, with everything in it that a program should not get from elsewhere.
async fn web(net: Net) -> Vec<u8> {
    net.set_default_link(LinkConfig { loss: 0.03, jitter: MS, ..LinkConfig::rtt(Duration::from_millis(20)) });
    net.host("server").spawn(async {
        let listener = TcpListener::bind("server:80").await.unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let answer = service_fn(|request: Request<hyper::body::Incoming>| async move {
                let headers: HashMap<_, _> = request.headers().iter().collect();
                let order = headers.keys().map(|name| name.as_str()).collect::<Vec<_>>().join(" ");
                let slow = spawn_blocking(getrandom::u64).await.unwrap().unwrap();
                time::sleep(Duration::from_micros(slow % 5000)).await;
                Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(order))))
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer),
            );
        }
    });
    let clients: Vec<_> = (0..3).map(|number| net.host(&format!("client{number}"))).collect();
    let asking: Vec<_> = clients.iter().map(|client| client.spawn(ask())).collect();
    for program in asking {
        program.await.unwrap();
    }
    let mut file = Vec::new();
    net.write_pcap(&mut file).unwrap();
    file
}

async fn ask() {
    let stream = TcpStream::connect("server:80").await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..3 {
        let mut request = Request::get("/").header("host", "server");
        for name in ["a", "b", "c", "d", "e"] {
            request = request.header(name, turn().await);
        }
        let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
        let date = response.headers()["date"].to_str().unwrap().to_owned();
        assert!(date.starts_with("Thu, 01 Jan 2026 00:00:0"), "{date}");
        response.into_body().collect().await.unwrap();
    }
}

/// Both branches can go on at once. tokio draws which it takes, from a seed only in a build with `--cfg tokio_unstable`.
async fn turn() -> u32 {
    if cfg!(tokio_unstable) {
        tokio::select! {
            one = async { 1 } => one,
            two = async { 2 } => two,
        }
    } else {
        tokio::select! {
            biased;
            one = async { 1 } => one,
            two = async { 2 } => two,
        }
    }
}

fn history(seed: u64) -> Vec<u8> {
    Sim::exactly(seed).tokio().capture(Capture::All).run(web)
}

#[test]
fn a_service_of_hyper_gives_the_same_bytes_for_a_seed_whatever_ran_before_and_beside() {
    let first = history(7);
    assert!(first.len() > 3000, "{} bytes only", first.len());
    assert!(first == history(7) && first != history(8));
    let threads = [7, 9].map(|last| std::thread::spawn(move || (5..=last).map(history).nth(2).unwrap()));
    assert_eq!(threads.map(|thread| thread.join().unwrap() == first), [true, true]);
}

#[test]
fn two_processes_give_the_same_bytes() {
    common::assert_same_in_processes("two_processes_give_the_same_bytes", 1, &history(11));
}

#[tokio::test]
async fn a_run_within_a_test_of_tokio_has_a_clock_of_its_own() {
    let real = Instant::now();
    let seen = Sim::new(5).tokio().run(|net| async move {
        let mut stream = net.host("server").spawn(async {
            let listener = TcpListener::bind("server:80").await.unwrap();
            let addr = listener.local_addr().unwrap();
            tokio::spawn(echo(listener));
            TcpStream::connect((addr.ip(), 80)).await
        });
        let still = (&mut stream).await.unwrap();
        drop(still);
        time::sleep(Duration::from_secs(40_000)).await;
        net.now()
    });
    assert_eq!(seen, Duration::from_secs(40_000));
    assert!(real.elapsed() < Duration::from_secs(40_000));
}

/// Whoever enters a runtime around a run, paused or not, the run does not see it.
#[test]
fn a_run_within_an_entered_runtime_is_on_its_own_clock() {
    for is_paused in [false, true] {
        let outside = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(is_paused)
            .build()
            .unwrap();
        let _entered = outside.enter();
        let seen = Sim::exactly(5).tokio().run(|net| async move {
            let begin = time::Instant::now();
            let slept = net.host("host").spawn(async {
                let slept = tokio::spawn(time::sleep(Duration::from_secs(40_000)));
                slept.await.unwrap();
                time::Instant::now()
            });
            (slept.await.unwrap() - begin, net.now())
        });
        assert_eq!(seen, (Duration::from_secs(40_000), Duration::from_secs(40_000)));
    }
}

/// Not "nothing will ever happen", though a timer of a runtime outside could run.
#[tokio::test]
#[should_panic(expected = "there is no reactor running")]
async fn a_timer_of_tokio_without_a_runtime_of_the_simulation_s_says_so() {
    Sim::exactly(5).run(|_| async { time::sleep(Duration::from_secs(1)).await });
}

#[test]
#[should_panic(expected = "nothing will ever happen")]
fn tasks_that_wait_for_nothing_fail_the_run() {
    Sim::new(6).tokio().run(|net| async move {
        let waits = net.host("host").spawn(async { tokio::spawn(std::future::pending::<()>()).await });
        waits.await.unwrap().unwrap();
    });
}

#[test]
fn a_panic_of_a_task_that_nobody_joins_can_fail_the_run() {
    let run = |is_strict: bool| {
        Sim::exactly(6).tokio().run(move |net| async move {
            if is_strict {
                let net = net.clone();
                net.clone().always("no task has panicked", move || net.panics() == 0);
            }
            net.host("host").spawn(async { drop(tokio::spawn(async { panic!("nobody hears this") })) });
            time::sleep(SECOND).await;
            net.panics()
        })
    };
    assert_eq!(run(false), 1);
    let panic = std::panic::catch_unwind(|| run(true)).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(
        message.contains("no task has panicked") && message.contains("after a step of host"),
        "{message}"
    );
}

#[test]
fn tasks_that_never_wait_fail_the_run() {
    let wakes_itself = || async {
        loop {
            tokio::task::yield_now().await;
        }
    };
    let run = || {
        Sim::exactly(6).tokio().run(move |net| async move {
            net.host("host").spawn(async move { tokio::spawn(wakes_itself()).await }).await.unwrap().unwrap();
        });
    };
    let panic = std::panic::catch_unwind(run).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("time stands still"), "{message}");
}

#[test]
#[should_panic(expected = "Cannot start a runtime from within a runtime")]
fn a_runtime_within_a_program_is_refused_by_name() {
    Sim::new(7).tokio().run(|_| async {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {});
    });
}

#[test]
fn a_clock_of_tokio_that_was_paused_or_moved_fails_the_run_by_name() {
    for advances in [false, true] {
        let run = move || {
            Sim::exactly(9).tokio().run(move |net| async move {
                let paused = net.host("host").spawn(async move {
                    time::pause();
                    if advances {
                        time::advance(SECOND).await;
                        time::resume();
                    }
                    time::sleep(SECOND).await;
                });
                paused.await.unwrap();
            });
        };
        let panic = std::panic::catch_unwind(run).unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(message.contains("a program called tokio::time::pause or advance"), "{message}");
    }
}

#[test]
#[should_panic(expected = "IO is disabled")]
fn signals_of_tokio_itself_are_refused_by_name() {
    Sim::new(7).tokio().run(|_| async { tokio::signal::ctrl_c().await.unwrap() });
}

#[test]
fn a_year_of_timers_costs_no_ticks() {
    Sim::new(8).time_max(400 * 86_400 * SECOND).tokio().run(|net| async move {
        for number in 0..20 {
            net.host(&number.to_string()).spawn(async {
                loop {
                    time::sleep(3600 * SECOND).await;
                }
            });
        }
        time::sleep(365 * 86_400 * SECOND).await;
        // tokio's wheel of timers is hierarchical: a long sleep takes a turn on each level.
        assert!(net.events() < 20 * 365 * 24 * 6, "{} events", net.events());
    });
}

/// A timer belongs to the runtime in which it was made, here the main program's, whichever host polls it first.
#[test]
fn a_timer_of_the_main_program_that_a_host_sets_ends_on_time() {
    const EVERY: [u64; 3] = [100, 400, 1000];
    let ends: Vec<u128> = Sim::new(7).tokio().run(|net| async move {
        let timers: Vec<_> = (1..20).map(|ms| tokio::time::sleep(Duration::from_millis(ms))).collect();
        // The clock jumps to ticks and to moments between them.
        for micros in EVERY {
            net.host("other").spawn(async move {
                loop {
                    sockeye_sim::time::sleep(Duration::from_micros(micros)).await;
                }
            });
        }
        let clock = net.clone();
        let waits = async move {
            let mut ends = Vec::new();
            for timer in timers {
                timer.await;
                ends.push(clock.now().as_nanos());
            }
            ends
        };
        net.host("host").spawn(waits).await.unwrap()
    });
    assert_eq!(ends, (1..20).map(|ms| ms * 1_000_000).collect::<Vec<u128>>());
}
