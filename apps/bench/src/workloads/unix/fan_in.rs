//! Many datagram senders and one receiver, of which one sender floods.
//!
//! Purpose: whether a sender that never stops starves those that send now and then. Each seldom sender pauses
//! after each datagram; only their datagrams that arrive count. Of the flooder's datagrams and theirs the
//! sample also has counters, [`FLOODER`] and [`SELDOM`].
//!
//! Invariants: a datagram's first byte names its sender. Each sender sends once more when the sample is over, so that a
//! receiver that waits learns of it; the receiver then closes, which wakes the senders that wait to send.
//!
//! Tests: below.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::meter::{Meter, Reading, Timing, Window};
use crate::pin::Placement;
use crate::workloads::unix::provider::{FanIn, UnixEnd};

/// The seldom senders' datagrams received in the window.
pub fn sample<P: FanIn>(
    provider: &P,
    seldom: usize,
    placement: &Placement,
    timing: Timing,
) -> io::Result<Window> {
    let (receiver, mut senders) = provider.fan_in(seldom + 1)?;
    let Some(flooder) = senders.pop() else { return Err(io::Error::other("no sender was made")) };
    // One cell counts, the receiver's; the flooder's datagrams are beside the point and counted apart.
    let meter = Meter::new(1, seldom + 2);
    let flooded = AtomicU64::new(0);
    let window = thread::scope(|scope| {
        let (meter, flooded) = (&meter, &flooded);
        scope.spawn(move || {
            meter.guard(|| {
                placement.server(0)?;
                meter.arrive();
                receive_until_stopped(&receiver, meter, flooded)
            });
        });
        scope.spawn(move || {
            meter.guard(|| {
                placement.client(0)?;
                meter.arrive();
                send_until_stopped(&flooder, FLOODERS, Duration::ZERO, meter)
            });
        });
        for (index, sender) in senders.into_iter().enumerate() {
            scope.spawn(move || {
                meter.guard(|| {
                    placement.client(index)?;
                    meter.arrive();
                    send_until_stopped(&sender, SELDOMS, PAUSE, meter)
                });
            });
        }
        let read = || {
            let mut counters = provider.counters();
            // Partner: the store in `receive_until_stopped`; a number alone is passed.
            counters.insert(FLOODER.to_owned(), flooded.load(Ordering::Relaxed));
            Ok(Reading::now(counters))
        };
        meter.observe(timing, read)
    });
    meter.into_result()?;
    let mut window = window?;
    window.counters.insert(SELDOM.to_owned(), window.count);
    Ok(window)
}

fn receive_until_stopped<E: UnixEnd>(end: &E, meter: &Meter, flooded: &AtomicU64) -> io::Result<()> {
    let mut buf = [0; LEN];
    while !meter.stopped() {
        end.receive(&mut buf)?;
        if buf[0] == FLOODERS {
            flooded.store(flooded.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        } else {
            meter.tally(0).add(1);
        }
    }
    Ok(())
}

fn send_until_stopped<E: UnixEnd>(end: &E, sender: u8, pause: Duration, meter: &Meter) -> io::Result<()> {
    let datagram = [sender; LEN];
    while !meter.stopped() {
        end.send(&datagram)?;
        if !pause.is_zero() {
            thread::sleep(pause);
        }
    }
    end.send(&datagram).map(drop)
}

/// The counter of the flooder's datagrams.
pub const FLOODER: &str = "flooder_datagrams";
/// The counter of the others'.
pub const SELDOM: &str = "seldom_datagrams";
const FLOODERS: u8 = b'f';
const SELDOMS: u8 = b's';
/// Bytes of a datagram.
const LEN: usize = 64;
/// Of a seldom sender after each of its datagrams.
const PAUSE: Duration = Duration::from_micros(500);
