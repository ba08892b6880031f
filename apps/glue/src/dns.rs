//! A name server on Sockeye's sockets, over UDP and TCP (RFC 1035). It answers by a function.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sockeye::Stack;
use sockeye::tokio::hickory::hickory_resolver::proto::op::{Message, Metadata, ResponseCode};
use sockeye::tokio::hickory::hickory_resolver::proto::rr::{RData, Record, RecordType};
use sockeye::tokio::{TcpListener, TcpStream, UdpSocket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

/// The server's answer about a name.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// It is this address.
    Address(Ipv4Addr),
    /// By UDP, that the answer does not fit; by TCP, that it is this address.
    Truncated(Ipv4Addr),
    /// There is no such name.
    NoName,
    /// Nothing.
    Silence,
}

/// A name server at 127.0.0.53, which ends when it is dropped.
pub struct DnsServer {
    asked: Arc<[AtomicUsize; 2]>,
    tasks: [JoinHandle<()>; 2],
}

const ADDR: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 53);
const PORT: u16 = 53;
/// How long an answer may be kept, seconds.
const TTL: u32 = 60;
/// Longest query by UDP, bytes (RFC 1035 section 4.2.1; ours have few options).
const QUERY_MAX: usize = 512;

/// How a query came: its place among the counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Udp,
    Tcp,
}

impl DnsServer {
    /// Starts one on a stack. `answer` is called with each name, which ends with a dot.
    pub async fn start(
        stack: &Stack,
        answer: impl Fn(&str) -> Answer + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let addr = SocketAddr::from((ADDR, PORT));
        let udp = UdpSocket::bind_on(stack, addr).await?;
        let tcp = TcpListener::bind_on(stack, addr).await?;
        let asked = Arc::new([const { AtomicUsize::new(0) }; 2]);
        let counts = Arc::clone(&asked);
        let reply = Arc::new(move |query: &[u8], by: By| {
            counts[by as usize].fetch_add(1, Ordering::Relaxed);
            reply(query, by, &answer)
        });
        let by_udp = Arc::clone(&reply);
        let tasks = [
            tokio::spawn(async move {
                let mut query = [0; QUERY_MAX];
                while let Ok((len, from)) = udp.recv_from(&mut query).await {
                    if let Some(reply) = by_udp(&query[..len], By::Udp) {
                        let _ = udp.send_to(&reply, from).await;
                    }
                }
            }),
            tokio::spawn(async move {
                while let Ok((stream, _)) = tcp.accept().await {
                    let reply = Arc::clone(&reply);
                    tokio::spawn(async move { serve(stream, |query| reply(query, By::Tcp)).await });
                }
            }),
        ];
        Ok(Self { asked, tasks })
    }

    /// Where it is.
    pub fn ip(&self) -> IpAddr {
        ADDR.into()
    }

    /// Queries that came by UDP.
    pub fn asked_by_udp(&self) -> usize {
        self.asked[By::Udp as usize].load(Ordering::Relaxed)
    }

    /// Queries that came by TCP.
    pub fn asked_by_tcp(&self) -> usize {
        self.asked[By::Tcp as usize].load(Ordering::Relaxed)
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Messages by TCP have their length before them (RFC 1035 section 4.2.2).
async fn serve(mut stream: TcpStream, reply: impl Fn(&[u8]) -> Option<Vec<u8>>) -> io::Result<()> {
    loop {
        let mut query = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut query).await?;
        let Some(reply) = reply(&query) else { continue };
        stream.write_u16(reply.len().try_into().map_err(io::Error::other)?).await?;
        stream.write_all(&reply).await?;
    }
}

fn reply(query: &[u8], by: By, answer: impl Fn(&str) -> Answer) -> Option<Vec<u8>> {
    let query = Message::from_vec(query).ok()?;
    let question = query.queries.first()?;
    let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
    reply.metadata = Metadata::response_from_request(&query.metadata);
    reply.metadata.recursion_available = true;
    reply.add_query(question.clone());
    match answer(&question.name().to_string()) {
        Answer::Truncated(_) if by == By::Udp => reply.metadata.truncation = true,
        Answer::Address(addr) | Answer::Truncated(addr) => {
            if question.query_type() == RecordType::A {
                let record = Record::from_rdata(question.name().clone(), TTL, RData::A(addr.into()));
                reply.add_answer(record);
            }
        }
        Answer::NoName => reply.metadata.response_code = ResponseCode::NXDomain,
        Answer::Silence => return None,
    }
    reply.to_vec().ok()
}
