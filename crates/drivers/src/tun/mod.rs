//! TUN and TAP devices as interfaces of a stack.
//!
//! A device has one or more queues, each a file descriptor. The kernel sends a flow's packets to the queue by which the
//! flow last came to it, so frames out take the queue that their flow's hash names, and the answers come back there: a
//! connection stays with one input thread. With `offload` a frame carries up to 64 KiB of one TCP segment in either
//! direction and no side computes checksums; to a neighbor on a TUN device, where the kernel knows it (BIG TCP), up to 256 KiB.
//!
//! # Which file
//! | file | holds |
//! |---|---|
//! | this one | opening, adopting, and the [`Netif`] |
//! | `queue.rs` | one queue: reading, writing, waiting |
//! | `read.rs` | frames into packet memory |
//! | `kernel.rs` | features by the kernel's version |
//! | `vnet.rs` | the header before each frame |
//!
//! # When the device goes
//! Deleted under us, it answers every call with an error: [`Netif::is_down`] becomes true, waits end by interruption only,
//! and transmitted frames are dropped. A device that is merely down keeps its frames and refuses new ones.
//!
//! It does not depend on the stack. Tests: `tests/devices.rs`, `tests/transfers.rs`.

mod kernel;
mod queue;
mod read;
pub(crate) mod vnet;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, open};
use rustix::io::Errno;
use sockeye_mbuf::Pool;
use sockeye_netif::{MacAddr, Medium, Netif, RxFrame, Sent, TxFrame, Waited};
use sockeye_sync::facade::{Arc, AtomicBool, Ordering};

use crate::link::KernelLink;
use crate::sys::{IfReq, IfRequest, NumberRequest, with_ifreq, with_number, with_struct};
use queue::{Outcome, Queue, count};

/// The kind of frames of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Layer {
    /// IP packets: a TUN device.
    #[default]
    Ip,
    /// Ethernet frames: a TAP device.
    Ethernet,
}

/// How a device is opened. Start from [`TunConfig::default`].
#[derive(Clone, Debug)]
pub struct TunConfig {
    /// The device's name, up to 15 bytes. A device of this name is attached to if it exists, and else made. Empty, the
    /// default, for one that the kernel names.
    pub name: String,
    /// IP packets or Ethernet frames. Default: IP packets.
    pub layer: Layer,
    /// Queues, 1 to 64: so many input threads has the interface. A device that exists must have been made for several if
    /// this is more than 1. Default 1.
    pub queues: usize,
    /// Leave checksums and the cutting of TCP segments to the kernel, in both directions. Default on.
    pub offload: bool,
    /// With `offload`, on a TUN device, over IPv4 and to hosts on its own network: hand over up to 256 KiB of a TCP segment at once, in
    /// packets whose total length is 0 (BIG TCP), if the kernel's version is 6.3 or later. Off for programs on its side that
    /// read packets and do not know such ones. Default on.
    pub big_tcp: bool,
    /// Bytes of the largest IP packet, 1,280 to 65,535; `None` leaves the device as it is. Default `None`.
    pub mtu: Option<u32>,
    /// Frames that the kernel keeps for each queue until they are read (`txqueuelen`); what comes on top is dropped. It is to hold a
    /// burst of many connections: their packets come one by one while the input thread waits for a core, and the
    /// sender's kernel repeats what was dropped after 200 ms at the earliest. `None` leaves the device as it is, which is
    /// 500 for a new TUN device. Default 8,192, as [`WireConfig::queue_len`](sockeye_netif::WireConfig::queue_len).
    pub queue_len: Option<u32>,
    /// Let the device stay when the last descriptor of it is closed. Default off.
    pub persist: bool,
    /// Our Ethernet address, for TAP. `None`: one made from the kernel's address of the device. Default `None`.
    pub mac: Option<MacAddr>,
}

impl Default for TunConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            layer: Layer::Ip,
            queues: 1,
            offload: true,
            big_tcp: true,
            mtu: None,
            queue_len: Some(QUEUE_LEN),
            persist: false,
            mac: None,
        }
    }
}

/// Descriptors of a device that another program has opened, as service managers and Android's VPN service hand them over.
#[derive(Debug)]
pub struct Adopted {
    /// One for each queue, 1 to 64.
    pub fds: Vec<OwnedFd>,
    /// Bytes of the largest IP packet; `None` to ask the kernel, which a process without rights in the device's network
    /// namespace cannot.
    pub mtu: Option<u32>,
    /// Our Ethernet address, for TAP; `None` as in [`TunConfig::mac`].
    pub mac: Option<MacAddr>,
    /// As in [`TunConfig::big_tcp`], for a device whose other side is known: programs that read packets there get such ones.
    pub big_tcp: bool,
}

