//! What programs get from `std` follows from the seed: time, dates, random numbers, the order of maps.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::{Capture, LinkConfig, Sim, blocking, time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A message in which everything is that a program should not get from elsewhere.
fn unsteady(maps: &HashMap<String, u32>) -> String {
    let order: Vec<&String> = maps.keys().collect();
    let date = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    format!("{order:?} {date:?} {:?} {:x}", Instant::now(), getrandom::u64().unwrap())
}

/// The packets of hosts that send each other such messages.
fn history(seed: u64) -> Vec<u8> {
    Sim::exactly(seed).capture(Capture::All).run(|net| async move {
        net.set_default_link(LinkConfig { loss: 0.05, ..LinkConfig::rtt(Duration::from_millis(20)) });
        let server = net.host("server");
        server.spawn(async {
            let listener = TcpListener::bind("server:80").await.unwrap();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                sockeye_sim::spawn(async move {
                    let mut text = String::new();
                    stream.read_to_string(&mut text).await.unwrap();
                    let words = text.split(' ').map(|word| (word.to_owned(), 1)).collect();
                    stream.write_all(unsteady(&words).as_bytes()).await.unwrap();
                });
            }
        });
        let clients: Vec<_> = (0..4).map(|i| net.host(&format!("client{i}"))).collect();
        let mut running = HashMap::new();
        for client in &clients {
            let program = client.spawn(async {
                let words = (0..30u32).map(|number| (number.to_string(), number)).collect();
                let wait = getrandom::u64().unwrap() % 100;
                time::sleep(Duration::from_millis(wait)).await;
                let mut stream = TcpStream::connect("server:80").await.unwrap();
                stream.write_all(unsteady(&words).as_bytes()).await.unwrap();
                stream.shutdown().await.unwrap();
                stream.read_to_string(&mut String::new()).await.unwrap();
            });
            running.insert(client.name(), program);
        }
        for (_, program) in running {
            program.await.unwrap();
        }
        let mut file = Vec::new();
        net.write_pcap(&mut file).unwrap();
        file
    })
}

#[test]
fn one_seed_gives_the_same_bytes_whatever_the_thread_did_before() {
    let first = history(7);
    assert!(first.len() > 5000, "{} bytes only", first.len());
    let _used: HashSet<u32> = (0..10).collect();
    assert!(first == history(7), "the second run differs");
    assert!(first != history(8));
    // Seed 7 as one of many, beside others.
    let threads = [7, 9].map(|last| std::thread::spawn(move || (5..=last).map(history).nth(2).unwrap()));
    assert_eq!(threads.map(|thread| thread.join().unwrap() == first), [true, true]);
}

#[test]
fn another_process_gives_the_same_bytes() {
    crate::common::assert_same_in_processes("entropy::another_process_gives_the_same_bytes", 2, &history(11));
}

#[test]
fn std_s_clocks_are_the_simulation_s_and_threads_outside_keep_their_own() {
    let real = Instant::now();
    let step = Duration::new(40_000, 123_456_789);
    let outside = Sim::new(1).run(move |net| async move {
        let host = net.host("host");
        let passed = host.spawn(async move {
            let (instant, system) = (Instant::now(), SystemTime::now());
            time::sleep(step).await;
            (instant.elapsed(), system.elapsed().unwrap())
        });
        assert_eq!(passed.await.unwrap(), (step, step));
        let blocked = host.spawn(blocking::run(move || {
            let start = Instant::now();
            blocking::sleep(step);
            start.elapsed()
        }));
        assert_eq!(blocked.await.unwrap(), step);
        Instant::now()
    });
    assert!(real.elapsed() < step, "real time is real after the run");
    assert_ne!(outside, real);
}

#[test]
#[should_panic]
fn a_program_that_sleeps_for_real_fails_the_run() {
    Sim::new(1).run(|net| async move {
        let sleeper = net.host("host").spawn(async { std::thread::sleep(Duration::from_millis(1)) });
        sleeper.await.unwrap();
    });
}
