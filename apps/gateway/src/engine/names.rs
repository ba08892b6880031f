//! The name server inside.
//!
//! A query is forwarded to the host's resolvers in order, by UDP or TCP as it came, and its answer is passed on as it is. The addresses in the answer are pinned to the
//! name that was asked for ([`Names`](crate::policy::Names)). The host's own name inside ([`HOST_NAME`]) is answered here.
//!
//! Each query has a socket of its own at the host, so an answer has to guess port and number. An answer to another question is dropped. Bounds: [`QUERIES_MAX`]
//! at a time, more are dropped; [`STREAMS_MAX`] connections.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use simple_dns::rdata::{A, AAAA, RData};
use simple_dns::{CLASS, Packet, QTYPE, ResourceRecord, TYPE};
use sockeye::tokio::{TcpListener, TcpStream, UdpSocket};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{Cx, task};
use crate::args::HOST_NAME;
use crate::plan::Plan;

/// Queries that wait for an answer.
const QUERIES_MAX: usize = 512;
/// Connections of the name server.
const STREAMS_MAX: usize = 64;
/// For one resolver to answer; then the next is asked. Clients ask again after five.
const TIMEOUT: Duration = Duration::from_secs(2);
/// For a client to send its next query over TCP.
const IDLE: Duration = Duration::from_secs(30);
/// The port of names.
const PORT: u16 = 53;
/// Bytes of a message over UDP, at most, with all extensions.
const MESSAGE_MAX: usize = 65_535;
/// How long a client may keep the host's address, seconds.
const HOST_TTL: u32 = 60;

/// Starts the tasks.
pub fn serve(cx: &Rc<Cx>) -> io::Result<()> {
    for addr in cx.shared.plan.names {
        let addr = SocketAddr::new(addr, PORT);
        let socket = sockeye::UdpBuilder::for_addr(&cx.stack, addr).bind(addr)?;
        task(datagrams(Rc::clone(cx), Rc::new(UdpSocket::from_std(socket)?)));
        let listener = sockeye::TcpListener::bind_on(&cx.stack, addr)?;
        task(streams(Rc::clone(cx), TcpListener::from_std(listener)?));
    }
    Ok(())
}

async fn datagrams(cx: Rc<Cx>, socket: Rc<UdpSocket>) {
    let places = Arc::new(Semaphore::new(QUERIES_MAX));
    let mut buffer = vec![0; MESSAGE_MAX];
    loop {
        // An error is a report about an earlier answer.
        let Ok((len, from)) = socket.recv_from(&mut buffer).await else { continue };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let (query, cx, socket) = (buffer[..len].to_vec(), Rc::clone(&cx), Rc::clone(&socket));
        task(async move {
            if let Some(answer) = answer(&cx, &query, Way::Datagram).await {
                // One that cannot be sent is lost, and asked for again.
                let _ = socket.send_to(&answer, from).await;
            }
            drop(place);
        });
    }
}

async fn streams(cx: Rc<Cx>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(STREAMS_MAX));
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let cx = Rc::clone(&cx);
        task(async move {
            // Its end, by error or not, is the end of the connection.
            let _ = stream_of(&cx, stream).await;
            drop(place);
        });
    }
}

async fn stream_of(cx: &Cx, mut stream: TcpStream) -> io::Result<()> {
    while let Ok(query) = timeout(IDLE, read(&mut stream)).await {
        let Some(answer) = answer(cx, &query?, Way::Stream).await else { break };
        write(&mut stream, &answer).await?;
    }
    Ok(())
}

/// How a query came and goes on.
#[derive(Clone, Copy)]
enum Way {
    Datagram,
    Stream,
}

/// The answer to a query. `None` if it is none, or nobody answers.
async fn answer(cx: &Cx, query: &[u8], way: Way) -> Option<Vec<u8>> {
    if let Some(answer) = own(&cx.shared.plan, query) {
        return Some(answer);
    }
    for resolver in &cx.shared.resolvers {
        let asked = async {
            match way {
                Way::Datagram => ask_datagram(*resolver, query).await,
                Way::Stream => ask_stream(*resolver, query).await,
            }
        };
        if let Ok(Ok(answer)) = timeout(TIMEOUT, asked).await {
            pin(cx, &answer);
            return Some(answer);
        }
    }
    None
}

async fn ask_datagram(resolver: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let wildcard: IpAddr =
        if resolver.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = tokio::net::UdpSocket::bind((wildcard, 0)).await?;
    socket.connect(resolver).await?;
    socket.send(query).await?;
    let mut answer = vec![0; MESSAGE_MAX];
    loop {
        let len = socket.recv(&mut answer).await?;
        if is_answer(query, &answer[..len]) {
            answer.truncate(len);
            return Ok(answer);
        }
    }
}

