//! The DHCP server (RFC 2131, options of RFC 2132 and RFC 3397).
//!
//! Each machine gets an address of the pool, the gateway as its router, the name server, the search domains and the MTU. A machine that requests
//! a different address gets a refusal and then asks again. Relay agents are not served. Does not depend on frames. The bytes come from a hostile machine. Tests: below.

use std::net::Ipv4Addr;
use std::time::Instant;

use sockeye::netif::MacAddr;

use super::Facts;
use super::leases::{LEASE, Leases};

/// Bytes of the message before its options, with the magic number behind them.
const FIXED: usize = 240;
const MAGIC: [u8; 4] = [99, 130, 83, 99];
const ETHERNET: [u8; 2] = [1, 6];
const OP_REQUEST: u8 = 1;
const OP_REPLY: u8 = 2;
/// The least that a message has on links where old hosts expect it (RFC 1542 section 2.1).
const LEN_MIN: usize = 300;
/// Bytes of the domains to search, at most: with them the answer is one that each client takes (RFC 2131 section 2: 576 bytes of packet).
const SEARCH_MAX: usize = 130;
/// Bytes of the machine's own domain, likewise.
const DOMAIN_MAX: usize = 63;
/// Bytes of a client's own identifier, at most.
const CLIENT_ID_MAX: usize = 64;

mod option {
    pub const MASK: u8 = 1;
    pub const ROUTER: u8 = 3;
    pub const DNS: u8 = 6;
    pub const DOMAIN: u8 = 15;
    pub const MTU: u8 = 26;
    pub const REQUESTED: u8 = 50;
    pub const LEASE: u8 = 51;
    pub const KIND: u8 = 53;
    pub const SERVER: u8 = 54;
    pub const CLIENT_ID: u8 = 61;
    pub const SEARCH: u8 = 119;
    pub const PAD: u8 = 0;
    pub const END: u8 = 255;
}

mod kind {
    pub const DISCOVER: u8 = 1;
    pub const OFFER: u8 = 2;
    pub const REQUEST: u8 = 3;
    pub const DECLINE: u8 = 4;
    pub const ACK: u8 = 5;
    pub const NAK: u8 = 6;
    pub const RELEASE: u8 = 7;
    pub const INFORM: u8 = 8;
}

/// A client's message.
struct Request<'a> {
    fixed: &'a [u8; FIXED],
    kind: u8,
    requested: Option<Ipv4Addr>,
    server: Option<Ipv4Addr>,
    client_id: Option<&'a [u8]>,
}

/// An answer, and where it goes: to all hosts, or to that address.
#[derive(Debug)]
pub struct Reply {
    /// The message.
    pub message: Vec<u8>,
    /// `None`: to all hosts, by the link, too.
    pub to: Option<Ipv4Addr>,
}

/// The answer to a machine's message.
pub fn answer(
    facts: &Facts,
    leases: &mut Leases,
    from: MacAddr,
    message: &[u8],
    now: Instant,
) -> Option<Reply> {
    let request = Request::parse(message)?;
    let own = facts.host_v4();
    let is_for_another = request.server.is_some_and(|server| server != own);
    match request.kind {
        kind::DISCOVER => {
            let addr = facts.place_v4(leases.offer(from, now)?);
            Some(request.reply(facts, kind::OFFER, Some(addr)))
        }
        kind::REQUEST if is_for_another => {
            leases.release(from);
            None
        }
        kind::REQUEST => {
            let addr = facts.place_v4(leases.lease(from, now)?);
            let wanted = request.requested.unwrap_or(request.client_addr());
            let kind = if wanted == addr { kind::ACK } else { kind::NAK };
            Some(request.reply(facts, kind, Some(addr)))
        }
        kind::INFORM => Some(request.reply(facts, kind::ACK, None)),
        kind::RELEASE if !is_for_another => {
            leases.release(from);
            None
        }
        kind::DECLINE if !is_for_another => {
            leases.decline(from, now);
            None
        }
        _ => None,
    }
}

