//! A peer and a network whose reports contradict each other, at random: acknowledgments and blocks of undelivered data,
//! echoes from any time, windows that jump, ICMP errors about acknowledged data, a clock that stands still and leaps.
//! With any of them, nothing overflows, sent data is in the buffer, and a poll ends.

use core::time::Duration;

use super::super::cc::Algorithm;
use super::super::ecn::EcnMode;
use super::super::sack::SackBlock;
use super::super::segment::{Flags, Header, Timestamps};
use super::super::settings::{KeepaliveSettings, MtuProbing, PacingMode, Settings};
use super::super::state::State;
use super::super::unreachable::Unreachable;
use super::script::{ACK, Script, ms, secs};
use super::world::Rng;
use crate::seq::SeqNum;

/// Connections.
const SEEDS: u64 = 1_000;
/// Steps of one connection.
const STEPS: u32 = 400;

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

fn settings(rng: &mut Rng) -> Settings {
    let keepalive =
        KeepaliveSettings { enabled: rng.percent(30), idle: secs(60), interval: secs(1), count: 3 };
    Settings {
        mss: pick(rng, &[88, 536, 1460, 2000, 8960, 65_483]),
        sack: rng.percent(80),
        timestamps: rng.percent(70),
        lossless: rng.percent(10),
        nodelay: rng.percent(50),
        tso_max: pick(rng, &[0, 65_535, 260 << 10]),
        mtu_probing: pick(rng, MtuProbing::ALL),
        congestion_control: pick(rng, Algorithm::ALL),
        pacing: pick(rng, PacingMode::ALL),
        ecn: EcnMode::On,
        user_timeout: pick(rng, &[Duration::ZERO, Duration::ZERO, secs(86_400)]),
        keepalive,
        ..Settings::default()
    }
}

/// A number near `of`, or anywhere.
fn near(rng: &mut Rng, of: SeqNum, spread: u32) -> SeqNum {
    match rng.below(8) {
        0 => SeqNum::new(rng.next() as u32),
        1 => of + (1 << 31),
        2 => of - rng.below(u64::from(spread) + 1) as u32,
        _ => of + rng.below(u64::from(spread) + 1) as u32,
    }
}

fn acknowledgment(t: &Script, rng: &mut Rng) -> Header {
    let (una, flight) = (t.pcb.snd_una(), t.pcb.snd_max().since(t.pcb.snd_una()));
    let acked = if rng.percent(60) { una + rng.below(u64::from(flight) + 1) as u32 } else { una };
    let window = pick(rng, &[0, 1, 100, 50_000, u16::MAX]);
    let mut header = Header { ack: acked, window, ..t.seg(ACK) };
    if rng.percent(60) {
        let edge = |rng: &mut Rng| near(rng, una, flight + 2);
        header.options.sack = (0..rng.below(5))
            .map(|_| {
                let (start, end) = (edge(rng), edge(rng));
                if rng.percent(80) && end.before(start) {
                    SackBlock { start: end, end: start }
                } else {
                    SackBlock { start, end }
                }
            })
            .collect();
    }
    if rng.percent(10) {
        header.flags = header.flags.with(Flags::ECE);
    }
    header
}

fn stamp(t: &Script, rng: &mut Rng, header: &mut Header) {
    if t.pcb.timestamps() {
        let (val, ours) = (100 + t.now.as_millis() as u32, t.now.as_millis() as u32);
        let ecr = match rng.below(4) {
            0 => rng.next() as u32,
            1 => ours.wrapping_sub(rng.below(5_000_000) as u32),
            _ => ours.wrapping_sub(rng.below(300) as u32),
        };
        header.options.timestamps = Some(Timestamps { val, ecr });
    }
}

