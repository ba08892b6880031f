//! Pipes, for splice: 64 KiB in the adapter, so that what a socket does not take stays in them.
//!
//! Tests: `tests/interface.rs`.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::adapter::Adapter;
use crate::error::{Call, Errno};
use crate::files::File;

/// One end.
pub(crate) struct PipeEnd {
    shared: Arc<Mutex<Shared>>,
    is_reader: bool,
    pub nonblocking: bool,
}

#[derive(Default)]
struct Shared {
    bytes: VecDeque<u8>,
    has_no_reader: bool,
    has_no_writer: bool,
}

/// As Linux's.
const CAPACITY: usize = 64 << 10;

impl PipeEnd {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.lock().bytes.len()
    }

    /// Whether a read (of the reading end) or a write would not block.
    pub fn is_ready(&self) -> bool {
        let shared = self.lock();
        if self.is_reader {
            !shared.bytes.is_empty() || shared.has_no_writer
        } else {
            shared.bytes.len() < CAPACITY
        }
    }

    /// Whether this is the end that is read from.
    pub fn is_reader(&self) -> bool {
        self.is_reader
    }

    /// Up to `len` bytes, which stay.
    ///
    /// # Errors
    /// EAGAIN if it is empty and has a writer; EBADF for the writing end.
    pub fn peek(&self, len: usize) -> Call<Vec<u8>> {
        if !self.is_reader {
            return Err(Errno(libc::EBADF));
        }
        let shared = self.lock();
        if shared.bytes.is_empty() && !shared.has_no_writer && len > 0 {
            return Err(Errno(libc::EAGAIN));
        }
        Ok(shared.bytes.iter().take(len).copied().collect())
    }

    /// Forgets the first bytes.
    pub fn skip(&self, len: usize) {
        let mut shared = self.lock();
        let len = len.min(shared.bytes.len());
        drop(shared.bytes.drain(..len));
    }

    /// Up to `len` bytes.
    ///
    /// # Errors
    /// As [`peek`](Self::peek).
    pub fn take(&self, len: usize) -> Call<Vec<u8>> {
        let bytes = self.peek(len)?;
        self.skip(bytes.len());
        Ok(bytes)
    }

    /// Free bytes.
    ///
    /// # Errors
    /// EAGAIN if there is none, EPIPE without a reader, EBADF for the reading end.
    pub fn room(&self) -> Call<usize> {
        if self.is_reader {
            return Err(Errno(libc::EBADF));
        }
        let shared = self.lock();
        match CAPACITY - shared.bytes.len() {
            _ if shared.has_no_reader => Err(Errno(libc::EPIPE)),
            0 => Err(Errno(libc::EAGAIN)),
            room => Ok(room),
        }
    }

    /// Appends as many bytes as there is room for.
    ///
    /// # Errors
    /// As [`room`](Self::room).
    pub fn put(&self, bytes: &[u8]) -> Call<usize> {
        let taken = bytes.len().min(self.room()?);
        self.lock().bytes.extend(&bytes[..taken]);
        Ok(taken)
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        let mut shared = self.lock();
        if self.is_reader {
            shared.has_no_reader = true;
        } else {
            shared.has_no_writer = true;
        }
    }
}

impl Adapter {
    /// Both ends, that to read from first.
    pub(crate) fn pipe(&self) -> Call<[RawFd; 2]> {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let end =
            |is_reader| File::Pipe(PipeEnd { shared: Arc::clone(&shared), is_reader, nonblocking: false });
        let mut world = self.lock();
        Ok([world.files.add(end(true))?, world.files.add(end(false))?])
    }
}
