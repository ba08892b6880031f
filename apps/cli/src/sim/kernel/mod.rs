//! The same path under the kernel's TCP: two network namespaces, a device in each, and the simulator's own link between.
//!
//! Purpose: Linux's performance on a path, for comparison with Sockeye's. One stream, in real time. `host` is a
//! namespace with its device and settings, `wire` moves packets between the devices by the link's model.
//!
//! Threads: one inside each namespace, which only it ever enters, so nothing of the machine's own network is touched and
//! all of it is gone when the threads end; one for the wire; the caller's, which starts, waits and stops. They
//! share [`Run`]: `received` has one writer, `stop` goes from false to true once. A thread that fails drops its channel, which ends
//! the caller's wait; threads look at `stop` at least every [`PATIENCE`].
//!
//! Tests: `apps/cli/tests/cli/sim_kernel.rs`.

mod host;
mod report;
mod wire;

use std::collections::BTreeMap;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use sockeye_shared::file;
use sockeye_sim::Capture;
use sockeye_sim::emulate::Emulator;

use super::args::{Pacing, SimArgs};
use super::transfer;
pub use report::{json, text};
pub use wire::Carried;

/// The kernel's performance on the path.
pub struct Measured {
    /// Bytes that the receiver has read.
    pub received: u64,
    /// The time in which it did.
    pub lasted: Duration,
    /// The link's packets.
    pub carried: Carried,
    /// The counters of the sender's namespace (`/proc/net/snmp` and `netstat`), zeros left out.
    pub counters: BTreeMap<String, u64>,
    /// Bytes read by even steps of time.
    pub course: Vec<(Duration, u64)>,
}

impl Measured {
    /// Bits per second that arrived.
    pub fn goodput(&self) -> f64 {
        self.received as f64 * 8.0 / self.lasted.as_secs_f64()
    }
}

/// State that the threads share.
#[derive(Default)]
struct Run {
    stop: AtomicBool,
    received: AtomicU64,
}

impl Run {
    fn is_over(&self) -> bool {
        // Partner: the store in `Stop::drop`. It guards no other memory.
        self.stop.load(Ordering::Relaxed)
    }
}

/// Ends the run when it goes out of scope, on whatever way.
struct Stop<'a>(&'a Run);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

const SENDER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 5001;
/// Bytes of one write and one read, as in the simulator.
const CHUNK: usize = 64 << 10;
/// How long a thread waits before it looks whether the run is over.
const PATIENCE: Duration = Duration::from_millis(50);
/// Bytes of packets that are kept for a record: the last of the run.
const PCAP_MAX: usize = 256 << 20;
/// Samples of a run.
const SAMPLES: u32 = 200;
/// How long a connect over a bad path may take.
const CONNECT_MAX: Duration = Duration::from_secs(60);

/// Runs one stream for `args.seconds`, which pass.
///
/// # Errors
/// `Unsupported` if the arguments ask for something that only the simulator has; the system's if namespaces or
/// devices cannot be made, with the required rights.
pub fn run(args: &SimArgs) -> io::Result<Measured> {
    refuse(args)?;
    let record = args.pcap.as_deref().map(file::create).transpose()?;
    let host = || host::new(args.buffer_bytes(), args.ecn);
    let hosts = [host()?, host()?];
    let run = Run::default();
    thread::scope(|scope| {
        let stop = Stop(&run);
        let (to, from) = channel();
        let receiver = scope.spawn(|| hosts[1].run(|| receive(args, &run, to))?);
        let (to, device) = channel();
        let (go, wait) = channel();
        let (begun, started) = channel();
        let sender =
            scope.spawn(|| hosts[0].run(|| send(args, &run, Ends { device: to, go: wait, begun }))?);
        let (Ok(receiving), Ok(sending)) = (from.recv(), device.recv()) else {
            drop((stop, go));
            joined(sender).and_then(|_| joined(receiver))?;
            return Err(io::Error::other("a namespace came to nothing"));
        };
        let link = transfer::link(args);
        let capture = if record.is_some() { Capture::Last(PCAP_MAX) } else { Capture::Off };
        let emulator = Emulator::new(args.seed, link.clone(), link).capture(capture);
        let wire = scope.spawn(|| wire::carry([sending, receiving], emulator, || run.is_over()));
        // If the receiving thread is gone it has failed, which shows when it is joined.
        let _ = go.send(());
        let course = started.recv_timeout(CONNECT_MAX).map(|at| watch(args, &run, at));
        drop(stop);
        let counters = joined(sender)?;
        joined(receiver)?;
        let (carried, emulator) = joined(wire)?;
        if let Some(file) = record {
            emulator.write_pcap(&mut BufWriter::new(file))?;
        }
        let course = course.map_err(|_| io::Error::new(ErrorKind::TimedOut, "no connection came about"))?;
        let (lasted, received) = course.last().copied().unwrap_or_default();
        Ok(Measured { received, lasted, carried, counters, course })
    })
}

