//! Runs the transfers in the simulator, and looks at them while they run.
//!
//! All streams go from one host to another over one link. A sample of each is taken at even steps of simulated time;
//! retransmissions are seen on the link. Does not depend on how results are shown. Tests: `apps/cli/tests/cli/sim.rs`.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use sockeye::{Config, EcnMode, TcpConfig, TcpInfo};
use sockeye_shared::file;
use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::{
    Capture, Host, HostConfig, LinkConfig, LinkStats, Net, Retransmission, Sim, Traffic, time,
};

use super::args::SimArgs;

/// Results of a run.
pub struct Outcome {
    pub streams: Vec<Stream>,
    /// Of all streams, acknowledgments included.
    pub traffic: Traffic,
    /// The way of the data.
    pub there: LinkStats,
    pub back: LinkStats,
    pub retransmissions: Vec<Retransmission>,
    pub events: u64,
}

/// One stream's results.
pub struct Stream {
    /// Bytes that the receiver read.
    pub received: u64,
    /// The sender's packets.
    pub traffic: Traffic,
    /// The sender's own account.
    pub info: TcpInfo,
    /// The sender's address.
    pub from: SocketAddr,
    pub samples: Vec<Sample>,
}

/// A sender at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub at: Duration,
    /// Bytes that the receiver has read so far.
    pub received: u64,
    pub cwnd: u32,
    pub in_flight: u32,
    pub srtt: Option<Duration>,
}

/// Samples of a run.
const SAMPLES: u32 = 400;
/// Bytes of one write and one read.
const CHUNK: usize = 64 << 10;
/// Where the receiver listens.
const PORT: u16 = 5001;
/// Time that a simulation has beyond the transfers, for handshakes.
const SLACK: Duration = Duration::from_secs(600);

/// Runs everything that `args` ask for.
///
/// # Errors
/// If the settings are refused. That the capture cannot be written is the second value: it takes nothing from the first.
pub fn run(args: &SimArgs) -> io::Result<(Outcome, io::Result<()>)> {
    let capture = if args.pcap.is_some() { Capture::All } else { Capture::Off };
    let lasts = Duration::from_secs(u64::from(args.seconds));
    let args = args.clone();
    let sim = Sim::exactly(args.seed).capture(capture).time_max(lasts + SLACK);
    sim.run(|net| async move { transfers(&net, &args, lasts).await })
}

async fn transfers(net: &Net, args: &SimArgs, lasts: Duration) -> io::Result<(Outcome, io::Result<()>)> {
    let (sender, receiver) = (net.host_with("sender", host(args))?, net.host_with("receiver", host(args))?);
    let link = net.link(&sender, &receiver, link(args));
    let addr = receiver.at(PORT);
    let received = Rc::new(RefCell::new(Vec::new()));
    serve(&receiver, addr, &received);
    let connects = (0..args.streams).map(|_| sender.spawn(TcpStream::connect(addr))).collect::<Vec<_>>();
    let mut senders = Vec::new();
    for connected in connects {
        senders.push(Rc::new(connected.await.map_err(io::Error::other)??));
    }
    // A handshake whose packets are lost takes seconds. None of the streams sends in the meantime: what is sent counts from here.
    for stream in &senders {
        sender.spawn(send(Rc::clone(stream)));
    }
    let read_of = |stream: &TcpStream| -> u64 {
        let from = stream.local_addr().ok();
        let all = received.borrow();
        all.iter().find(|(of, _)| Some(*of) == from).map_or(0, |(_, read): &(_, Rc<Cell<u64>>)| read.get())
    };
    let start = net.now();
    let mut samples = vec![Vec::new(); senders.len()];
    for step in 0..=SAMPLES {
        let due = start + lasts * step / SAMPLES;
        time::sleep(due.saturating_sub(net.now())).await;
        for (stream, samples) in senders.iter().zip(&mut samples) {
            let Ok(info) = stream.get_ref().info() else { continue };
            samples.push(Sample {
                at: net.now() - start,
                received: read_of(stream),
                cwnd: info.cwnd,
                in_flight: info.in_flight,
                srtt: info.srtt,
            });
        }
    }
    let recorded = args
        .pcap
        .as_deref()
        .map_or(Ok(()), |path| net.save_pcap(path).map_err(|error| file::at(path, error)));
    let result = |(stream, samples): (&Rc<TcpStream>, Vec<Sample>)| {
        let from = stream.local_addr()?;
        let traffic = net.flow(from, addr).unwrap_or_default();
        Ok(Stream { received: read_of(stream), traffic, from, info: stream.get_ref().info()?, samples })
    };
    let outcome = Outcome {
        streams: senders.iter().zip(samples).map(result).collect::<io::Result<_>>()?,
        traffic: net.traffic(),
        there: link.there().stats(),
        back: link.back().stats(),
        retransmissions: net.retransmissions(),
        events: net.events(),
    };
    Ok((outcome, recorded))
}