/// Traffic of a queue since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueCounts {
    /// Frames from the kernel.
    pub frames_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Frames to the kernel.
    pub frames_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Frames that the kernel did not take.
    pub refused: u64,
    /// Reads that failed for no reason that has a name here.
    pub failed_reads: u64,
    /// Times that the input thread went to sleep.
    pub sleeps: u64,
}

/// A TUN or TAP device. A handle: clones are the same device, so one may be given to a stack and another be
/// asked for counts. The device goes when the last one does, unless it persists.
#[derive(Clone)]
pub struct Tun {
    device: Arc<Device>,
}

struct Device {
    queues: Box<[Queue]>,
    link: KernelLink,
    medium: Medium,
    mtu: u32,
    offload: bool,
    /// As of [`Netif::segment_max`].
    segment_max: u32,
    /// The kernel takes UDP datagrams that are to be cut.
    udp_offload: bool,
    gone: AtomicBool,
}

/// The kernel's file for all devices.
const CONTROL: &str = "/dev/net/tun";
/// Frames in a queue by default.
const QUEUE_LEN: u32 = 8192;
/// Queues that a stack serves at most.
const QUEUES_MAX: usize = 64;
/// MTUs that a stack serves.
const MTU_MIN: u32 = 1280;
const MTU_MAX: u32 = 65_535;
/// The largest IP packet with segmentation offload, bytes: the length field's largest value.
const SEGMENT_MAX: u32 = 65_535;
/// The same for a TUN device of a kernel that knows longer ones: a write of 256 KiB is one frame. More makes no difference, and
/// waits longer for a window.
const BIG_SEGMENT_MAX: u32 = 260 << 10;

impl Tun {
    /// Opens a device, and brings it up. It has no address on the kernel's side then; see [`Tun::link`].
    ///
    /// # Errors
    /// `InvalidInput` for a field out of its bounds; `PermissionDenied` without the right to make devices (a program that shall not have
    /// it can [`adopt`](Self::adopt) a descriptor); the system's, among them `ResourceBusy` for a device that another program has open.
    pub fn open(config: &TunConfig) -> io::Result<Self> {
        check_queues(config.queues)?;
        config.mtu.map_or(Ok(()), check_mtu)?;
        let mut flags = libc::IFF_NO_PI;
        flags |= match config.layer {
            Layer::Ip => libc::IFF_TUN,
            Layer::Ethernet => libc::IFF_TAP,
        };
        flags |= if config.queues > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
        flags |= if config.offload { libc::IFF_VNET_HDR } else { 0 };
        let mut name = config.name.clone();
        let mut fds = Vec::with_capacity(config.queues);
        for _ in 0..config.queues {
            let fd = control_file()?;
            name = attach(&fd, &name, flags)?;
            fds.push(fd);
        }
        let link = KernelLink::new(&name);
        if let Some(mtu) = config.mtu {
            link.set_mtu(mtu)?;
        }
        if let Some(frames) = config.queue_len {
            link.set_queue_len(frames)?;
        }
        link.set_up(true)?;
        let tun = Self::with(fds, link, (flags, config.big_tcp), None, config.mac)?;
        // Last: a device that is refused does not stay.
        if let Some(first) = tun.descriptors().next().filter(|_| config.persist) {
            with_number(first, NumberRequest::SET_PERSIST, 1)?;
        }
        Ok(tun)
    }

    /// Takes over a device that another program has opened. Its settings stay; offloads are used if it has headers for
    /// them (`IFF_VNET_HDR`).
    ///
    /// # Errors
    /// `InvalidInput` if a descriptor is no TUN device's, if the device puts other headers before packets
    /// (it was made without `IFF_NO_PI`), or if there are none or too many; the system's.
    pub fn adopt(adopted: Adopted) -> io::Result<Self> {
        check_queues(adopted.fds.len())?;
        adopted.mtu.map_or(Ok(()), check_mtu)?;
        let (mut name, mut flags) = (String::new(), 0);
        for fd in &adopted.fds {
            let mut request = IfReq::new("")?;
            with_ifreq(fd, IfRequest::GET_TUN, &mut request)
                .map_err(|error| invalid(format!("a descriptor that is no TUN device's: {error}")))?;
            (name, flags) = (request.name(), i32::from(i16::from_ne_bytes(request.bytes())));
            if flags & libc::IFF_NO_PI == 0 {
                return Err(invalid(format!("{name} was made without IFF_NO_PI")));
            }
            fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
        }
        Self::with(adopted.fds, KernelLink::new(&name), (flags, adopted.big_tcp), adopted.mtu, adopted.mac)
    }

