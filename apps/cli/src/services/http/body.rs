//! A part of a file as the body of a response.
//!
//! Does not depend on HTTP beyond that. Invariant: it has exactly the bytes that were promised; a file that has become
//! shorter is an error, which ends the connection, and not a short answer that looks whole.
//!
//! Tests: below.

use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncSeek, ReadBuf};

/// Bytes of a file that are read at once.
const CHUNK: usize = 256 << 10;

/// See the module's head.
pub struct FileBody {
    file: File,
    /// Where to begin, until the file is there.
    at: u64,
    state: State,
    left: u64,
    piece: Vec<u8>,
}

/// The event that it waits for.
enum State {
    New,
    Seeking,
    Reading,
}

impl FileBody {
    /// The `len` bytes of `file` from `at` on.
    pub fn new(file: std::fs::File, at: u64, len: u64) -> Self {
        let mut file = File::from_std(file);
        file.set_max_buf_size(CHUNK);
        Self { file, at, state: State::New, left: len, piece: Vec::new() }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let file = Pin::new(&mut self.file);
        match self.state {
            State::New => {
                file.start_seek(SeekFrom::Start(self.at))?;
                self.state = State::Seeking;
                return self.poll_piece(cx);
            }
            State::Seeking => {
                ready!(file.poll_complete(cx))?;
                self.state = State::Reading;
                return self.poll_piece(cx);
            }
            State::Reading => {}
        }
        if self.piece.is_empty() {
            self.piece = vec![0; usize::try_from(self.left).unwrap_or(CHUNK).min(CHUNK)];
        }
        let mut buffer = ReadBuf::new(&mut self.piece);
        ready!(file.poll_read(cx, &mut buffer))?;
        let read = buffer.filled().len();
        if read == 0 {
            let message = format!("the file has become {} bytes shorter", self.left);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, message)));
        }
        let mut piece = std::mem::take(&mut self.piece);
        piece.truncate(read);
        self.left -= read as u64;
        Poll::Ready(Ok(Bytes::from(piece)))
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.poll_piece(cx).map(|piece| Some(piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use http_body_util::BodyExt;

    use super::*;

    fn file(bytes: &[u8]) -> std::fs::File {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sockeye-body-{}-{number}", std::process::id()));
        let mut file = std::fs::File::create_new(&path).unwrap();
        file.write_all(bytes).unwrap();
        let opened = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        opened
    }

    fn collect(body: FileBody) -> io::Result<Bytes> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(body.collect()).map(|body| body.to_bytes())
    }

    #[test]
    fn a_body_is_the_requested_part_in_pieces() {
        let bytes: Vec<u8> = (0..CHUNK + 10_000).map(|at| (at % 251) as u8).collect();
        for range in [0..bytes.len(), 5..6, 10_000..bytes.len(), 7..7] {
            let body = FileBody::new(file(&bytes), range.start as u64, range.len() as u64);
            assert_eq!(body.size_hint().exact(), Some(range.len() as u64));
            assert_eq!(collect(body).unwrap(), &bytes[range]);
        }
    }

    #[test]
    fn a_file_that_has_become_shorter_is_an_error() {
        let error = collect(FileBody::new(file(b"short"), 2, 10)).unwrap_err();
        assert!(error.to_string().contains("7 bytes shorter"), "{error}");
    }
}
