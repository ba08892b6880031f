//! The results as text and as JSON.
//!
//! Does not depend on how they came about. Tests: `apps/cli/tests/cli/sim.rs`.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::args::SimArgs;
use super::transfer::{Outcome, Sample, Stream};

/// Lines of the course over time.
const COURSE_LINES: usize = 12;

/// For people.
///
/// # Errors
/// The writer's.
pub fn text(args: &SimArgs, outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let total = outcome.total(args);
    path(args, out)?;
    writeln!(
        out,
        "goodput  {} in {} s over {} streams: {:.1} % of the rate; Jain's index {:.3}",
        rate(total),
        args.seconds,
        outcome.streams.len(),
        100.0 * total / args.rate as f64,
        outcome.fairness(args)
    )?;
    writeln!(
        out,
        "\n stream       goodput   segments  again     fast    probe  timeout  needless    RTT mean / max ms   cwnd mean"
    )?;
    for (number, stream) in outcome.streams.iter().enumerate() {
        let traffic = &stream.traffic;
        let rtts: Vec<f64> = stream.samples.iter().filter_map(|s| s.srtt).map(millis).collect();
        writeln!(
            out,
            "{:>7} {:>13} {:>10} {:>6} {:>8} {:>8} {:>8} {:>9} {:>12.1} / {:>6.1} {:>11.0}",
            number + 1,
            rate(stream.goodput(args)),
            traffic.segments,
            traffic.retransmitted,
            stream.info.rexmt_fast,
            stream.info.rexmt_probe,
            stream.info.rexmt_rto,
            traffic.needless,
            mean(rtts.iter().copied()),
            rtts.iter().copied().fold(0.0, f64::max),
            mean(stream.samples.iter().map(|s| f64::from(s.cwnd)))
        )?;
    }
    course(&outcome.streams, out)?;
    let there = &outcome.there;
    writeln!(
        out,
        "\nlink     {} packets; {} lost, {} found the queue full, {} overtaken, {} doubled, {} damaged, {} marked",
        there.offered,
        there.lost,
        there.queue_full,
        there.held,
        there.duplicated,
        there.corrupted,
        there.marked
    )
}

/// The path, in a line.
///
/// # Errors
/// The writer's.
pub fn path(args: &SimArgs, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "path     {:?} round trip, {} each way, queue of {} bytes, {} % loss, {} % reordering, seed {}",
        args.rtt,
        rate(args.rate as f64),
        args.queue_bytes(),
        args.loss * 100.0,
        args.reorder * 100.0,
        args.seed
    )
}

/// The first stream over time.
fn course(streams: &[Stream], out: &mut dyn Write) -> io::Result<()> {
    let Some(stream) = streams.first() else { return Ok(()) };
    writeln!(out, "\n  time s    received         cwnd    in flight   RTT ms   (stream 1)")?;
    let step = stream.samples.len().div_ceil(COURSE_LINES).max(1);
    for Sample { at, received, cwnd, in_flight, srtt } in stream.samples.iter().step_by(step) {
        let rtt = srtt.map_or_else(|| "-".to_owned(), |rtt| format!("{:.1}", millis(rtt)));
        writeln!(out, "{:>8.2} {received:>11} {cwnd:>12} {in_flight:>12} {rtt:>8}", at.as_secs_f64())?;
    }
    Ok(())
}

/// For programs: one object.
///
/// # Errors
/// The writer's.
pub fn json(args: &SimArgs, outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let streams: Vec<Value> = outcome.streams.iter().map(|stream| of_stream(args, stream)).collect();
    let value = json!({
        "params": params(args),
        "goodput_bits": outcome.total(args),
        "utilisation": outcome.total(args) / args.rate as f64,
        "fairness": outcome.fairness(args),
        "link": {
            "offered": outcome.there.offered, "delivered": outcome.there.delivered, "lost": outcome.there.lost,
            "queue_full": outcome.there.queue_full, "overtaken": outcome.there.held,
            "duplicated": outcome.there.duplicated, "corrupted": outcome.there.corrupted,
            "marked": outcome.there.marked,
            "acknowledgments_dropped": outcome.back.dropped(),
        },
        "segments": outcome.traffic.segments,
        "retransmitted": outcome.traffic.retransmitted,
        "events": outcome.events,
        "streams": streams,
    });
    writeln!(out, "{value}")
}

/// The arguments.
pub fn params(args: &SimArgs) -> Value {
    json!({
        "rtt_ms": millis(args.rtt), "jitter_ms": millis(args.jitter), "rate_bits": args.rate,
        "queue_bytes": args.queue_bytes(), "buffer_bytes": args.buffer_bytes(), "loss": args.loss,
        "reorder": args.reorder, "reorder_span": args.reorder_span, "duplicate": args.duplicate,
        "corrupt": args.corrupt, "mtu": args.mtu, "streams": args.streams, "seconds": args.seconds,
        "ecn": args.ecn, "mark_bytes": args.mark, "seed": args.seed, "cc": format!("{:?}", args.cc).to_lowercase(),
    })
}

fn of_stream(args: &SimArgs, stream: &Stream) -> Value {
    let traffic = &stream.traffic;
    let samples: Vec<Value> = stream
        .samples
        .iter()
        .map(|s| {
            json!({
                "at_s": s.at.as_secs_f64(), "received": s.received, "cwnd": s.cwnd, "in_flight": s.in_flight,
                "srtt_ms": s.srtt.map(millis),
            })
        })
        .collect();
    json!({
        "received": stream.received,
        "goodput_bits": stream.goodput(args),
        "segments": traffic.segments,
        "retransmitted": {
            "segments": traffic.retransmitted, "bytes": traffic.retransmitted_bytes, "on_ack": traffic.by_ack,
            "by_timer": traffic.retransmitted - traffic.by_ack, "needless": traffic.needless,
            "fast": stream.info.rexmt_fast, "probe": stream.info.rexmt_probe, "timeout": stream.info.rexmt_rto,
            "undone": stream.info.undo_count, "dsack": stream.info.dsack_count,
        },
        "marks_answered": stream.info.mark_count,
        "samples": samples,
    })
}

impl Outcome {
    /// Bits per second that arrived, of all streams.
    pub fn total(&self, args: &SimArgs) -> f64 {
        self.streams.iter().map(|stream| stream.goodput(args)).sum()
    }

    /// Jain's index of the streams' goodputs: 1 if all are equal, 1/n if one has everything.
    pub fn fairness(&self, args: &SimArgs) -> f64 {
        let square = |stream: &Stream| stream.goodput(args).powi(2);
        let squares: f64 = self.streams.iter().map(square).sum();
        if squares == 0.0 { 1.0 } else { self.total(args).powi(2) / (self.streams.len() as f64 * squares) }
    }
}

impl Stream {
    /// Bits per second that arrived.
    pub fn goodput(&self, args: &SimArgs) -> f64 {
        self.received as f64 * 8.0 / f64::from(args.seconds)
    }
}

/// A rate with its unit.
pub fn rate(bits: f64) -> String {
    let units = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
    let unit = units.iter().find(|(factor, _)| bits >= *factor);
    unit.map_or_else(|| format!("{bits:.0} bit/s"), |(factor, name)| format!("{:.2} {name}", bits / factor))
}

/// A time in milliseconds.
pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    if count == 0 { 0.0 } else { sum / f64::from(count) }
}
