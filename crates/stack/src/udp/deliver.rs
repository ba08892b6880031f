//! Into the receivers' queues: by the thread that sends, for an address of the stack's own, or by input.
//!
//! A run is looked up once, appended under one hold of the receiver's mutex, and announced once. Threads and tasks that are to be
//! woken are noted, for after all locks. A full queue takes no more until its owner has received something, so the rest is
//! dropped, and counted, outside of the mutex.
//!
//! Does not depend on where datagrams come from. Rank: a core's copy of the table, then one receiver's `so` at a time.
//! Tests: `tests/udp/`.

use std::num::NonZeroU16;

use smallvec::SmallVec;
use sockeye_mbuf::Chain;
use sockeye_proto::time::Instant;
use sockeye_proto::udp::Segments;
use sockeye_sync::facade::{Arc, Ordering};

use super::flows::{self, Begun};
use super::groups::Membership;
use super::pcb::{Datagram, Pcb, Role, So};
use super::stamps::Arrivals;
use super::table::Table;
use super::{Shared, count};
use crate::base::addr::FourTuple;
use crate::inet::Core;
use crate::inet::ip::output::MtuDiscover;
use crate::rt::failpoints::{self, Point};
use crate::rt::panics::{self, PanicSource};
use crate::rt::poll::Ready;
use crate::rt::wake::Wake;

/// Common properties of the datagrams of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flow {
    /// As the receiver names it: `local` is where they are sent to.
    pub tuple: FourTuple,
    /// The interface by which they come.
    pub interface: u32,
    pub traffic_class: u8,
    pub hop_limit: u8,
    /// Its sender's treatment of those that are too long.
    pub discover: MtuDiscover,
    /// Datagrams may be joined to the one before them, for a socket that takes them so.
    pub may_join: bool,
}

/// One datagram, or several in one buffer.
pub(crate) struct Load {
    pub payload: Chain,
    /// Bytes of each but the last; 0 for one datagram.
    pub segment_size: u16,
}

impl Load {
    /// Datagrams that it stands for.
    pub fn count(&self) -> u64 {
        segments(self).map_or(1, |segments| segments.count_left() as u64)
    }
}

/// What has become of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Delivered,
    /// It is delivered, and the timer wheel was asked for a call: the driver is owed a word ([`Workers::tell_driver`]).
    ///
    /// [`Workers::tell_driver`]: crate::rt::workers::Workers::tell_driver
    Armed,
    /// There is no socket for it.
    Nobody,
}

/// A run, of [`RUN_MAX`] at most.
pub(crate) type Loads = SmallVec<[Load; RUN_MAX]>;
/// Most datagrams that are delivered in one go.
pub(crate) const RUN_MAX: usize = 16;

impl Shared {
    /// Delivers a run to the one socket that it is for. If there is none, the run is untouched.
    pub fn to_host(
        &self,
        core: &Core,
        cpu: u32,
        flow: &Flow,
        loads: &mut Loads,
        wakes: &mut Vec<Wake>,
    ) -> Fate {
        let found = self.table.with(cpu, |copy| {
            let pcb = self.table.find(copy, &flow.tuple)?;
            match &pcb.role {
                Role::Plain => {}
                Role::Flow(part) => part.note(core.clock.now()),
                // What makes names is not for a thread that holds the table.
                Role::Listener(_) => return Some(None),
            }
            Some(Some(append(core, pcb, flow, loads, wakes)))
        });
        let (dropped, fate) = match found {
            None => return Fate::Nobody,
            Some(Some(dropped)) => (dropped, Fate::Delivered),
            Some(None) => match flows::begin(core, cpu, flow, loads, wakes) {
                Begun::Nobody => return Fate::Nobody,
                Begun::Delivered { dropped, is_armed: false } => (dropped, Fate::Delivered),
                Begun::Delivered { dropped, is_armed: true } => (dropped, Fate::Armed),
            },
        };
        // What was too much, outside of the receiver's mutex and the table.
        loads.clear();
        self.count(count::RCVBUF_ERRORS, dropped);
        self.count(count::IN_ERRORS, dropped);
        fate
    }

