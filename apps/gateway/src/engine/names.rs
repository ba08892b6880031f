//! The name server inside.
//!
//! A query is forwarded to the host's resolvers, by UDP or TCP as it came, and the answer is returned unchanged. The next one is asked when one fails, says that it failed, or has not answered for a time; the
//! others may still answer. The addresses in the answer are recorded for the
//! name of the query ([`Names`](crate::policy::Names)). Queries for the host's own name inside (`HOST_NAME`) are answered here.
//!
//! Each query has its own socket on the host, so a forged answer has to guess port and number. An answer to another question is dropped. Bounds: [`QUERIES_MAX`]
//! pending queries, beyond which the oldest is abandoned (most are answered soon, and its client has probably repeated it); [`STREAMS_MAX`] TCP connections. Message formats: `messages.rs`.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use sockeye::tokio::{TcpListener, UdpSocket};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle as Task, JoinSet};
use tokio::time::timeout;

use super::messages::{addresses, is_answer, own};
use super::udp::{onward, pending_error};
use super::{Cx, scratch, task};
use crate::resolvers::Resolvers;

/// Queries that wait for an answer.
const QUERIES_MAX: usize = 512;
/// Connections of the name server.
const STREAMS_MAX: usize = 64;
/// For one resolver to answer. Clients ask again after as long.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Codes of answers whose resolver could not find out: SERVFAIL, NOTIMP, REFUSED (RFC 1035 section 4.1.1).
const FAILED: [u8; 3] = [2, 4, 5];
/// For a client to send its next query over TCP, and to take an answer.
const IDLE: Duration = Duration::from_secs(30);
/// The port of names.
const PORT: u16 = 53;
/// Bytes of a message over UDP, at most, with all extensions.
pub(super) const MESSAGE_MAX: usize = 65_535;

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
    let mut under_way: VecDeque<Task<()>> = VecDeque::new();
    let mut buffer = vec![0; MESSAGE_MAX];
    loop {
        // An error is a report about an earlier answer.
        let Ok((len, from)) = socket.recv_from(&mut buffer).await else { continue };
        if under_way.len() >= QUERIES_MAX {
            under_way.retain(|query| !query.is_finished());
        }
        if under_way.len() >= QUERIES_MAX
            && let Some(oldest) = under_way.pop_front()
        {
            oldest.abort();
        }
        let begun = cx.credits.queries.begin().await;
        let (query, cx, socket) = (buffer[..len].to_vec(), Rc::clone(&cx), Rc::clone(&socket));
        under_way.push_back(task(async move {
            if let Some(answer) = answer(&cx, &query, Way::Datagram).await {
                begun.answered();
                // One that cannot be sent is lost, and asked for again.
                let _ = socket.send_to(&answer, from).await;
            }
        }));
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
            let _ = stream_of(stream, async |query: &[u8]| answer(&cx, query, Way::Stream).await).await;
            drop(place);
        });
    }
}