async fn ask_stream(resolver: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = tokio::net::TcpStream::connect(resolver).await?;
    write(&mut stream, query).await?;
    let answer = read(&mut stream).await?;
    if is_answer(query, &answer) { Ok(answer) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// A message after its length (RFC 1035 section 4.2.2).
async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut message = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), message: &[u8]) -> io::Result<()> {
    let len = u16::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    // One write, so one segment.
    let bytes = [&len.to_be_bytes(), message].concat();
    stream.write_all(&bytes).await
}

/// Bytes of a message's header.
const HEADER: usize = 12;

/// Whether this answers the query: its number, the bit of answers, and its first question.
fn is_answer(query: &[u8], answer: &[u8]) -> bool {
    let (Some(asked), Some(head)) = (query.get(..HEADER), answer.get(..HEADER)) else { return false };
    if asked[..2] != head[..2] || head[2] & 0x80 == 0 {
        return false;
    }
    match (Packet::parse(query), Packet::parse(answer)) {
        (Ok(query), Ok(answer)) => match (query.questions.first(), answer.questions.first()) {
            (Some(asked), Some(answered)) => {
                let same = asked.qname.to_string().eq_ignore_ascii_case(&answered.qname.to_string());
                same && asked.qtype == answered.qtype
            }
            (None, _) => true,
            // Some resolvers leave it out of an error.
            (Some(_), None) => answer.answers.is_empty(),
        },
        // Types that are not known here are the client's business.
        _ => true,
    }
}

/// The answer for the host's own name.
fn own(plan: &Plan, query: &[u8]) -> Option<Vec<u8>> {
    let packet = Packet::parse(query).ok()?;
    let question = packet.questions.first()?;
    let name = question.qname.to_string();
    if !name.trim_end_matches('.').eq_ignore_ascii_case(HOST_NAME) {
        return None;
    }
    let mut reply = Packet::new_reply(packet.id());
    reply.questions.push(question.clone());
    let data = match (question.qtype, plan.host) {
        (QTYPE::TYPE(TYPE::A), [IpAddr::V4(addr), _]) => Some(RData::A(A::from(addr))),
        (QTYPE::TYPE(TYPE::AAAA), [_, IpAddr::V6(addr)]) => Some(RData::AAAA(AAAA::from(addr))),
        _ => None,
    };
    reply
        .answers
        .extend(data.map(|data| ResourceRecord::new(question.qname.clone(), CLASS::IN, HOST_TTL, data)));
    reply.build_bytes_vec().ok()
}

/// Remembers the addresses of an answer under the name that was asked for.
fn pin(cx: &Cx, answer: &[u8]) {
    let Ok(packet) = Packet::parse(answer) else { return };
    let Some(name) = packet.questions.first().map(|question| question.qname.to_string()) else { return };
    for record in &packet.answers {
        let addr: IpAddr = match &record.rdata {
            RData::A(a) => Ipv4Addr::from(a.address).into(),
            RData::AAAA(aaaa) => Ipv6Addr::from(aaaa.address).into(),
            _ => continue,
        };
        cx.shared.policy.names.pin(&name, addr, Duration::from_secs(u64::from(record.ttl)));
    }
}

#[cfg(test)]
mod tests {
    use simple_dns::{Name, QCLASS, Question};

    use super::*;

    fn query(name: &str, kind: TYPE) -> Vec<u8> {
        let mut packet = Packet::new_query(7);
        let name = Name::new(name).unwrap().into_owned();
        packet.questions.push(Question::new(name, QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN), false));
        packet.build_bytes_vec().unwrap()
    }

    #[test]
    fn the_hosts_name_is_answered_here_and_others_are_not() {
        let answer = own(&Plan::default(), &query("Host.Internal", TYPE::A)).unwrap();
        assert!(is_answer(&query("host.internal", TYPE::A), &answer));
        let packet = Packet::parse(&answer).unwrap();
        assert!(
            matches!(&packet.answers[0].rdata, RData::A(a) if Ipv4Addr::from(a.address) == Ipv4Addr::new(10, 0, 2, 2))
        );
        let none = own(&Plan::default(), &query("host.internal", TYPE::MX)).unwrap();
        assert!(Packet::parse(&none).unwrap().answers.is_empty());
        assert!(own(&Plan::default(), &query("example.org", TYPE::A)).is_none());
        assert!(own(&Plan::default(), b"").is_none());
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
}
