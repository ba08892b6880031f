//! Files of one directory over HTTP/1.1 (RFC 9110, 9112): GET and HEAD, one range, directories as lists.
//!
//! `hyper` speaks the protocol. `root` finds files and keeps to the directory, `range` reads a range, `body` sends a file
//! piece by piece, so that a large one takes no memory.
//!
//! Does not depend on how paths are resolved. Invariants: a client's faults are answered by 4xx, and our own by 500 and a
//! line on standard error; a client that is idle is disconnected after [`SILENCE_MAX`], one that takes nothing of its
//! answer after [`PATIENCE_MAX`].
//!
//! Tests: at the ends of the files; with curl and ab in `tests/cli/http.rs`.

mod body;
mod patience;
mod range;
mod root;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT, ACCEPT_RANGES, ALLOW, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderValue,
    IF_RANGE, RANGE,
};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use sockeye::Stack;
use sockeye::tokio::{TcpListener, TcpStream};
use tokio::task::{JoinSet, spawn_blocking};

use body::FileBody;
use patience::Patience;
use range::Part;
pub use root::Root;
use root::{Found, Listing, Refusal};

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// How long a client may take for the head of a request, the next one on its connection included.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long a client may take nothing while something waits to be written.
const PATIENCE_MAX: Duration = Duration::from_secs(30);
/// Bytes of a request's head, and of the output that waits besides.
const BUFFER_MAX: usize = 64 << 10;

/// Serves the files of `root` at this address.
pub async fn start(stack: &Stack, at: SocketAddr, root: &Root, tasks: &mut JoinSet<()>) -> io::Result<()> {
    let listener = TcpListener::bind_on(stack, at).await?;
    let root = root.clone();
    tasks.spawn(super::accept(listener, move |stream, from| {
        let root = root.clone();
        async move {
            if let Err(error) = connection(stream, root).await {
                eprintln!("http client {from}: {error}");
            }
        }
    }));
    Ok(())
}

async fn connection(stream: TcpStream, root: Root) -> hyper::Result<()> {
    let service = service_fn(move |request| answer(request, root.clone()));
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(SILENCE_MAX)
        .max_buf_size(BUFFER_MAX)
        .serve_connection(TokioIo::new(Patience::new(stream, PATIENCE_MAX)), service)
        .await
}

/// Answers one request.
async fn answer(request: Request<Incoming>, root: Root) -> Result<Response<Body>, Infallible> {
    let is_head = match *request.method() {
        Method::GET => false,
        Method::HEAD => true,
        _ => {
            let mut response = with_status(StatusCode::METHOD_NOT_ALLOWED);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Ok(response);
        }
    };
    let path = request.uri().path().to_owned();
    let asked = path.clone();
    // It may wait for a disk.
    let found = spawn_blocking(move || root.find(&asked)).await;
    let mut response = match found.unwrap_or_else(|error| Err(Refusal::Failed(io::Error::other(error)))) {
        Ok(Found::File(file, len)) => of_file(file, len, &path, request.headers()),
        Ok(Found::Directory(listing)) => of_directory(&listing, &path, request.headers()),
        Err(refusal) => refused(&refusal, &path),
    };
    if is_head {
        // The length does not change.
        *response.body_mut() = Empty::new().map_err(|never| match never {}).boxed_unsync();
    }
    Ok(response)
}

fn of_file(file: std::fs::File, len: u64, path: &str, headers: &HeaderMap) -> Response<Body> {
    // Files have no validators here, so that none can match (RFC 9110 section 13.1.5).
    let asked = headers.get(RANGE).filter(|_| !headers.contains_key(IF_RANGE));
    let part = asked.map_or(Part::Whole, |asked| range::read(asked, len));
    let (status, at, part_len) = match &part {
        Part::Whole => (StatusCode::OK, 0, len),
        Part::Some(range) => (StatusCode::PARTIAL_CONTENT, range.start, range.end - range.start),
        Part::None => {
            let mut response = with_status(StatusCode::RANGE_NOT_SATISFIABLE);
            insert(&mut response, CONTENT_RANGE, &format!("bytes */{len}"));
            return response;
        }
    };
    let body = FileBody::new(file, at, part_len);
    let mut response = new(status, range::media_type(path), part_len, body.boxed_unsync());
    response.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Part::Some(range) = part {
        insert(&mut response, CONTENT_RANGE, &format!("bytes {}-{}/{len}", range.start, range.end - 1));
    }
    response
}

/// A line for each name, as links for a client that reads HTML.
fn of_directory(listing: &Listing, path: &str, headers: &HeaderMap) -> Response<Body> {
    let accepts = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    if accepts.is_some_and(|accept| accept.contains("text/html")) {
        return text(StatusCode::OK, "text/html; charset=utf-8", listing.page(path));
    }
    text(StatusCode::OK, "text/plain; charset=utf-8", listing.lines())
}

fn refused(refusal: &Refusal, path: &str) -> Response<Body> {
    with_status(match refusal {
        Refusal::Malformed => StatusCode::BAD_REQUEST,
        Refusal::Missing => StatusCode::NOT_FOUND,
        Refusal::Forbidden => StatusCode::FORBIDDEN,
        Refusal::Failed(error) => {
            eprintln!("http: {path}: {error}");
            StatusCode::INTERNAL_SERVER_ERROR
        }
    })
}

/// A status alone, in words.
fn with_status(status: StatusCode) -> Response<Body> {
    text(status, "text/plain; charset=utf-8", format!("{status}\n"))
}

fn text(status: StatusCode, media_type: &'static str, text: String) -> Response<Body> {
    let len = text.len() as u64;
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {});
    new(status, media_type, len, body.boxed_unsync())
}

fn new(status: StatusCode, media_type: &'static str, len: u64, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(len));
    response
}

/// Sets a field of digits and signs, which is always a valid one.
fn insert(response: &mut Response<Body>, name: hyper::header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
