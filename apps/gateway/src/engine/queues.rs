//! The queues of a TUN device, and the loops that read them.
//!
//! Each loop has a stack of its own, so a flow belongs to the loop that began it. The kernel does not know that: it chooses a packet's queue by the flow's hash, or, if the flow has come
//! out of a queue within the last three seconds, that queue; and it remembers 4,096 flows at most. It also answers a packet of ours before it remembers the packet's queue. So packets of a flow come to other loops:
//! the first answer of each second connection to a published port, and any packet after the number of loops has changed.
//!
//! So loops hand each other packets: see `exchange.rs` of `sockeye-sync`, which says why none is lost. Here are a packet's flow, the inbox's copy of a frame, and a loop's share of the queues as its stack's device.
//!
//! A loop that the number of loops in use gives other queues than before is woken by its bell, and registers them: the registration reports packets that wait. So each queue is read, at each time by one loop or, while the
//! number changes, by two, which the kernel permits. A SYN that is repeated while its first is being decided finds the flow's owner, too.
//!
//! Bounds: [`BOUNDS`]. Beyond that of an inbox frames are lost as in a full queue. Fragments and ICMP errors stay where they came. When loops join is in `load.rs`. Tests: `queues/tests.rs`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sockeye::netif::{Checksum, Medium, Netif, RxFrame, Sent, TxFrame};
use sockeye_drivers::{Adopted, Tun};
use sockeye_mbuf::{Chain, Pool};
use sockeye_sync::Bell;
use sockeye_sync::exchange::{Bounds, Exchange};

use super::load::Measure;
use crate::lan::packet::datagram;
use crate::policy::Protocol;

const BOUNDS: Bounds = Bounds { inbox_max: 8 << 20, linger: Duration::from_secs(10), ended_max: 16_384 };

/// See the module's head.
pub struct Queues {
    fds: Vec<OwnedFd>,
    /// Behind a device of our own is the kernel, which takes segments longer than packets.
    is_own: bool,
    exchange: Exchange<Ends, Held>,
    /// (a) Time that each loop has worked, microseconds.
    worked: Box<[AtomicU64]>,
    /// The number of loops in use changes.
    changes: bool,
    /// What says that loops are to join and leave, if they do.
    pub measure: Option<Box<dyn Measure>>,
}

/// A copy of a frame.
struct Held {
    bytes: Vec<u8>,
    checksum: Checksum,
    gso_size: u16,
}

/// The two ends of a flow: inside, outside.
type Ends = (Protocol, (IpAddr, u16), (IpAddr, u16));

/// A flow that has an owner. Its drop ends that after a time.
pub struct Owned {
    queues: Arc<Queues>,
    ends: Ends,
    number: u64,
}

impl Queues {
    /// Those of these descriptors, one for each loop, of which the first `in_use` read at first. If these are all, and there is no `measure`, it stays so.
    pub fn new(
        fds: Vec<OwnedFd>,
        is_own: bool,
        in_use: usize,
        measure: Option<Box<dyn Measure>>,
    ) -> Arc<Self> {
        let changes = in_use < fds.len() || measure.is_some();
        let exchange = Exchange::new(fds.len(), in_use, BOUNDS);
        let worked = fds.iter().map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { fds, is_own, exchange, worked, changes, measure })
    }

    /// How many loops there are.
    pub fn count(&self) -> usize {
        self.exchange.count()
    }

    /// How many of them read.
    pub fn in_use(&self) -> usize {
        self.exchange.in_use()
    }

    /// Changes how many read. All learn of it.
    pub fn set_in_use(&self, count: usize) {
        self.exchange.set_in_use(count);
    }

    /// What wakes a loop.
    pub fn bell(&self, index: usize) -> Arc<Bell> {
        self.exchange.bell(index)
    }

    /// A loop says how long it has worked since its start.
    pub fn set_worked(&self, index: usize, worked: Duration) {
        // Relaxed: a figure that orders nothing.
        self.worked[index].store(worked.as_micros() as u64, Ordering::Relaxed);
    }

    /// How long all loops have worked.
    pub fn worked(&self) -> Duration {
        Duration::from_micros(self.worked.iter().map(|worked| worked.load(Ordering::Relaxed)).sum())
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
        let ends = ends(protocol, inside, outside);
        let number = self.exchange.begin(index, ends, Instant::now()).ok_or(io::ErrorKind::AddrInUse)?;
        Ok(Some(Owned { queues: Arc::clone(self), ends, number }))
    }

    /// Hands a datagram from inside to the other loop that has its flow, as a packet. False if none has.
    pub fn hand_over(&self, index: usize, (inside, outside): (SocketAddr, SocketAddr), bytes: &[u8]) -> bool {
        let ends = || Some((ends(Protocol::Udp, inside, outside), false));
        let Some(other) = self.exchange.elsewhere(index, ends) else { return false };
        if let Some(packet) = datagram((inside, outside), bytes) {
            self.give(other, &RxFrame::new(&packet, &Chain::new()));
        }
        true
    }

    /// The other loop that a frame that has been read is to go to, if it is one's.
    fn elsewhere(&self, index: usize, head: &[u8]) -> Option<usize> {
        self.exchange.elsewhere(index, || ends_of(head))
    }

    fn give(&self, index: usize, frame: &RxFrame<'_>) {
        self.exchange.give(index, frame.len(), || {
            let mut bytes = Vec::with_capacity(frame.len());
            bytes.extend(frame.head);
            frame.rest.iter().for_each(|piece| bytes.extend(piece));
            Held { bytes, checksum: frame.checksum, gso_size: frame.gso_size }
        });
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.queues.exchange.end(self.ends, self.number, Instant::now());
    }
}

fn ends(protocol: Protocol, inside: SocketAddr, outside: SocketAddr) -> Ends {
    let end = |addr: SocketAddr| (addr.ip().to_canonical(), addr.port());
    (protocol, end(inside), end(outside))
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
            && let Some(held) = queues.exchange.take(*index)
        {
            let (checksum, gso_size, none) = (held.checksum, held.gso_size, Chain::new());
            sink(RxFrame { checksum, gso_size, ..RxFrame::new(&held.bytes, &none) });
            frames += 1;
        }
        let in_use = queues.in_use();
        // Relaxed: it is this loop's alone.
        let first = first.fetch_add(1, Ordering::Relaxed);
        for step in 0..tuns.len() {
            let (queue, tun) = &tuns[first.wrapping_add(step) % tuns.len()];
            if frames < max && self.0.reads(*queue, in_use) {
                frames +=
                    tun.receive(0, max - frames, &mut |frame| match queues.elsewhere(*index, frame.head) {
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
