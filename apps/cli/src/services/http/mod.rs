//! Files of one directory over HTTP/1.1 (RFC 9110, 9112): GET and HEAD, one range, directories as lists.
//!
//! `request` reads heads, which `httparse` parses, `response` writes answers, `root` finds files and keeps to the directory, `range`
//! reads a range. A file is sent piece by piece, so that a large one takes no memory.
//!
//! Does not depend on how paths are resolved. Invariants: a client's faults are answered by 4xx, and our own by 500 and a
//! line on standard error; a client that is idle is disconnected after [`Limits::silence`], one that takes nothing of its
//! answer is reset after [`Limits::patience`]; whatever of a request cannot be understood ends its connection.
//!
//! Tests: `tests.rs`, at the ends of the files; with curl and ab in `tests/cli/http.rs`.

mod range;
mod request;
mod response;
mod root;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use sockeye::Stack;
use sockeye::tokio::{TcpListener, TcpStream};
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeekExt, AsyncWrite, AsyncWriteExt};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use range::Part;
use request::{Inbox, Request};
use response::Head;
pub use root::Root;
use root::{Found, Refusal};

/// How long a client may stand still.
#[derive(Clone, Copy)]
struct Limits {
    /// For the head of a request, the next one on its connection included.
    silence: Duration,
    /// Taking nothing while something waits to be written.
    patience: Duration,
}

const LIMITS: Limits = Limits { silence: Duration::from_secs(30), patience: Duration::from_secs(30) };
/// Bytes of a file that are read at once.
const PIECE: usize = 256 << 10;
/// How long, and how many bytes of it, a request's content is read for before its connection is closed. A close with unread bytes is a
/// reset, which can overtake the answer.
const DRAIN: (Duration, u64) = (Duration::from_secs(2), 256 << 10);

/// Connections that can be given up.
trait Abort {
    /// Has the connection reset when it is dropped. A close would leave what was written to the stack, which would offer it to a
    /// client that takes nothing for as long as that answers window probes.
    fn abort_on_drop(&self);
}

impl Abort for TcpStream {
    fn abort_on_drop(&self) {
        // A time of zero is within its bounds.
        let _ = self.set_linger(Some(Duration::ZERO));
    }
}

/// Serves the files of `root` at this address.
pub async fn start(stack: &Stack, at: SocketAddr, root: &Root, tasks: &mut JoinSet<()>) -> io::Result<()> {
    let listener = TcpListener::bind_on(stack, at).await?;
    let root = root.clone();
    tasks.spawn(super::accept(listener, move |stream, from| {
        let root = root.clone();
        async move {
            if let Err(error) = connection(stream, &root, LIMITS).await {
                eprintln!("http client {from}: {error}");
            }
        }
    }));
    Ok(())
}

/// Answers one request after the other until either side ends it.
async fn connection(
    mut stream: impl AsyncRead + AsyncWrite + Abort + Unpin,
    root: &Root,
    limits: Limits,
) -> io::Result<()> {
    let mut inbox = Inbox::default();
    loop {
        let request = match timeout(limits.silence, inbox.request(&mut stream)).await {
            // An idle client, or one that has left.
            Err(_) | Ok(Ok(None)) => return Ok(()),
            Ok(Err(error)) => return Err(error),
            Ok(Ok(Some(Err(status)))) => {
                let mut head = Head::of_status(status);
                head.closes = true;
                send(&mut stream, &head.bytes(), limits).await?;
                return drain(&mut stream).await;
            }
            Ok(Ok(Some(Ok(request)))) => request,
        };
        let closes = request.closes;
        answer(&mut stream, root, request, limits).await?;
        if closes {
            return drain(&mut stream).await;
        }
    }
}

/// Answers one request.
async fn answer(
    stream: &mut (impl AsyncWrite + Abort + Unpin),
    root: &Root,
    request: Request,
    limits: Limits,
) -> io::Result<()> {
    let Some(is_head) = request.is_head else {
        let mut head = Head::of_status(405);
        head.fields.push_str("allow: GET, HEAD\r\n");
        return finish(stream, head, &request, limits).await;
    };
    // It may wait for a disk.
    let (root, path) = (root.clone(), request.path.clone());
    let found = spawn_blocking(move || root.find(&path)).await;
    let (head, content) = match found.unwrap_or_else(|error| Err(Refusal::Failed(io::Error::other(error)))) {
        Ok(Found::File(file, len)) => of_file(file, len, &request),
        Ok(Found::Directory(listing)) if request.takes_html => {
            (Head::of_text(200, "text/html; charset=utf-8", listing.page(&request.path)), None)
        }
        Ok(Found::Directory(listing)) => {
            (Head::of_text(200, "text/plain; charset=utf-8", listing.lines()), None)
        }
        Err(refusal) => (Head::of_status(status_of(&refusal, &request.path)), None),
    };
    match content {
        Some((file, at)) if !is_head => send_file(stream, head, file, at, &request, limits).await,
        _ => finish(stream, head, &request, limits).await,
    }
}

