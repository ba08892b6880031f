//! The DHCPv6 server (RFC 8415, options of RFC 3646).
//!
//! Each machine gets one address, with the same number as its IPv4 address, the name server and the search domains. Further identity
//! associations of a machine get "no addresses"; prefixes are not delegated. Does not depend on frames. The bytes come from a hostile machine. Tests: below.

use std::net::Ipv6Addr;
use std::time::Instant;

use sockeye::netif::MacAddr;

use super::Facts;
use super::leases::{LEASE, Leases};

/// Identity associations and addresses of a message that are looked at, at most.
const ASSOCIATIONS_MAX: usize = 8;
/// Bytes of a client's identifier, at most (RFC 8415 section 11.1).
const DUID_MAX: usize = 130;
/// Bytes of the domains to search, at most.
const SEARCH_MAX: usize = 512;
/// The server's identifier: of its link address (section 11.4), Ethernet.
const DUID_LL: [u8; 4] = [0, 3, 0, 1];

mod kind {
    pub const SOLICIT: u8 = 1;
    pub const ADVERTISE: u8 = 2;
    pub const REQUEST: u8 = 3;
    pub const CONFIRM: u8 = 4;
    pub const RENEW: u8 = 5;
    pub const REBIND: u8 = 6;
    pub const REPLY: u8 = 7;
    pub const RELEASE: u8 = 8;
    pub const DECLINE: u8 = 9;
    pub const INFORMATION: u8 = 11;
}

mod option {
    pub const CLIENT_ID: u16 = 1;
    pub const SERVER_ID: u16 = 2;
    pub const IA_NA: u16 = 3;
    pub const ADDR: u16 = 5;
    pub const STATUS: u16 = 13;
    pub const RAPID: u16 = 14;
    pub const DNS: u16 = 23;
    pub const SEARCH: u16 = 24;
}

mod status {
    pub const SUCCESS: u16 = 0;
    pub const NO_ADDRS: u16 = 2;
    pub const NOT_ON_LINK: u16 = 4;
}

/// An association, by its number, and the addresses that the client has in it.
struct Association {
    id: [u8; 4],
    addrs: Vec<Ipv6Addr>,
}

/// A client's message.
struct Request<'a> {
    kind: u8,
    /// Kind and transaction.
    head: [u8; 4],
    client: Option<&'a [u8]>,
    server: Option<&'a [u8]>,
    associations: Vec<Association>,
    rapid: bool,
}

/// The answer to a machine's message.
pub fn answer(
    facts: &Facts,
    leases: &mut Leases,
    from: MacAddr,
    message: &[u8],
    now: Instant,
) -> Option<Vec<u8>> {
    let request = Request::parse(message)?;
    let own = duid(facts);
    // Section 16: these name the server, those must not.
    let names_server = matches!(request.kind, kind::REQUEST | kind::RENEW | kind::RELEASE | kind::DECLINE);
    let is_ours = match request.server {
        Some(server) => server == own && (names_server || request.kind == kind::INFORMATION),
        None => !names_server,
    };
    if !is_ours || (request.client.is_none() && request.kind != kind::INFORMATION) {
        return None;
    }
    let is_quick = request.kind == kind::SOLICIT && request.rapid;
    let answers = if request.kind == kind::SOLICIT && !is_quick { kind::ADVERTISE } else { kind::REPLY };
    let mut reply = Reply::begin(answers, &request, &own);
    if is_quick {
        reply.put(option::RAPID, &[]);
    }
    match request.kind {
        kind::SOLICIT | kind::REQUEST | kind::RENEW | kind::REBIND => {
            let place =
                if answers == kind::ADVERTISE { leases.offer(from, now) } else { leases.lease(from, now) };
            let addr = place.map(|place| facts.place_v6(place));
            reply.associations(&request.associations, addr);
        }
        kind::CONFIRM => {
            let mut addrs = request.associations.iter().flat_map(|association| &association.addrs).peekable();
            // Section 18.3.3: without addresses there is nothing to confirm.
            addrs.peek()?;
            let on_link = addrs.all(|addr| facts.plan.contains((*addr).into()));
            reply.status(if on_link { status::SUCCESS } else { status::NOT_ON_LINK });
        }
        kind::RELEASE => {
            leases.release(from);
            reply.status(status::SUCCESS);
        }
        kind::DECLINE => {
            leases.decline(from, now);
            reply.status(status::SUCCESS);
        }
        kind::INFORMATION => {}
        _ => return None,
    }
    reply.facts(facts);
    Some(reply.0)
}

