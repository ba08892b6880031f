//! A rough look at speed, for work on the engine: `quick stream|rr [n]`. The real benchmark is `sockeye bench`.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use sockeye::{Config, Stack, TcpListener, TcpStream};

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let kind = args.get(1).map_or("rr", String::as_str).to_owned();
    let size: usize = args.get(2).and_then(|s| s.parse().ok()).unwrap_or(1);
    let conns: usize = args.get(3).and_then(|s| s.parse().ok()).unwrap_or(1);
    let spin = Duration::from_micros(args.get(4).and_then(|s| s.parse().ok()).unwrap_or(100));
    let size_of = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|s| s.parse::<u32>().ok())
            .map(|k| k << 10)
    };
    let default = Config::default();
    let stack = Stack::new(Config {
        spin_max: spin,
        sndbuf: size_of("SNDBUF").unwrap_or(default.sndbuf),
        rcvbuf: size_of("RCVBUF").unwrap_or(default.rcvbuf),
        ..default
    })?;
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let before = stack.counters();
    let start = Instant::now();
    let mut threads = Vec::new();
    for _ in 0..conns {
        let client = TcpStream::connect_on(&stack, addr)?;
        client.set_nodelay(kind != "nagle")?;
        let (server, _) = listener.accept()?;
        server.set_nodelay(true)?;
        let rr = kind == "rr";
        let stop = stop.clone();
        threads.push(std::thread::spawn(move || {
            let buf = vec![7u8; size];
            let mut ops = 0u64;
            let mut back = vec![0u8; size];
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                (&client).write_all(&buf).unwrap();
                if rr {
                    (&client).read_exact(&mut back).unwrap();
                }
                ops += 1;
            }
            ops
        }));
        threads.push(std::thread::spawn(move || {
            let mut buf = vec![0u8; if rr { size } else { 128 << 10 }];
            loop {
                let n = (&server).read(&mut buf).unwrap();
                if n == 0 {
                    return 0;
                }
                if rr {
                    (&server).write_all(&buf[..n]).unwrap();
                }
            }
        }));
    }
    std::thread::sleep(Duration::from_millis(700));
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let ops: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
    let secs = start.elapsed().as_secs_f64();
    println!(
        "{kind} {size} B x {conns}: {:.0} ops/s, {:.2} Gbit/s",
        ops as f64 / secs,
        ops as f64 * size as f64 * 8e-9 / secs
    );
    for ((name, a), (_, b)) in before.iter().zip(stack.counters()) {
        print!("{name}={:.3} ", (b - a) as f64 / ops as f64);
    }
    println!();
    Ok(())
}
