//! Panics in the protocol code of one of several connections.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

#[cfg(feature = "experiments")]
use crate::common::settings::Grain;
use crate::common::settings::{Entry, Input, Rcvd, Setting};
use sockeye::failpoints;
use sockeye::{Config, TcpKeepalive};

use crate::common;
use crate::world::{End, Medium, Pair, World, end_of};

/// The operation on a connection that reaches a point.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Traffic {
    /// Messages both ways, and options that change.
    Both,
    /// Nothing, so that the victim's keepalive timer fires.
    Quiet,
}

/// The points that small messages reach on one end, and the operations that they need.
const POINTS: &[(&str, Traffic)] = &[
    ("conn.step", Traffic::Both),
    ("conn.segment", Traffic::Both),
    ("conn.acked", Traffic::Both),
    ("conn.deliver", Traffic::Both),
    ("conn.joined", Traffic::Both),
    ("conn.notified", Traffic::Both),
    ("conn.timer", Traffic::Quiet),
    ("conn.transmit", Traffic::Both),
    ("conn.emitted", Traffic::Both),
    ("conn.write", Traffic::Both),
    ("conn.read", Traffic::Both),
];

/// Whether the point is on the way of small messages over the medium.
fn is_reached(point: &str, world: &World, medium: Medium) -> bool {
    let config = world.stacks[0].config();
    match point {
        // Over a wire text that is expected is joined, even if it is alone.
        "conn.joined" => medium == Medium::Wire && config.tcp.gro,
        "conn.segment" | "conn.deliver" => medium == Medium::Loopback && !config.loopback_encode,
        _ => true,
    }
}

/// Lets both ends exchange messages until both have ended; `victim` is armed.
fn until_both_end(world: &World, pair: &Pair, victim: usize, point: &str, traffic: Traffic) -> [End; 2] {
    let mut ends: [Option<End>; 2] = [None, None];
    let mut nodelay = false;
    if traffic == Traffic::Quiet {
        pair.0[victim].set_tcp_keepalive(&TcpKeepalive::new().with_time(Duration::from_millis(5))).unwrap();
    }
    let what = format!("both ends have ended; the victim is {victim}, armed for {point}");
    world.until(&what, || {
        nodelay = !nodelay;
        for (side, end) in ends.iter_mut().enumerate().filter(|(_, end)| end.is_none()) {
            let mut stream = &pair.0[side];
            let mut buf = [0; 512];
            *end = end_of(stream.read(&mut buf), true);
            if end.is_none() && traffic == Traffic::Both {
                let _ = stream.set_nodelay(nodelay);
                *end = end_of(stream.write(b"ping"), false);
            }
        }
        match &ends {
            [Some(client), Some(server)] => Some([client.clone(), server.clone()]),
            _ => None,
        }
    })
}

/// Panics at every point, in either end of a connection, while others are there.
fn every_point(medium: Medium, change: impl Fn(&mut Config)) {
    let world = World::new(medium, change);
    let others = [world.pair(), world.pair()];
    let mut panics = 0;
    for (point, traffic) in POINTS.iter().filter(|(point, _)| is_reached(point, &world, medium)) {
        for victim in [0, 1] {
            let pair = world.pair();
            let connections: usize = world.stacks[0].connection_count();
            let before = failpoints::fired(point);
            failpoints::arm(point, 0, 1, pair.key(victim));
            let ends = until_both_end(&world, &pair, victim, point, *traffic);
            panics += 1;
            assert_eq!(failpoints::fired(point) - before, 1, "{point}");
            assert!(ends[victim].is_panic(), "{point}: {:?}", ends[victim]);
            assert!(ends[1 - victim].is_reset(), "{point}: the other end: {:?}", ends[1 - victim]);
            // The error stays, whichever operation reports it.
            let again = [
                end_of((&pair.0[victim]).read(&mut [0]), true),
                end_of((&pair.0[victim]).write(b"x"), false),
            ];
            assert!(again.into_iter().flatten().filter(End::is_panic).count() == 2, "{point}");
            assert!(pair.0[victim].info().unwrap_err().to_string().contains("panicked"));
            world.until("they have left the table", || {
                (world.stacks[0].connection_count() < connections).then_some(())
            });
            drop(pair);
            others.iter().for_each(|other| other.works(&world));
            world.pair().works(&world);
        }
    }
    drop(others);
    world.end(panics);
}