impl<'a> Request<'a> {
    fn parse(message: &'a [u8]) -> Option<Self> {
        let (fixed, options) = message.split_first_chunk::<FIXED>()?;
        let is_relayed = fixed[24..28] != [0; 4];
        if fixed[0] != OP_REQUEST || fixed[1..3] != ETHERNET || fixed[236..] != MAGIC || is_relayed {
            return None;
        }
        let mut request = Self { fixed, kind: 0, requested: None, server: None, client_id: None };
        let addr = |bytes: &[u8]| <[u8; 4]>::try_from(bytes).ok().map(Ipv4Addr::from);
        let mut rest = options;
        while let Some((&code, behind)) = rest.split_first() {
            match code {
                option::PAD => {
                    rest = behind;
                    continue;
                }
                option::END => break,
                _ => {}
            }
            let (&len, behind) = behind.split_first()?;
            let (value, behind) = behind.split_at_checked(usize::from(len))?;
            rest = behind;
            match (code, value) {
                (option::KIND, [kind]) => request.kind = *kind,
                (option::REQUESTED, value) => request.requested = addr(value),
                (option::SERVER, value) => request.server = addr(value),
                (option::CLIENT_ID, value) if value.len() <= CLIENT_ID_MAX => request.client_id = Some(value),
                _ => {}
            }
        }
        Some(request)
    }

    /// The address that the client has already.
    fn client_addr(&self) -> Ipv4Addr {
        Ipv4Addr::new(self.fixed[12], self.fixed[13], self.fixed[14], self.fixed[15])
    }

    fn wants_broadcast(&self) -> bool {
        self.fixed[10] & 0x80 != 0
    }

