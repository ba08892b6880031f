//! `sockeye bench hostile`: the cost of a hostile peer's segment, compared with a valid one.
//!
//! A whole stack without threads is given packets of one connection and timed; `testbed` is the stack and its peer, `attacks`
//! the packets, `frames` the bytes. The best of some rounds counts, since disturbances only add time. Besides time it reports
//! the packets sent for each received one, and packet memory: those do not depend on the machine.
//!
//! Does not depend on the stack's reaction. Tests: below.

mod attacks;
mod frames;
mod testbed;

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::json;
use sockeye_shared::end::CommandError;

use super::{BenchArgs, record};
use attacks::{ATTACKS, Attack, Rng};

/// The result of one attack.
struct Cost {
    nanos: f64,
    /// Packets that the stack sent for one that it got.
    answers: f64,
    /// Bytes of packet memory at the end.
    memory: usize,
}

/// The allowed cost of a hostile segment, relative to a valid data segment.
const RATIO_MAX: f64 = 10.0;
/// Packets of a round, and rounds; the second of each with `--quick`.
const COUNTS: [u32; 2] = [64_000, 6_400];
const ROUNDS: [u32; 2] = [5, 2];

/// Measures all attacks. The exit code shows whether each is within ten times a valid segment.
///
/// # Errors
/// If a connection fails or nothing can be written.
pub fn bench(args: &BenchArgs) -> Result<ExitCode, CommandError> {
    args.check_plain("hostile").map_err(CommandError::Usage)?;
    args.check_absent("hostile", &["--out", "--samples", "--seconds", "--goals"])
        .map_err(CommandError::Usage)?;
    let costs = ATTACKS.iter().map(|attack| measure(attack, args.quick)).collect::<io::Result<Vec<Cost>>>();
    let costs = costs.map_err(CommandError::Io)?;
    let good = costs.first().map_or(1.0, |cost| cost.nanos);
    let mut out = io::stdout().lock();
    if !args.json {
        writeln!(out, "{:>20}  {:>9} {:>7} {:>8} {:>10}", "", "ns", "ratio", "answers", "memory KiB")?;
    }
    for (attack, cost) in ATTACKS.iter().zip(&costs) {
        let ratio = cost.nanos / good;
        let Cost { nanos, answers, memory } = cost;
        if args.json {
            let line = json!({
                "hostile": attack.name, "ns": nanos, "ratio": ratio, "answers": answers, "memory_bytes": memory,
            });
            writeln!(out, "{line}")?;
        } else {
            let mark = if ratio > RATIO_MAX { " beyond 10" } else { "" };
            let (name, about, kib) = (attack.name, attack.about, memory >> 10);
            writeln!(out, "{name:>20}  {nanos:>9.1} {ratio:>7.2} {answers:>8.2} {kib:>10}  {about}{mark}")?;
        }
    }
    let is_bounded = costs.iter().all(|cost| cost.nanos <= RATIO_MAX * good);
    Ok(if is_bounded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure(attack: &Attack, is_quick: bool) -> io::Result<Cost> {
    let (count, rounds) = (COUNTS[usize::from(is_quick)], ROUNDS[usize::from(is_quick)]);
    let mut best: Option<Cost> = None;
    for round in 0..rounds {
        // The rounds are the same, so one record is enough.
        let cost = match round {
            0 => record::labelled(|| format!("hostile, {}", attack.name), || once(attack, count))?,
            _ => once(attack, count)?,
        };
        if best.as_ref().is_none_or(|best| cost.nanos < best.nanos) {
            best = Some(cost);
        }
    }
    best.ok_or_else(|| io::Error::other("no round was run"))
}

fn once(attack: &Attack, count: u32) -> io::Result<Cost> {
    let mut testbed = attack.set()?;
    let before = testbed.sent();
    attack.run(&mut testbed, count, &mut Rng(1))?;
    let given = testbed.given.max(1) as f64;
    Ok(Cost {
        nanos: testbed.spent.as_nanos() as f64 / given,
        answers: (testbed.sent() - before) as f64 / given,
        memory: testbed.memory(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twice the memory that a well-behaved peer makes the stack hold.
    const MEMORY_MAX: usize = 40 << 20;

    #[test]
    fn no_attack_ends_a_connection_amplifies_or_takes_unbounded_memory() {
        let mut good: f64 = 0.0;
        for attack in &ATTACKS {
            let cost = once(attack, 6_400).unwrap_or_else(|error| panic!("{}: {error}", attack.name));
            println!("{}: {:.2} answers, {} bytes", attack.name, cost.answers, cost.memory);
            // An acknowledgment of two segments lets two or three go, which is no amplification.
            let is_good = attack.name.starts_with("good");
            // Whoever has made a connection gets no more for one packet than a peer that acknowledges: what it leaves unacknowledged may be sent again,
            // a window in a round trip at most. What needs no connection gets one answer.
            let most = match attack.has_text_in_flight() {
                _ if is_good => 3.1,
                true => good,
                false => 1.1,
            };
            if is_good {
                good = good.max(cost.answers);
            }
            assert!(cost.answers <= most, "{}: {:.2} packets for one", attack.name, cost.answers);
            assert!(cost.memory <= MEMORY_MAX, "{}: {} bytes", attack.name, cost.memory);
        }
    }
}