/// Answers a client's queries, until it ends, sends nothing for a time, or takes nothing.
async fn stream_of(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: impl AsyncFn(&[u8]) -> Option<Vec<u8>>,
) -> io::Result<()> {
    while let Ok(query) = timeout(IDLE, read(&mut stream)).await {
        let Some(answer) = answer(&query?).await else { break };
        timeout(IDLE, write(&mut stream, &answer)).await??;
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
    if let Some(answer) = own(cx.shared.plan.host, query) {
        return Some(answer);
    }
    let answer = ask_all(&cx.shared.resolvers, query, way).await?;
    pin(cx, &answer);
    Some(answer)
}

/// Asks resolvers until one has found out. If none has, the first one's word of that is the answer.
async fn ask_all(resolvers: &Resolvers, query: &[u8], way: Way) -> Option<Vec<u8>> {
    // Those that are asked end with this.
    let (mut asked, mut failed) = (JoinSet::new(), None);
    let mut further = resolvers.addrs.iter();
    let query: Rc<[u8]> = query.into();
    loop {
        let next = further.next();
        if let Some(resolver) = next {
            let asking = ask(*resolver, Rc::clone(&query), way);
            asked.spawn_local(timeout(TIMEOUT, asking));
        }
        let is_waited_for = next.is_none() && failed.is_none();
        let patience = if is_waited_for { TIMEOUT } else { resolvers.next_after };
        match timeout(patience, asked.join_next()).await {
            Ok(Some(Ok(Ok(Ok(answer))))) => {
                // `is_answer` has seen a whole header.
                let has_failed = answer.get(3).is_some_and(|code| FAILED.contains(&(code & 0xf)));
                if !has_failed {
                    return Some(answer);
                }
                failed = failed.or(Some(answer));
            }
            // It does not answer, or in time.
            Ok(Some(_)) => {}
            Ok(None) | Err(_) if next.is_none() => return failed,
            Ok(None) | Err(_) => {}
        }
    }
}

async fn ask(resolver: SocketAddr, query: Rc<[u8]>, way: Way) -> io::Result<Vec<u8>> {
    match way {
        Way::Datagram => ask_datagram(resolver, &query).await,
        Way::Stream => ask_stream(resolver, &query).await,
    }
}

async fn ask_datagram(resolver: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let socket = onward(resolver)?;
    SockRef::from(&socket).send(query)?;
    loop {
        // A resolver that is not there is told by ICMP, which is an error of the socket and no readiness to read.
        if socket.ready(Interest::READABLE | Interest::ERROR).await?.is_error() {
            pending_error(&socket)?;
        }
        let received: io::Result<_> = scratch::with(|buffer| {
            let len = socket.try_recv(buffer)?;
            Ok(is_answer(query, &buffer[..len]).then(|| buffer[..len].to_vec()))
        });
        match received {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
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

/// Remembers the addresses of an answer under the name that was asked for.
fn pin(cx: &Cx, answer: &[u8]) {
    for (name, addr, ttl) in addresses(answer) {
        cx.shared.policy.names.pin(&name, addr, ttl);
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::LocalSet;

    use super::*;

    /// A resolver that answers with this code; none if it does not answer. `goes` is told each query, and waited for.
    async fn resolver(
        code: Option<u8>,
        asked: &Rc<tokio::sync::Notify>,
        goes: Option<Rc<tokio::sync::Notify>>,
    ) -> SocketAddr {
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let addr = socket.local_addr().unwrap();
        let asked = Rc::clone(asked);
        task(async move {
            let mut bytes = [0; 512];
            while let Ok((len, from)) = socket.recv_from(&mut bytes).await {
                asked.notify_one();
                if let Some(goes) = &goes {
                    goes.notified().await;
                }
                if let Some(code) = code {
                    (bytes[2], bytes[3]) = (bytes[2] | 0x80, code);
                    socket.send_to(&bytes[..len], from).await.unwrap();
                }
            }
        });
        addr
    }

    fn query() -> Vec<u8> {
        let head = [0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        [&head[..], b"\x01a\x04test\0", &[0, 1, 0, 1]].concat()
    }

    fn alone(test: impl AsyncFn()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, test());
    }

    /// The code of the answer.
    async fn code(addrs: Vec<SocketAddr>, next_after: Duration) -> Option<u8> {
        let resolvers = Resolvers { addrs, next_after };
        ask_all(&resolvers, &query(), Way::Datagram).await.map(|answer| answer[3])
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_no_answer_loses_its_place() {
        let (mut client, server) = tokio::io::duplex(16);
        let start = tokio::time::Instant::now();
        client.write_all(&[0, 1, 7]).await.unwrap();
        let ended = stream_of(server, async |_: &[u8]| Some(vec![0; 1000])).await;
        assert_eq!((ended.unwrap_err().kind(), start.elapsed()), (io::ErrorKind::TimedOut, IDLE));
    }

    #[test]
    fn a_resolver_that_could_not_find_out_is_not_the_last_that_is_asked() {
        alone(async || {
            let asked = Rc::default();
            for failure in FAILED {
                let failing = resolver(Some(failure), &asked, None).await;
                let [good, unknown] =
                    [resolver(Some(0), &asked, None).await, resolver(Some(3), &asked, None).await];
                let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
                let long = Duration::from_secs(60);
                assert_eq!(code(vec![failing, good], long).await, Some(0));
                assert_eq!(
                    code(vec![closed, failing, unknown], long).await,
                    Some(3),
                    "there is no such name"
                );
                assert_eq!(code(vec![failing, closed], long).await, Some(failure), "nobody knows better");
                assert_eq!(code(vec![closed], long).await, None);
            }
            assert_eq!(code(vec![], Duration::ZERO).await, None);
        });
    }

    #[test]
    fn a_resolver_that_is_slow_is_not_given_up_when_the_next_is_asked() {
        alone(async || {
            let (first, second) = (Rc::default(), Rc::default());
            // It answers when the second has been asked, which says nothing.
            let slow = resolver(Some(0), &first, Some(Rc::clone(&second))).await;
            let silent = resolver(None, &second, None).await;
            assert_eq!(code(vec![slow, silent], Duration::from_millis(20)).await, Some(0));
            let failing = resolver(Some(2), &first, None).await;
            assert_eq!(
                code(vec![silent, failing], Duration::from_millis(20)).await,
                Some(2),
                "the other one is not waited for much longer"
            );
        });
    }
}