fn duid(facts: &Facts) -> Vec<u8> {
    [&DUID_LL[..], &facts.mac.0].concat()
}

/// The options of a message, up to the first that is cut off.
fn options(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (&[c0, c1, l0, l1], behind) = rest.split_first_chunk()?;
        let (value, behind) = behind.split_at_checked(usize::from(u16::from_be_bytes([l0, l1])))?;
        rest = behind;
        Some((u16::from_be_bytes([c0, c1]), value))
    })
}

impl<'a> Request<'a> {
    fn parse(message: &'a [u8]) -> Option<Self> {
        let (head, rest) = message.split_first_chunk::<4>()?;
        let mut request = Self {
            kind: head[0],
            head: *head,
            client: None,
            server: None,
            associations: Vec::new(),
            rapid: false,
        };
        for (code, value) in options(rest) {
            match code {
                option::CLIENT_ID if value.len() <= DUID_MAX => request.client = Some(value),
                option::SERVER_ID => request.server = Some(value),
                option::RAPID => request.rapid = true,
                option::IA_NA if request.associations.len() < ASSOCIATIONS_MAX => {
                    // Its number and two times, then options.
                    let (head, inner) = value.split_first_chunk::<12>()?;
                    let addrs = options(inner).filter(|(code, _)| *code == option::ADDR);
                    let addrs =
                        addrs.filter_map(|(_, value)| value.first_chunk::<16>().copied().map(Ipv6Addr::from));
                    let addrs = addrs.take(ASSOCIATIONS_MAX).collect();
                    request
                        .associations
                        .push(Association { id: [head[0], head[1], head[2], head[3]], addrs });
                }
                _ => {}
            }
        }
        Some(request)
    }
}

/// An answer that is being written.
struct Reply(Vec<u8>);

impl Reply {
    fn begin(kind: u8, request: &Request<'_>, own: &[u8]) -> Self {
        let mut reply = Self(vec![kind, request.head[1], request.head[2], request.head[3]]);
        reply.put(option::SERVER_ID, own);
        if let Some(client) = request.client {
            reply.put(option::CLIENT_ID, client);
        }
        reply
    }

    fn put(&mut self, code: u16, value: &[u8]) {
        put(&mut self.0, code, value);
    }

    fn status(&mut self, status: u16) {
        self.put(option::STATUS, &status.to_be_bytes());
    }

    /// The first association gets the address. Addresses that a client has and should not have end at once.
    fn associations(&mut self, asked: &[Association], addr: Option<Ipv6Addr>) {
        let seconds = u32::try_from(LEASE.as_secs()).unwrap_or(u32::MAX);
        for (index, association) in asked.iter().enumerate() {
            let given = addr.filter(|_| index == 0);
            let mut value = association.id.to_vec();
            // The times to renew and to rebind: half and four fifths.
            value.extend((seconds / 2).to_be_bytes());
            value.extend((seconds / 5 * 4).to_be_bytes());
            let mut addr = |addr: Ipv6Addr, seconds: u32| {
                let mut of = addr.octets().to_vec();
                of.extend([seconds.to_be_bytes(), seconds.to_be_bytes()].concat());
                put(&mut value, option::ADDR, &of);
            };
            association.addrs.iter().filter(|old| Some(**old) != given).for_each(|old| addr(*old, 0));
            match given {
                Some(given) => addr(given, seconds),
                None => put(&mut value, option::STATUS, &status::NO_ADDRS.to_be_bytes()),
            }
            self.put(option::IA_NA, &value);
        }
    }

    fn facts(&mut self, facts: &Facts) {
        self.put(option::DNS, &facts.names_v6().octets());
        let search = facts.search_labels(SEARCH_MAX);
        if !search.is_empty() {
            self.put(option::SEARCH, &search);
        }
    }
}

