//! The three far ends: Sockeye on a TUN device, a trivial end on another, and the kernel behind a veth pair.
//!
//! Must not know: how a sample is taken.
//!
//! Invariant: an end serves any number of connections, one after the other, until the process ends; its threads wait
//! in between.
//!
//! Tests: with the command.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::thread;

use sockeye::netif::Prefix;
use sockeye::{Config, Stack};
use sockeye_drivers::link::KernelLink;
use sockeye_drivers::testing::{Namespace, veth_pair};
use sockeye_drivers::{Tun, TunConfig};

use super::{Work, trivial};

/// A far end, and where the kernel's end is to run.
pub struct End {
    /// What the table calls it.
    pub name: &'static str,
    /// The namespace of the kernel's end.
    pub client: Namespace,
    /// The far end's address.
    pub addr: IpAddr,
}

const CLIENT: &str = "10.9.0.1/24";
const FAR: &str = "10.9.0.2/24";
/// Bytes of a read or write of the far end.
const CHUNK: usize = 256 << 10;

/// A stack on a TUN device.
pub fn sockeye() -> io::Result<End> {
    let (client, tun) = device()?;
    let stack = Stack::new(Config::default())?;
    stack.attach(tun, &[prefix(FAR)?])?;
    let addr = prefix(FAR)?.addr();
    for work in Work::ALL {
        let listener = sockeye::TcpListener::bind_on(&stack, SocketAddr::new(addr, work.port()))?;
        thread::Builder::new().spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if stream.set_nodelay(true).is_ok() {
                    serve(stream, work);
                }
            }
        })?;
    }
    Ok(End { name: "sockeye", client, addr })
}

/// An end that does no more than the kernel has to see.
pub fn trivial() -> io::Result<End> {
    let (client, tun) = device()?;
    let addr = prefix(FAR)?.addr();
    thread::Builder::new().name("trivial".to_owned()).spawn(move || trivial::run(&tun))?;
    Ok(End { name: "trivial", client, addr })
}

/// The kernel, behind a veth pair.
pub fn kernel() -> io::Result<End> {
    let (client, far) = (Namespace::new()?, Namespace::new()?);
    veth_pair((&client, "near"), (&far, "far"))?;
    for (namespace, name, text) in [(&client, "near", CLIENT), (&far, "far", FAR)] {
        let addr = prefix(text)?;
        namespace.run(|| {
            let link = KernelLink::new(name);
            link.add_addr(addr)?;
            link.set_up(true)
        })??;
    }
    let addr = prefix(FAR)?.addr();
    for work in Work::ALL {
        let listener = far.run(|| TcpListener::bind(SocketAddr::new(addr, work.port())))??;
        thread::Builder::new().spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if stream.set_nodelay(true).is_ok() {
                    serve(stream, work);
                }
            }
        })?;
    }
    Ok(End { name: "kernel", client, addr })
}

/// A namespace, and a device in it that leads out of it.
fn device() -> io::Result<(Namespace, Tun)> {
    let client = Namespace::new()?;
    let addr = prefix(CLIENT)?;
    let open = || {
        let tun = Tun::open(&TunConfig::default())?;
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
            Work::Send => stream.write(&buffer),
            Work::Rr => stream.read(&mut buffer[..1]).and_then(|read| stream.write(&buffer[..read])),
        };
        if !matches!(done, Ok(1..)) {
            return;
        }
    }
}

fn prefix(text: &str) -> io::Result<Prefix> {
    text.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("{error}")))
}
