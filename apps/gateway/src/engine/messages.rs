//! DNS messages: matches answers to queries, answers for the host's own name, and extracts the addresses of an answer.
//!
//! The bytes come from a hostile inside or from any resolver; `simple-dns` parses them. Does not depend on sockets or on other files of the gateway: the fuzz target `machine`
//! also compiles this file. Tests: below.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use simple_dns::rdata::{A, AAAA, RData};
use simple_dns::{CLASS, Packet, QTYPE, ResourceRecord, TYPE};

/// The name of the host inside.
pub const HOST_NAME: &str = "host.internal";
/// How long a client may keep the host's address, seconds.
const HOST_TTL: u32 = 60;
/// Records of one answer that are looked at. Programs take the first ones, and whoever has a zone decides how many there are.
const RECORDS_MAX: u16 = 64;
/// Bytes of a message's header.
const HEADER: usize = 12;

/// A message as if it had one question, at most `records` answers, and nothing else. A message has room for 4,000 records, and the name of each may lead through all of those before it: to read
/// them all takes tenths of a second. `None` if there is no header.
fn front(message: &[u8], records: u16) -> Option<Vec<u8>> {
    let mut front = message.to_vec();
    let counts = front.get_mut(4..HEADER)?;
    let of =
        |at: usize, most: u16| u16::from_be_bytes([message[at], message[at + 1]]).min(most).to_be_bytes();
    counts.copy_from_slice(&[of(4, 1), of(6, records), [0; 2], [0; 2]].concat());
    Some(front)
}

/// Whether this answers the query: its number, the bit of answers, and its first question.
pub fn is_answer(query: &[u8], answer: &[u8]) -> bool {
    let (Some(asked), Some(head)) = (query.get(..HEADER), answer.get(..HEADER)) else { return false };
    if asked[..2] != head[..2] || head[2] & 0x80 == 0 {
        return false;
    }
    let has_records = head[6..8] != [0, 0];
    let (Some(query), Some(answer)) = (front(query, 0), front(answer, 0)) else { return false };
    match (Packet::parse(&query), Packet::parse(&answer)) {
        (Ok(query), Ok(answer)) => match (query.questions.first(), answer.questions.first()) {
            (Some(asked), Some(answered)) => {
                let same = asked.qname.to_string().eq_ignore_ascii_case(&answered.qname.to_string());
                same && asked.qtype == answered.qtype
            }
            (None, _) => true,
            // Some resolvers leave it out of an error.
            (Some(_), None) => !has_records,
        },
        // Types that are not known here are the client's business.
        _ => true,
    }
}

/// The answer for the host's own name, whose addresses inside these are.
pub fn own(host: [IpAddr; 2], query: &[u8]) -> Option<Vec<u8>> {
    let query = front(query, 0)?;
    let packet = Packet::parse(&query).ok()?;
    let question = packet.questions.first()?;
    let name = question.qname.to_string();
    if !name.trim_end_matches('.').eq_ignore_ascii_case(HOST_NAME) {
        return None;
    }
    let mut reply = Packet::new_reply(packet.id());
    reply.questions.push(question.clone());
    let data = match (question.qtype, host) {
        (QTYPE::TYPE(TYPE::A), [IpAddr::V4(addr), _]) => Some(RData::A(A::from(addr))),
        (QTYPE::TYPE(TYPE::AAAA), [_, IpAddr::V6(addr)]) => Some(RData::AAAA(AAAA::from(addr))),
        _ => None,
    };
    reply
        .answers
        .extend(data.map(|data| ResourceRecord::new(question.qname.clone(), CLASS::IN, HOST_TTL, data)));
    reply.build_bytes_vec().ok()
}

/// The addresses among the first [`RECORDS_MAX`] records of an answer, each with the name that was asked for and how long it may be kept.
pub fn addresses(answer: &[u8]) -> Vec<(String, IpAddr, Duration)> {
    let Some(answer) = front(answer, RECORDS_MAX) else { return Vec::new() };
    let Ok(packet) = Packet::parse(&answer) else { return Vec::new() };
    let Some(name) = packet.questions.first().map(|question| question.qname.to_string()) else {
        return Vec::new();
    };
    let of = |record: &ResourceRecord<'_>| {
        let addr: IpAddr = match &record.rdata {
            RData::A(a) => Ipv4Addr::from(a.address).into(),
            RData::AAAA(aaaa) => Ipv6Addr::from(aaaa.address).into(),
            _ => return None,
        };
        Some((name.clone(), addr, Duration::from_secs(record.ttl.into())))
    };
    packet.answers.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use simple_dns::{Name, QCLASS, Question};

    use super::*;

    const HOST: [IpAddr; 2] =
        [IpAddr::V4(Ipv4Addr::new(10, 0, 2, 2)), IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2))];

    fn query(name: &str, kind: TYPE) -> Vec<u8> {
        let mut packet = Packet::new_query(7);
        let name = Name::new(name).unwrap().into_owned();
        packet.questions.push(Question::new(name, QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN), false));
        packet.build_bytes_vec().unwrap()
    }

    #[test]
    fn the_hosts_name_is_answered_here_and_others_are_not() {
        let answer = own(HOST, &query("Host.Internal", TYPE::A)).unwrap();
        assert!(is_answer(&query("host.internal", TYPE::A), &answer));
        let packet = Packet::parse(&answer).unwrap();
        assert!(
            matches!(&packet.answers[0].rdata, RData::A(a) if Ipv4Addr::from(a.address) == Ipv4Addr::new(10, 0, 2, 2))
        );
        let none = own(HOST, &query("host.internal", TYPE::MX)).unwrap();
        assert!(Packet::parse(&none).unwrap().answers.is_empty());
        assert!(own(HOST, &query("example.org", TYPE::A)).is_none());
        assert!(own(HOST, b"").is_none());
    }

    #[test]
    fn an_answer_is_to_the_question_that_was_asked() {
        let asked = query("example.org", TYPE::A);
        let reply = |name: &str, id: u16| {
            let mut packet = Packet::new_reply(id);
            let name = Name::new_unchecked(name);
            packet.questions.push(Question::new(name, QTYPE::TYPE(TYPE::A), QCLASS::CLASS(CLASS::IN), false));
            packet.build_bytes_vec().unwrap()
        };
        assert!(is_answer(&asked, &reply("EXAMPLE.org", 7)));
        assert!(!is_answer(&asked, &reply("example.org", 8)));
        assert!(!is_answer(&asked, &reply("example.com", 7)));
        assert!(!is_answer(&asked, &asked), "a query is no answer");
        assert!(!is_answer(&asked, b"short"));
    }

    #[test]
    fn the_first_addresses_of_a_long_answer_are_taken() {
        let query = query("example.org", TYPE::A);
        let mut packet = Packet::parse(&query).unwrap().into_reply();
        for number in 0..4000 {
            let data = RData::A(A { address: 0x0a00_0000 + number });
            packet.answers.push(ResourceRecord::new(packet.questions[0].qname.clone(), CLASS::IN, 60, data));
        }
        let found = addresses(&packet.build_bytes_vec_compressed().unwrap());
        let expected = |number: u32| {
            let addr = Ipv4Addr::from_bits(0x0a00_0000 + number).into();
            ("example.org".to_owned(), addr, Duration::from_secs(60))
        };
        assert_eq!(found, (0..64).map(expected).collect::<Vec<_>>());
    }
}
