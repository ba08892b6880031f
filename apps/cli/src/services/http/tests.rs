//! Whole connections, over a pipe within the process.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{DuplexStream, ReadBuf, duplex};

use super::*;

/// A pipe that notes whether it was given up.
struct Pipe(DuplexStream, Rc<Cell<bool>>);

impl Abort for Pipe {
    fn abort_on_drop(&self) {
        self.1.set(true);
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// A directory with one file of this length that is deleted with the value.
struct Place(std::path::PathBuf);

impl Place {
    fn new(name: &str, len: usize) -> Self {
        let place = std::env::temp_dir().join(format!("sockeye-http-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(place.join("file"), content(len)).unwrap();
        Self(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// What a client receives that sends `request`, takes `most` bytes and then stands still; how the connection ended, and whether it was given up.
fn conversation(place: &Place, request: &str, most: u64, limits: Limits) -> (Vec<u8>, io::Result<()>, bool) {
    let root = Root::open(&place.0).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (mut near, far) = duplex(16 << 10);
        let given_up = Rc::new(Cell::new(false));
        let served = connection(Pipe(far, Rc::clone(&given_up)), &root, limits);
        let client = async {
            near.write_all(request.as_bytes()).await.unwrap();
            let mut got = Vec::new();
            (&mut near).take(most).read_to_end(&mut got).await.unwrap();
            if (got.len() as u64) < most {
                drop(near);
                return (got, None);
            }
            (got, Some(near))
        };
        let ((got, _near), done) = tokio::join!(client, served);
        (got, done, given_up.get())
    })
}

const LONG: Limits = Limits { silence: Duration::from_secs(60), patience: Duration::from_secs(60) };

#[test]
fn requests_that_come_at_once_are_answered_in_their_order() {
    let place = Place::new("pipelined", 300_000);
    let one = |more: &str| format!("GET /file HTTP/1.1\r\nHost: x\r\n{more}\r\n");
    let requests = format!("{}{}{}", one("Range: bytes=5-6\r\n"), one(""), one("Connection: close\r\n"));
    let (got, done, given_up) = conversation(&place, &requests, u64::MAX, LONG);
    done.unwrap();
    let text = String::from_utf8_lossy(&got);
    assert!(text.starts_with("HTTP/1.1 206 Partial Content\r\n") && !given_up, "{}", &text[..100]);
    assert_eq!(text.matches("HTTP/1.1 200 OK\r\n").count(), 2);
    assert!(got.ends_with(&content(300_000)));
}

#[test]
fn content_of_a_request_is_no_request() {
    let place = Place::new("content", 10);
    let inner = "GET /file HTTP/1.1\r\nHost: x\r\n\r\n";
    let len = inner.len();
    let posted = format!("POST /file HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n{inner}");
    let (got, done, _) = conversation(&place, &posted, u64::MAX, LONG);
    done.unwrap();
    let text = String::from_utf8_lossy(&got);
    assert!(text.starts_with("HTTP/1.1 405 ") && text.matches("HTTP/1.1").count() == 1, "{text}");
    assert!(text.contains("allow: GET, HEAD\r\n") && text.contains("connection: close\r\n"), "{text}");
}

#[test]
fn a_client_that_takes_nothing_is_reset_and_an_idle_one_disconnected() {
    let place = Place::new("stands", 1_000_000);
    let limits = Limits { patience: Duration::from_millis(50), ..LONG };
    let (_, done, given_up) = conversation(&place, "GET /file HTTP/1.1\r\nHost: x\r\n\r\n", 20_000, limits);
    assert_eq!((done.unwrap_err().kind(), given_up), (io::ErrorKind::TimedOut, true));
    let limits = Limits { silence: Duration::from_millis(50), ..LONG };
    let (got, done, given_up) = conversation(&place, "GET /fi", u64::MAX, limits);
    done.unwrap();
    assert!(got.is_empty() && !given_up);
}

#[test]
fn a_head_without_an_end_is_refused_at_its_bound() {
    let place = Place::new("endless", 1);
    let (got, done, _) = conversation(&place, &format!("GET /{}", "a".repeat(70_000)), u64::MAX, LONG);
    done.unwrap();
    assert!(got.starts_with(b"HTTP/1.1 431 "), "{}", String::from_utf8_lossy(&got));
}
