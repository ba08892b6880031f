//! What an ICMP error says, in the words of the API, and back.
//!
//! Does not depend on sockets. Tests: below, `tests/udp/`, `tests/udp/flows.rs`.

use sockeye_proto::icmp::{Error, Family, Problem, Unreachable};

/// What has happened to a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Unsent {
    /// No socket is bound to the port (ICMP port unreachable).
    PortUnreachable,
    /// There is no such host, or no answer from it.
    HostUnreachable,
    /// There is no way to its network.
    NetworkUnreachable,
    /// The host does not do UDP (ICMP protocol unreachable).
    ProtocolUnreachable,
    /// A firewall or policy refuses it.
    Prohibited,
    /// It is larger than the path takes; `mtu` in bytes.
    TooBig {
        /// Bytes of the largest IP packet that the path takes.
        mtu: u32,
    },
    /// A header that a host on the way did not understand (ICMP parameter problem).
    ParameterProblem,
    /// Its hop limit ran out on the way, or its fragments did not come together.
    TimeExceeded,
}

impl Unsent {
    /// What an ICMP error says.
    pub(crate) fn of(error: Error) -> Self {
        match error {
            Error::Unreachable(Unreachable::Port) => Self::PortUnreachable,
            Error::Unreachable(Unreachable::Protocol) => Self::ProtocolUnreachable,
            Error::Unreachable(Unreachable::Network | Unreachable::NetworkOtherwise) => {
                Self::NetworkUnreachable
            }
            Error::Unreachable(
                Unreachable::Host
                | Unreachable::HostOtherwise
                | Unreachable::BeyondScope
                | Unreachable::SourceRoute,
            ) => Self::HostUnreachable,
            Error::Unreachable(Unreachable::Prohibited) => Self::Prohibited,
            Error::PacketTooBig(mtu) => Self::TooBig { mtu },
            Error::HopLimitExceeded | Error::ReassemblyTimeExceeded => Self::TimeExceeded,
            Error::ParameterProblem(..) => Self::ParameterProblem,
        }
    }

    /// The ICMP error that says so. `next_header_at`: where in the packet the number of its protocol stands.
    pub(crate) fn to_icmp(self, family: Family, next_header_at: u32) -> Error {
        match (self, family) {
            (Self::PortUnreachable, _) => Error::Unreachable(Unreachable::Port),
            (Self::HostUnreachable, _) => Error::Unreachable(Unreachable::Host),
            (Self::NetworkUnreachable, _) => Error::Unreachable(Unreachable::Network),
            (Self::ProtocolUnreachable, Family::V4) => Error::Unreachable(Unreachable::Protocol),
            (Self::ProtocolUnreachable, Family::V6) => {
                Error::ParameterProblem(Problem::NextHeader, next_header_at)
            }
            (Self::Prohibited, _) => Error::Unreachable(Unreachable::Prohibited),
            (Self::TooBig { mtu }, _) => Error::PacketTooBig(mtu),
            (Self::ParameterProblem, _) => Error::ParameterProblem(Problem::Field, 0),
            (Self::TimeExceeded, _) => Error::HopLimitExceeded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockeye_proto::icmp::Message;

    #[test]
    fn every_word_has_an_error_of_both_families_that_says_the_same() {
        for what in [
            Unsent::PortUnreachable,
            Unsent::HostUnreachable,
            Unsent::NetworkUnreachable,
            Unsent::ProtocolUnreachable,
            Unsent::Prohibited,
            Unsent::TooBig { mtu: 1300 },
            Unsent::ParameterProblem,
            Unsent::TimeExceeded,
        ] {
            for family in [Family::V4, Family::V6] {
                let header = Message::Error(what.to_icmp(family, 6)).emit(family).unwrap();
                let Message::Error(read) = Message::parse(family, header) else { panic!("{what:?}") };
                // IPv6 has no word of its own for this one.
                let is_problem = (what, family) == (Unsent::ProtocolUnreachable, Family::V6);
                let expected = if is_problem { Unsent::ParameterProblem } else { what };
                assert_eq!(Unsent::of(read), expected, "{family:?}");
            }
        }
    }
}
