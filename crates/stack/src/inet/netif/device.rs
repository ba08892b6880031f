//! An interface as the stack calls it: constants are asked once, and every call is contained.
//!
//! A [`Netif`] is foreign code. Its constants are asked for when it is attached, with no lock held, and kept beside it. Each
//! other method is called from here and nowhere else: a panic in it is caught, reported as [`PanicSource::Netif`], and
//! answered as its method documents (frames count as lost, a wait as over). None is called with a lock of the stack held;
//! ownership of a queue, which is held around [`receive`](Device::receive), is never waited for (`input/busy.rs`).
//!
//! An interface whose receiving side panics again and again would have its input thread run in circles. The thread
//! pauses after each panic, longer each time, and after [`FAULTS_MAX`] in a row the interface counts as gone.
//!
//! The stack's own code handles frames given to its sinks, in the middle of the interface's call: a panic there is caught
//! before it unwinds through the interface. Tests: `tests/panics/netifs.rs`.

use std::io;
#[cfg(all(feature = "tokio", unix))]
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use sockeye_sync::Outlet;
use sockeye_sync::facade::{AtomicBool, AtomicU32, Ordering};

use super::departures::Queued;
use super::detached::Detached;
use super::{Medium, Netif, RxFrame, Sent, TxFrame, Waited};
use crate::inet::Core;
use crate::rt::panics::{self, Caught, PanicSource};
use sockeye_netif::{QUEUES_MAX, Waking};

/// See the module's head.
pub(crate) struct Device {
    netif: Box<dyn Netif>,
    constants: Constants,
    /// Frames on their way out, a lane for each queue.
    outlets: Box<[Outlet<Queued>]>,
    /// (a) Panics of its receiving side so far.
    faults: AtomicU32,
    /// (a) There were too many of them.
    has_failed: AtomicBool,
    /// (a) It belongs to the process that forked this one.
    is_detached: AtomicBool,
}

/// An interface's constants.
#[derive(Clone, Copy)]
struct Constants {
    mtu: u32,
    queue_count: usize,
    medium: Medium,
    offloads_checksum: bool,
    segment_max: u32,
    udp_segment_max: u32,
    receives_all: bool,
}

/// Panics in a row of the receiving side after which an interface counts as gone.
pub(crate) const FAULTS_MAX: u32 = 10;
/// The pause after the first of them, and the longest one.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// How long an input thread pauses after so many panics in a row.
pub(crate) fn pause_after(faults: u32) -> Duration {
    PAUSE_MIN.saturating_mul(1 << faults.clamp(1, FAULTS_MAX)).min(PAUSE_MAX)
}

impl Device {
    /// Asks an interface for its constants. Without locks.
    ///
    /// # Errors
    /// It has panicked.
    pub fn ask(core: &Core, netif: impl Netif, waking: &Waking) -> io::Result<Self> {
        let asked = panics::contain(core, PanicSource::Netif, "Netif::attached", || {
            netif.attached(&core.pool);
            netif.wakes_by(waking);
        });
        let constants = asked.and_then(|()| {
            panics::contain(core, PanicSource::Netif, "a constant of a Netif", || Constants::of(&netif))
        });
        let Some(constants) = constants else {
            panics::release(core, PanicSource::Netif, "drop of a Netif", netif);
            return Err(io::Error::other("the interface panicked while it was attached, and was dropped"));
        };
        Ok(Self::new(Box::new(netif), constants))
    }

    /// One that is asked without a stack.
    #[cfg(test)]
    pub fn of(netif: impl Netif) -> Self {
        let constants = Constants::of(&netif);
        Self::new(Box::new(netif), constants)
    }

    fn new(netif: Box<dyn Netif>, constants: Constants) -> Self {
        let lanes = constants.queue_count.clamp(1, QUEUES_MAX);
        let outlets = (0..lanes).map(|_| Outlet::new()).collect();
        Self {
            netif,
            constants,
            outlets,
            faults: AtomicU32::new(0),
            has_failed: AtomicBool::new(false),
            is_detached: AtomicBool::new(false),
        }
    }

    /// Has nothing of it called any more.
    pub fn detach(&self) {
        self.is_detached.store(true, Ordering::Relaxed);
    }

    /// The interface, or its substitute in a child of fork(2).
    #[inline]
    fn netif(&self) -> &dyn Netif {
        // Relaxed: false for ever where the process does not fork; a child sets it before any other call.
        if self.is_detached.load(Ordering::Relaxed) { &Detached } else { &*self.netif }
    }

    /// [`Netif::mtu`]
    pub fn mtu(&self) -> u32 {
        self.constants.mtu
    }

    /// [`Netif::queue_count`]
    pub fn queue_count(&self) -> usize {
        self.constants.queue_count
    }

    /// [`Netif::medium`]
    pub fn medium(&self) -> Medium {
        self.constants.medium
    }

    /// [`Netif::receives_all`]
    pub fn receives_all(&self) -> bool {
        self.constants.receives_all
    }

    /// [`Netif::offloads_checksum`]
    #[inline]
    pub fn offloads_checksum(&self) -> bool {
        self.constants.offloads_checksum
    }

    /// [`Netif::segment_max`]
    #[inline]
    pub fn segment_max(&self) -> u32 {
        self.constants.segment_max
    }

    /// [`Netif::udp_segment_max`]
    pub fn udp_segment_max(&self) -> u32 {
        self.constants.udp_segment_max
    }

