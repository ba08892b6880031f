//! Files of a host, in the shape of `std::fs`: for closures of `tokio::task::spawn_blocking` and programs of [`blocking::run`](super::run).
//!
//! The same disk as in [`fs`](crate::fs). In a program of `blocking::run` a sync takes its time; elsewhere, where the clock stands meanwhile, it takes none. In a program that is being ended, by a kill or
//! a crash of its host or by the end of the run, all calls return `BrokenPipe` and have no effect.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::fs::open::open_options;
use crate::fs::{Metadata, Mode, OpenFile};
use crate::time;

/// An open file, or an open directory to be synced.
#[derive(Debug)]
pub struct File(Arc<OpenFile>);

impl File {
    pub(crate) fn from_open(open: Arc<OpenFile>) -> Self {
        Self(open)
    }

    pub(crate) fn into_open(self) -> Arc<OpenFile> {
        self.0
    }

    /// Opens a file for reading, or a directory.
    ///
    /// # Errors
    /// As [`crate::fs::File::open`].
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().read(true).open(path)
    }

    /// Opens a file for writing, which is made, or emptied if it is there.
    ///
    /// # Errors
    /// As [`crate::fs::File::create`].
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path)
    }

    /// As [`OpenOptions::new`].
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Brings what was written to the disk, or the names of a directory.
    ///
    /// # Errors
    /// As [`crate::fs::File::sync_all`].
    pub fn sync_all(&self) -> io::Result<()> {
        let sync = self.0.begin_sync()?;
        if super::is_own_thread() {
            super::block_on_call(async {
                time::sleep_until(time::Instant::at(Duration::from_nanos(sync.at))).await;
                Ok(())
            })?;
        }
        self.0.end_sync(sync)
    }

    /// As [`sync_all`](Self::sync_all).
    ///
    /// # Errors
    /// As [`sync_all`](Self::sync_all).
    pub fn sync_data(&self) -> io::Result<()> {
        self.sync_all()
    }

    /// Cuts the file, or makes it longer by zeros.
    ///
    /// # Errors
    /// As [`crate::fs::File::set_len`].
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    /// Kind and length.
    ///
    /// # Errors
    /// As [`crate::fs::File::metadata`].
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    /// The same open file once more, with one position.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(Arc::clone(&self.0)))
    }

    /// Reads at a place, as `pread`. Returns how many bytes.
    ///
    /// # Errors
    /// `EBADF` if it was not opened for reading, `EIO` of the disk.
    pub fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read_at(buf, at)
    }

    /// Fills the buffer from a place.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at); `UnexpectedEof`.
    pub fn read_exact_at(&self, mut buf: &mut [u8], mut at: u64) -> io::Result<()> {
        while !buf.is_empty() {
            let len = self.read_at(buf, at)?;
            if len == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            (buf, at) = (&mut buf[len..], at + len as u64);
        }
        Ok(())
    }

    /// Writes at a place, as `pwrite`. Returns how many bytes.
    ///
    /// # Errors
    /// `EBADF` if it was not opened for writing, `StorageFull`, `EIO` of the disk.
    pub fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.0.write_at(bytes, at)
    }

    /// Writes all at a place.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn write_all_at(&self, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            let len = self.write_at(bytes, at)?;
            (bytes, at) = (&bytes[len..], at + len as u64);
        }
        Ok(())
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for &File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

open_options!();

impl OpenOptions {
    /// Opens it.
    ///
    /// # Errors
    /// As [`crate::fs::OpenOptions::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        OpenFile::open(path.as_ref(), self.0).map(File)
    }
}

/// Reads a whole file.
///
/// # Errors
/// As [`crate::fs::read`].
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a whole file. Does not sync it.
///
/// # Errors
/// As [`crate::fs::write()`].
pub fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
    File::create(path)?.write_all(contents.as_ref())
}

/// Makes a directory, and those above it that are not there.
///
/// # Errors
/// As [`crate::fs::create_dir_all`].
pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    crate::fs::create_dir_all_now(path.as_ref())
}

/// Gives a file or directory another name.
///
/// # Errors
/// As [`crate::fs::rename`].
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    crate::fs::rename_now(from.as_ref(), to.as_ref())
}

/// Removes a file's name.
///
/// # Errors
/// As [`crate::fs::remove_file`].
pub fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    crate::fs::remove_now(path.as_ref(), false)
}

/// Whether there is a file or directory.
///
/// # Errors
/// As [`crate::fs::try_exists`].
pub fn exists(path: impl AsRef<Path>) -> io::Result<bool> {
    crate::fs::try_exists_now(path.as_ref())
}

/// Kind and length of a file or directory.
///
/// # Errors
/// As [`crate::fs::metadata`].
pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    crate::fs::metadata_now(path.as_ref())
}
