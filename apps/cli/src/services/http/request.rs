//! The heads of requests (RFC 9112), one after the other from a connection.
//!
//! `httparse` parses. Does not depend on what is asked for. Bounds: a head has at most [`HEAD_MAX`] bytes and [`FIELDS_MAX`] fields.
//! Requests with content are not served: their answer ends the connection, so nothing has to find the end of content. Tests: below.

use std::io;

use httparse::{EMPTY_HEADER, Header, Status};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of a head, at most.
const HEAD_MAX: usize = 64 << 10;
/// Its fields, at most.
const FIELDS_MAX: usize = 100;

/// What a client asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// `None` is a method that is neither GET nor HEAD.
    pub is_head: Option<bool>,
    /// Without the query, as it was sent.
    pub path: String,
    /// The range, if there is one that counts: files have no validators here, so that none of `If-Range` can match (RFC 9110 section 13.1.5).
    pub range: Option<String>,
    /// Whether the client reads HTML.
    pub takes_html: bool,
    /// Whether its answer is the last one of the connection.
    pub closes: bool,
    /// HTTP/1.0, where an answer has to say that the connection stays.
    pub is_old: bool,
}

/// The received bytes of a connection that no request has used.
#[derive(Default)]
pub struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    /// The next request; `Some(Err(status))` for one that is answered by this status and ends the connection; `None` at the end.
    ///
    /// # Errors
    /// The stream's; `UnexpectedEof` if it ends within a head.
    pub async fn request(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<Option<Result<Request, u16>>> {
        loop {
            match parse(&self.bytes) {
                Ok(Some((request, used))) => {
                    self.bytes.drain(..used);
                    return Ok(Some(Ok(request)));
                }
                Err(status) => return Ok(Some(Err(status))),
                Ok(None) if self.bytes.len() >= HEAD_MAX => return Ok(Some(Err(431))),
                Ok(None) => {}
            }
            let room = (HEAD_MAX - self.bytes.len()) as u64;
            if (&mut *stream).take(room).read_buf(&mut self.bytes).await? == 0 {
                if self.bytes.is_empty() {
                    return Ok(None);
                }
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// A request and the length of its head; `None` if it has not arrived whole.
fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, u16> {
    let mut fields = [EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    let used = match head.parse(bytes) {
        Ok(Status::Complete(used)) => used,
        Ok(Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(431),
        Err(httparse::Error::Version) => return Err(505),
        Err(_) => return Err(400),
    };
    let is_old = head.version == Some(0);
    let fields = &*head.headers;
    // RFC 9112 section 3.2.
    if values(fields, "host").count() != 1 && !is_old {
        return Err(400);
    }
    let has_content = values(fields, "transfer-encoding").next().is_some()
        || values(fields, "content-length").any(|len| len.trim() != "0");
    let is_kept = if is_old { has_option(fields, "keep-alive") } else { !has_option(fields, "close") };
    let range = values(fields, "range").next().filter(|_| values(fields, "if-range").next().is_none());
    let request = Request {
        is_head: match head.method {
            Some("GET") => Some(false),
            Some("HEAD") => Some(true),
            _ => None,
        },
        path: path_of(head.path.unwrap_or_default()).ok_or(400_u16)?.to_owned(),
        range: range.map(str::to_owned),
        takes_html: values(fields, "accept").any(|value| value.contains("text/html")),
        closes: has_content || !is_kept,
        is_old,
    };
    Ok(Some((request, used)))
}

/// The path of a target in origin form or absolute form (RFC 9112 section 3.2); `*` and authorities are of methods that are refused anyway.
fn path_of(target: &str) -> Option<&str> {
    let after_scheme = target.split_once("://").map(|(_, rest)| rest);
    let path = match after_scheme {
        Some(rest) if !target.starts_with('/') => rest.find('/').map_or("/", |at| &rest[at..]),
        _ => target,
    };
    path.split(['?', '#']).next()
}

/// The values of a field's lines, those that are text.
fn values<'a>(fields: &'a [Header<'a>], name: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
    lines.filter_map(|field| str::from_utf8(field.value).ok())
}

/// Whether `Connection` has this option.
fn has_option(fields: &[Header<'_>], option: &str) -> bool {
    let mut options = values(fields, "connection").flat_map(|value| value.split(','));
    options.any(|named| named.trim().eq_ignore_ascii_case(option))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        let (request, used) = parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!(used, text.len());
        request
    }

    #[test]
    fn a_head_says_what_is_asked_for_and_whether_the_connection_stays() {
        let plain = request("GET /a%20b?query HTTP/1.1\r\nHost: x\r\n\r\n");
        let expected = Request {
            is_head: Some(false),
            path: "/a%20b".to_owned(),
            range: None,
            takes_html: false,
            closes: false,
            is_old: false,
        };
        assert_eq!(plain, expected);
        let much = request(
            "HEAD http://x:80/y HTTP/1.1\r\nhost: x\r\nRANGE: bytes=1-2\r\nAccept: text/html, */*\r\nConnection: a, Close\r\n\r\n",
        );
        assert_eq!((much.is_head, &*much.path, much.range.as_deref()), (Some(true), "/y", Some("bytes=1-2")));
        assert!(much.takes_html && much.closes);
        assert_eq!(request("GET http://x HTTP/1.1\r\nHost: x\r\n\r\n").path, "/");
        assert_eq!(
            request("GET / HTTP/1.1\r\nHost: x\r\nRange: bytes=1-\r\nIf-Range: \"e\"\r\n\r\n").range,
            None
        );
    }

    #[test]
    fn old_clients_close_unless_they_ask_and_content_ends_the_connection() {
        assert!(request("GET / HTTP/1.0\r\n\r\n").closes);
        assert!(!request("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").closes);
        for (line, closes) in
            [("Content-Length: 0", false), ("Content-Length: 3", true), ("Transfer-Encoding: chunked", true)]
        {
            assert_eq!(
                request(&format!("POST / HTTP/1.1\r\nHost: x\r\n{line}\r\n\r\n")).closes,
                closes,
                "{line}"
            );
        }
    }

    #[test]
    fn what_is_no_request_has_a_status() {
        for (text, status) in [
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
            ("GET / HTTP/2.0\r\n\r\n", 505),
            ("\0\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        ] {
            assert_eq!(parse(text.as_bytes()), Err(status), "{text:?}");
        }
        let many = "a: b\r\n".repeat(FIELDS_MAX + 1);
        assert_eq!(parse(format!("GET / HTTP/1.1\r\n{many}\r\n").as_bytes()), Err(431));
        assert_eq!(parse(b"GET / HTTP/1.1\r\nHost: x\r\n"), Ok(None));
    }
}
