//! Calls and their answers.
//!
//! HTTP/1.1: GET over a connection that is kept open, answered with 13 bytes. HTTP/2: a unary call as RPC libraries make it, that is a
//! POST with a message of 32 bytes, answered with one of 32 bytes and trailers.
//!
//! Invariant: a call is counted when its answer has been read to the end and was the right one.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use clap::ValueEnum;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HOST, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::net::Net;

/// The protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Version {
    /// HTTP/1.1, kept alive
    Http1,
    /// HTTP/2, unary calls
    Http2,
}

/// The reports of the tasks.
#[derive(Clone)]
pub struct Counts {
    /// Of each connection.
    pub calls: Arc<[AtomicU64]>,
    /// The first sentence ends the sample.
    pub failed: Sender<String>,
}

impl Counts {
    /// For so many connections.
    pub fn new(connections: u16) -> (Self, Receiver<String>) {
        let (failed, failures) = channel();
        let calls = (0..connections).map(|_| AtomicU64::new(0)).collect();
        (Self { calls, failed }, failures)
    }
}

/// Accepts connections and answers until the process ends.
pub async fn serve<N: Net>(version: Version, listener: N::Listener, failed: Sender<String>) {
    loop {
        match N::accept(&listener).await {
            Ok(stream) => drop(tokio::spawn(answer(version, stream))),
            Err(error) => {
                // The receiver is dropped when the sample is over.
                let _ = failed.send(format!("accept: {error}"));
                return;
            }
        }
    }
}

/// Answers the calls of one connection. The other end reports how it ends.
async fn answer<S>(version: Version, stream: S)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let io = TokioIo::new(stream);
    let _ = match version {
        Version::Http1 => {
            let service = service_fn(async |_: Request<Incoming>| {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(GREETING))))
            });
            hyper::server::conn::http1::Builder::new().serve_connection(io, service).await
        }
        Version::Http2 => {
            let service = service_fn(|request: Request<Incoming>| unary(request));
            hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await
        }
    };
}

/// The answer to a unary call: the request's body, with trailers.
async fn unary(
    request: Request<Incoming>,
) -> hyper::Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>> {
    let message = request.into_body().collect().await?.to_bytes();
    let trailers = HeaderMap::from_iter([(
        hyper::header::HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )]);
    Ok(Response::new(Full::new(message).with_trailers(async { Some(Ok(trailers)) })))
}

/// Makes one call after the other over one connection.
pub async fn call<N: Net>(version: Version, to: SocketAddr, counts: Counts, index: usize) {
    let done = match version {
        Version::Http1 => call_http1::<N>(to, &counts.calls[index]).await,
        Version::Http2 => call_http2::<N>(to, &counts.calls[index]).await,
    };
    if let Err(error) = done {
        // The receiver is dropped when the sample is over.
        let _ = counts.failed.send(format!("connection {index}: {error}"));
    }
}

async fn call_http1<N: Net>(to: SocketAddr, count: &AtomicU64) -> io::Result<()> {
    let io = TokioIo::new(N::connect(to).await?);
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(io).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    loop {
        // The connection's task may not have seen yet that the last answer is over.
        sender.ready().await.map_err(io::Error::other)?;
        let request = Request::get("/").header(HOST, "localhost").body(Empty::<Bytes>::new());
        let response =
            sender.send_request(request.map_err(io::Error::other)?).await.map_err(io::Error::other)?;
        finish(response, GREETING, count).await?;
    }
}

async fn call_http2<N: Net>(to: SocketAddr, count: &AtomicU64) -> io::Result<()> {
    let io = TokioIo::new(N::connect(to).await?);
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
    let (mut sender, connection) = handshake.await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    loop {
        sender.ready().await.map_err(io::Error::other)?;
        let request = Request::post("http://localhost/call").body(Full::new(Bytes::from_static(MESSAGE)));
        let response =
            sender.send_request(request.map_err(io::Error::other)?).await.map_err(io::Error::other)?;
        finish(response, MESSAGE, count).await?;
    }
}

/// Reads an answer to its end and counts it.
async fn finish(response: Response<Incoming>, expected: &[u8], count: &AtomicU64) -> io::Result<()> {
    let status = response.status();
    let body = response.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    if status != StatusCode::OK || body != expected {
        return Err(io::Error::other(format!("an answer of {} bytes with status {status}", body.len())));
    }
    // The only writer of this count.
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    Ok(())
}

/// The answer over HTTP/1.1.
const GREETING: &[u8] = b"Hello, World!";
/// A message of HTTP/2: a prefix of five bytes and 27 more.
const MESSAGE: &[u8; 32] = b"\0\0\0\0\x1babcdefghijklmnopqrstuvwxyz.";