#[test]
fn a_panic_at_any_point_ends_one_connection_on_loopback_in_every_setting() {
    let _turn = crate::turn();
    let _guard = common::watchdog("panics on loopback");
    every_point(Medium::Loopback, |c| c.workers = 2);
    every_point(Medium::Loopback, |c| c.workers = 0);
    every_point(Medium::Loopback, |c| (c.workers, c.loopback_encode) = (1, true));
}

#[cfg(feature = "experiments")]
#[test]
fn with_older_settings_a_panic_at_any_point_ends_one_connection_too() {
    let _turn = crate::turn();
    let _guard = common::watchdog("panics with older settings");
    every_point(Medium::Loopback, |c| {
        c.workers = 1;
        Grain::Global.set(c);
    });
    every_point(Medium::Loopback, |c| {
        c.workers = 2;
        Grain::PerCore.set(c);
        Entry::NoDrain.set(c);
    });
    every_point(Medium::Loopback, |c| {
        c.workers = 2;
        Entry::Fill.set(c);
        Rcvd::Sync.set(c);
    });
    every_point(Medium::Wire, |c| {
        c.workers = 1;
        Grain::Global.set(c);
        c.tcp.gro = false;
    });
}

#[test]
fn a_panic_at_any_point_ends_one_connection_over_a_wire_in_every_setting() {
    let _turn = crate::turn();
    let _guard = common::watchdog("panics over a wire");
    for input in Input::ALL {
        every_point(Medium::Wire, |c| {
            c.workers = 1;
            input.set(c);
        });
    }
    every_point(Medium::Wire, |c| c.workers = 0);
    every_point(Medium::Wire, |c| (c.workers, c.tcp.gro) = (1, false));
}

#[test]
fn a_panic_while_a_panic_is_reported_does_not_skip_the_remaining_steps() {
    let _turn = crate::turn();
    let _guard = common::watchdog("panics while a connection ends");
    for medium in [Medium::Loopback, Medium::Wire] {
        for second in ["conn.reset", "conn.tell"] {
            let world = World::new(medium, |c| c.workers = 1);
            let (pair, other) = (world.pair(), world.pair());
            failpoints::arm("conn.transmit", 0, 1, pair.key(1));
            failpoints::arm(second, 0, 1, pair.key(1));
            let ends = until_both_end(&world, &pair, 1, second, Traffic::Both);
            assert!(ends[1].is_panic() && ends[0].is_reset(), "{second}: {ends:?}");
            other.works(&world);
            drop((pair, other));
            world.end(2);
        }
    }
}

#[test]
fn every_waiter_of_the_connection_is_notified() {
    let _turn = crate::turn();
    let _guard = common::watchdog("waiters of a connection that panics");
    for medium in [Medium::Loopback, Medium::Wire] {
        for (entry, rcvd) in Entry::ALL.iter().zip(Rcvd::ALL) {
            let world = World::new(medium, |c| {
                c.workers = 2;
                entry.set(c);
                rcvd.set(c);
            });
            let pair = world.pair();
            let victim = &pair.0[1];
            pair.0.iter().for_each(|end| end.set_nonblocking(false).unwrap());
            // The other end does not read, so writers fill both buffers and wait.
            let mut waiters = Vec::new();
            for _ in 0..2 {
                let end = victim.try_clone().unwrap();
                waiters.push(std::thread::spawn(move || (&end).read(&mut [0; 1]).map(|_| ())));
                let end = victim.try_clone().unwrap();
                waiters.push(std::thread::spawn(move || (&end).write_all(&vec![7; 64 << 20])));
            }
            let buffered = || world.stacks[1].memory_in_use();
            let mut last = (0, 0);
            world.until("the writers wait", || {
                last =
                    if buffered() == last.0 && last.0 > 0 { (last.0, last.1 + 1) } else { (buffered(), 0) };
                (last.1 > 100).then_some(())
            });
            failpoints::arm("conn.notified", 0, 1, pair.key(1));
            let _ = victim.set_nodelay(true);
            let ended: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
            // A writer that wrote some bytes reports their number first, and the error when it writes the rest.
            let failed = ended
                .iter()
                .filter(|end| end.as_ref().is_err_and(|error| error.to_string().contains("panicked")));
            assert_eq!(failed.count(), 4, "{medium:?} {entry:?}: {ended:?}");
            drop(pair);
            world.end(1);
        }
    }
}