/// Options that only the simulator has.
fn refuse(args: &SimArgs) -> io::Result<()> {
    let refused = [
        (args.streams != 1, "more than one stream"),
        (args.chart.is_some(), "--chart"),
        (
            !matches!(args.pacing, Pacing::Auto),
            "--pacing (the kernel paces if its congestion control wants it)",
        ),
        (args.autotune, "--autotune (the kernel always grows its buffers)"),
    ];
    refused.into_iter().find(|(is_asked, _)| *is_asked).map_or(Ok(()), |(_, what)| {
        let message = format!("--on kernel does not do {what}");
        Err(io::Error::new(ErrorKind::Unsupported, message))
    })
}

fn joined<T>(thread: ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}

/// Waits for the run's end, noting the bytes read.
fn watch(args: &SimArgs, run: &Run, start: Instant) -> Vec<(Duration, u64)> {
    let lasts = Duration::from_secs(u64::from(args.seconds));
    let step = |step| {
        let due = lasts * step / SAMPLES;
        thread::sleep(due.saturating_sub(start.elapsed()));
        (start.elapsed(), run.received.load(Ordering::Relaxed))
    };
    (0..=SAMPLES).map(step).collect()
}

/// The sender's ends of the channels.
struct Ends {
    device: Sender<OwnedFd>,
    go: Receiver<()>,
    begun: Sender<Instant>,
}

/// The sending host: connects when told, and keeps the stream full.
fn send(args: &SimArgs, run: &Run, ends: Ends) -> io::Result<BTreeMap<String, u64>> {
    let unsent = |_| io::Error::other("the run has ended before it began");
    ends.device.send(host::device(SENDER, args.mtu)?).map_err(|_| unsent(()))?;
    ends.go.recv().map_err(|_| unsent(()))?;
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    rustix::net::sockopt::set_tcp_congestion(&socket, args.cc.kernel_name())?;
    socket.connect_timeout(&SocketAddr::from((RECEIVER, PORT)).into(), CONNECT_MAX)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    // Packets in flight at the end are discarded.
    socket.set_linger(Some(Duration::ZERO))?;
    let _ = ends.begun.send(Instant::now());
    let mut stream = TcpStream::from(socket);
    let chunk = vec![0x5a; CHUNK];
    while !run.is_over() {
        match stream.write(&chunk) {
            Ok(_) => {}
            Err(error) if is_patience(&error) => {}
            Err(error) => return Err(error),
        }
    }
    host::counters()
}

/// The receiving host: accepts one stream and reads it.
fn receive(args: &SimArgs, run: &Run, device: Sender<OwnedFd>) -> io::Result<()> {
    let tun = host::device(RECEIVER, args.mtu)?;
    let listener = TcpListener::bind((RECEIVER, PORT))?;
    device.send(tun).map_err(|_| io::Error::other("the run has ended before it began"))?;
    drop(device);
    let Some(mut stream) = accept(&listener, run)? else { return Ok(()) };
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut sink = vec![0; CHUNK];
    while !run.is_over() {
        match stream.read(&mut sink) {
            Ok(0) => break,
            Ok(bytes) => {
                run.received.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Err(error) if is_patience(&error) => {}
            // The sender resets when it has sent for long enough.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn accept(listener: &TcpListener, run: &Run) -> io::Result<Option<TcpStream>> {
    listener.set_nonblocking(true)?;
    while !run.is_over() {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(Some(stream));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn is_patience(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
