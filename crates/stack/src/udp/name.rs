//! The name of a socket: its own address, and its peer's if it is connected.
//!
//! Every send looks at the name, connects and binds change it: it stands in a `SeqCell`, so that threads that send on
//! one socket write no line together. A thread that changes it holds the socket's `naming` lock. Tests: below.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sockeye_sync::SeqCell;

use crate::base::addr::{Endpoint, FourTuple, octets, unmapped};

/// See the module's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Name {
    /// Port 0: not bound yet. The address is the wildcard until a bind or connect names one.
    pub local: Endpoint,
    pub remote: Option<Endpoint>,
}

/// The meta word has the ports in its lower half, and this bit if there is a peer.
const CONNECTED: u64 = 1 << 32;

impl Name {
    /// Of a new socket.
    pub fn unbound(is_v6: bool) -> Self {
        Self { local: Endpoint::new(wildcard(is_v6), 0), remote: None }
    }

    /// The name of the conversation with a peer.
    pub fn tuple(&self) -> Option<FourTuple> {
        Some(FourTuple { local: self.local, remote: self.remote? })
    }

    fn words(&self) -> [u64; 5] {
        let [a, b] = halves(self.local.addr);
        let [c, d] = self.remote.map_or([0, 0], |remote| halves(remote.addr));
        let remote_port = self.remote.map_or(0, |remote| u64::from(remote.port) << 16 | CONNECTED);
        [a, b, c, d, u64::from(self.local.port) | remote_port]
    }

    fn of_words([a, b, c, d, meta]: [u64; 5]) -> Self {
        // Each port is 16 bits of the word.
        let port = |shift: u32| (meta >> shift) as u16;
        let remote = (meta & CONNECTED != 0).then(|| Endpoint::new(joined(c, d), port(16)));
        Self { local: Endpoint::new(joined(a, b), port(0)), remote }
    }
}

/// A name that is looked at often and changed seldom.
pub(crate) struct NameCell(SeqCell<5>);

impl NameCell {
    pub fn new(name: &Name) -> Self {
        Self(SeqCell::new(name.words()))
    }

    #[inline]
    pub fn load(&self) -> Name {
        Name::of_words(self.0.load())
    }

    /// Under the socket's `naming` lock.
    pub fn store(&self, name: &Name) {
        self.0.store(name.words());
    }
}

/// The address that means all of a family.
pub(crate) fn wildcard(is_v6: bool) -> IpAddr {
    if is_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// The loopback's address of a family.
pub(crate) fn loopback(is_v4: bool) -> IpAddr {
    if is_v4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() }
}

fn halves(addr: IpAddr) -> [u64; 2] {
    let bits = u128::from_be_bytes(octets(addr));
    // The upper and the lower half.
    [(bits >> 64) as u64, bits as u64]
}

fn joined(high: u64, low: u64) -> IpAddr {
    unmapped(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_survives_a_round_trip() {
        for (local, remote) in [
            ("0.0.0.0:0", None),
            ("[::]:0", None),
            ("127.0.0.1:65535", Some("10.1.2.3:1")),
            ("[fd00::1]:53", Some("[::1]:0")),
        ] {
            let at = |text: &str| Endpoint::from(text.parse::<std::net::SocketAddr>().unwrap());
            let name = Name { local: at(local), remote: remote.map(at) };
            let cell = NameCell::new(&Name::unbound(false));
            cell.store(&name);
            assert_eq!(cell.load(), name);
        }
    }
}
