//! The heads of answers (RFC 9110, 9112).
//!
//! Does not depend on requests. Invariant: each has the length of its content, so that a connection can stay open. Tests: below.

use std::time::SystemTime;

/// The head of an answer, and its content if that is text.
pub struct Head {
    status: u16,
    media_type: &'static str,
    /// Bytes of the content.
    pub content_len: u64,
    /// Further fields, each line with its end.
    pub fields: String,
    /// The content, unless it is a file's.
    pub text: String,
    /// Whether the connection ends behind it.
    pub closes: bool,
    /// Whether the client speaks HTTP/1.0.
    pub is_old: bool,
}

impl Head {
    /// A status alone, in words.
    pub fn of_status(status: u16) -> Self {
        Self::of_text(status, "text/plain; charset=utf-8", format!("{status} {}\n", reason(status)))
    }

    /// With text as content.
    pub fn of_text(status: u16, media_type: &'static str, text: String) -> Self {
        Self { text, ..Self::of_content(status, media_type, 0) }.with_len_of_text()
    }

    /// With content of this many bytes that the caller sends.
    pub fn of_content(status: u16, media_type: &'static str, content_len: u64) -> Self {
        let (fields, text) = (String::new(), String::new());
        Self { status, media_type, content_len, fields, text, closes: false, is_old: false }
    }

    fn with_len_of_text(mut self) -> Self {
        self.content_len = self.text.len() as u64;
        self
    }

    /// The head as it is sent, with the text.
    pub fn bytes(&self) -> Vec<u8> {
        let (status, reason, date) =
            (self.status, reason(self.status), httpdate::fmt_http_date(SystemTime::now()));
        let connection = match (self.closes, self.is_old) {
            (true, _) => "connection: close\r\n",
            (false, true) => "connection: keep-alive\r\n",
            (false, false) => "",
        };
        let (media_type, len, fields) = (self.media_type, self.content_len, &self.fields);
        format!(
            "HTTP/1.1 {status} {reason}\r\ndate: {date}\r\ncontent-type: {media_type}\r\ncontent-length: {len}\r\n{fields}{connection}\r\n{}",
            self.text
        )
        .into_bytes()
    }
}

/// The words of a status (RFC 9110 section 15).
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        416 => "Range Not Satisfiable",
        431 => "Request Header Fields Too Large",
        505 => "HTTP Version Not Supported",
        _ => "Internal Server Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_its_length_and_says_what_becomes_of_the_connection() {
        let mut head = Head::of_status(404);
        let text = String::from_utf8(head.bytes()).unwrap();
        assert!(text.starts_with("HTTP/1.1 404 Not Found\r\ndate: "), "{text}");
        assert!(text.contains("\r\ncontent-length: 14\r\n"), "{text}");
        assert!(text.ends_with("\r\n\r\n404 Not Found\n") && !text.contains("connection"), "{text}");
        head.is_old = true;
        assert!(String::from_utf8(head.bytes()).unwrap().contains("\r\nconnection: keep-alive\r\n"));
        head.closes = true;
        assert!(String::from_utf8(head.bytes()).unwrap().contains("\r\nconnection: close\r\n"));
    }
}