fn host(args: &SimArgs) -> HostConfig {
    let buffer = args.buffer_bytes();
    // Both buffers of each stream, and as much again for data being copied and on its way.
    let memory = usize::try_from(buffer).unwrap_or(usize::MAX).saturating_mul(4 * usize::from(args.streams));
    let default = Config::default();
    let memory_max = memory.max(default.memory_max);
    let congestion_control = args.cc.setting();
    let pacing = args.pacing.setting();
    let ecn = if args.ecn { EcnMode::On } else { default.tcp.ecn };
    let fixed = Config { sndbuf: buffer, rcvbuf: buffer, sndbuf_max: buffer, rcvbuf_max: buffer, ..default };
    let buffers = if args.autotune { Config::default() } else { fixed };
    let stack =
        Config { memory_max, tcp: TcpConfig { congestion_control, ecn, pacing, ..buffers.tcp }, ..buffers };
    // Checksums are there to find damage, and to be looked at.
    HostConfig { stack, mtu: args.mtu, offload: args.corrupt == 0.0 && args.pcap.is_none() }
}

/// Either direction of the path.
pub fn link(args: &SimArgs) -> LinkConfig {
    LinkConfig {
        jitter: args.jitter,
        rate: Some(args.rate),
        queue: args.queue_bytes(),
        mark: args.mark,
        loss: args.loss,
        reorder: args.reorder,
        reorder_span: args.reorder_span,
        duplicate: args.duplicate,
        corrupt: args.corrupt,
        ..LinkConfig::rtt(args.rtt)
    }
}

type Received = Rc<RefCell<Vec<(SocketAddr, Rc<Cell<u64>>)>>>;

/// Accepts for ever, and reads everything.
fn serve(receiver: &Host, addr: SocketAddr, received: &Received) {
    let received = Rc::clone(received);
    receiver.spawn(async move {
        let listener = TcpListener::bind(addr).await?;
        loop {
            let (stream, from) = listener.accept().await?;
            let read = Rc::new(Cell::new(0));
            received.borrow_mut().push((from, Rc::clone(&read)));
            sockeye_sim::spawn(async move {
                let mut sink = vec![0; CHUNK];
                loop {
                    match stream.try_read(&mut sink) {
                        Ok(0) => return Ok(()),
                        Ok(bytes) => read.set(read.get() + bytes as u64),
                        Err(error) if error.kind() == ErrorKind::WouldBlock => stream.readable().await?,
                        Err(error) => return io::Result::Err(error),
                    }
                }
            });
        }
        #[expect(unreachable_code, reason = "it says of what kind the errors are")]
        io::Result::Ok(())
    });
}

/// Writes until the connection ends.
async fn send(stream: Rc<TcpStream>) -> io::Result<()> {
    let chunk = vec![0x5a; CHUNK];
    loop {
        match stream.try_write(&chunk) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error),
        }
    }
}
