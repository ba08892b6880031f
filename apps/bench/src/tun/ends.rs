//! The far ends: Sockeye on a TUN device, a trivial end on another, the kernel behind a veth pair, and other stacks on
//! devices of their own.
//!
//! Does not depend on how a sample is taken.
//!
//! Invariant: an end serves any number of connections, one after the other, until the process ends; its threads wait
//! in between.
//!
//! Tests: with the command.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::thread;
use std::time::Duration;

use sockeye::netif::Prefix;
use sockeye::{Config, MbufChain, Stack};
use sockeye_drivers::link::KernelLink;
use sockeye_drivers::testing::veth_pair;
use sockeye_drivers::{Namespace, Tun, TunConfig};
use sockeye_shared::cpu::process_cpu;

use super::peers::{self, Peer};
use super::{Far, Mtu, SpinTime, Work, trivial};
use crate::providers::kernel::listen_at;
use crate::record;

/// A far end, and where the kernel's end is to run.
pub struct End {
    /// Which.
    pub far: Far,
    /// The namespace of the kernel's end.
    pub client: Namespace,
    /// The far end's address.
    pub addr: IpAddr,
    /// Its MTU.
    pub mtu: Mtu,
    /// The process of the far end, if it is not this one.
    pub peer: Option<Peer>,
}

impl End {
    fn here(far: Far, client: Namespace, addr: IpAddr, mtu: Mtu) -> Self {
        Self { far, client, addr, mtu, peer: None }
    }

    /// The port at which it does this work.
    pub fn port(&self, work: Work) -> u16 {
        match (self.far, work) {
            // Another stack only knows how to send.
            (Far::Peer(_), Work::Lent) => Work::Send.port(),
            (Far::Sockeye | Far::Trivial | Far::Kernel | Far::Peer(_), work) => work.port(),
        }
    }

    /// CPU time that both ends have used so far.
    ///
    /// # Errors
    /// The far end is another process, and is gone.
    pub fn cpu(&self) -> io::Result<Duration> {
        let far = self.peer.as_ref().map_or(Ok(Duration::ZERO), Peer::cpu)?;
        Ok(process_cpu() + far)
    }
}

const CLIENT: &str = "10.9.0.1/24";
const FAR: &str = "10.9.0.2/24";
/// Bytes of a read or write of the far end.
const CHUNK: usize = 256 << 10;

/// A stack on a TUN device.
pub fn sockeye(mtu: Mtu, spin: Option<SpinTime>) -> io::Result<End> {
    let (client, tun) = device(&with(mtu))?;
    let config = Config::default();
    let spin_max = spin.map_or(config.spin_max, SpinTime::duration);
    let stack = Stack::new(Config { spin_max, ..config })?;
    record::attach(&stack, tun, &[prefix(FAR)?])?;
    let addr = prefix(FAR)?.addr();
    for work in Work::ALL {
        let listener = sockeye::TcpListener::bind_on(&stack, SocketAddr::new(addr, work.port()))?;
        thread::Builder::new().spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                match stream.set_nodelay(true) {
                    Ok(()) if work == Work::Lent => lend(&stream),
                    Ok(()) => serve(stream, work),
                    Err(_) => {}
                }
            }
        })?;
    }
    Ok(End::here(Far::Sockeye, client, addr, mtu))
}

/// An end that does no more than the kernel has to see.
pub fn trivial(mtu: Mtu) -> io::Result<End> {
    let (client, tun) = device(&with(mtu))?;
    let addr = prefix(FAR)?.addr();
    thread::Builder::new().name("trivial".to_owned()).spawn(move || trivial::run(&tun, mtu))?;
    Ok(End::here(Far::Trivial, client, addr, mtu))
}

/// Another stack, whose program is `program`.
pub fn peer(kind: peers::Kind, program: &Path, mtu: Mtu, spin: Duration) -> io::Result<End> {
    let (client, tun) = device(&with(mtu))?;
    let peer = Peer::start(kind, program, &tun, FAR, (mtu, spin))
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", program.display())))?;
    Ok(End { far: Far::Peer(kind), client, addr: prefix(FAR)?.addr(), mtu, peer: Some(peer) })
}

/// The kernel, behind a veth pair.
pub fn kernel(mtu: Mtu) -> io::Result<End> {
    let [client, far] = veth(Some(mtu))?;
    let addr = prefix(FAR)?.addr();
    for work in Work::ALL {
        let listener = far.run(|| listen_at(SocketAddr::new(addr, work.port())))??;
        thread::Builder::new().spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if stream.set_nodelay(true).is_ok() {
                    serve(stream, work);
                }
            }
        })?;
    }
    Ok(End::here(Far::Kernel, client, addr, mtu))
}

/// Two namespaces of the kernel, connected by a veth pair, with the addresses [`near`] and [`far`] and this MTU [default: 1500].
pub fn veth(mtu: Option<Mtu>) -> io::Result<[Namespace; 2]> {
    let (client, far) = (Namespace::new()?, Namespace::new()?);
    veth_pair((&client, "near"), (&far, "far"))?;
    for (namespace, name, text) in [(&client, "near", CLIENT), (&far, "far", FAR)] {
        let addr = prefix(text)?;
        namespace.run(|| {
            let link = KernelLink::new(name);
            link.add_addr(addr)?;
            link.set_mtu(mtu.unwrap_or_default().bytes().into())?;
            link.set_up(true)
        })??;
    }
    Ok([client, far])
}

/// The address of the kernel's side of a [`device`], and its network.
pub fn near() -> io::Result<Prefix> {
    prefix(CLIENT)
}

/// The address of the other side of a [`device`], and its network.
pub fn far() -> io::Result<Prefix> {
    prefix(FAR)
}

fn with(mtu: Mtu) -> TunConfig {
    TunConfig { mtu: Some(mtu.bytes().into()), ..TunConfig::default() }
}

/// A namespace, and a device in it that leads out of it.
pub fn device(config: &TunConfig) -> io::Result<(Namespace, Tun)> {
    let client = Namespace::new()?;
    let addr = prefix(CLIENT)?;
    let open = || {
        let tun = Tun::open(config)?;
        tun.link().add_addr(addr)?;
        io::Result::Ok(tun)
    };
    let tun = client.run(open)??;
    Ok((client, tun))
}

/// One connection, until the other side ends it.
fn serve(mut stream: impl Read + Write, work: Work) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let done = match work {
            Work::Receive => stream.read(&mut buffer),
            Work::Send | Work::Lent => stream.write(&buffer),
            Work::Rr => stream.read(&mut buffer[..1]).and_then(|read| stream.write(&buffer[..read])),
        };
        if !matches!(done, Ok(1..)) {
            return;
        }
    }
}

/// [`serve`] of [`Work::Lent`]: the same bytes again and again, as from a cache.
fn lend(stream: &sockeye::TcpStream) {
    let Ok(bytes) = MbufChain::copied(stream.stack(), &vec![0; CHUNK]) else { return };
    while matches!(stream.send_mbufs(&mut bytes.clone()), Ok(1..)) {}
}

fn prefix(text: &str) -> io::Result<Prefix> {
    text.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("{error}")))
}