    /// Delivers a run to all sockets that receive datagrams to its destination, a group or a broadcast address. Datagrams of a
    /// host without an address are for sockets that may send broadcasts, as a DHCP server has to: an answer to 0.0.0.0 would go
    /// to the loopback, in the name of the one that answers.
    pub fn to_all(&self, core: &Core, cpu: u32, flow: &Flow, loads: &mut Loads, wakes: &mut Vec<Wake>) {
        let group = flow.tuple.local.addr;
        let is_nameless = flow.tuple.remote.addr.is_unspecified();
        let membership = Membership { group, interface: flow.interface };
        let mut receivers = 0;
        self.table.with(cpu, |copy| {
            if group.is_multicast() && !copy.is_member(&membership) {
                return;
            }
            self.table.each(copy, &flow.tuple, |pcb| {
                if group.is_multicast() && !wants(pcb, &membership) || pcb.role.listener().is_some() {
                    return;
                }
                if is_nameless && !pcb.options.broadcast.load(Ordering::Relaxed) {
                    return;
                }
                receivers += 1;
                let mut copies: Loads = loads.iter().map(Load::duplicate).collect();
                let dropped = append(core, pcb, flow, &mut copies, wakes);
                self.count(count::RCVBUF_ERRORS, dropped);
                self.count(count::IN_ERRORS, dropped);
            });
        });
        if receivers == 0 {
            self.count(count::IGNORED_MULTI, loads.len() as u64);
        }
        loads.clear();
    }
}

/// Delivers a run to the one socket of a table that it is for; says how much of it was too much. `None` if there is no
/// such socket; the run is then untouched.
pub(crate) fn to_one(
    core: &Core,
    table: &Table,
    cpu: u32,
    flow: &Flow,
    loads: &mut Loads,
    wakes: &mut Vec<Wake>,
) -> Option<u64> {
    let dropped =
        table.with(cpu, |copy| Some(append(core, table.find(copy, &flow.tuple)?, flow, loads, wakes)))?;
    // Drops the excess outside of the receiver's mutex and the table.
    loads.clear();
    Some(dropped)
}

impl Load {
    /// The same bytes, by reference.
    fn duplicate(&self) -> Self {
        Self { payload: self.payload.clone(), segment_size: self.segment_size }
    }
}

fn wants(pcb: &Pcb, membership: &Membership) -> bool {
    let takes_all = pcb.options.multicast_all.load(Ordering::Relaxed);
    pcb.receive.so.lock().groups.takes(membership.group, membership.interface, takes_all)
}

/// Appends as much of a run as the queue takes, and leaves the rest in `loads`. Returns how many datagrams that is.
pub(super) fn append(
    core: &Core,
    pcb: &Arc<Pcb>,
    flow: &Flow,
    loads: &mut Loads,
    wakes: &mut Vec<Wake>,
) -> u64 {
    let arrivals = pcb.options.arrivals.load();
    let takes_joined = arrivals & Arrivals::JOINED != 0;
    let at = if arrivals & Arrivals::STAMPED == 0 { Instant::ZERO } else { stamp(core) };
    let mut so = pcb.receive.so.lock();
    let (mut appended, mut dropped) = (0, 0);
    let queued = panics::catch(PanicSource::Protocol, "datagrams for a socket", || {
        for load in loads.iter_mut() {
            match segments(load).filter(|_| !takes_joined) {
                None if so.has_room_for(&load.payload) => {
                    let payload = std::mem::take(&mut load.payload);
                    let datagram = datagram(flow, at, payload, load.segment_size);
                    if flow.may_join && takes_joined {
                        so.join(datagram)
                    } else {
                        so.push(datagram)
                    }
                    appended += 1;
                    failpoints::hit(Point::UdpDeliver, u64::from(flow.tuple.local.port));
                }
                None => dropped += 1,
                Some(segments) => {
                    let left = cut(&mut so, (flow, at), &load.payload, segments, &mut appended);
                    dropped += left;
                }
            }
        }
    });
    so.drops = so.drops.wrapping_add(dropped as u32);
    if appended > 0 {
        Pcb::announce(pcb, &mut so, Ready::READABLE, wakes);
    }
    if let Err(caught) = queued {
        // Queued datagrams are announced; the bringer drops the rest of the run.
        drop(so);
        caught.resume();
    }
    dropped
}

/// The time of datagrams that come now.
#[cold]
fn stamp(core: &Core) -> Instant {
    core.clock.now()
}

/// Appends the datagrams of a joined buffer one by one. Returns how many there was no room for.
fn cut(
    so: &mut So,
    (flow, at): (&Flow, Instant),
    joined: &Chain,
    mut segments: Segments,
    appended: &mut u64,
) -> u64 {
    while so.has_room()
        && let Some(range) = segments.next()
    {
        let one = joined.slice(range.start, range.len());
        if !so.has_room_for(&one) {
            return 1 + segments.count_left() as u64;
        }
        so.push(datagram(flow, at, one, 0));
        *appended += 1;
    }
    segments.count_left() as u64
}

fn segments(load: &Load) -> Option<Segments> {
    Segments::new(load.payload.len(), NonZeroU16::new(load.segment_size)?)
}

fn datagram(flow: &Flow, at: Instant, payload: Chain, segment_size: u16) -> Datagram {
    Datagram {
        from: flow.tuple.remote,
        to: flow.tuple.local,
        interface: flow.interface,
        segment_size,
        traffic_class: flow.traffic_class,
        hop_limit: flow.hop_limit,
        drops: 0,
        at,
        payload,
    }
}
