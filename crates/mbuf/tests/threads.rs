//! Many threads at once: contents do not change, and nothing gets lost.
#![cfg(not(loom))]

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use sockeye_mbuf::{Chain, Mbuf, Pool, PoolConfig};

/// Short: these find crude mistakes and give miri something to watch; the models find the subtle.
const ROUNDS: u32 = if cfg!(miri) { 20 } else { 20_000 };

#[test]
fn segments_of_a_stream_reach_another_thread_whole() {
    let pool = Pool::new(PoolConfig::default());
    let (send, receive) = sync_channel::<Chain>(16);
    thread::scope(|scope| {
        let pool = &pool;
        let writer = scope.spawn(move || write_stream(pool, &send));
        let reader = scope.spawn(move || read_stream(&receive));
        // Joined one by one, to wait for the threads' caches too, which the scope's end does not.
        writer.join().expect("no panic");
        reader.join().expect("no panic");
    });
    assert_eq!(pool.in_use(), 0);
    pool.trim();
    assert_eq!(pool.allocated(), 0);
}

fn byte_at(position: u64) -> u8 {
    (position ^ (position >> 8) ^ (position >> 16)) as u8
}

/// Appends small writes to a send buffer, whose tail segments still refer to, and "acknowledges"
/// late.
fn write_stream(pool: &Pool, send: &SyncSender<Chain>) {
    let mut so_snd = Chain::new();
    let mut position = 0u64;
    for round in 0..ROUNDS {
        let count = 1 + (round * 7919) % 300;
        let bytes: Vec<u8> = (0..u64::from(count)).map(|i| byte_at(position + i)).collect();
        assert_eq!(so_snd.extend_from_slice(pool, &bytes), Ok(bytes.len()));
        let segment = so_snd.slice(so_snd.len() - bytes.len(), bytes.len());
        send.send(segment).expect("the reader reads all");
        position += u64::from(count);
        if round % 8 == 7 {
            so_snd.trim_front(so_snd.len() - bytes.len() / 2);
        }
    }
}

fn read_stream(receive: &Receiver<Chain>) {
    let mut so_rcv = Chain::new();
    let mut position = 0u64;
    let mut into = [0u8; 500];
    for segment in receive {
        so_rcv.append(segment);
        if so_rcv.len() < 400 {
            continue;
        }
        let taken = so_rcv.take_into(&mut into);
        for &byte in &into[..taken] {
            assert_eq!(byte, byte_at(position));
            position += 1;
        }
    }
    for piece in &so_rcv {
        for &byte in piece {
            assert_eq!(byte, byte_at(position));
            position += 1;
        }
    }
    let expected: u64 = (0..ROUNDS).map(|round| u64::from(1 + (round * 7919) % 300)).sum();
    assert_eq!(position, expected);
}

/// Threads in a ring pass views on, extend them, clone some and drop some.
#[test]
fn views_pass_between_threads_and_are_extended_by_one_at_a_time() {
    const THREADS: usize = 4;
    let pool = Pool::new(PoolConfig::default());
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| sync_channel::<Mbuf>(1024)).unzip();
    thread::scope(|scope| {
        let pool = &pool;
        let threads: Vec<_> = receivers
            .into_iter()
            .enumerate()
            .map(|(index, receiver)| {
                let next = [1, 2].map(|step| senders[(index + step) % THREADS].clone());
                scope.spawn(move || wander(pool, index as u8, &receiver, next))
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
    assert_eq!(pool.in_use(), 0);
    pool.trim();
    assert_eq!(pool.allocated(), 0);
}

/// A view's bytes are runs of four equal ones, whichever thread wrote them: a write by two at once, or over what a
/// thread reads, would break a run.
fn wander(pool: &Pool, tag: u8, receiver: &Receiver<Mbuf>, [next, other]: [SyncSender<Mbuf>; 2]) {
    for round in 0..ROUNDS {
        let mut mbuf = match receiver.try_recv() {
            Ok(mbuf) => mbuf,
            Err(_) => pool.alloc(256 << (round % 4)).expect("far from the cap"),
        };
        let twin = mbuf.clone();
        let taken = mbuf.try_extend(&[tag.wrapping_add(round as u8); 4]);
        assert!(taken == 0 || taken == 4);
        if round % 3 == 0 {
            // Two threads get views that end at the same place: the first to extend wins.
            other.try_send(mbuf.clone()).ok();
        }
        for run in mbuf.chunks(4).chain(twin.chunks(4)) {
            assert!(run.iter().all(|byte| *byte == run[0]), "{run:?}");
        }
        next.try_send(mbuf).ok();
    }
}
