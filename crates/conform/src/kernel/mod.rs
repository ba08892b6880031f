//! The tested side that is the Linux kernel: a TUN device in a network namespace, whose other end are the scenarios' peers.
//!
//! Its time is real, so many scenarios run at once, each with a peer address of its own. Scenarios with equal settings share a namespace and its
//! one thread, which makes all calls without blocking, reads and writes the device, and runs before ordinary threads where the process may ask for that.
//!
//! The kernel takes in a packet that is written to the device, and answers it, before that call returns. So what a scenario's event causes at once
//! can be read right after it.
//!
//! # Disturbed runs
//! A late event marks its trace as disturbed. A pause between two looks at the device marks those with a packet or an event then, or soon after, when
//! the kernel's timers catch up. The caller repeats those runs.
//!
//! It does not depend on what the scenarios are for. Tests: `tests/written.rs`.

mod awake;
mod run;
pub mod sys;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use sockeye_drivers::Namespace;
use sockeye_drivers::link::KernelLink;

use crate::scenario::Scenario;
use crate::trace::Trace;
use crate::wheel::JIFFY;
use crate::{PORT, codec, interface, local, peer, settings};
use awake::Awake;
use run::Run;

/// Scenarios that run at once in a namespace.
pub const SLOTS: usize = 500;
/// The time by which an event, or a look at the device, may be late.
const LATE_MAX: Duration = Duration::from_millis(3);
/// How long after a pause of the machine the kernel's timers may still be late: two of its ticks.
const CATCH_UP: Duration = JIFFY.saturating_mul(2);
/// From one scenario's start to the next one's, so that their events do not all fall together.
const STAGGER: Duration = Duration::from_micros(700);
/// Bytes of the longest read: a header of the device, and a packet.
const READ_MAX: usize = codec::PACKET_MAX + OFFLOAD_LEN;
const DEVICE: &str = "conform0";

/// Whether this process may make namespaces and devices; if not, why.
pub fn available() -> Result<(), String> {
    let lab = Namespace::new().and_then(|namespace| namespace.run(|| Device::open(&BTreeMap::new()))?);
    lab.map(drop).map_err(|error| format!("no namespace or no TUN device: {error}"))
}

/// Runs scenarios, and returns their traces in the same order. **Blocks** for as long as they take, the longest for each [`SLOTS`] of them.
///
/// # Errors
/// The system's, if there can be no namespace or device.
pub fn run(scenarios: &[&Scenario]) -> io::Result<Vec<Trace>> {
    let mut groups: BTreeMap<&BTreeMap<String, String>, Vec<usize>> = BTreeMap::new();
    for (index, scenario) in scenarios.iter().enumerate() {
        groups.entry(&scenario.settings).or_default().push(index);
    }
    let mut traces = vec![Trace::default(); scenarios.len()];
    let is_over = AtomicBool::new(false);
    let results: Vec<io::Result<Vec<(usize, Trace)>>> = std::thread::scope(|scope| {
        let _until_the_end = Awake::new(scope, &is_over);
        let run_group = |(settings, indices): (&BTreeMap<String, String>, Vec<usize>)| {
            Namespace::new()?.run(|| -> io::Result<_> {
                let mut lab = Lab::new(Device::open(settings)?);
                lab.run(scenarios, &indices)?;
                Ok(lab.done)
            })?
        };
        let threads: Vec<_> = groups.into_iter().map(|group| scope.spawn(move || run_group(group))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a run does not panic")).collect()
    });
    for (index, trace) in results.into_iter().collect::<io::Result<Vec<_>>>()?.into_iter().flatten() {
        traces[index] = trace;
    }
    Ok(traces)
}

/// The TUN device of the calling thread's namespace.
struct Device {
    fd: OwnedFd,
}

impl Device {
    fn open(changed: &BTreeMap<String, String>) -> io::Result<Self> {
        for (path, value) in settings::kernel(changed) {
            let path = format!("/proc/sys/net/{path}");
            std::fs::write(&path, value)
                .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
        }
        let fd = open("/dev/net/tun", OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
        sys::attach_tun(&fd, DEVICE)?;
        let link = KernelLink::new(DEVICE);
        link.set_queue_len(10_000)?;
        sys::forbid_joined_segments(DEVICE)?;
        link.set_up(true)?;
        for is_ipv6 in [false, true] {
            link.add_addr(interface(is_ipv6).parse().expect("a prefix"))?;
        }
        Ok(Self { fd })
    }

    /// A packet of the kernel, if there is one.
    fn read<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let len = rustix::io::read(&self.fd, &mut *buffer).ok()?;
        buffer.get(OFFLOAD_LEN..len)
    }

    /// Writes a packet. If `gso_size` is not 0, the packet is joined from segments with this many bytes of data each.
    fn write(&self, packet: &[u8], gso_size: u16) {
        let offload = offload(packet, gso_size);
        let parts = [IoSlice::new(&offload), IoSlice::new(packet)];
        // A write to the kernel never waits; a packet that it refuses counts as dropped.
        let _ = rustix::io::writev(&self.fd, &parts);
    }
}

/// Bytes of the `struct virtio_net_hdr` before each packet.
const OFFLOAD_LEN: usize = 10;

/// The `struct virtio_net_hdr` before a packet from the peer; all zero if the packet is not joined. For a joined packet, the
/// kernel requires that the checksum is marked as not complete, and does not verify it.
fn offload(packet: &[u8], gso_size: u16) -> [u8; OFFLOAD_LEN] {
    const NEEDS_CSUM: u8 = 1;
    const GSO_TCPV4: u8 = 1;
    const GSO_TCPV6: u8 = 4;
    const CHECKSUM_AT: u16 = 16;
    let mut header = [0; OFFLOAD_LEN];
    if gso_size > 0 {
        let (kind, ip_len) = if packet[0] >> 4 == 4 { (GSO_TCPV4, 20) } else { (GSO_TCPV6, 40) };
        let tcp_len = u16::from(packet[usize::from(ip_len) + 12] >> 4) * 4;
        (header[0], header[1]) = (NEEDS_CSUM, kind);
        for (at, value) in [(2, ip_len + tcp_len), (4, gso_size), (6, ip_len), (8, CHECKSUM_AT)] {
            header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        }
    }
    header
}

/// The scenarios of a namespace.
struct Lab<'s> {
    device: Device,
    buffer: Vec<u8>,
    runs: HashMap<IpAddr, Run<'s>>,
    /// When each run's next event is due.
    due: BinaryHeap<Reverse<(Instant, IpAddr)>>,
    /// When the device was last looked at, or the last wait for its packets should have been over.
    looked: Instant,
    /// What the kernel's timers do before this time may be late, and so may be the record of it.
    late_until: Instant,
    started: u32,
    done: Vec<(usize, Trace)>,
}

