//! The CONNECT method of an HTTP proxy (RFC 9110 section 9.3.6).
//!
//! Bound: [`HEAD_MAX`] bytes for the head of an answer. It is read byte by byte up to its end, because the bytes after it belong to the destination.
//!
//! Tests: below.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes of an answer's head, at most.
const HEAD_MAX: usize = 8192;
/// Its header fields, at most.
const FIELDS_MAX: usize = 64;

/// Asks the proxy behind `stream` for a connection to `to`.
///
/// # Errors
/// `PermissionDenied` for 403, 405 and 407, `HostUnreachable` for 504, `ConnectionRefused` for every other answer that is none of success; `InvalidData` for what is no answer; the stream's.
pub async fn connect(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), to: SocketAddr) -> io::Result<()> {
    stream.write_all(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes()).await?;
    let mut head = Vec::with_capacity(256);
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= HEAD_MAX {
            return Err(invalid(format!("the proxy's answer has more than {HEAD_MAX} bytes of header")));
        }
        head.push(stream.read_u8().await?);
    }
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut answer = httparse::Response::new(&mut fields);
    answer.parse(&head).map_err(|error| invalid(format!("the proxy's answer is no HTTP: {error}")))?;
    let kind = match answer.code {
        Some(200..=299) => return Ok(()),
        Some(403 | 405 | 407) => io::ErrorKind::PermissionDenied,
        // The destination has not answered the proxy.
        Some(504) => io::ErrorKind::HostUnreachable,
        // Proxies have several numbers for a closed port: 500, 502, 503.
        _ => io::ErrorKind::ConnectionRefused,
    };
    let (code, reason) = (answer.code.unwrap_or(0), answer.reason.unwrap_or_default());
    Err(io::Error::new(kind, format!("the proxy answered {code} {reason}")))
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(text: &str) -> (io::Result<()>, Vec<u8>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut near, mut far) = tokio::io::duplex(64 << 10);
            far.write_all(text.as_bytes()).await.unwrap();
            far.shutdown().await.unwrap();
            let done = connect(&mut near, "192.0.2.1:443".parse().unwrap()).await;
            let mut rest = Vec::new();
            near.read_to_end(&mut rest).await.unwrap();
            (done, rest)
        })
    }

    #[test]
    fn what_follows_the_head_is_left_to_the_client() {
        let (done, rest) = answered("HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nbytes");
        assert_eq!((done.is_ok(), rest.as_slice()), (true, &b"bytes"[..]));
    }

    #[test]
    fn a_refusal_is_an_error_of_its_kind() {
        for (text, kind) in [
            ("HTTP/1.1 502 Bad Gateway\r\n\r\n".to_owned(), io::ErrorKind::ConnectionRefused),
            ("HTTP/1.1 500 x\r\n\r\n".to_owned(), io::ErrorKind::ConnectionRefused),
            ("HTTP/1.1 503 x\r\n\r\n".to_owned(), io::ErrorKind::ConnectionRefused),
            ("HTTP/1.1 504 x\r\n\r\n".to_owned(), io::ErrorKind::HostUnreachable),
            ("HTTP/1.1 407 x\r\n\r\n".to_owned(), io::ErrorKind::PermissionDenied),
            ("SSH-2.0-x\r\n\r\n".to_owned(), io::ErrorKind::InvalidData),
            ("HTTP/1.1 200".to_owned(), io::ErrorKind::UnexpectedEof),
            (format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(HEAD_MAX)), io::ErrorKind::InvalidData),
        ] {
            assert_eq!(answered(&text).0.unwrap_err().kind(), kind, "{text:.40}");
        }
    }
}
