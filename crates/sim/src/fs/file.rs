//! Files and how they are opened, in the shape of `tokio::fs`.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};

use super::open::{Metadata, open_options};
use super::{Mode, OpenFile};
use crate::disk::SECTOR;
use crate::time;

/// An open file, or an open directory to be synced. Reads and writes are done when they return; a power loss may take them until the file was synced.
#[derive(Debug)]
pub struct File {
    open: Arc<OpenFile>,
    /// Where a seek went.
    sought: u64,
}

/// Bytes that a read copies at most, so that a reader with a large buffer does not have it zeroed in vain.
const READ_MAX: usize = 128 * SECTOR as usize;

impl File {
    /// Opens a file for reading, or a directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`; `Unsupported` in the main program, which has no disk.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().read(true).open(path).await
    }

    /// Opens a file for writing, which is made, or emptied if it is there.
    ///
    /// # Errors
    /// As [`open`](Self::open); `IsADirectory`, `StorageFull`.
    pub async fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path).await
    }

    /// Makes a file, for reading and writing.
    ///
    /// # Errors
    /// As [`create`](Self::create); `AlreadyExists`.
    pub async fn create_new(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().read(true).write(true).create_new(true).open(path).await
    }

    /// As [`OpenOptions::new`].
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Brings what was written until now to the disk, or the names of a directory, and waits for that: [`sync_time`](crate::DiskConfig::sync_time). At once if nothing was changed. What is
    /// written meanwhile is not part of it.
    ///
    /// # Errors
    /// `EIO` if the disk fails; once for each failure and each open file.
    pub async fn sync_all(&self) -> io::Result<()> {
        let sync = self.open.begin_sync()?;
        time::sleep_until(time::Instant::at(Duration::from_nanos(sync.at))).await;
        self.open.end_sync(sync)
    }

    /// As [`sync_all`](Self::sync_all): there is no metadata that it could leave out.
    ///
    /// # Errors
    /// As [`sync_all`](Self::sync_all).
    pub async fn sync_data(&self) -> io::Result<()> {
        self.sync_all().await
    }

    /// Cuts the file, or makes it longer by zeros, which take room.
    ///
    /// # Errors
    /// `InvalidInput` if it was not opened for writing, `StorageFull`.
    pub async fn set_len(&self, len: u64) -> io::Result<()> {
        self.open.set_len(len)
    }

    /// Kind and length.
    ///
    /// # Errors
    /// `EBADF` if the host has crashed since it was opened; so of all calls.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        self.open.metadata()
    }

    /// The same open file once more, with one position, as `dup`.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub async fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { open: Arc::clone(&self.open), sought: 0 })
    }

    /// The file for blocking calls.
    pub async fn into_std(self) -> crate::blocking::fs::File {
        crate::blocking::fs::File::from_open(self.open)
    }

    /// The file for asynchronous calls.
    pub fn from_std(file: crate::blocking::fs::File) -> Self {
        Self { open: file.into_open(), sought: 0 }
    }
}

impl AsyncRead for File {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = buf.remaining().min(READ_MAX);
        let len = self.open.read(buf.initialize_unfilled_to(room))?;
        buf.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for File {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.open.write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncSeek for File {
    fn start_seek(mut self: Pin<&mut Self>, to: io::SeekFrom) -> io::Result<()> {
        self.sought = self.open.seek(to)?;
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Poll::Ready(Ok(self.sought))
    }
}

open_options!();

impl OpenOptions {
    /// Opens it.
    ///
    /// # Errors
    /// As [`File::open`] and [`File::create`]; `InvalidInput` if the settings contradict each other.
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        Ok(File { open: OpenFile::open(path.as_ref(), self.0)?, sought: 0 })
    }
}
