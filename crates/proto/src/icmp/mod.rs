//! ICMP for IPv4 (RFC 792) and IPv6 (RFC 4443): the eight bytes in front of every message, and their meaning.
//!
//! Both families become one [`Message`], so that the layers above ask once. The eight bytes are a type, a code, a
//! checksum and one word; neighbor discovery and group membership, which have more of a format, are only told apart
//! here. This module does not depend on sockets, routes or how often one may answer ([`limit`] is a bucket that
//! does not know what it limits). Invariants: no input panics; [`Message::parse`] reads back every message that
//! [`Message::emit`] writes. Tests: below.

pub mod limit;

/// Bytes of the header of every message; in an error, the quoted packet follows.
pub const HEADER_LEN: usize = 8;
/// Where the checksum stands in it.
pub const CHECKSUM_AT: usize = 2;

/// Which of the two protocols a message belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Family {
    /// ICMP for IPv4.
    V4,
    /// ICMP for IPv6.
    V6,
}

/// The content of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// Asks for an answer with the same identifier, number and data.
    EchoRequest {
        /// Names the asker among those of a host.
        id: u16,
        /// Names the request.
        seq: u16,
    },
    /// The answer.
    EchoReply {
        /// As in the request.
        id: u16,
        /// As in the request.
        seq: u16,
    },
    /// A packet could not be delivered; its first bytes follow the header.
    Error(Error),
    /// Neighbor discovery (RFC 4861), by type.
    Neighbor(u8),
    /// Group membership (RFC 2710, 3810), by type.
    Membership(u8),
    /// Something that a host need not act on, by type and code: redirects and source quench among them (RFC 6633,
    /// RFC 1122 section 3.2.2.2 lets a host that learns its routes otherwise ignore them).
    Other(u8, u8),
}

/// Why a packet could not be delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// Its destination cannot be reached.
    Unreachable(Unreachable),
    /// It is longer than some link on the way takes. The MTU of that link, bytes; 0 where a router before RFC 1191
    /// did not say.
    PacketTooBig(u32),
    /// Its hop limit was used up on the way.
    HopLimitExceeded,
    /// Not all of its fragments came in time.
    ReassemblyTimeExceeded,
    /// A field could not be understood.
    ParameterProblem(Problem, u32),
}

/// The part of a destination that cannot be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreachable {
    /// No route leads to it.
    Network,
    /// The host does not answer.
    Host,
    /// The network is unknown, forbidden, or not reached with this type of service (IPv4).
    NetworkOtherwise,
    /// The host is unknown, isolated, or not reached with this type of service (IPv4).
    HostOtherwise,
    /// The host does not speak the protocol (IPv4; IPv6 says [`Problem::NextHeader`]).
    Protocol,
    /// No socket listens at the port.
    Port,
    /// A source route could not be followed.
    SourceRoute,
    /// A router on the way does not allow it.
    Prohibited,
    /// The source address does not reach so far (IPv6).
    BeyondScope,
}

/// Which kind of field was not understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Problem {
    /// A value in a header.
    Field,
    /// The number of the next header (IPv6).
    NextHeader,
    /// An option (IPv6; a missing one in IPv4).
    Option,
    /// The first fragment does not hold all headers (RFC 7112).
    IncompleteChain,
}

impl Message {
    /// Reads the header of a message. Its checksum is the caller's business.
    pub fn parse(family: Family, header: [u8; HEADER_LEN]) -> Self {
        let [kind, code, _, _, a, b, c, d] = header;
        let (id, seq) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let word = u32::from_be_bytes([a, b, c, d]);
        match (family, kind) {
            (Family::V4, V4_ECHO) | (Family::V6, V6_ECHO) => Self::EchoRequest { id, seq },
            (Family::V4, V4_ECHO_REPLY) | (Family::V6, V6_ECHO_REPLY) => Self::EchoReply { id, seq },
            (Family::V6, V6_NEIGHBOR_FIRST..=V6_NEIGHBOR_LAST) => Self::Neighbor(kind),
            (Family::V6, V6_MLD_FIRST..=V6_MLD_LAST | V6_MLD2_REPORT) => Self::Membership(kind),
            (Family::V4, _) => v4_error(kind, code, seq, a).map_or(Self::Other(kind, code), Self::Error),
            (Family::V6, _) => v6_error(kind, code, word).map_or(Self::Other(kind, code), Self::Error),
        }
    }

    /// The header of a message, its checksum zero. `None` for a message that this family does not have, and for
    /// messages that have more of a format than a header.
    pub fn emit(&self, family: Family) -> Option<[u8; HEADER_LEN]> {
        let (kind, code, word) = match (*self, family) {
            (Self::EchoRequest { id, seq }, Family::V4) => (V4_ECHO, 0, echo_word(id, seq)),
            (Self::EchoRequest { id, seq }, Family::V6) => (V6_ECHO, 0, echo_word(id, seq)),
            (Self::EchoReply { id, seq }, Family::V4) => (V4_ECHO_REPLY, 0, echo_word(id, seq)),
            (Self::EchoReply { id, seq }, Family::V6) => (V6_ECHO_REPLY, 0, echo_word(id, seq)),
            (Self::Error(error), Family::V4) => v4_words(error)?,
            (Self::Error(error), Family::V6) => v6_words(error)?,
            (Self::Neighbor(_) | Self::Membership(_) | Self::Other(..), Family::V4 | Family::V6) => {
                return None;
            }
        };
        let [a, b, c, d] = word.to_be_bytes();
        Some([kind, code, 0, 0, a, b, c, d])
    }

