//! `sockeye bench udp`: UDP beside the kernel's, over loopback.
//!
//! Purpose: the cost of a datagram, back and forth, one way, segmented from large buffers and from many senders. The two sides are
//! interleaved: a round takes one sample of each, beginning with another side each time.
//!
//! Does not depend on how sockets do their work. Invariant: a row is written as soon as it is there. Tests:
//! `shapes.rs`, `tests/bench`.

mod ends;
mod shapes;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use sockeye_shared::end::CommandError;
use sockeye_shared::file;

use super::args::BenchArgs;
use super::machine::Machine;
use super::meter::{Timing, Window};
use super::pin::{Pin, Placement};
use super::provider::Counters;
use super::stats::{Ratio, Summary};
use super::watchdog;
use ends::{Kernel, Ours};
use shapes::Shape;

/// Samples of each side, and how long one takes.
const SAMPLES: usize = 10;
const SECONDS: f64 = 1.0;
const SECONDS_QUICK: f64 = 0.12;
/// Before the time that counts, as a part of it.
const WARM_UP_SHARE: f64 = 0.2;

/// One side's samples of a shape.
#[derive(Default)]
struct Side {
    values: Vec<f64>,
    cores: Vec<f64>,
    /// Added up over the samples.
    counters: Counters,
}

impl Side {
    fn add(&mut self, window: Window, scale: f64) {
        self.values.push(window.rate() * scale);
        self.cores.push(window.cores());
        for (name, value) in window.counters {
            *self.counters.entry(name).or_default() += value;
        }
    }
}

/// Measures and writes a table, or JSON lines. Blocks until everything is done.
pub fn bench(args: &BenchArgs) -> Result<ExitCode, CommandError> {
    args.check_plain("udp").map_err(CommandError::Usage)?;
    args.check_absent("udp", &["--goals"]).map_err(CommandError::Usage)?;
    let samples = args.samples.unwrap_or(SAMPLES);
    let seconds = args.seconds.unwrap_or(if args.quick { SECONDS_QUICK } else { SECONDS });
    let timing = Timing {
        warm_up: Duration::from_secs_f64(seconds * WARM_UP_SHARE),
        timed: Duration::from_secs_f64(seconds),
    };
    let mut file = args.out.as_deref().map(file::create).transpose()?;
    let machine = Machine::read()?;
    let heading = format!(
        "{machine}\nmethod: {samples} interleaved samples of {seconds} s each; what was received counts; medians; ratio of \
         the medians with its 95 % interval; cores of all threads; the kernel cuts no buffers here\n\n{:<20}{:<12}\
         {:>14}{:>7}{:>14}{:>7}  ratio\n",
        "udp", "", "sockeye", "cores", "kernel", "cores"
    );
    if args.json {
        eprint!("{heading}")
    } else {
        io::stdout().write_all(heading.as_bytes())?;
    }
    for shape in Shape::ALL {
        let sides = measure(shape, samples, timing)?;
        let line = format!("{}\n", object(shape, &sides));
        if let Some(file) = &mut file {
            file.write_all(line.as_bytes())?;
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(if args.json { line } else { text(shape, &sides) }.as_bytes())?;
        stdout.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Sockeye's samples and the kernel's.
fn measure(shape: Shape, rounds: usize, timing: Timing) -> io::Result<[Side; 2]> {
    let pin = match shape {
        Shape::PingPong { .. } => Pin::Split,
        Shape::OneWay { .. } | Shape::Cut { .. } => Pin::None,
    };
    let (ours, placement, scale) = (Ours::new()?, Placement::new(pin)?, shape.unit().1);
    let mut sides = [Side::default(), Side::default()];
    for round in 0..rounds {
        for turn in 0..2 {
            let index = (round + turn) % 2;
            let label = format!("a sample of udp, {}", shape.label());
            let _armed = watchdog::arm(timing.warm_up + timing.timed + watchdog::GRACE, label);
            let window = match index {
                0 => shape.sample(&ours, &placement, timing)?,
                _ => shape.sample(&Kernel, &placement, timing)?,
            };
            sides[index].add(window, scale);
        }
    }
    Ok(sides)
}

fn median(values: &[f64]) -> f64 {
    Summary::of(values).map_or(f64::NAN, |summary| summary.median)
}

fn text(shape: Shape, sides: &[Side; 2]) -> String {
    let mut text = format!("{:<20}{:<12}", shape.label(), shape.unit().0);
    for side in sides {
        let value = median(&side.values);
        let digits = if value < 1000.0 { 2 } else { 0 };
        text.push_str(&format!("{value:>14.digits$}{:>7.2}", median(&side.cores)));
    }
    if let Some(ratio) = Ratio::of_rounds(&sides[0].values, &sides[1].values) {
        let interval =
            ratio.interval.map_or_else(String::new, |(low, high)| format!(" ({low:.2} to {high:.2})"));
        text.push_str(&format!("  {:.2}{interval}", ratio.ratio));
    }
    text.push('\n');
    text
}

fn object(shape: Shape, sides: &[Side; 2]) -> serde_json::Value {
    let ratio = Ratio::of_rounds(&sides[0].values, &sides[1].values);
    let side = |side: &Side| {
        json!({
            "median": median(&side.values), "cores": median(&side.cores), "samples": side.values,
            "counters": side.counters,
        })
    };
    json!({
        "bench": "udp",
        "shape": shape.label(),
        "unit": shape.unit().0,
        "sockeye": side(&sides[0]),
        "kernel": side(&sides[1]),
        "ratio": ratio.map(|ratio| ratio.ratio),
        "interval": ratio.and_then(|ratio| ratio.interval),
    })
}