fn segment(t: &mut Script, rng: &mut Rng) {
    let mut header = acknowledgment(t, rng);
    let len = if rng.percent(30) { rng.below(3_000) as usize } else { 0 };
    if rng.percent(40) {
        header.seq = near(rng, header.seq, 60_000);
    }
    if rng.percent(10) {
        (header.flags, header.urgent) = (header.flags.with(Flags::URG), rng.next() as u16);
    }
    if rng.percent(10) {
        header.flags = header.flags.with(pick(rng, &[Flags::PSH, Flags::CE, Flags::CWR, Flags::SYN]));
    }
    stamp(t, rng, &mut header);
    let _ = t.input(header, &vec![0; len]);
}

/// A router's report, about the last probe of the path MTU or about other data in flight.
fn report(t: &mut Script, rng: &mut Rng, probe: Option<SeqNum>) {
    let (una, flight) = (t.pcb.snd_una(), t.pcb.snd_max().since(t.pcb.snd_una()));
    let seq = una + rng.below(u64::from(flight) + 2) as u32;
    let seq = if rng.percent(30) { una } else { seq };
    let seq = probe.filter(|_| rng.percent(50)).unwrap_or(seq);
    let mtu = match rng.below(4) {
        0 => rng.next() as u32,
        1 => rng.below(10_000) as u32,
        2 => t.pcb.path_mtu() + rng.below(2_000) as u32,
        _ => pick(rng, &[0, 1, 68, 552, 1280, 1500, 1540, 9000, u32::MAX]),
    };
    let _ = t.pcb.on_packet_too_big(seq, mtu, t.now);
    if rng.percent(20) {
        let _ = t.pcb.on_unreachable(seq, Unreachable::Host, true, t.now);
    }
}

fn pass(t: &mut Script, rng: &mut Rng) {
    let time = match rng.below(200) {
        0 => secs(rng.below(1_000_000)),
        1..=20 => ms(rng.below(3_000)),
        _ => Duration::from_micros(rng.below(30_000)),
    };
    match t.pcb.next_deadline() {
        Some(at) if rng.percent(30) => t.now = t.now.max(at),
        Some(_) | None => t.now = t.now + time,
    }
    t.events.insert(t.pcb.on_timer(t.now).events);
}

/// Calls of the application.
fn call(t: &mut Script, rng: &mut Rng) {
    match rng.below(8) {
        0 => t.pcb.set_user_timeout(secs(10_000 + rng.below(100_000))),
        1 => t.pcb.set_urgent(rng.below(u64::from(t.snd) + 1) as u32),
        2 => drop(t.pcb.prune()),
        3 => t.pcb.set_rcv_hiwat(rng.next() as u32),
        4 => {
            let echo = Some(rng.next() as u32).filter(|_| rng.percent(80));
            let _ = t.pcb.wanted_rcv_hiwat(rng.below(100_000) as u32, echo, t.now);
        }
        5 => t.space = rng.below(1 << 20) as u32,
        6 => drop((t.pcb.info(0, t.now), t.pcb.wanted_snd_hiwat(), t.pcb.snd_due_at())),
        _ => t.pcb.on_read(true),
    }
}

#[test]
fn reports_that_contradict_each_other_break_nothing() {
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let (mut t, mut probe) = (Script::established(&settings(&mut rng)), None);
        for _ in 0..STEPS {
            if t.pcb.state() == State::Closed {
                break;
            }
            match rng.below(10) {
                0..=1 => t.snd = (t.snd + rng.below(100_000) as u32).min(1 << 20),
                2..=5 => segment(&mut t, &mut rng),
                6..=7 => pass(&mut t, &mut rng),
                8 => report(&mut t, &mut rng, probe),
                _ => call(&mut t, &mut rng),
            }
            let mut polls = 0;
            while let Some(sent) = t.pcb.poll_transmit(t.snd, t.space, t.now) {
                assert!(sent.offset + sent.len <= t.snd, "seed {seed}: {sent:?} of {}", t.snd);
                probe = if sent.is_mtu_probe { Some(sent.header().seq) } else { probe };
                polls += 1;
                assert!(polls < 100_000, "seed {seed}: a poll that never ends");
            }
        }
    }
}
