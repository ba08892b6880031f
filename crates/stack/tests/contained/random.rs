//! Random points that panic at random moments, beside connections that must not notice.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use sockeye::failpoints::{arm, fired};

use crate::common::{self, Random, hash_of, join_all, receive_chunked, send_chunked};
use crate::world::{Medium, Pair, World};

const POINTS: &[&str] = &[
    "conn.step",
    "conn.segment",
    "conn.acked",
    "conn.deliver",
    "conn.joined",
    "conn.notified",
    "conn.transmit",
    "conn.emitted",
    "conn.write",
    "conn.read",
];

/// Exchanges messages on a connection until it ends or for long enough.
fn chatter(pair: &Pair, random: &mut Random) {
    let mut buf = [0; 4096];
    for round in 0..200_u32 {
        for mut end in &pair.0 {
            let len = random.size(4096);
            let calls = [end.write(&vec![1; len]), end.read(&mut buf)];
            let _ = end.set_nodelay(round % 2 == 0);
            if calls
                .iter()
                .flat_map(|call| call.as_ref().err())
                .any(|error| error.kind() != ErrorKind::WouldBlock)
            {
                return;
            }
        }
    }
}

#[test]
fn unarmed_connections_transfer_whole_streams_while_others_panic() {
    let _turn = crate::turn();
    let _guard = common::watchdog("random panics");
    for medium in [Medium::Loopback, Medium::Wire] {
        let world = World::new(medium, |c| c.workers = 2);
        let mut random = Random::new(&format!("random panics, {medium:?}"));
        let sound: Vec<Pair> = (0..2).map(|_| world.pair()).collect();
        let mut threads = Vec::new();
        for (client, server) in sound.iter().map(|pair| (&pair.0[0], &pair.0[1])) {
            [client, server].iter().for_each(|end| end.set_nonblocking(false).unwrap());
            for (from, to) in [(client, server), (server, client)] {
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let data = random.fork().bytes(4_000_000);
                let expected = (data.len(), hash_of(&data));
                let (mut sends, mut receives) = (random.fork(), random.fork());
                threads.push(std::thread::spawn(move || send_chunked(&from, &data, 50_000, &mut sends)));
                threads.push(std::thread::spawn(move || {
                    assert_eq!(receive_chunked(&to, 50_000, false, &mut receives), expected);
                }));
            }
        }
        let count = || POINTS.iter().map(|point| fired(point)).sum::<u64>();
        let (before, until) = (count(), Instant::now() + Duration::from_millis(500));
        while Instant::now() < until {
            let pair = world.pair();
            for _ in 0..=random.below(2) {
                arm(random.pick(POINTS), random.below(20) as u32, 1, pair.key(random.below(2)));
            }
            chatter(&pair, &mut random);
        }
        join_all(threads);
        sockeye::failpoints::disarm_all();
        let panics = count() - before;
        assert!(panics > 0, "nothing panicked");
        drop(sound);
        world.end(panics);
    }
}
