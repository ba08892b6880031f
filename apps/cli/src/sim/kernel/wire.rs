//! The wire between two devices: reads packets, asks the link's model, writes them when they are due.
//!
//! One thread for both directions, which sleeps until shortly before the next packet is due and then spins, as a
//! sleep ends some microseconds late. How late packets were written is counted: a wire that does not keep up would be
//! a bottleneck that the model does not know. Does not depend on the use of the packets. Tests: below.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use sockeye_sim::LinkStats;
use sockeye_sim::Traffic;
use sockeye_sim::emulate::{Emulator, End};

/// The wire's packets.
pub struct Carried {
    /// The way of the data.
    pub there: LinkStats,
    pub back: LinkStats,
    /// Findings from the packets, including lost ones.
    pub traffic: Traffic,
    pub late: Lateness,
    /// Packets that a device did not take.
    pub refused: u64,
}

/// How much later than due packets were written.
#[derive(Clone, Default)]
pub struct Lateness {
    /// Packets by the number of bits of their lateness in microseconds.
    counts: [u64; LATENESS_BITS],
    /// The longest.
    pub most: Duration,
}

/// Lateness is told apart up to 2^31 microseconds.
const LATENESS_BITS: usize = 32;
/// The part of a wait that is not slept. Short beside any round trip; a wire that always spun would be held
/// up by the kernel if it ran with real-time priority.
const SPIN: Duration = Duration::from_micros(20);
/// Longest sleep.
const REST_MAX: Duration = Duration::from_millis(10);
/// Packets that are read from one device in a row.
const BURST_MAX: usize = 64;
/// Longest packet.
const PACKET_MAX: usize = 65_536;
/// The wire's thread goes before others.
const NICE: i32 = -15;

impl Lateness {
    fn note(&mut self, late: Duration) {
        let micros = u32::try_from(late.as_micros()).unwrap_or(u32::MAX);
        let bits = (u32::BITS - micros.leading_zeros()) as usize;
        self.counts[bits.min(LATENESS_BITS - 1)] += 1;
        self.most = self.most.max(late);
    }

    /// A bound that `part` (0 to 1) of the packets kept, exact to a factor of two.
    pub fn quantile(&self, part: f64) -> Duration {
        let wanted = self.counts.iter().sum::<u64>() as f64 * part;
        let mut seen = 0;
        for (bits, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen as f64 >= wanted {
                return Duration::from_micros((1 << bits) - 1).min(self.most);
            }
        }
        self.most
    }
}

/// Moves packets between the devices at the link's ends until `is_over`. Returns the link, too.
///
/// # Errors
/// The devices'.
pub fn carry(
    devices: [OwnedFd; 2],
    emulator: Emulator,
    is_over: impl Fn() -> bool,
) -> io::Result<(Carried, Emulator)> {
    // Without the right to it the wire runs all the same, only later.
    let _ = rustix::process::nice(NICE);
    let mut wire = Wire { devices, emulator, start: Instant::now(), late: Lateness::default(), refused: 0 };
    let mut packet = vec![0; PACKET_MAX];
    while !is_over() {
        let mut has_moved = false;
        for end in [End::First, End::Second] {
            has_moved |= wire.read(end, &mut packet)?;
        }
        wire.write();
        if !has_moved {
            wire.rest()?;
        }
    }
    let Wire { emulator, late, refused, .. } = wire;
    let (there, back) = (emulator.stats(End::First), emulator.stats(End::Second));
    Ok((Carried { there, back, traffic: emulator.traffic(), late, refused }, emulator))
}

struct Wire {
    devices: [OwnedFd; 2],
    emulator: Emulator,
    start: Instant,
    late: Lateness,
    refused: u64,
}

impl Wire {
    fn device(&self, end: End) -> &OwnedFd {
        match end {
            End::First => &self.devices[0],
            End::Second => &self.devices[1],
        }
    }

    /// Takes the packets that the host at `end` has sent; returns whether there were any.
    fn read(&mut self, end: End, packet: &mut [u8]) -> io::Result<bool> {
        for count in 0..BURST_MAX {
            match rustix::io::read(self.device(end), &mut *packet) {
                Ok(len) => {
                    // Packets due earlier come earlier, so that packets are overtaken by those that left earlier.
                    self.write();
                    if packet.first().is_some_and(|byte| byte >> 4 == 4) {
                        self.emulator.offer(self.start.elapsed(), end, &packet[..len]);
                    }
                }
                Err(Errno::AGAIN) => return Ok(count > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Writes the due packets.
    fn write(&mut self) {
        let now = self.start.elapsed();
        while let Some(arrival) = self.emulator.due(now) {
            self.refused += u64::from(rustix::io::write(self.device(arrival.at), &arrival.bytes).is_err());
            self.late.note(self.start.elapsed().saturating_sub(arrival.due));
            self.emulator.recycle(arrival.bytes);
        }
    }

    /// Sleeps until shortly before something is due, or comes.
    fn rest(&self) -> io::Result<()> {
        let due = self.emulator.next_at().map(|at| at.saturating_sub(self.start.elapsed()));
        let rest = due.map_or(REST_MAX, |due| due.saturating_sub(SPIN)).min(REST_MAX);
        if rest.is_zero() {
            std::hint::spin_loop();
            return Ok(());
        }
        wait(&self.devices, rest)
    }
}

fn wait(devices: &[OwnedFd; 2], rest: Duration) -> io::Result<()> {
    let timeout = Timespec { tv_sec: 0, tv_nsec: rest.subsec_nanos().into() };
    let mut fds = devices.each_ref().map(|device| PollFd::new(device, PollFlags::IN));
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_reported_to_a_factor_of_two() {
        let mut late = Lateness::default();
        assert_eq!(late.quantile(0.5), Duration::ZERO);
        (0..99).for_each(|_| late.note(Duration::from_micros(5)));
        late.note(Duration::from_millis(3));
        assert_eq!(late.quantile(0.5), Duration::from_micros(7));
        assert_eq!((late.quantile(1.0), late.most), (Duration::from_millis(3), Duration::from_millis(3)));
    }
}
