//! The attacks: the peer's batches, and how the connection is brought into the vulnerable state.
//!
//! Each is a scene that is set once and a batch that is made anew from the stack's answers. A good data segment is the first of
//! them and the measure of all others. The classes are those of CVE-2019-11477 and 11478 (SACK), CVE-2018-5390 (segments behind a
//! hole), RFC 5961 (RST, SYN and ACK at a guess) and of windows and options that no sane peer would send. Does not depend on clocks
//! or tables. Tests: `mod.rs`.

use std::io;
use std::time::Duration;

use super::frames::{ACK, RST, SYN, Segment, packet, sack};
use super::testbed::Testbed;

/// An attack.
pub struct Attack {
    pub name: &'static str,
    pub about: &'static str,
    /// The MSS that the peer announces.
    mss: u16,
    scene: Scene,
    /// The packet of this number.
    make: fn(&mut Maker<'_>) -> Vec<u8>,
}

/// The state required before it begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scene {
    /// The application reads everything that arrives.
    Reads,
    /// The application has filled its buffer, and as much is in flight as a good path allows.
    Sends,
}

/// The values that a packet is made from.
pub struct Maker<'a> {
    /// The next segment of a well-behaved peer.
    polite: Segment<'static>,
    /// The first byte that the peer has not acknowledged, and the bytes behind it that are in flight.
    una: u32,
    flight: u32,
    /// The packet's number.
    number: u32,
    rng: &'a mut Rng,
}

/// A number after the other that look like chance, the same in each run.
pub struct Rng(pub u64);

impl Rng {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The upper half of a product is below its second factor.
        (((self.0 >> 32) * u64::from(bound.max(1))) >> 32) as u32
    }
}

/// Packets that are given at one moment.
const BATCH: u32 = 64;
/// Simulated time between two batches.
const STEP: Duration = Duration::from_millis(1);
/// Bytes that are certainly inside the stack's window.
const WINDOW: u32 = 256 << 10;
const MSS: u32 = 1460;
/// Bytes in flight that a sending scene is set for, and rounds within which it must be reached.
const FLIGHT: u32 = 2 << 20;
const ROUNDS_MAX: u32 = 400;
/// Why `len` may be written where a packet's payload is meant.
const DATA: usize = MSS as usize;

/// All of them, the good one first.
pub const ATTACKS: [Attack; 15] = [
    attack("good", "full segments in order, all read", Scene::Reads, |m| {
        let seq = m.polite.seq.wrapping_add(m.number % BATCH * MSS);
        packet(&Segment { seq, len: DATA, ..m.polite })
    }),
    attack("good ack", "acknowledges two segments of bulk data", Scene::Sends, |m| {
        let step = (2 * MSS * (m.number % BATCH + 1)).min(m.flight);
        packet(&Segment { ack: m.una.wrapping_add(step), ..m.polite })
    }),
    attack("sack random", "four random blocks in a large flight", Scene::Sends, |m| {
        let blocks = [0; 4].map(|_| m.block(3000));
        with_sack(m, &blocks)
    }),
    attack("sack tiny", "four blocks of one byte, moving on", Scene::Sends, |m| {
        let at = |n: u32| m.una.wrapping_add((m.number * 8 + n * 2) % m.flight.max(1));
        let blocks = [0, 1, 2, 3].map(|n| (at(n), at(n).wrapping_add(1)));
        with_sack(m, &blocks)
    }),
    attack("sack backwards", "four small blocks, moving back", Scene::Sends, |m| {
        let at =
            |n: u32| m.una.wrapping_add(m.flight.saturating_sub((m.number * 12 + n * 3) % m.flight.max(1)));
        let blocks = [0, 1, 2, 3].map(|n| (at(n).wrapping_sub(2), at(n).wrapping_sub(1)));
        with_sack(m, &blocks)
    }),
    attack("overlaps", "full segments behind a hole at random places", Scene::Reads, |m| {
        let seq = m.polite.seq.wrapping_add(1 + m.rng.below(WINDOW - MSS));
        packet(&Segment { seq, len: DATA, ..m.polite })
    }),
    attack("tiny behind a hole", "single bytes behind a hole at random places", Scene::Reads, |m| {
        let seq = m.polite.seq.wrapping_add(2 + m.rng.below(WINDOW));
        packet(&Segment { seq, len: 1, ..m.polite })
    }),
    attack("every other byte", "single bytes behind holes, in order", Scene::Reads, |m| {
        let seq = m.polite.seq.wrapping_add(1 + m.number * 2 % WINDOW);
        packet(&Segment { seq, len: 1, ..m.polite })
    }),
    Attack {
        mss: 1,
        ..attack("tiny mss", "an MSS of 1 announced, each segment acknowledged", Scene::Sends, |m| {
            let step = (TINY_MSS * (m.number % BATCH + 1)).min(m.flight);
            packet(&Segment { ack: m.una.wrapping_add(step), ..m.polite })
        })
    },
    attack("window games", "windows of 0, 1 and some bytes in turn", Scene::Sends, |m| {
        let window = [0, 1, 0, 2, 11, 0, u16::MAX, 0][m.number as usize % 8];
        packet(&Segment { window, ack: m.una.wrapping_add(m.number % BATCH), ..m.polite })
    }),
    attack("duplicate acks", "the same acknowledgment again and again", Scene::Sends, |m| {
        packet(&Segment { ack: m.una, ..m.polite })
    }),
    attack("acks of unsent data", "beyond what was sent", Scene::Sends, |m| {
        packet(&Segment { ack: m.una.wrapping_add(m.flight + 1 + m.rng.below(1 << 20)), ..m.polite })
    }),
    attack("resets and SYNs", "inside the window, not exact (RFC 5961)", Scene::Reads, |m| {
        let flags = if m.number.is_multiple_of(2) { RST } else { SYN | ACK };
        let seq = m.polite.seq.wrapping_add(1 + m.rng.below(WINDOW));
        packet(&Segment { seq, flags, ..m.polite })
    }),
    attack("options", "40 bytes of unknown, empty and broken ones", Scene::Reads, |m| {
        let options = [[1; 40], UNKNOWN, BROKEN][m.number as usize % 3];
        let seq = m.polite.seq.wrapping_sub(1);
        packet(&Segment { seq, options: &options, len: 1, ..m.polite })
    }),
    attack("strays", "to a connection that is not there, answered by resets", Scene::Reads, |m| {
        let src_port = 5000 + u16::try_from(m.number % 4096).unwrap_or(0);
        packet(&Segment { src_port, seq: m.rng.below(u32::MAX), len: 1, ..m.polite })
    }),
];

