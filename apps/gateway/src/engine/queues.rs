//! The queues of a TUN device, and the loops that read them.
//!
//! Each loop has a stack of its own, so a flow belongs to the loop that began it. The kernel does not know that: it chooses a packet's queue by the flow's hash, or, if the flow has come
//! out of a queue within the last three seconds, that queue; and it remembers 4,096 flows at most. It also answers a packet of ours before it remembers the packet's queue. So packets of a flow come to other loops:
//! the first answer of each second connection to a published port, and any packet after the number of loops has changed.
//!
//! ```text
//! queue q ─► loop q mod (loops in use) ─► the flow is another loop's ─► inbox of that loop ─► its stack
//!                                         └► otherwise ─► own stack (which begins it, or refuses it)
//! ```
//!
//! * **In use** are the loops that read: the first `in_use` of them. The others serve the flows that they have, from their inboxes. A loop that the number gives other queues than before is
//!   woken by its bell, and registers them: the registration reports packets that wait. So each queue is read, at each time by one loop or, while the number changes, by two, which the kernel permits.
//! * **Owners** are known from a flow's beginning until [`LINGER`] after its end, since a connection's last segments come after that. A SYN that is repeated while its first is being decided finds its owner, too.
//! * **An inbox** takes a copy of the frame. The giver stores it under the inbox's lock and rings the bell then; the owner drains the inbox after each ring. So none waits for ever.
//!
//! Locks: the owners' and each inbox's, leaves, never held together. Bounds: [`INBOX_MAX`] bytes in an inbox, beyond which frames are lost as in a full queue; [`LINGER_MAX`] flows that have ended.
//! Fragments and ICMP errors stay where they came. When loops join is in `load.rs`. Tests: `queues/tests.rs`.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sockeye::netif::{Checksum, Medium, Netif, RxFrame, Sent, TxFrame};
use sockeye_drivers::{Adopted, Tun};
use sockeye_mbuf::{Chain, Pool};
use tokio::sync::Notify;

use crate::policy::Protocol;

/// How long a flow's owner is known after its end.
const LINGER: Duration = Duration::from_secs(10);
/// Flows that have ended and whose owner is known, at most.
const LINGER_MAX: usize = 16_384;
/// Bytes of the frames in an inbox, at most.
const INBOX_MAX: usize = 8 << 20;

/// See the module's head.
pub struct Queues {
    fds: Vec<OwnedFd>,
    /// Behind a device of our own is the kernel, which takes segments longer than packets.
    is_own: bool,
    /// (a) Loops that read.
    in_use: AtomicUsize,
    loops: Box<[Seat]>,
    owners: Mutex<Owners>,
    /// That number changes.
    changes: bool,
    /// Where the system's idle time is read, if loops join and leave.
    pub stat: Option<File>,
}

/// A loop, as the others see it.
#[derive(Default)]
struct Seat {
    inbox: Mutex<Inbox>,
    bell: Arc<Notify>,
    /// (a) Flows whose owner it is.
    owns: AtomicUsize,
    /// (a) Time that it has worked, microseconds.
    worked: AtomicU64,
}

#[derive(Default)]
struct Inbox {
    frames: VecDeque<Held>,
    bytes: usize,
}

/// A copy of a frame.
struct Held {
    bytes: Vec<u8>,
    checksum: Checksum,
    gso_size: u16,
}

/// The two ends of a flow: inside, outside.
type Ends = (Protocol, (IpAddr, u16), (IpAddr, u16));

#[derive(Default)]
struct Owners {
    of: HashMap<Ends, Owner>,
    ended: VecDeque<(Instant, Ends, u64)>,
    last_number: u64,
}

#[derive(Clone, Copy)]
struct Owner {
    index: usize,
    number: u64,
    has_ended: bool,
}

/// A flow that has an owner. Its drop ends that after a time.
pub struct Owned {
    queues: Arc<Queues>,
    ends: Ends,
    number: u64,
}

impl Queues {
    /// Those of these descriptors, one for each loop, of which the first `in_use` read at first. If these are all, and there is no `stat`, it stays so.
    pub fn new(fds: Vec<OwnedFd>, is_own: bool, in_use: usize, stat: Option<File>) -> Arc<Self> {
        let loops: Box<[Seat]> = fds.iter().map(|_| Seat::default()).collect();
        let changes = in_use < fds.len() || stat.is_some();
        let (in_use, owners) = (AtomicUsize::new(in_use), Mutex::default());
        Arc::new(Self { fds, is_own, in_use, changes, loops, owners, stat })
    }

    /// How many loops there are.
    pub fn count(&self) -> usize {
        self.loops.len()
    }

    /// How many of them read.
    pub fn in_use(&self) -> usize {
        // Acquire, with the release in `set_in_use`.
        self.in_use.load(Ordering::Acquire)
    }

    /// Changes how many read. All learn of it.
    pub fn set_in_use(&self, count: usize) {
        self.in_use.store(count.clamp(1, self.count()), Ordering::Release);
        self.loops.iter().for_each(|seat| seat.bell.notify_one());
    }