    /// `addr` is the one that the client gets; without it, it has one.
    fn reply(&self, facts: &Facts, kind: u8, addr: Option<Ipv4Addr>) -> Reply {
        let has = self.client_addr();
        let given = addr.filter(|_| kind != kind::NAK);
        let mut message = vec![0; FIXED];
        message[0] = OP_REPLY;
        message[1..3].copy_from_slice(&ETHERNET);
        // Transaction, flags, the client's link address.
        message[4..8].copy_from_slice(&self.fixed[4..8]);
        message[10..12].copy_from_slice(&self.fixed[10..12]);
        message[28..44].copy_from_slice(&self.fixed[28..44]);
        message[236..].copy_from_slice(&MAGIC);
        if kind != kind::NAK {
            message[12..16].copy_from_slice(&has.octets());
        }
        if let Some(given) = given {
            message[16..20].copy_from_slice(&given.octets());
        }
        let mut put = |code: u8, value: &[u8]| {
            if let Ok(len) = u8::try_from(value.len()) {
                message.extend([code, len]);
                message.extend(value);
            }
        };
        put(option::KIND, &[kind]);
        put(option::SERVER, &facts.host_v4().octets());
        if let Some(id) = self.client_id {
            put(option::CLIENT_ID, id);
        }
        if given.is_some() {
            put(option::LEASE, &u32::try_from(LEASE.as_secs()).unwrap_or(u32::MAX).to_be_bytes());
        }
        if kind != kind::NAK {
            put(option::MASK, &facts.mask_v4().octets());
            put(option::ROUTER, &facts.host_v4().octets());
            put(option::DNS, &facts.names_v4().octets());
            put(option::MTU, &u16::try_from(facts.mtu).unwrap_or(u16::MAX).to_be_bytes());
            if let Some(first) = facts.search.first().filter(|first| first.len() <= DOMAIN_MAX) {
                put(option::DOMAIN, first.as_bytes());
            }
            let search = facts.search_labels(SEARCH_MAX);
            if !search.is_empty() {
                put(option::SEARCH, &search);
            }
        }
        message.push(option::END);
        message.resize(message.len().max(LEN_MIN), 0);
        let is_broadcast = kind == kind::NAK || (has.is_unspecified() && self.wants_broadcast());
        let to = if has.is_unspecified() { given } else { Some(has) };
        Reply { message, to: to.filter(|_| !is_broadcast) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::facts;
    use super::*;

    /// A message of a client.
    pub fn message(kind: u8, options: &[(u8, &[u8])]) -> Vec<u8> {
        let mut message = vec![0; FIXED];
        message[..3].copy_from_slice(&[1, 1, 6]);
        message[4..8].copy_from_slice(b"xidx");
        message[28..34].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
        message[236..].copy_from_slice(&MAGIC);
        message.extend([option::KIND, 1, kind, option::PAD]);
        for (code, value) in options {
            message.extend([*code, value.len() as u8]);
            message.extend(*value);
        }
        message.push(option::END);
        message
    }

    /// The value of an option.
    fn option(message: &[u8], code: u8) -> Option<&[u8]> {
        let mut rest = &message[FIXED..];
        while rest[0] != option::END {
            let (value, behind) = rest[2..].split_at(rest[1].into());
            if rest[0] == code {
                return Some(value);
            }
            rest = behind;
        }
        None
    }

    fn ask(leases: &mut Leases, message: &[u8]) -> Option<Reply> {
        answer(&facts(), leases, MacAddr([2, 0, 0, 0, 0, 9]), message, Instant::now())
    }

    #[test]
    fn a_machine_is_offered_an_address_and_gets_it_with_the_facts_of_the_network() {
        let mut leases = Leases::from(0);
        let offer =
            ask(&mut leases, &message(kind::DISCOVER, &[(option::CLIENT_ID, b"\x01abcdef")])).unwrap();
        assert_eq!((&offer.message[16..20], offer.to), (&[10, 0, 2, 100][..], Some([10, 0, 2, 100].into())));
        assert_eq!(option(&offer.message, option::CLIENT_ID), Some(&b"\x01abcdef"[..]));
        let server = option(&offer.message, option::SERVER).unwrap();
        let request =
            message(kind::REQUEST, &[(option::REQUESTED, &[10, 0, 2, 100]), (option::SERVER, server)]);
        let ack = ask(&mut leases, &request).unwrap().message;
        for (code, value) in [
            (option::KIND, &[kind::ACK][..]),
            (option::MASK, &[255, 255, 255, 0]),
            (option::ROUTER, &[10, 0, 2, 2]),
            (option::DNS, &[10, 0, 2, 3]),
            (option::MTU, &65_520u16.to_be_bytes()),
            (option::LEASE, &3600u32.to_be_bytes()),
            (option::DOMAIN, b"example.org"),
            (option::SEARCH, b"\x07example\x03org\x00\x03lan\x00"),
        ] {
            assert_eq!(option(&ack, code), Some(value), "{code}");
        }
        assert_eq!(&ack[4..8], b"xidx");
    }

    #[test]
    fn another_address_is_refused_another_servers_client_is_left_and_hostile_bytes_are_dropped() {
        let mut leases = Leases::from(0);
        let nak = ask(&mut leases, &message(kind::REQUEST, &[(option::REQUESTED, &[10, 0, 2, 7])])).unwrap();
        assert_eq!((option(&nak.message, option::KIND), nak.to), (Some(&[kind::NAK][..]), None));
        assert_eq!(nak.message[16..20], [0; 4]);
        assert!(ask(&mut leases, &message(kind::REQUEST, &[(option::SERVER, &[10, 9, 9, 9])])).is_none());
        assert!(ask(&mut leases, &message(kind::RELEASE, &[])).is_none());
        let whole = message(kind::DISCOVER, &[(option::REQUESTED, &[1])]);
        for len in 0..whole.len() {
            // Without its end it is a message all the same, cut inside of an option it is none.
            let _ = ask(&mut leases, &whole[..len]);
        }
        let mut relayed = whole;
        relayed[24] = 10;
        assert!(ask(&mut leases, &relayed).is_none());
    }

    #[test]
    fn a_client_that_renews_is_answered_at_its_address() {
        let mut leases = Leases::from(0);
        let mut renewing = message(kind::REQUEST, &[]);
        renewing[12..16].copy_from_slice(&[10, 0, 2, 100]);
        let ack = ask(&mut leases, &renewing).unwrap();
        assert_eq!(option(&ack.message, option::KIND), Some(&[kind::ACK][..]));
        assert_eq!(ack.to, Some([10, 0, 2, 100].into()));
        let mut informing = message(kind::INFORM, &[]);
        informing[12..16].copy_from_slice(&[10, 0, 2, 50]);
        let ack = ask(&mut leases, &informing).unwrap();
        assert_eq!((option(&ack.message, option::LEASE), ack.to), (None, Some([10, 0, 2, 50].into())));
    }
}
