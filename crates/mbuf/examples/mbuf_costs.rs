//! Prints the cost of the pool's operations on this machine, in nanoseconds: the median of several short runs
//! of each, and the least. `cargo run --release -p sockeye-mbuf --example mbuf_costs`.

use std::hint::black_box;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use sockeye_mbuf::{Chain, Class, Exhausted, Mbuf, Pool, PoolConfig};

const RUNS: usize = 9;
const ITERATIONS: u32 = 200_000;

fn report(name: &str, iterations: u32, mut run: impl FnMut(u32)) {
    let mut costs: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            run(iterations);
            start.elapsed().as_nanos() as f64 / f64::from(iterations)
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    println!("{name:<52} {:>8.1} ns   (least {:.1})", costs[RUNS / 2], costs[0]);
}

fn main() -> Result<(), Exhausted> {
    let pool = Pool::new(PoolConfig::default());
    same_thread(&pool)?;
    views(&pool)?;
    chains(&pool)?;
    other_thread(&pool)?;
    println!("{:#?}", pool.stats().class(Class::K2));
    Ok(())
}

fn same_thread(pool: &Pool) -> Result<(), Exhausted> {
    for class in Class::ALL {
        drop(pool.alloc(class.capacity())?);
        report(&format!("alloc + free, same thread, {class:?}"), ITERATIONS, |n| {
            for _ in 0..n {
                black_box(pool.alloc(class.capacity())).ok();
            }
        });
        report(&format!("64 x alloc, then 64 x free, {class:?}, per pair"), ITERATIONS / 64 * 64, |n| {
            let mut held = Vec::with_capacity(64);
            for _ in 0..n / 64 {
                held.extend((0..64).map_while(|_| pool.alloc(class.capacity()).ok()));
                held.clear();
            }
        });
    }
    Ok(())
}

fn views(pool: &Pool) -> Result<(), Exhausted> {
    let mut mbuf = pool.alloc(2048)?;
    mbuf.try_extend(&[1; 2048]);
    report("clone + drop", ITERATIONS, |n| {
        for _ in 0..n {
            drop(black_box(mbuf.clone()));
        }
    });
    report("slice + drop", ITERATIONS, |n| {
        for _ in 0..n {
            drop(black_box(mbuf.slice(100..black_box(1548))));
        }
    });
    let bytes = [7u8; 128];
    report("extend by 128 B, alone, alloc and free in 512", ITERATIONS / 512 * 512, |n| {
        for _ in 0..n / 512 {
            let Ok(mut mbuf) = pool.alloc(65536) else {
                return;
            };
            for _ in 0..512 {
                mbuf.try_extend(black_box(&bytes));
            }
        }
    });
    report("extend by 128 B, shared, alloc and free in 512", ITERATIONS / 512 * 512, |n| {
        for _ in 0..n / 512 {
            let Ok(mut mbuf) = pool.alloc(65536) else {
                return;
            };
            let _other = mbuf.clone();
            for _ in 0..512 {
                mbuf.try_extend(black_box(&bytes));
            }
        }
    });
    Ok(())
}

fn chains(pool: &Pool) -> Result<(), Exhausted> {
    let mut buffer = Chain::new();
    let bytes = [7u8; 128];
    report("chain: 128 B in, sliced off, trimmed (one segment)", ITERATIONS, |n| {
        for _ in 0..n {
            buffer.extend_from_slice(pool, black_box(&bytes)).ok();
            let segment = buffer.slice(buffer.len() - 128, 128);
            drop(black_box(segment));
            buffer.trim_front(128);
        }
    });
    let write = vec![7u8; 16 * 1024];
    let mut received = vec![0u8; 64 * 1024];
    report("chain: 64 KiB as 4 writes, 1 segment, 1 recv", ITERATIONS / 64, |n| {
        let mut so_snd = Chain::new();
        let mut so_rcv = Chain::new();
        for _ in 0..n {
            for _ in 0..4 {
                so_snd.extend_from_slice(pool, black_box(&write)).ok();
            }
            so_rcv.append(so_snd.slice(0, so_snd.len()));
            so_snd.trim_front(64 * 1024);
            black_box(so_rcv.take_into(&mut received));
        }
    });
    let long = pool.copy_in(&vec![1; 1 << 20])?;
    report("chain: slice 1448 B at the end of 1 MiB, drop", ITERATIONS, |n| {
        for _ in 0..n {
            drop(black_box(long.slice(black_box(long.len() - 1448), 1448)));
        }
    });
    Ok(())
}

/// One thread allocates, another frees: as in a loopback connection across cores.
fn other_thread(pool: &Pool) -> Result<(), Exhausted> {
    const BATCH: usize = 64;
    for class in Class::ALL {
        let (to_reader, from_writer) = sync_channel::<Vec<Mbuf>>(4);
        let (to_writer, from_reader) = sync_channel::<Vec<Mbuf>>(8);
        let reader = std::thread::spawn(move || {
            for mut batch in from_writer {
                batch.clear();
                if to_writer.send(batch).is_err() {
                    return;
                }
            }
        });
        for _ in 0..4 {
            to_reader.send(Vec::with_capacity(BATCH)).ok();
        }
        report(
            &format!("alloc here, free there (batches of {BATCH}), {class:?}"),
            ITERATIONS / 4 / BATCH as u32 * BATCH as u32,
            |n| {
                for _ in 0..n as usize / BATCH {
                    let Ok(mut batch) = from_reader.recv() else {
                        return;
                    };
                    batch.extend((0..BATCH).map_while(|_| pool.alloc(class.capacity()).ok()));
                    to_reader.send(batch).ok();
                }
            },
        );
        drop(to_reader);
        reader.join().ok();
    }
    Ok(())
}