    fn with(
        fds: Vec<OwnedFd>,
        link: KernelLink,
        (flags, big_tcp): (i32, bool),
        mtu: Option<u32>,
        mac: Option<MacAddr>,
    ) -> io::Result<Self> {
        let offload = flags & libc::IFF_VNET_HDR != 0;
        let mut udp_offload = false;
        if let Some(first) = fds.first().filter(|_| offload) {
            let mut header_len = vnet::LEN as libc::c_int;
            // SAFETY: `first` is a TUN device's, of which this request reads an `int` at its argument and writes nothing.
            unsafe { with_struct(first, libc::TUNSETVNETHDRSZ, &mut header_len)? };
            // A kernel before 6.2 knows nothing of the second, in neither direction.
            udp_offload = with_number(first, NumberRequest::SET_OFFLOAD, OFFLOADS | UDP_OFFLOADS).is_ok();
            if !udp_offload {
                with_number(first, NumberRequest::SET_OFFLOAD, OFFLOADS)?;
            }
        }
        let mtu = mtu.map_or_else(|| link.mtu(), Ok)?;
        check_mtu(mtu)?;
        let medium = if flags & libc::IFF_TAP == 0 {
            Medium::Ip
        } else {
            Medium::Ethernet(mac.map_or_else(|| link.mac().map(neighbor_of), Ok)?)
        };
        let segment_max = match medium {
            _ if !offload => 0,
            // Its other side is the kernel's own IP, and not a bridge whose ports would cut in software.
            Medium::Ip if big_tcp && kernel::takes_big_tcp() => BIG_SEGMENT_MAX,
            Medium::Ip | Medium::Ethernet(_) => SEGMENT_MAX,
        };
        let queues = fds.into_iter().map(|fd| Queue::new(fd, offload)).collect::<io::Result<_>>()?;
        let gone = AtomicBool::new(false);
        Ok(Self {
            device: Arc::new(Device { queues, link, medium, mtu, offload, segment_max, udp_offload, gone }),
        })
    }

    /// The kernel's side of the device.
    pub fn link(&self) -> &KernelLink {
        &self.device.link
    }

    /// The descriptors of its queues, to be handed to another process or adopted there.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.device.queues.iter().map(Queue::fd)
    }

    /// Says that frames may have come, for a stack without threads whose driver waits at the [descriptors](Self::descriptors) for an edge: to be called when such a wait
    /// has ended, before `Stack::poll`. From the first call on a queue that was found empty is not read again before the next. Does not block.
    pub fn announce(&self) {
        self.device.queues.iter().for_each(Queue::announce);
    }

    /// Traffic of each queue.
    pub fn counts(&self) -> Vec<QueueCounts> {
        let counts = |queue: &Queue| {
            let of = |index| queue.counters.sum(index);
            QueueCounts {
                frames_in: of(count::FRAMES_IN),
                bytes_in: of(count::BYTES_IN),
                frames_out: of(count::FRAMES_OUT),
                bytes_out: of(count::BYTES_OUT),
                refused: of(count::REFUSED),
                failed_reads: of(count::FAILED_READS),
                sleeps: of(count::SLEEPS),
            }
        };
        self.device.queues.iter().map(counts).collect()
    }
}

impl Device {
    fn queue_of(&self, flow: u64) -> usize {
        // The upper half of a product spreads 32 bits of the hash evenly over any number of queues.
        let part = (flow & u64::from(u32::MAX)) * self.queues.len() as u64;
        (part >> 32) as usize
    }

    fn note(&self, outcome: Outcome) -> Outcome {
        if outcome == Outcome::Gone {
            // Release, with the acquire of `is_gone`: it is a fact of its own and orders nothing else.
            self.gone.store(true, Ordering::Release);
        }
        outcome
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

impl Netif for Tun {
    fn mtu(&self) -> u32 {
        self.device.mtu
    }

    fn queue_count(&self) -> usize {
        self.device.queues.len()
    }

    fn medium(&self) -> Medium {
        self.device.medium
    }

    fn offloads_checksum(&self) -> bool {
        self.device.offload
    }

    fn segment_max(&self) -> u32 {
        self.device.segment_max
    }

    fn udp_segment_max(&self) -> u32 {
        if self.device.udp_offload { SEGMENT_MAX } else { 0 }
    }

    fn attached(&self, pool: &Pool) {
        self.device.queues.iter().for_each(|queue| queue.attach(pool));
    }

    fn is_down(&self) -> bool {
        self.device.is_gone()
    }

    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        let index = self.device.queue_of(flow);
        let mut dropped_count = 0;
        for frame in frames.drain(..) {
            let sent = self.device.queues[index].transmit(&frame);
            dropped_count += usize::from(self.device.note(sent) != Outcome::Done);
        }
        Sent { queue: index, dropped_count }
    }

    fn ring(&self, _queue: usize) {}

    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let Some(queue) = self.device.queues.get(queue) else { return 0 };
        let (frames, end) = queue.receive(max, sink);
        self.device.note(end);
        frames
    }