    /// Whether a message of this type reports an error, known to us or not: errors are not answered by errors
    /// (RFC 1122 section 3.2.2, RFC 4443 section 2.4).
    pub const fn is_error(family: Family, kind: u8) -> bool {
        match family {
            Family::V4 => matches!(kind, 3 | 4 | 5 | 11 | 12),
            Family::V6 => kind < 128,
        }
    }
}

const V4_ECHO_REPLY: u8 = 0;
const V4_UNREACHABLE: u8 = 3;
const V4_ECHO: u8 = 8;
const V4_TIME_EXCEEDED: u8 = 11;
const V4_PROBLEM: u8 = 12;
const V6_UNREACHABLE: u8 = 1;
const V6_TOO_BIG: u8 = 2;
const V6_TIME_EXCEEDED: u8 = 3;
const V6_PROBLEM: u8 = 4;
const V6_ECHO: u8 = 128;
const V6_ECHO_REPLY: u8 = 129;
const V6_MLD_FIRST: u8 = 130;
const V6_MLD_LAST: u8 = 132;
const V6_NEIGHBOR_FIRST: u8 = 133;
const V6_NEIGHBOR_LAST: u8 = 137;
const V6_MLD2_REPORT: u8 = 143;

fn echo_word(id: u16, seq: u16) -> u32 {
    u32::from(id) << 16 | u32::from(seq)
}

/// An error of IPv4: `mtu` is the second half of the word, `pointer` its first byte.
fn v4_error(kind: u8, code: u8, mtu: u16, pointer: u8) -> Option<Error> {
    let unreachable = |what| Some(Error::Unreachable(what));
    match (kind, code) {
        (V4_UNREACHABLE, 0) => unreachable(Unreachable::Network),
        (V4_UNREACHABLE, 1) => unreachable(Unreachable::Host),
        (V4_UNREACHABLE, 6 | 9 | 11) => unreachable(Unreachable::NetworkOtherwise),
        (V4_UNREACHABLE, 7 | 8 | 12) => unreachable(Unreachable::HostOtherwise),
        (V4_UNREACHABLE, 2) => unreachable(Unreachable::Protocol),
        (V4_UNREACHABLE, 3) => unreachable(Unreachable::Port),
        (V4_UNREACHABLE, 4) => Some(Error::PacketTooBig(u32::from(mtu))),
        (V4_UNREACHABLE, 5) => unreachable(Unreachable::SourceRoute),
        (V4_UNREACHABLE, 10 | 13 | 14 | 15) => unreachable(Unreachable::Prohibited),
        (V4_TIME_EXCEEDED, 0) => Some(Error::HopLimitExceeded),
        (V4_TIME_EXCEEDED, 1) => Some(Error::ReassemblyTimeExceeded),
        (V4_PROBLEM, 1) => Some(Error::ParameterProblem(Problem::Option, 0)),
        (V4_PROBLEM, _) => Some(Error::ParameterProblem(Problem::Field, u32::from(pointer))),
        (_, _) => None,
    }
}

fn v6_error(kind: u8, code: u8, word: u32) -> Option<Error> {
    let unreachable = |what| Some(Error::Unreachable(what));
    match (kind, code) {
        (V6_UNREACHABLE, 0) => unreachable(Unreachable::Network),
        (V6_UNREACHABLE, 1 | 5 | 6) => unreachable(Unreachable::Prohibited),
        (V6_UNREACHABLE, 2) => unreachable(Unreachable::BeyondScope),
        (V6_UNREACHABLE, 3) => unreachable(Unreachable::Host),
        (V6_UNREACHABLE, 4) => unreachable(Unreachable::Port),
        (V6_UNREACHABLE, 7) => unreachable(Unreachable::SourceRoute),
        // Its code is to be ignored (RFC 4443 section 3.2).
        (V6_TOO_BIG, _) => Some(Error::PacketTooBig(word)),
        (V6_TIME_EXCEEDED, 0) => Some(Error::HopLimitExceeded),
        (V6_TIME_EXCEEDED, 1) => Some(Error::ReassemblyTimeExceeded),
        (V6_PROBLEM, 0) => Some(Error::ParameterProblem(Problem::Field, word)),
        (V6_PROBLEM, 1) => Some(Error::ParameterProblem(Problem::NextHeader, word)),
        (V6_PROBLEM, 2) => Some(Error::ParameterProblem(Problem::Option, word)),
        (V6_PROBLEM, 3) => Some(Error::ParameterProblem(Problem::IncompleteChain, word)),
        (_, _) => None,
    }
}