impl<'s> Lab<'s> {
    fn new(device: Device) -> Self {
        sys::run_first();
        let now = Instant::now();
        Self {
            device,
            buffer: vec![0; READ_MAX],
            runs: HashMap::new(),
            due: BinaryHeap::new(),
            looked: now,
            late_until: now,
            started: 0,
            done: Vec::new(),
        }
    }

    fn run(&mut self, scenarios: &[&'s Scenario], indices: &[usize]) -> io::Result<()> {
        let mut waiting = indices.iter();
        let mut last_start = Instant::now();
        loop {
            self.drain();
            while let Some(Reverse((at, peer))) = self.due.peek().copied()
                && at <= Instant::now()
            {
                self.due.pop();
                self.step(at, peer);
            }
            if self.runs.len() < SLOTS
                && last_start.elapsed() >= STAGGER
                && let Some(&index) = waiting.next()
            {
                last_start = Instant::now();
                self.start(scenarios[index], index)?;
            }
            if self.runs.is_empty() && waiting.as_slice().is_empty() {
                return Ok(());
            }
            let next_start =
                (self.runs.len() < SLOTS && !waiting.as_slice().is_empty()).then(|| last_start + STAGGER);
            let next_event = self.due.peek().map(|Reverse((at, _))| *at);
            // The wait begins the time of the next look anew, so a pause until here has to be noted before.
            self.drain();
            self.wait(next_event.into_iter().chain(next_start).min())?;
        }
    }

    /// Waits for a packet, at most until `next`.
    fn wait(&mut self, next: Option<Instant>) -> io::Result<()> {
        let timeout =
            next.map_or(Duration::from_millis(100), |at| at.saturating_duration_since(Instant::now()));
        let timespec = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        let mut fds = [PollFd::new(&self.device.fd, PollFlags::IN)];
        let limit = Instant::now() + timeout;
        poll(&mut fds, Some(&timespec))?;
        self.looked = limit.min(Instant::now());
        Ok(())
    }

    fn start(&mut self, scenario: &'s Scenario, index: usize) -> io::Result<()> {
        self.started += 1;
        let number = self.started;
        let peer = peer(scenario.is_ipv6, number);
        // Listeners of different scenarios do not meet.
        let port = 1024 + (number % 30_000) as u16;
        let run = Run::new(scenario, index, (peer, PORT), (local(scenario.is_ipv6), port))?;
        self.due.push(Reverse((run.next_due(), peer)));
        self.runs.insert(peer, run);
        Ok(())
    }

    /// Performs the due events of a run.
    fn step(&mut self, at: Instant, peer: IpAddr) {
        // Packets that the kernel sent before are recorded before.
        self.drain();
        let Some(run) = self.runs.get_mut(&peer) else { return };
        run.trace.is_disturbed |= at.elapsed() > LATE_MAX || Instant::now() < self.late_until;
        run.look();
        if run.is_over() {
            let run = self.runs.remove(&peer).expect("it was there");
            self.done.push(run.finish());
            return;
        }
        run.perform(&self.device);
        self.due.push(Reverse((run.next_due(), peer)));
        self.drain();
    }

    /// Takes all that the kernel has sent.
    fn drain(&mut self) {
        loop {
            let packet = self.device.read(&mut self.buffer);
            let now = Instant::now();
            if now.duration_since(self.looked) > LATE_MAX {
                self.late_until = now + CATCH_UP;
            }
            self.looked = now;
            let Some(packet) = packet else { return };
            if let Some(run) = codec::destination(packet).and_then(|peer| self.runs.get_mut(&peer)) {
                run.trace.is_disturbed |= now < self.late_until;
                run.sent(packet);
            }
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