    /// [`Netif::is_down`], or its receiving side has panicked too often.
    pub fn is_down(&self, core: &Core) -> bool {
        // Relaxed: a flag that orders nothing.
        self.has_failed.load(Ordering::Relaxed)
            || panics::contain(core, PanicSource::Netif, "Netif::is_down", || self.netif().is_down())
                .unwrap_or(false)
    }

    /// The lane of a flow.
    pub fn lane_of(&self, flow: u64) -> u8 {
        // The upper half of a product spreads 32 bits of the hash evenly over any number of lanes, 64 at most.
        (((flow & u64::from(u32::MAX)) * self.outlets.len() as u64) >> 32) as u8
    }

    /// The outlet of a lane.
    pub fn outlet(&self, lane: u8) -> Option<&Outlet<Queued>> {
        self.outlets.get(usize::from(lane))
    }

    /// [`Netif::transmit`]; `None` if it has panicked, and `frames` are lost.
    pub fn transmit(&self, core: &Core, flow: u64, frames: &mut Vec<TxFrame>) -> Option<Sent> {
        panics::contain(core, PanicSource::Netif, "Netif::transmit", || self.netif().transmit(flow, frames))
    }

    /// [`Netif::ring`]
    pub fn ring(&self, core: &Core, queue: usize) {
        panics::contain(core, PanicSource::Netif, "Netif::ring", || self.netif().ring(queue));
    }

    /// [`Netif::receive`]. Returns how many frames there were, `max` at most: those that were shown, and those that the interface has kept for itself.
    pub fn receive(&self, core: &Core, queue: usize, max: usize, mut sink: impl FnMut(RxFrame<'_>)) -> usize {
        let (mut shown, mut caught) = (0, Vec::new());
        let mut show = |frame: RxFrame<'_>| {
            shown += 1;
            caught.extend(panics::catch(PanicSource::Protocol, "a frame's headers", || sink(frame)).err());
        };
        let call = || self.netif().receive(queue, max, &mut show);
        let taken = panics::contain(core, PanicSource::Netif, "Netif::receive", call);
        if taken.is_none() {
            self.note_fault();
        }
        report(core, caught);
        // More than were asked for is no number of frames.
        taken.unwrap_or(0).min(max).max(shown)
    }

    /// [`Netif::wait`]
    pub fn wait(&self, core: &Core, queue: usize, spin: Duration) {
        let wait = || self.netif().wait(queue, spin);
        if panics::contain(core, PanicSource::Netif, "Netif::wait", wait).is_none() {
            self.note_fault();
        }
    }

    /// [`Netif::interrupt`]. False if it has panicked: then a wait may go on for ever.
    pub fn interrupt(&self, core: &Core, queue: usize) -> bool {
        let interrupt = || self.netif().interrupt(queue);
        panics::contain(core, PanicSource::Netif, "Netif::interrupt", interrupt).is_some()
    }

    /// [`Netif::wait_until`]. Callers do not wait in an interface that has panicked.
    pub fn wait_until(&self, core: &Core, queue: usize, deadline: Option<Instant>) -> Waited {
        let wait = || self.netif().wait_until(queue, deadline);
        panics::contain(core, PanicSource::Netif, "Netif::wait_until", wait).unwrap_or(Waited::Unable)
    }

    /// [`Netif::kick`]
    pub fn kick(&self, core: &Core, queue: usize) {
        panics::contain(core, PanicSource::Netif, "Netif::kick", || self.netif().kick(queue));
    }

    /// A duplicate of [`Netif::descriptor`], which stays usable when the interface is dropped.
    ///
    /// # Errors
    /// The system's.
    #[cfg(all(feature = "tokio", unix))]
    pub fn descriptor(&self, core: &Core, queue: usize) -> io::Result<Option<OwnedFd>> {
        let duplicate = || self.netif().descriptor(queue).map(|fd| fd.try_clone_to_owned()).transpose();
        panics::contain(core, PanicSource::Netif, "Netif::descriptor", duplicate).unwrap_or(Ok(None))
    }

    /// [`Netif::announced`]
    #[cfg(all(feature = "tokio", unix))]
    pub fn announced(&self, core: &Core, queue: usize) {
        panics::contain(core, PanicSource::Netif, "Netif::announced", || self.netif().announced(queue));
    }

    /// [`Netif::unannounced`]
    #[cfg(all(feature = "tokio", unix))]
    pub fn unannounced(&self, core: &Core, queue: usize) {
        panics::contain(core, PanicSource::Netif, "Netif::unannounced", || self.netif().unannounced(queue));
    }

    /// Panics of its receiving side so far. For comparing with an earlier look.
    pub fn fault_count(&self) -> u32 {
        self.faults.load(Ordering::Relaxed)
    }

    fn note_fault(&self) {
        self.faults.fetch_add(1, Ordering::Relaxed);
    }

    /// It counts as gone from now on.
    pub fn give_up(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }
}

impl Constants {
    fn of(netif: &impl Netif) -> Self {
        Self {
            mtu: netif.mtu(),
            queue_count: netif.queue_count(),
            medium: netif.medium(),
            offloads_checksum: netif.offloads_checksum(),
            segment_max: netif.segment_max(),
            udp_segment_max: netif.udp_segment_max(),
            receives_all: netif.receives_all(),
        }
    }
}

/// Reports a panic caught in the middle of the interface's call, now that it is over.
fn report(core: &Core, caught: Vec<Caught>) {
    for caught in caught {
        caught.report(core);
    }
}
