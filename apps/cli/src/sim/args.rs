//! The arguments of `sockeye sim`.
//!
//! Does not depend on how transfers run. Tests: `apps/shared/src/parse.rs`, `apps/cli/tests/cli/sim.rs`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use sockeye::{CongestionControl, PacingMode};
use sockeye_shared::parse;

/// A path and the transfers over it.
#[derive(Args, Clone, Debug)]
pub struct SimArgs {
    /// Which TCP: Sockeye's in the simulator, or the kernel's over the same link in real time (needs root)
    #[arg(long, value_enum, default_value_t = On::Sockeye)]
    pub on: On,
    /// Round-trip time of the path with empty queues
    #[arg(long, value_parser = parse::time, default_value = "100ms")]
    pub rtt: Duration,
    /// Largest random delay to add to each packet, without changing their order
    #[arg(long, value_parser = parse::time, default_value = "0ms")]
    pub jitter: Duration,
    /// Rate of the bottleneck in each direction
    #[arg(long, value_parser = parse::rate, default_value = "100mbit")]
    pub rate: u64,
    /// Bytes that the bottleneck queues [default: as many as the path holds in a round trip, at least 64K]
    #[arg(long, value_parser = parse::size)]
    pub queue: Option<usize>,
    /// Mark packets of senders with --ecn while more bytes than this are queued
    #[arg(long, value_parser = parse::size, requires = "ecn")]
    pub mark: Option<usize>,
    /// Use explicit congestion notification; the bottleneck marks packets only with --mark
    #[arg(long)]
    pub ecn: bool,
    /// Packets lost in each direction, in percent
    #[arg(long, value_parser = parse::percent, default_value = "0%")]
    pub loss: f64,
    /// Packets overtaken by up to --reorder-span others, in percent
    #[arg(long, value_parser = parse::percent, default_value = "0%")]
    pub reorder: f64,
    /// Largest number of packets that overtake one
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub reorder_span: u32,
    /// Packets delivered twice, in percent
    #[arg(long, value_parser = parse::percent, default_value = "0%")]
    pub duplicate: f64,
    /// Packets with one flipped bit, in percent
    #[arg(long, value_parser = parse::percent, default_value = "0%")]
    pub corrupt: f64,
    /// MTU of both hosts
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1280..=65536))]
    pub mtu: u32,
    /// Number of parallel transfers
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub streams: u16,
    /// Congestion control algorithm
    #[arg(long, value_enum, default_value_t = Cc::Cubic)]
    pub cc: Cc,
    /// When senders spread their packets over the round trip
    #[arg(long, value_enum, default_value_t = Pacing::Auto)]
    pub pacing: Pacing,
    /// Send and receive buffer of each connection [default: twice the bytes that path and queue hold, at most 64M]
    #[arg(long, value_parser = parse::size)]
    pub buffer: Option<usize>,
    /// Let buffers start at their default size and grow
    #[arg(long, conflicts_with = "buffer")]
    pub autotune: bool,
    /// Seconds to simulate, or to measure with --on kernel
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: u32,
    /// Seed of all random decisions; equal seeds give equal results
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
    /// Write a page with charts of sequence number, window and round-trip time
    #[arg(long, value_name = "FILE")]
    pub chart: Option<PathBuf>,
    /// Write all packets that cross the path to a pcap-ng file
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
}

/// Which TCP runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// Sockeye's, in the simulator
    Sockeye,
    /// This machine's, between two network namespaces
    Kernel,
}

/// How a sender finds its rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Cc {
    /// RFC 9438, with HyStart++
    Cubic,
    /// RFC 5681 and RFC 6582
    Newreno,
    /// BBR version 3
    Bbr,
}

/// When senders pace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Pacing {
    /// If the congestion control algorithm asks for it
    Auto,
    /// Always
    On,
    /// Never
    Off,
}

impl Pacing {
    /// The stack's setting.
    pub fn setting(self) -> PacingMode {
        match self {
            Self::Auto => PacingMode::Auto,
            Self::On => PacingMode::On,
            Self::Off => PacingMode::Off,
        }
    }
}

impl Cc {
    /// The kernel's name for it.
    pub fn kernel_name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Newreno => "reno",
            Self::Bbr => "bbr",
        }
    }

    /// The stack's setting.
    pub fn setting(self) -> CongestionControl {
        match self {
            Self::Cubic => CongestionControl::Cubic,
            Self::Newreno => CongestionControl::NewReno,
            Self::Bbr => CongestionControl::Bbr,
        }
    }
}

/// Smallest queue unless told otherwise, bytes.
const QUEUE_MIN: usize = 64 << 10;
/// Buffers of a connection, bytes: the bounds of the stack's settings.
const BUFFER_MIN: usize = 256 << 10;
const BUFFER_MAX: usize = 64 << 20;

impl SimArgs {
    /// Bytes that the path holds in a round trip.
    pub fn path_bytes(&self) -> usize {
        (self.rate as f64 / 8.0 * self.rtt.as_secs_f64()) as usize
    }

    /// Bytes that may wait at the bottleneck.
    pub fn queue_bytes(&self) -> usize {
        self.queue.unwrap_or_else(|| self.path_bytes().max(QUEUE_MIN))
    }

    /// Bytes of each buffer.
    pub fn buffer_bytes(&self) -> u32 {
        let twice = 2 * (self.path_bytes() + self.queue_bytes());
        let bytes = self.buffer.unwrap_or_else(|| twice.max(BUFFER_MIN)).min(BUFFER_MAX);
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }
}