    fn receives_all(&self) -> bool {
        true
    }

    fn wait(&self, queue: usize, spin: Duration) {
        if let Some(queue) = self.device.queues.get(queue)
            && queue.wait(spin, self.device.is_gone())
        {
            self.device.note(Outcome::Gone);
        }
    }

    fn interrupt(&self, queue: usize) {
        if let Some(queue) = self.device.queues.get(queue) {
            queue.interrupt();
        }
    }

    fn wait_until(&self, queue: usize, deadline: Option<Instant>) -> Waited {
        let Some(queue) = self.device.queues.get(queue).filter(|_| !self.device.is_gone()) else {
            return Waited::Unable;
        };
        let (waited, failed) = queue.wait_until(deadline);
        if failed {
            self.device.note(Outcome::Gone);
        }
        waited
    }

    fn kick(&self, queue: usize) {
        if let Some(queue) = self.device.queues.get(queue) {
            queue.kick();
        }
    }

    fn descriptor(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        self.device.queues.get(queue).map(Queue::fd)
    }

    fn announced(&self, queue: usize) {
        if let Some(queue) = self.device.queues.get(queue) {
            queue.announce();
        }
    }

    fn unannounced(&self, queue: usize) {
        if let Some(queue) = self.device.queues.get(queue) {
            queue.unannounce();
        }
    }
}

/// Work that the kernel may leave to us: checksums, and TCP segments that are to be cut.
const OFFLOADS: u32 = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// And datagrams of UDP that stand for several, which sockets keep joined (UDP_GRO) or give out one by one.
const UDP_OFFLOADS: u32 = libc::TUN_F_USO4 | libc::TUN_F_USO6;

fn control_file() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    open(CONTROL, flags, Mode::empty()).map_err(|error| forbidden(CONTROL, error.into()))
}

/// Makes or joins the device `name`. Returns the name that it has.
fn attach(fd: impl AsFd, name: &str, flags: i32) -> io::Result<String> {
    let mut request = IfReq::new(name)?;
    request.set_bytes(&(flags as u16).to_ne_bytes());
    with_ifreq(fd, IfRequest::SET_TUN, &mut request).map_err(|error| {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::INVAL) => invalid(format!(
                "{name}: there is a device of this name that is of another kind or has one queue only"
            )),
            Some(Errno::BUSY) => io::Error::new(
                error.kind(),
                format!("{name}: another program has the device of this name open"),
            ),
            // The name is a pattern, or the kernel chooses one.
            _ if name.is_empty() || name.contains('%') => forbidden("cannot make a device", error),
            _ => forbidden(name, error),
        }
    })?;
    Ok(request.name())
}

/// A refusal with a remedy; any other error as it is.
fn forbidden(what: &str, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return error;
    }
    let message = format!("{what}: permission denied: run as root or with CAP_NET_ADMIN");
    io::Error::new(io::ErrorKind::PermissionDenied, message)
}

fn check_queues(queues: usize) -> io::Result<()> {
    if (1..=QUEUES_MAX).contains(&queues) {
        return Ok(());
    }
    Err(invalid(format!("a device with {queues} queues: 1 to {QUEUES_MAX} are possible")))
}

fn check_mtu(mtu: u32) -> io::Result<()> {
    if (MTU_MIN..=MTU_MAX).contains(&mtu) {
        return Ok(());
    }
    Err(invalid(format!("an MTU of {mtu} bytes: {MTU_MIN} to {MTU_MAX} are possible")))
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Our address on a TAP device: the kernel's, marked as given locally and with another end.
fn neighbor_of(kernel: MacAddr) -> MacAddr {
    let [first, middle @ .., last] = kernel.0;
    let [b, c, d, e] = middle;
    MacAddr([(first | 2) & !1, b, c, d, e, last ^ 1])
}