/// Type, code and word of an error in IPv4.
fn v4_words(error: Error) -> Option<(u8, u8, u32)> {
    Some(match error {
        Error::Unreachable(what) => {
            let code = match what {
                Unreachable::Network => 0,
                Unreachable::Host => 1,
                Unreachable::Protocol => 2,
                Unreachable::Port => 3,
                Unreachable::SourceRoute => 5,
                Unreachable::NetworkOtherwise => 11,
                Unreachable::HostOtherwise => 12,
                Unreachable::Prohibited => 13,
                Unreachable::BeyondScope => return None,
            };
            (V4_UNREACHABLE, code, 0)
        }
        Error::PacketTooBig(mtu) => (V4_UNREACHABLE, 4, mtu.min(u32::from(u16::MAX))),
        Error::HopLimitExceeded => (V4_TIME_EXCEEDED, 0, 0),
        Error::ReassemblyTimeExceeded => (V4_TIME_EXCEEDED, 1, 0),
        Error::ParameterProblem(Problem::Field, at) => {
            (V4_PROBLEM, 0, u32::from(u8::try_from(at).ok()?) << 24)
        }
        Error::ParameterProblem(Problem::Option, _) => (V4_PROBLEM, 1, 0),
        Error::ParameterProblem(Problem::NextHeader | Problem::IncompleteChain, _) => return None,
    })
}

fn v6_words(error: Error) -> Option<(u8, u8, u32)> {
    Some(match error {
        Error::Unreachable(what) => {
            let code = match what {
                Unreachable::Network => 0,
                Unreachable::Prohibited => 1,
                Unreachable::BeyondScope => 2,
                Unreachable::Host => 3,
                Unreachable::Port => 4,
                Unreachable::SourceRoute => 7,
                Unreachable::Protocol | Unreachable::NetworkOtherwise | Unreachable::HostOtherwise => {
                    return None;
                }
            };
            (V6_UNREACHABLE, code, 0)
        }
        Error::PacketTooBig(mtu) => (V6_TOO_BIG, 0, mtu),
        Error::HopLimitExceeded => (V6_TIME_EXCEEDED, 0, 0),
        Error::ReassemblyTimeExceeded => (V6_TIME_EXCEEDED, 1, 0),
        Error::ParameterProblem(problem, at) => {
            let code = match problem {
                Problem::Field => 0,
                Problem::NextHeader => 1,
                Problem::Option => 2,
                Problem::IncompleteChain => 3,
            };
            (V6_PROBLEM, code, at)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_types_are_those_of_the_rfcs() {
        let parse = |family, kind, code, word: u32| {
            let [a, b, c, d] = word.to_be_bytes();
            Message::parse(family, [kind, code, 9, 9, a, b, c, d])
        };
        let (id, seq) = (0x1234, 0x5678);
        assert_eq!(parse(Family::V4, 8, 0, 0x1234_5678), Message::EchoRequest { id, seq });
        assert_eq!(parse(Family::V6, 129, 0, 0x1234_5678), Message::EchoReply { id, seq });
        assert_eq!(parse(Family::V4, 3, 4, 1400), Message::Error(Error::PacketTooBig(1400)));
        assert_eq!(parse(Family::V6, 2, 7, 1280), Message::Error(Error::PacketTooBig(1280)));
        let port = Message::Error(Error::Unreachable(Unreachable::Port));
        assert_eq!((parse(Family::V4, 3, 3, 0), parse(Family::V6, 1, 4, 0)), (port, port));
        let field = Message::Error(Error::ParameterProblem(Problem::Field, 20));
        assert_eq!((parse(Family::V4, 12, 0, 20 << 24), parse(Family::V6, 4, 0, 20)), (field, field));
        assert_eq!(parse(Family::V6, 135, 0, 0), Message::Neighbor(135));
        assert_eq!(parse(Family::V6, 143, 0, 0), Message::Membership(143));
        assert_eq!(parse(Family::V4, 135, 0, 0), Message::Other(135, 0));
        assert_eq!(parse(Family::V4, 5, 1, 0), Message::Other(5, 1));
    }

    #[test]
    fn errors_are_distinguished_from_requests_even_for_unknown_types() {
        for (family, kind, is_error) in
            [(Family::V4, 5, true), (Family::V4, 8, false), (Family::V6, 100, true), (Family::V6, 128, false)]
        {
            assert_eq!(Message::is_error(family, kind), is_error, "{family:?} {kind}");
        }
    }

    proptest! {
        #[test]
        fn emitted_messages_parse_to_the_same_values(header: [u8; HEADER_LEN], v6: bool) {
            let family = if v6 { Family::V6 } else { Family::V4 };
            let message = Message::parse(family, header);
            if let Some(emitted) = message.emit(family) {
                prop_assert_eq!(Message::parse(family, emitted), message);
            }
        }
    }
}