fn put(to: &mut Vec<u8>, code: u16, value: &[u8]) {
    if let Ok(len) = u16::try_from(value.len()) {
        to.extend(code.to_be_bytes());
        to.extend(len.to_be_bytes());
        to.extend(value);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::facts;
    use super::*;

    fn message(kind: u8, parts: &[(u16, &[u8])]) -> Vec<u8> {
        let mut message = vec![kind, 7, 8, 9];
        for (code, value) in parts {
            put(&mut message, *code, value);
        }
        message
    }

    fn ask(leases: &mut Leases, message: &[u8]) -> Option<Vec<u8>> {
        answer(&facts(), leases, MacAddr([2, 0, 0, 0, 0, 9]), message, Instant::now())
    }

    fn option(message: &[u8], code: u16) -> Option<&[u8]> {
        options(&message[4..]).find(|(found, _)| *found == code).map(|(_, value)| value)
    }

    /// The addresses of the first association, each with its lifetime.
    fn addrs(message: &[u8]) -> Vec<(Ipv6Addr, u32)> {
        let association = option(message, option::IA_NA).unwrap();
        let addrs = options(&association[12..]).filter(|(code, _)| *code == option::ADDR);
        let read = |value: &[u8]| {
            let addr: [u8; 16] = value[..16].try_into().unwrap();
            (addr.into(), u32::from_be_bytes(value[20..24].try_into().unwrap()))
        };
        addrs.map(|(_, value)| read(value)).collect()
    }

    const CLIENT: (u16, &[u8]) = (option::CLIENT_ID, b"a client");
    const IA: (u16, &[u8]) = (option::IA_NA, &[0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0]);

    #[test]
    fn a_machine_gets_one_address_in_two_turns_or_one() {
        let mut leases = Leases::from(0);
        let own: Ipv6Addr = "fd00::100".parse().unwrap();
        let advertised = ask(&mut leases, &message(kind::SOLICIT, &[CLIENT, IA])).unwrap();
        assert_eq!((advertised[0], &advertised[1..4]), (kind::ADVERTISE, &[7, 8, 9][..]));
        assert_eq!(addrs(&advertised), [(own, 3600)]);
        let server = option(&advertised, option::SERVER_ID).unwrap();
        let reply =
            ask(&mut leases, &message(kind::REQUEST, &[CLIENT, (option::SERVER_ID, server), IA])).unwrap();
        assert_eq!((reply[0], addrs(&reply)), (kind::REPLY, vec![(own, 3600)]));
        assert_eq!(option(&reply, option::DNS), Some(&facts().names_v6().octets()[..]));
        assert_eq!(option(&reply, option::SEARCH), Some(&b"\x07example\x03org\x00\x03lan\x00"[..]));
        let quick = ask(&mut leases, &message(kind::SOLICIT, &[CLIENT, IA, (option::RAPID, &[])])).unwrap();
        assert_eq!((quick[0], option(&quick, option::RAPID)), (kind::REPLY, Some(&[][..])));
    }

    #[test]
    fn an_address_of_another_network_ends_and_is_not_confirmed() {
        let mut leases = Leases::from(0);
        let old: Ipv6Addr = "2001:db8::7".parse().unwrap();
        let mut association = IA.1.to_vec();
        put(&mut association, option::ADDR, &[&old.octets()[..], &[0; 8]].concat());
        let ia = (option::IA_NA, &association[..]);
        let reply = ask(&mut leases, &message(kind::REBIND, &[CLIENT, ia])).unwrap();
        assert_eq!(addrs(&reply), [(old, 0), ("fd00::100".parse().unwrap(), 3600)]);
        let reply = ask(&mut leases, &message(kind::CONFIRM, &[CLIENT, ia])).unwrap();
        assert_eq!(option(&reply, option::STATUS), Some(&[0, 4][..]));
        assert!(ask(&mut leases, &message(kind::CONFIRM, &[CLIENT, IA])).is_none());
    }

    #[test]
    fn messages_for_another_server_and_hostile_bytes_are_dropped() {
        let mut leases = Leases::from(0);
        assert!(ask(&mut leases, &message(kind::REQUEST, &[CLIENT, IA])).is_none());
        assert!(
            ask(&mut leases, &message(kind::REQUEST, &[CLIENT, (option::SERVER_ID, b"other"), IA])).is_none()
        );
        assert!(ask(&mut leases, &message(kind::SOLICIT, &[IA])).is_none());
        assert!(ask(&mut leases, &message(kind::INFORMATION, &[])).is_some());
        let many = message(kind::SOLICIT, &[[CLIENT].as_slice(), &[IA; 100]].concat());
        let reply = ask(&mut leases, &many).unwrap();
        assert_eq!(options(&reply[4..]).filter(|(code, _)| *code == option::IA_NA).count(), ASSOCIATIONS_MAX);
        for len in 0..many.len().min(200) {
            let _ = ask(&mut leases, &many[..len]);
        }
    }
}
