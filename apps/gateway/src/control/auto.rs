//! `-p auto`: publishes ports that are open inside, under the same number.
//!
//! Every [`EVERY`], this module reads the kernel's tables of the namespace (`/proc/PID/net/{tcp,tcp6,udp,udp6}`) through a folder that was opened at the start. A TCP port is published
//! while a socket listens on it at the wildcard address or at an address that the gateway leads to. A UDP port is published while a socket is bound to it and
//! not connected, unless the port is in the range that the kernel assigns to clients ([`CLIENT_PORTS`]). If a port cannot be opened outside (a low port without the right to it, or
//! a port in use), the module reports that once and tries again each time.
//!
//! Bounds: [`PORTS_MAX`] ports, [`TABLE_MAX`] bytes of each table. Tests: below; `tests/gateway/control.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open, openat};

use crate::engine::Shared;
use crate::engine::forwards::By;
use crate::engine::inward::Publish;
use crate::policy::Protocol;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(500);
/// Ports that appear, at most.
const PORTS_MAX: usize = 256;
/// Bytes of a table that are read; listeners stand first in that of TCP.
const TABLE_MAX: u64 = 1 << 20;
/// The ports that the kernel gives to sockets without one (`net.ipv4.ip_local_port_range`, by default).
const CLIENT_PORTS: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// A port of the inside.
type Port = (Protocol, u16);
/// The transports whose ports appear, each at an address of the host or at every one.
pub type Places = BTreeMap<Protocol, Option<IpAddr>>;

/// Opens the tables of a process's network.
///
/// # Errors
/// The system's, with the path.
pub fn tables_of(pid: u32) -> io::Result<OwnedFd> {
    let path = format!("/proc/{pid}/net");
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(&path, flags, Mode::empty())
        .map_err(|error| io::Error::new(io::Error::from(error).kind(), format!("{path}: {error}")))
}

/// Keeps the ports outside as those inside are, on the runtime of the caller, until it ends.
pub fn start(tables: OwnedFd, places: Places, inside: Vec<IpAddr>, shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let (mut open, mut failed) = (BTreeMap::new(), BTreeSet::new());
        loop {
            // The process may have ended, and its network with it.
            let ports = listening(tables.as_fd(), &places, &inside).unwrap_or_default();
            follow(&ports, &places, &mut open, &mut failed, &shared).await;
            tokio::time::sleep(EVERY).await;
        }
    });
}

async fn follow(
    ports: &BTreeSet<Port>,
    places: &Places,
    open: &mut BTreeMap<Port, u64>,
    failed: &mut BTreeSet<Port>,
    shared: &Shared,
) {
    let gone: Vec<Port> = open.keys().filter(|port| !ports.contains(port)).copied().collect();
    for port in gone {
        open.remove(&port).map(|number| shared.forwards.remove(number));
    }
    for &(protocol, port) in ports {
        if open.len() >= PORTS_MAX
            || open.contains_key(&(protocol, port))
            || shared.forwards.is_taken(port, protocol)
        {
            continue;
        }
        let addr = places.get(&protocol).copied().flatten();
        match shared.forwards.add(Publish::same(addr, port, protocol), By::Auto).await {
            Ok(number) => drop(open.insert((protocol, port), number)),
            Err(error) if failed.insert((protocol, port)) => eprintln!("sockeye gateway: -p auto: {error}"),
            Err(_) => {}
        }
    }
}

/// The ports at which the inside can be reached, of the transports that appear.
fn listening(tables: BorrowedFd<'_>, places: &Places, inside: &[IpAddr]) -> io::Result<BTreeSet<Port>> {
    let mut ports = BTreeSet::new();
    let all =
        [("tcp", Protocol::Tcp), ("tcp6", Protocol::Tcp), ("udp", Protocol::Udp), ("udp6", Protocol::Udp)];
    for (name, protocol) in all.into_iter().filter(|(_, protocol)| places.contains_key(protocol)) {
        // A kernel without IPv6 has two of them.
        let Ok(file) = openat(tables, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
            continue;
        };
        let mut text = String::new();
        File::from(file).take(TABLE_MAX).read_to_string(&mut text)?;
        ports.extend(ports_of(&text, protocol, inside).map(|port| (protocol, port)));
    }
    Ok(ports)
}

/// The ports in a table of proc(5).
fn ports_of<'a>(text: &'a str, protocol: Protocol, inside: &'a [IpAddr]) -> impl Iterator<Item = u16> + 'a {
    // TCP's LISTEN, and UDP's state without a peer, which is that of CLOSE.
    let state = if protocol == Protocol::Udp { "07" } else { "0A" };
    text.lines().skip(1).filter_map(move |line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (addr, port) = fields.next()?.split_once(':')?;
        let (_remote, is) = (fields.next()?, fields.next()?);
        let (addr, port) = (address(addr)?, u16::from_str_radix(port, 16).ok()?);
        let is_reached = addr.is_unspecified() || inside.contains(&addr);
        let is_servers = protocol != Protocol::Udp || !CLIENT_PORTS.contains(&port);
        (is == state && is_reached && is_servers && port != 0).then_some(port)
    })
}

/// An address in words of 32 bits, each in the order of this machine.
fn address(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let digits = hex.get(at * 8..at * 8 + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let bytes = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            let bytes: [u8; 16] = bytes.try_into().ok()?;
            Some(Ipv6Addr::from(bytes).to_canonical())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_the_kernel_are_read() {
        let inside: [IpAddr; 2] = ["10.0.2.100".parse().unwrap(), "fd00::100".parse().unwrap()];
        let little =
            |text: &str| if cfg!(target_endian = "little") { text.to_owned() } else { String::new() };
        let tcp = little(
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n\
             \x20  0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n\
             \x20  1: 0100007F:0277 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n\
             \x20  2: 6402000A:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n\
             \x20  3: 6402000A:8000 0302000A:0035 01 00000000:00000000 00:00000000 00000000     0\n\
             nonsense\n",
        );
        let found: Vec<u16> = ports_of(&tcp, Protocol::Tcp, &inside).collect();
        assert_eq!(found, if tcp.is_empty() { vec![] } else { vec![8080, 80] });
        let udp6 = little(
            "  sl  local_address                         remote_address                        st\n\
             \x20 0: 00000000000000000000000000000000:14E9 00000000000000000000000000000000:0000 07\n\
             \x20 1: 000000FD000000000000000000010000:0035 00000000000000000000000000000000:0000 07\n\
             \x20 2: 00000000000000000000000001000000:0036 00000000000000000000000000000000:0000 07\n\
             \x20 3: 00000000000000000000000000000000:8235 00000000000000000000000000000000:0000 07\n",
        );
        let found: Vec<u16> = ports_of(&udp6, Protocol::Udp, &inside).collect();
        assert_eq!(found, if udp6.is_empty() { vec![] } else { vec![5353, 53] });
        assert_eq!(address("0100007F0"), None);
        assert_eq!(address("é000007F"), None);
    }
}