/// The smallest MSS that the stack uses for an MSS of 1.
const TINY_MSS: u32 = 48;
/// Twenty options of an unknown kind, each two bytes long.
const UNKNOWN: [u8; 40] = {
    let mut options = [2; 40];
    let mut at = 0;
    while at < options.len() {
        options[at] = 253;
        at += 2;
    }
    options
};
/// A SACK option that claims to be longer than the header.
const BROKEN: [u8; 40] = {
    let mut options = [1; 40];
    options[38] = 5;
    options[39] = 250;
    options
};

const fn attack(
    name: &'static str,
    about: &'static str,
    scene: Scene,
    make: fn(&mut Maker<'_>) -> Vec<u8>,
) -> Attack {
    Attack { name, about, mss: MSS as u16, scene, make }
}

fn with_sack(maker: &Maker<'_>, blocks: &[(u32, u32)]) -> Vec<u8> {
    packet(&Segment { ack: maker.una, options: &sack(blocks), ..maker.polite })
}

impl Maker<'_> {
    /// A block of up to so many bytes in the data in flight.
    fn block(&mut self, longest: u32) -> (u32, u32) {
        let start = self.rng.below(self.flight);
        let len = 1 + self.rng.below(longest);
        (self.una.wrapping_add(start), self.una.wrapping_add((start + len).min(self.flight)))
    }
}

impl Attack {
    /// Whether the stack has much text in flight when it begins.
    #[cfg(test)]
    pub fn has_text_in_flight(&self) -> bool {
        self.scene == Scene::Sends
    }

    /// A connection at which it hurts.
    ///
    /// # Errors
    /// If the stack does not bring it about.
    pub fn set(&self) -> io::Result<Testbed> {
        let mut testbed = Testbed::new(self.mss)?;
        if self.scene == Scene::Sends {
            testbed.fill()?;
            for _ in 0..ROUNDS_MAX {
                testbed.pass(STEP);
                if self.mss != MSS as u16 || testbed.in_flight()? >= FLIGHT {
                    break;
                }
                // The peer acknowledges all of it, so the congestion window doubles.
                testbed.give(vec![packet(&testbed.polite())]);
                testbed.fill()?;
            }
        }
        testbed.restart();
        Ok(testbed)
    }

    /// Gives the stack `count` packets.
    ///
    /// # Errors
    /// If the connection fails, which none of this may bring about.
    pub fn run(&self, testbed: &mut Testbed, count: u32, rng: &mut Rng) -> io::Result<()> {
        let mut number = 0;
        while number < count {
            let polite = testbed.polite();
            let flight = testbed.in_flight()?;
            let una = polite.ack.wrapping_sub(flight);
            let batch = (number..number + BATCH)
                .map(|number| (self.make)(&mut Maker { polite, una, flight, number, rng }));
            let batch = batch.collect();
            testbed.give(batch);
            if self.scene == Scene::Sends {
                testbed.fill()?;
            } else {
                testbed.read()?;
            }
            testbed.pass(STEP);
            number += BATCH;
        }
        Ok(())
    }
}
