//! The cost of moving a cache line between cores on this machine.
//!
//! Purpose: two threads on two cores write one word in turn; half the time of a round is one hand-off, with the wait for
//! it.
//!
//! Does not depend on the use of the results.
//!
//! Invariants: bounded in time. Each thread waits only for the other one's write, or for the end, which either sees.
//!
//! Tests: below.

use std::hint;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::pin::{Pin, Placement, usable_cores};

/// Seconds of one hand-off: the least of many short rounds, because other work on the machine can only make it longer. `None`
/// with one core, or if the two threads were never run at once.
pub fn handoff_seconds() -> io::Result<Option<f64>> {
    if usable_cores()?.len() < 2 {
        return Ok(None);
    }
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let count = alternate(Duration::from_millis(ROUND_MILLIS))?;
        if count >= COUNT_MIN {
            times.push(ROUND_MILLIS as f64 / 1e3 / count as f64);
        }
    }
    Ok(times.into_iter().reduce(f64::min))
}

/// How often the word changed cores within `time`.
fn alternate(time: Duration) -> io::Result<u64> {
    let placement = Placement::new(Pin::Split)?;
    // Even: the first thread's turn.
    let (word, stop) = (Line(AtomicU64::new(0)), AtomicBool::new(false));
    let take_turns = |parity: u64| {
        while !stop.load(Ordering::Relaxed) {
            let turn = word.0.load(Ordering::Relaxed);
            if turn % 2 == parity {
                word.0.store(turn + 1, Ordering::Relaxed);
            } else {
                hint::spin_loop();
            }
        }
    };
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            let pinned = placement.server(0);
            if pinned.is_ok() {
                take_turns(1);
            }
            pinned
        });
        let first = scope.spawn(|| {
            let pinned = placement.client(0);
            if pinned.is_ok() {
                take_turns(0);
            }
            pinned
        });
        let begin = Instant::now();
        thread::sleep(time);
        let count = word.0.load(Ordering::Relaxed);
        let elapsed = begin.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        for thread in [first, second] {
            thread.join().map_err(|_| io::Error::other("a thread that writes one word failed"))??;
        }
        // As if it had been exactly `time`.
        Ok((count as f64 * time.as_secs_f64() / elapsed) as u64)
    })
}

/// A cache line of its own, and its neighbour.
#[repr(align(128))]
struct Line(AtomicU64);

const ROUNDS: usize = 40;
const ROUND_MILLIS: u64 = 3;
/// Fewer hand-offs in a round, and one of the threads did not run.
const COUNT_MIN: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_two_threads_write_changes_cores() {
        match handoff_seconds().unwrap() {
            Some(seconds) => assert!(seconds > 0.0 && seconds < 20e-6, "{seconds}"),
            None => assert!(usable_cores().is_ok()),
        }
    }
}
