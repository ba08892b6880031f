//! SO_TIMESTAMP, SO_TIMESTAMPNS and SO_TIMESTAMPING of UDP, in software: what a socket asks for, and the reports on its sends.
//!
//! A socket that never asked has no [`Stamps`]. Others are told apart by one bit in each of two words that are read anyway: a deliverer reads
//! [`Arrivals`], where UDP_GRO stands too, and a sender [`Notable`], where a pending error does. A received datagram carries its time itself
//! ([`Datagram::at`](super::pcb::Datagram::at)).
//!
//! A send that asks is handed over alone: its number is taken before ([`begin`]) and what became of it is told after ([`end`]), each under the
//! sender's own `so`. Whoever tells announces it in the same section, as errors are, so no wake-up is lost (`pcb.rs`).
//!
//! Bound: [`STAMPS_MAX`] reports wait; later ones are lost, as on Linux. Does not depend on where datagrams go. Tests: `tests/udp/stamps.rs`;
//! beside the kernel, `crates/conform/tests/stamps.rs`.

use std::collections::VecDeque;
use std::time::Duration;

use rustix::io::Errno;
use sockeye_proto::time::Instant;
use sockeye_sync::facade::{Arc, AtomicU8, Ordering};

use super::pcb::Pcb;
use crate::base::clock::Clock;
use crate::base::report::{Report, Timestamping};
use crate::rt::poll::Ready;
use crate::rt::wake::Wake;

/// Most reports that wait to be read.
const STAMPS_MAX: usize = 1024;
/// The stamps of sends that UDP has: nothing is acknowledged.
const OF_SENDS: Timestamping = Timestamping::SCHEDULED.with(Timestamping::SENT);

/// A set of bits that stand for themselves and order nothing: all accesses are relaxed.
#[derive(Default)]
pub(crate) struct Bits(AtomicU8);

impl Bits {
    #[inline]
    pub fn load(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self, bit: u8, on: bool) {
        if on {
            self.0.fetch_or(bit, Ordering::Relaxed)
        } else {
            self.0.fetch_and(!bit, Ordering::Relaxed)
        };
    }
}

/// What a deliverer has to know of a socket, as bits of one word.
pub(crate) struct Arrivals;

impl Arrivals {
    /// UDP_GRO: joined datagrams are received as they are.
    pub const JOINED: u8 = 1;
    /// Datagrams get the time at which they come.
    pub const STAMPED: u8 = 1 << 1;
}

/// What a sender has to look at before it goes on, as bits of one word; they change under `so`.
pub(crate) struct Notable;

impl Notable {
    /// An error is pending.
    pub const ERROR: u8 = 1;
    /// The socket has asked for time stamps.
    pub const STAMPS: u8 = 1 << 1;
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct Stamps {
    wanted: Timestamping,
    /// The number of the next send that asks.
    next: u32,
    told: VecDeque<Report>,
}

impl Stamps {
    pub fn has_any(&self) -> bool {
        !self.told.is_empty()
    }

    /// Whether there is something new.
    fn tell(&mut self, stamp: &Stamp, what: &[Timestamping], at: Instant) -> bool {
        let before = self.told.len();
        for what in what.iter().copied().filter(|what| stamp.wanted.has(*what)) {
            if self.told.len() < STAMPS_MAX {
                self.told.push_back(Report::Timestamp { what, key: stamp.key, at: Clock::since_start(at) });
            }
        }
        self.told.len() > before
    }

    fn give_back(&mut self, stamp: &Stamp) {
        if stamp.is_numbered {
            self.next = self.next.wrapping_sub(1);
        }
    }
}

/// A send that is told of.
#[derive(Clone, Copy)]
pub(super) struct Stamp {
    wanted: Timestamping,
    key: u32,
    is_numbered: bool,
}

/// The setting.
pub(super) fn set(pcb: &Pcb, wanted: Timestamping) {
    let mut so = pcb.receive.so.lock();
    if wanted != Timestamping::NONE || so.stamps.is_some() {
        let stamps = so.stamps.get_or_insert_default();
        if wanted.has(Timestamping::NUMBERED) && !stamps.wanted.has(Timestamping::NUMBERED) {
            stamps.next = 0;
        }
        stamps.wanted = wanted;
    }
    pcb.notable.set(Notable::STAMPS, wanted != Timestamping::NONE);
    pcb.options.arrivals.set(Arrivals::STAMPED, wanted.has(Timestamping::RECEIVED));
}

/// The setting, as it is.
pub(super) fn get(pcb: &Pcb) -> Timestamping {
    pcb.receive.so.lock().stamps.as_ref().map_or(Timestamping::NONE, |stamps| stamps.wanted)
}

/// Takes the first report.
pub(super) fn take(pcb: &Pcb) -> Option<Report> {
    pcb.receive.so.lock().stamps.as_mut()?.told.pop_front()
}

/// Numbers a send, if the socket or the call asks for its time.
///
/// # Errors
/// EINVAL if the call asks for more than times of sends.
pub(super) fn begin(pcb: &Pcb, of_call: Option<Timestamping>) -> Result<Option<Stamp>, Errno> {
    if of_call.is_some_and(|asked| !Timestamping::OF_SENDS.has(asked)) {
        return Err(Errno::INVAL);
    }
    let mut so = pcb.receive.so.lock();
    let Some(stamps) = &mut so.stamps else { return Ok(None) };
    let wanted = of_call.unwrap_or(stamps.wanted);
    if !wanted.any(OF_SENDS) {
        return Ok(None);
    }
    let is_numbered = stamps.wanted.has(Timestamping::NUMBERED);
    let key = if is_numbered { stamps.next } else { 0 };
    if is_numbered {
        stamps.next = key.wrapping_add(1);
    }
    Ok(Some(Stamp { wanted, key, is_numbered }))
}

/// Nothing came of it: its number is given back, as on Linux.
pub(super) fn withdraw(pcb: &Pcb, stamp: &Stamp) {
    if let Some(stamps) = &mut pcb.receive.so.lock().stamps {
        stamps.give_back(stamp);
    }
}

/// Tells what became of it, `at` being the time before it was handed over. One for which the interface had no room was not sent.
pub(super) fn end(pcb: &Arc<Pcb>, stamp: &Stamp, at: Instant, failed: Option<Errno>, wakes: &mut Vec<Wake>) {
    let what: &[Timestamping] = match failed {
        None => &[Timestamping::SCHEDULED, Timestamping::SENT],
        Some(Errno::NOBUFS) => &[Timestamping::SCHEDULED],
        Some(_) => return withdraw(pcb, stamp),
    };
    let mut so = pcb.receive.so.lock();
    let Some(stamps) = &mut so.stamps else { return };
    if stamps.tell(stamp, what, at) {
        Pcb::announce(pcb, &mut so, Ready::ERROR, wakes);
    }
}

/// The time of a datagram that came, if it has one.
pub(super) fn received_at(at: Instant) -> Option<Duration> {
    (at != Instant::ZERO).then(|| Clock::since_start(at))
}