    /// What wakes a loop.
    pub fn bell(&self, index: usize) -> Arc<Notify> {
        Arc::clone(&self.loops[index].bell)
    }

    /// A loop says how long it has worked since its start.
    pub fn set_worked(&self, index: usize, worked: Duration) {
        // Relaxed: a figure that orders nothing.
        self.loops[index].worked.store(worked.as_micros() as u64, Ordering::Relaxed);
    }

    /// How long all loops have worked.
    pub fn worked(&self) -> Duration {
        let of = |seat: &Seat| seat.worked.load(Ordering::Relaxed);
        Duration::from_micros(self.loops.iter().map(of).sum())
    }

    /// A flow of this loop begins. Nothing is to be known where there is one loop.
    ///
    /// # Errors
    /// `AddrInUse`: another loop has a flow between these ends.
    pub fn own(
        self: &Arc<Self>,
        index: usize,
        protocol: Protocol,
        (inside, outside): (SocketAddr, SocketAddr),
    ) -> io::Result<Option<Owned>> {
        if self.count() == 1 {
            return Ok(None);
        }
        let end = |addr: SocketAddr| (addr.ip().to_canonical(), addr.port());
        let ends = (protocol, end(inside), end(outside));
        let mut owners = self.owners();
        self.expire(&mut owners);
        let before = owners.of.get(&ends).copied();
        if before.is_some_and(|before| before.index != index && !before.has_ended) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        owners.last_number += 1;
        let number = owners.last_number;
        owners.of.insert(ends, Owner { index, number, has_ended: false });
        drop(owners);
        // Relaxed, as below: whoever misses it for a moment treats a packet as before.
        self.loops[index].owns.fetch_add(1, Ordering::Relaxed);
        if let Some(before) = before {
            self.loops[before.index].owns.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(Some(Owned { queues: Arc::clone(self), ends, number }))
    }

    /// Forgets flows that have ended long ago.
    fn expire(&self, owners: &mut Owners) {
        while let Some((at, ends, number)) = owners.ended.front().copied()
            && (owners.ended.len() > LINGER_MAX || at.elapsed() > LINGER)
        {
            owners.ended.pop_front();
            if owners.of.get(&ends).is_some_and(|owner| owner.number == number)
                && let Some(owner) = owners.of.remove(&ends)
            {
                self.loops[owner.index].owns.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn owners(&self) -> MutexGuard<'_, Owners> {
        // Each change is whole.
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The other loop that a frame is to go to, if it is one's.
    fn other(&self, index: usize, head: &[u8]) -> Option<usize> {
        let (ends, is_syn) = ends_of(head)?;
        let owner = *self.owners().of.get(&ends)?;
        // A new connection from the port of one that has ended is anybody's.
        (owner.index != index && !(is_syn && owner.has_ended)).then_some(owner.index)
    }

    /// Whether another loop than this one has flows.
    fn others_own(&self, index: usize) -> bool {
        let owns = |(other, seat): (usize, &Seat)| other != index && seat.owns.load(Ordering::Relaxed) > 0;
        self.loops.iter().enumerate().any(owns)
    }

    fn give(&self, index: usize, frame: &RxFrame<'_>) {
        let seat = &self.loops[index];
        let mut inbox = seat.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        if inbox.bytes + frame.len() <= INBOX_MAX {
            let mut bytes = Vec::with_capacity(frame.len());
            bytes.extend(frame.head);
            frame.rest.iter().for_each(|piece| bytes.extend(piece));
            inbox.bytes += bytes.len();
            let (checksum, gso_size) = (frame.checksum, frame.gso_size);
            inbox.frames.push_back(Held { bytes, checksum, gso_size });
        }
        drop(inbox);
        seat.bell.notify_one();
    }

    fn take(&self, index: usize) -> Option<Held> {
        let mut inbox = self.loops[index].inbox.lock().unwrap_or_else(PoisonError::into_inner);
        let held = inbox.frames.pop_front()?;
        inbox.bytes -= held.bytes.len();
        Some(held)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let mut owners = self.queues.owners();
        if let Some(owner) = owners.of.get_mut(&self.ends).filter(|owner| owner.number == self.number) {
            owner.has_ended = true;
            owners.ended.push_back((Instant::now(), self.ends, self.number));
        }
    }
}

/// The ends of a packet from inside, and whether it is a connection's first. `None` for a fragment, for what has no ports, and for what is no packet.
fn ends_of(head: &[u8]) -> Option<(Ends, bool)> {
    let (protocol, src, dst, ports) = match head.first()? >> 4 {
        4 => {
            let fixed: &[u8; 20] = head.first_chunk()?;
            // More fragments, or an offset.
            if u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0 {
                return None;
            }
            let addr = |at: usize| IpAddr::V4(Ipv4Addr::from([0, 1, 2, 3].map(|n| fixed[at + n])));
            (fixed[9], addr(12), addr(16), head.get(usize::from(fixed[0] & 0xf) * 4..)?)
        }
        6 => {
            let (fixed, rest) = head.split_first_chunk::<40>()?;
            let addr = |at: usize| {
                let mut bytes = [0; 16];
                bytes.copy_from_slice(&fixed[at..at + 16]);
                IpAddr::V6(Ipv6Addr::from(bytes))
            };
            (fixed[6], addr(8), addr(24), rest)
        }
        _ => return None,
    };
    let protocol = match protocol {
        6 => Protocol::Tcp,
        17 => Protocol::Udp,
        _ => return None,
    };
    let &[a, b, c, d] = ports.first_chunk()?;
    // SYN without ACK.
    let is_syn = protocol == Protocol::Tcp && ports.get(13).is_some_and(|flags| flags & 0x12 == 0x02);
    Some(((protocol, (src, u16::from_be_bytes([a, b])), (dst, u16::from_be_bytes([c, d]))), is_syn))
}

/// A loop's share of the queues, as a device of its stack. It reads into packet memory of its own, and sends by its own queue.
pub struct Share {
    /// All queues and loops.
    pub queues: Arc<Queues>,
    /// Which loop it is.
    pub index: usize,
    own: Tun,
    /// A device for each queue that it may read, with the queue's number.
    pub tuns: Box<[(usize, Tun)]>,
    /// The queue that is read first, which changes: none waits for another that is never empty.
    first: AtomicUsize,
}

impl Share {
    /// That of the loop of this number.
    ///
    /// # Errors
    /// The system's; those of [`Tun::adopt`].
    pub fn new(queues: &Arc<Queues>, index: usize, mtu: u32) -> io::Result<Arc<Self>> {
        let tun = |queue: usize| {
            let fds = vec![queues.fds[queue].try_clone()?];
            Tun::adopt(Adopted { fds, mtu: Some(mtu), mac: None, big_tcp: queues.is_own })
        };
        let own = tun(index)?;
        let others = (0..queues.count()).filter(|queue| *queue != index && queues.changes);
        let others = others.map(|queue| Ok((queue, tun(queue)?)));
        let tuns = [Ok((index, own.clone()))].into_iter().chain(others).collect::<io::Result<_>>()?;
        Ok(Arc::new(Self { queues: Arc::clone(queues), index, own, tuns, first: AtomicUsize::new(0) }))
    }

    /// A descriptor of a queue, to wait at.
    pub fn descriptor(&self, queue: usize) -> BorrowedFd<'_> {
        self.queues.fds[queue].as_fd()
    }

    /// Whether it reads this queue.
    pub fn reads(&self, queue: usize, in_use: usize) -> bool {
        queue % in_use == self.index
    }

    /// Whether the device has gone.
    pub fn is_down(&self) -> bool {
        self.tuns.iter().any(|(_, tun)| tun.is_down())
    }
}

/// A [`Share`] as the stack has it.
pub struct Handle(pub Arc<Share>);

impl Netif for Handle {
    fn mtu(&self) -> u32 {
        self.0.own.mtu()
    }

    fn queue_count(&self) -> usize {
        1
    }

    fn medium(&self) -> Medium {
        self.0.own.medium()
    }

    fn offloads_checksum(&self) -> bool {
        self.0.own.offloads_checksum()
    }

    fn segment_max(&self) -> u32 {
        self.0.own.segment_max()
    }

    fn udp_segment_max(&self) -> u32 {
        self.0.own.udp_segment_max()
    }

    fn attached(&self, pool: &Pool) {
        self.0.tuns.iter().for_each(|(_, tun)| tun.attached(pool));
    }

    fn is_down(&self) -> bool {
        self.0.is_down()
    }

    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        self.0.own.transmit(flow, frames)
    }

    fn ring(&self, _queue: usize) {}

    fn receive(&self, _queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let Share { queues, index, tuns, first, .. } = &*self.0;
        let mut frames = 0;
        while frames < max
            && let Some(held) = queues.take(*index)
        {
            let (checksum, gso_size, none) = (held.checksum, held.gso_size, Chain::new());
            sink(RxFrame { checksum, gso_size, ..RxFrame::new(&held.bytes, &none) });
            frames += 1;
        }
        let in_use = queues.in_use();
        let others_own = queues.others_own(*index);
        // Relaxed: it is this loop's alone.
        let first = first.fetch_add(1, Ordering::Relaxed);
        for step in 0..tuns.len() {
            let (queue, tun) = &tuns[first.wrapping_add(step) % tuns.len()];
            if frames < max && self.0.reads(*queue, in_use) {
                frames += tun.receive(0, max - frames, &mut |frame| match others_own
                    .then(|| queues.other(*index, frame.head))
                    .flatten()
                {
                    Some(other) => queues.give(other, &frame),
                    None => sink(frame),
                });
            }
        }
        frames
    }

    fn receives_all(&self) -> bool {
        true
    }

    // A stack without threads waits elsewhere: `Port::ready`.
    fn wait(&self, _queue: usize, _spin: Duration) {}

    fn interrupt(&self, _queue: usize) {}
}

#[cfg(test)]
mod tests;