/// The head of the answer with a part of a file, and where the part begins, if it has bytes.
fn of_file(file: std::fs::File, len: u64, request: &Request) -> (Head, Option<(File, u64)>) {
    let part = request.range.as_deref().map_or(Part::Whole, |asked| range::read(asked, len));
    let media_type = range::media_type(&request.path);
    let (mut head, at) = match &part {
        Part::Whole => (Head::of_content(200, media_type, len), 0),
        Part::Some(range) => {
            let mut head = Head::of_content(206, media_type, range.end - range.start);
            head.fields.push_str(&format!(
                "content-range: bytes {}-{}/{len}\r\n",
                range.start,
                range.end - 1
            ));
            (head, range.start)
        }
        Part::None => {
            let mut head = Head::of_status(416);
            head.fields.push_str(&format!("content-range: bytes */{len}\r\n"));
            return (head, None);
        }
    };
    head.fields.push_str("accept-ranges: bytes\r\n");
    (head, Some((File::from_std(file), at)))
}

fn status_of(refusal: &Refusal, path: &str) -> u16 {
    match refusal {
        Refusal::Malformed => 400,
        Refusal::Missing => 404,
        Refusal::Forbidden => 403,
        Refusal::Failed(error) => {
            eprintln!("http: {path}: {error}");
            500
        }
    }
}

/// Sends an answer whose content is in its head's value.
async fn finish(
    stream: &mut (impl AsyncWrite + Abort + Unpin),
    mut head: Head,
    request: &Request,
    limits: Limits,
) -> io::Result<()> {
    (head.closes, head.is_old) = (request.closes, request.is_old);
    if request.is_head == Some(true) {
        // The length does not change.
        head.text.clear();
    }
    send(stream, &head.bytes(), limits).await
}

/// Sends an answer with the bytes of `file` from `at` on, as many as the head promises.
///
/// # Errors
/// `UnexpectedEof` if the file has become shorter: that ends the connection, so that the answer does not look whole.
async fn send_file(
    stream: &mut (impl AsyncWrite + Abort + Unpin),
    mut head: Head,
    mut file: File,
    at: u64,
    request: &Request,
    limits: Limits,
) -> io::Result<()> {
    (head.closes, head.is_old) = (request.closes, request.is_old);
    file.set_max_buf_size(PIECE);
    if at > 0 {
        file.seek(io::SeekFrom::Start(at)).await?;
    }
    let mut left = head.content_len;
    let mut out = head.bytes();
    let mut piece = vec![0; usize::try_from(left).unwrap_or(PIECE).min(PIECE)];
    while left > 0 {
        let most = piece.len().min(usize::try_from(left).unwrap_or(PIECE));
        let read = file.read(&mut piece[..most]).await?;
        if read == 0 {
            let message = format!("the file has become {left} bytes shorter");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        // The head leaves with the first piece.
        out.extend_from_slice(&piece[..read]);
        send(stream, &out, limits).await?;
        out.clear();
        left -= read as u64;
    }
    send(stream, &out, limits).await
}

/// Writes all of `bytes`.
///
/// # Errors
/// `TimedOut` if the client takes nothing for [`Limits::patience`]; the connection is then reset.
async fn send(
    stream: &mut (impl AsyncWrite + Abort + Unpin),
    mut bytes: &[u8],
    limits: Limits,
) -> io::Result<()> {
    while !bytes.is_empty() {
        let Ok(written) = timeout(limits.patience, stream.write(bytes)).await else {
            stream.abort_on_drop();
            let message = format!("the client has taken nothing for {:?}", limits.patience);
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        };
        bytes = &bytes[written?..];
    }
    Ok(())
}

/// Ends a connection whose client may still be sending.
async fn drain(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    stream.shutdown().await?;
    let (most, bytes) = DRAIN;
    let mut rest = stream.take(bytes);
    // What comes does not matter, nor how it ends.
    let _ = timeout(most, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
    Ok(())
}
