//! The cost of a segment in the state machine alone: no wire, no buffers, no threads.
//!
//! `cargo run --release -p sockeye-proto --example pcb_cost`. Each line is the best of several rounds, in
//! nanoseconds per operation; an argument picks the lines whose name contains it. The payload is a length
//! without bytes, so that no memory is measured.

use std::hint::black_box;
use std::time::Duration;

use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::accepted::{Accepted, SynAcks, TimestampState};
use sockeye_proto::tcp::pcb::Pcb;
use sockeye_proto::tcp::segment::{Flags, Header, Options, Payload, Timestamps};
use sockeye_proto::tcp::settings::Settings;
use sockeye_proto::time::Instant;

/// A payload that has a length only.
#[derive(Default)]
struct Length(usize);

impl Payload for Length {
    fn len(&self) -> usize {
        self.0
    }
    fn trim_front(&mut self, bytes: usize) {
        self.0 -= bytes.min(self.0);
    }
    fn truncate(&mut self, bytes: usize) {
        self.0 = self.0.min(bytes);
    }
    fn append(&mut self, tail: Self) {
        self.0 += tail.0;
    }
}

fn established(settings: &Settings) -> Pcb<Length> {
    let now = Instant::from_micros(1_000_000);
    let accepted = Accepted {
        iss: SeqNum::new(1000),
        irs: SeqNum::new(5000),
        peer_mss: settings.mss,
        snd_wnd: 65_535,
        rcv_wnd: 65_535,
        window_scale: None,
        timestamps: Some(TimestampState { ts_recent: 1, ts_recent_at: now, ts_offset: 0 }),
        sack_permitted: settings.sack,
        ecn: false,
        accurate_ecn: None,
        rtt: Some(Duration::from_micros(50)),
        syn_acks: SynAcks::One,
        rehashes: 0,
    };
    Pcb::accept(settings, &accepted, now)
}

fn header(pcb: &Pcb<Length>, tick: u64) -> Header {
    let val = u32::try_from(tick / 1000).unwrap_or(0) + 1;
    Header {
        seq: pcb.rcv_nxt(),
        ack: pcb.snd_max(),
        flags: Flags::ACK,
        window: 65_535,
        urgent: 0,
        gso_size: 0,
        options: Options { timestamps: Some(Timestamps { val, ecr: 1 }), ..Options::default() },
    }
}

/// Runs `step` often and prints its best time.
fn measure(name: &str, mut step: impl FnMut(&mut Pcb<Length>, u64)) {
    if std::env::args().nth(1).is_some_and(|part| !name.contains(&part)) {
        return;
    }
    let lossless = !name.ends_with(RECORDED);
    let settings = Settings { nodelay: true, lossless, ..Settings::default() };
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let mut pcb = established(&settings);
        let start = std::time::Instant::now();
        for i in 0..STEPS {
            step(&mut pcb, i);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / STEPS as f64);
    }
    println!("{name:<44} {best:7.1} ns");
}

fn main() {
    println!("Pcb: {} bytes", size_of::<Pcb<Length>>());
    let at = |i: u64| Instant::from_micros(1_000_000 + i);
    measure("1-byte segment in, poll (delayed ack)", |pcb, i| {
        let input = pcb.on_segment(black_box(&header(pcb, i)), Length(1), at(i));
        black_box(input.deliver.0);
        black_box(pcb.poll_transmit(0, 262_144, at(i)).is_some());
    });
    measure("full segment in, poll, ack every second", |pcb, i| {
        let input = pcb.on_segment(black_box(&header(pcb, i)), Length(1448), at(i));
        black_box(input.deliver.0);
        while let Some(t) = pcb.poll_transmit(0, 262_144, at(i)) {
            black_box(t.len);
        }
    });
    measure("1-byte request in, 1-byte answer out", |pcb, i| {
        let input = pcb.on_segment(black_box(&header(pcb, i)), Length(1), at(i));
        black_box(input.acked);
        while let Some(t) = pcb.poll_transmit(1, 262_144, at(i)) {
            black_box(t.len);
        }
    });
    measure("full segment out, its ack in", |pcb, i| {
        while let Some(t) = pcb.poll_transmit(1448, 262_144, at(i)) {
            black_box(t.len);
        }
        let input = pcb.on_segment(black_box(&header(pcb, i)), Length(0), at(i));
        black_box(input.acked);
    });
    measure("full segment out, its ack in, recorded", |pcb, i| {
        while let Some(t) = pcb.poll_transmit(1448, 262_144, at(i)) {
            black_box(t.len);
        }
        let input = pcb.on_segment(black_box(&header(pcb, i)), Length(0), at(i));
        black_box(input.acked);
    });
    measure("poll with nothing to do", |pcb, i| {
        black_box(pcb.poll_transmit(0, 262_144, at(i)).is_some());
    });
    measure("snd_due_at", |pcb, _| {
        black_box(black_box(&*pcb).snd_due_at());
    });
}

/// Ends the names of runs on a path that may lose segments.
const RECORDED: &str = "recorded";
const ROUNDS: u32 = 7;
const STEPS: u64 = 1_000_000;
