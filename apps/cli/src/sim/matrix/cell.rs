//! A cell of the matrix: a path, a seed, whose TCP; its result; the theory's expectation.
//!
//! A result is one line of JSON, so that a file of them can be continued, joined and read by other programs. Does not
//! depend on how cells are run or shown. Tests: below.

use std::time::Duration;

use clap::Parser;
use serde::{Deserialize, Serialize};

use crate::sim::args::{On, SimArgs};

/// The parameters that decide a result.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cell {
    pub on: On,
    pub rate_bits: u64,
    pub rtt_ms: u64,
    /// Probabilities.
    pub loss: f64,
    pub reorder: f64,
    pub seconds: u32,
    pub seed: u64,
}

/// A cell and its result.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Result {
    #[serde(flatten)]
    pub cell: Cell,
    pub goodput_bits: f64,
    /// Segments both ways, and those of them that were sent again, and again although nothing of them was lost.
    pub segments: u64,
    pub retransmitted: u64,
    pub needless: u64,
    /// How late the kernel's packets were delivered, 99.9 % of them, milliseconds. The simulator's are not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub late_ms: Option<f64>,
}

/// Reads a line of `sockeye sim` for its defaults.
#[derive(Parser)]
struct Defaults {
    #[command(flatten)]
    sim: SimArgs,
}

/// Bytes of a packet, and of payload in it: IPv4, TCP, timestamps.
const PACKET: f64 = 1500.0;
const PAYLOAD: f64 = 1448.0;
/// CUBIC's constants (RFC 9438 section 5).
const C: f64 = 0.4;
const BETA: f64 = 0.7;

impl Cell {
    /// The same as arguments of `sockeye sim`; the rest is as by default.
    pub fn args(&self) -> SimArgs {
        SimArgs {
            on: self.on,
            rate: self.rate_bits,
            rtt: Duration::from_millis(self.rtt_ms),
            loss: self.loss,
            reorder: self.reorder,
            seconds: self.seconds,
            seed: self.seed,
            ..Defaults::parse_from(["sim"]).sim
        }
    }

    /// Whether the two are of the same path and length, by whichever seed and TCP.
    pub fn is_beside(&self, other: &Self) -> bool {
        let common = |cell: &Self| Self { on: On::Sockeye, seed: 0, ..cell.clone() };
        common(self) == common(other)
    }

    /// Bits per second that the path can carry of payload.
    pub fn capacity(&self) -> f64 {
        self.rate_bits as f64 * PAYLOAD / PACKET
    }

    /// Bits per second that CUBIC's response function expects in the long run (RFC 9438 section 5.2, figure 5, and the
    /// Reno-friendly region's `sqrt(3 / 2p)`), at most the rate of the path.
    pub fn theory(&self) -> f64 {
        if self.loss <= 0.0 {
            return self.capacity();
        }
        let rtt = self.rtt_ms as f64 / 1000.0;
        let cubic =
            (C * (3.0 + BETA) / (4.0 * (1.0 - BETA))).powf(0.25) * rtt.powf(0.75) / self.loss.powf(0.75);
        let reno = (1.5 / self.loss).sqrt();
        (cubic.max(reno) * PAYLOAD * 8.0 / rtt).min(self.capacity())
    }

    /// The path in words.
    pub fn label(&self) -> String {
        format!(
            "{} Mbit/s, {} ms, {} % loss, {} % reordering, seed {}",
            self.rate_bits / 1_000_000,
            self.rtt_ms,
            percent(self.loss),
            percent(self.reorder),
            self.seed
        )
    }
}

/// A probability in percent, without the binary fraction's rounding error.
pub fn percent(part: f64) -> f64 {
    (part * 1e6).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(loss: f64, rtt_ms: u64) -> Cell {
        let rate_bits = 1_000_000_000;
        Cell { on: On::Sockeye, rate_bits, rtt_ms, loss, reorder: 0.05, seconds: 60, seed: 7 }
    }

    #[test]
    fn the_theory_follows_the_rfcs_tables() {
        // RFC 9438 section 5.2, its table for 100 ms: average windows in segments by rate of loss.
        let window = |loss: f64| cell(loss, 100).theory() * 0.1 / 8.0 / PAYLOAD;
        for (loss, segments) in [(1e-3, 38.7), (1e-4, 187.0), (1e-5, 1054.0)] {
            let found = window(loss);
            assert!((found / segments - 1.0).abs() < 0.02, "{loss}: {found}");
        }
        // Short paths are Reno's.
        let window = cell(0.01, 1).theory() * 0.001 / 8.0 / PAYLOAD;
        assert!((window - 12.25).abs() < 0.1, "{window}");
        assert_eq!(cell(0.0, 100).theory(), cell(0.0, 100).capacity());
    }

    #[test]
    fn a_line_parses_to_the_same_cell() {
        let result = Result {
            cell: cell(0.0001, 10),
            goodput_bits: 1e6,
            segments: 4,
            retransmitted: 3,
            needless: 2,
            late_ms: None,
        };
        let line = serde_json::to_string(&result).unwrap();
        assert!(line.starts_with("{\"on\":\"sockeye\",\"rate_bits\":1000000000"), "{line}");
        assert_eq!(serde_json::from_str::<Result>(&line).unwrap(), result);
        let other = Cell { on: On::Kernel, seed: 8, ..cell(0.0001, 10) };
        assert!(other.is_beside(&result.cell) && !cell(0.0, 10).is_beside(&other));
        assert_eq!((other.args().rtt.as_millis(), other.args().mtu, percent(0.0001)), (10, 1500, 0.01));
    }
}
