//! The name server inside.
//!
//! A query is forwarded to the host's resolvers in order, by UDP or TCP as it came, and the answer is returned unchanged. The addresses in the answer are recorded for the
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
use sockeye::tokio::{TcpListener, TcpStream, UdpSocket};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle as Task;
use tokio::time::timeout;

use super::messages::{addresses, is_answer, own};
use super::udp::{onward, pending_error};
use super::{Cx, scratch, task};

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
    if let Some(answer) = own(cx.shared.plan.host, query) {
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