#[test]
fn a_connect_whose_protocol_code_panics_fails_at_once() {
    let _turn = crate::turn();
    let _guard = common::watchdog("a connect that panics");
    for medium in [Medium::Loopback, Medium::Wire] {
        for entry in Entry::ALL {
            let world = World::new(medium, |c| {
                c.workers = 2;
                entry.set(c);
            });
            for point in ["conn.transmit", "conn.emitted"] {
                failpoints::arm(point, 0, 1, 0);
                let addr = world.listener.local_addr().unwrap();
                let error = sockeye::TcpStream::connect_on(&world.stacks[0], addr).unwrap_err();
                assert!(error.to_string().contains("panicked"), "{point}: {error}");
            }
            let pair = world.pair();
            pair.works(&world);
            drop(pair);
            // Connections that reached the listener have been reset.
            let _ = world.listener.accept();
            world.end(2);
        }
    }
}

#[test]
fn a_panic_while_a_timer_is_armed_ends_the_connection() {
    let _turn = crate::turn();
    let _guard = common::watchdog("a wheel that refuses a timer");
    for medium in [Medium::Loopback, Medium::Wire] {
        let world = World::new(medium, |c| c.workers = 0);
        let other = world.pair();
        failpoints::arm("timers.arm", 0, 1, 0);
        // The first timer is that of the SYN.
        let client = world.connect();
        let error = world
            .until("it fails", || (&client).write(b"x").err().filter(|e| e.kind() != ErrorKind::WouldBlock));
        assert!(error.to_string().contains("panicked"), "{error}");
        drop(client);
        other.works(&world);
        world.pair().works(&world);
        drop(other);
        world.end(1);
    }
}

#[test]
fn a_close_whose_protocol_code_panics_still_ends_the_connection() {
    let _turn = crate::turn();
    let _guard = common::watchdog("a close that panics");
    let world = World::new(Medium::Loopback, |c| c.workers = 1);
    let Pair([client, server]) = world.pair();
    let pair = Pair([client, server]);
    failpoints::arm("conn.notified", 0, 1, pair.key(0));
    let Pair([client, server]) = pair;
    client.set_nonblocking(false).unwrap();
    client.set_linger(Some(Duration::from_secs(60))).unwrap();
    drop(client);
    let end = world.until("the other end hears of it", || end_of((&server).read(&mut [0]), true));
    assert!(end.is_reset(), "{end:?}");
    drop(server);
    world.end(1);
}

#[test]
fn a_shutdown_or_close_that_panics_ends_the_connection() {
    let _turn = crate::turn();
    let _guard = common::watchdog("a shutdown and a close that panic");
    for medium in [Medium::Loopback, Medium::Wire] {
        let world = World::new(medium, |_| {});
        let (first, second, other) = (world.pair(), world.pair(), world.pair());
        failpoints::arm("conn.shutdown", 0, 1, first.key(0));
        let error = first.0[0].shutdown(std::net::Shutdown::Write).unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
        failpoints::arm("conn.close", 0, 1, second.key(0));
        let Pair([client, server]) = second;
        drop(client);
        for peer in [&first.0[1], &server] {
            let end = world.until("the peer is reset", || end_of((&*peer).read(&mut [0]), true));
            assert!(end.is_reset(), "{end:?}");
        }
        other.works(&world);
        drop((first, server, other));
        world.end(2);
    }
}
