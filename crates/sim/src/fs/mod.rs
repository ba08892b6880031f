//! Files of a host, in the shape of `tokio::fs`, on a disk that can lose its power.
//!
//! ```
//! # sockeye_sim::run(1, |net| async move {
//! use sockeye_sim::fs;
//!
//! let host = net.host("server");
//! let save = |text| async move {
//!     fs::write("/state.new", text).await?;
//!     fs::File::open("/state.new").await?.sync_all().await?; // the bytes
//!     fs::rename("/state.new", "/state").await?;
//!     fs::File::open("/").await?.sync_all().await // the name
//! };
//! host.spawn(save("saved")).await.unwrap().unwrap();
//! host.crash();
//! host.restart();
//! let found = host.spawn(fs::read_to_string("/state")).await.unwrap().unwrap();
//! assert_eq!(found, "saved");
//! # });
//! ```
//!
//! Each host has one file system, which is empty at first. It survives [`Host::kill`](crate::Host::kill) as programs see it. Programs that a crash has ended, or a kill if they are of
//! [`blocking::run`](crate::blocking::run), change nothing any more: calls of their destructors fail. At a [`Host::crash`](crate::Host::crash) what was not synced is lost, kept or torn,
//! as the seed draws it:
//!
//! * Bytes: a sector of 512 bytes is written whole or not at all, in any order among sectors; an unsynced sector is as it was at some moment since the last sync. A file that grew ends where the last
//!   sector does that was written, and has zeros where one before it was not.
//! * Names: creation, renaming and removal last once the *directory* was synced: open it and call `sync_all`. Until then those of a directory up to some moment are there. A rename is there as a whole or
//!   not at all. A file's own sync says nothing about its name (fsync(2)). A directory is gone only if all changes in it are there, and what was moved into a new directory is there only if the directory is.
//!
//! Reads and writes take no time, as in a page cache; a sync takes [`DiskConfig::sync_time`](crate::DiskConfig). [`Host::disk`](crate::Host::disk) sets that, the disk's size, and errors. Relative paths begin at `/`. There are no links,
//! permissions, times or locks. All functions panic outside of a simulation; in the main program, which has no disk, they are an error.
//!
//! Bounds: 65,536 files and directories, names of 255 bytes, and the disk's capacity. Of a file, 4,096 changes or 8 MiB can be unsynced, and 4,096 changes of names; when there are more, the older half goes to the disk. A write of more than 1 MiB is several changes.
//!
//! Closures of `spawn_blocking` use [`blocking::fs`](crate::blocking::fs), in the shape of `std::fs`.

mod file;
pub(crate) mod open;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub use file::{File, OpenOptions};
pub use open::{FileType, Metadata};

pub(crate) use crate::disk::Mode;
pub(crate) use open::OpenFile;
pub(crate) use open::{
    create_dir_all as create_dir_all_now, metadata as metadata_now, remove as remove_now,
    rename as rename_now, try_exists as try_exists_now,
};

/// Reads a whole file.
///
/// # Errors
/// `NotFound` and others, as `std`; `EIO` of the disk.
pub async fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).await?.read_to_end(&mut bytes).await?;
    Ok(bytes)
}

/// Reads a whole file of UTF-8.
///
/// # Errors
/// As [`read`]; `InvalidData` if it is none.
pub async fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let mut text = String::new();
    File::open(path).await?.read_to_string(&mut text).await?;
    Ok(text)
}

/// Writes a whole file, in place of an earlier one's content. Does not sync it.
///
/// # Errors
/// `NotFound` if there is no such directory, `StorageFull`, `EIO` of the disk.
pub async fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
    File::create(path).await?.write_all(contents.as_ref()).await
}

/// Copies a file's content. Returns its length in bytes.
///
/// # Errors
/// As [`read`] and [`write()`].
pub async fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    let bytes = read(from).await?;
    write(to, &bytes).await?;
    Ok(bytes.len() as u64)
}

/// Makes a directory.
///
/// # Errors
/// `AlreadyExists`, `NotFound`.
pub async fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    open::create_dir(path.as_ref())
}

/// Makes a directory, and those above it that are not there.
///
/// # Errors
/// `AlreadyExists` if there is a file in its place, `NotADirectory` if there is one on the way.
pub async fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    open::create_dir_all(path.as_ref())
}

/// The entries of a directory, in the order of their names.
///
/// # Errors
/// `NotFound`, `NotADirectory`.
pub async fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    open::read_dir(path.as_ref()).map(|entries| ReadDir(entries.into_iter()))
}

/// Gives a file or directory another name, in place of a file or an empty directory that had it. What was there before or after is there after a crash, nothing in between.
///
/// # Errors
/// `NotFound`, and `IsADirectory`, `NotADirectory`, `DirectoryNotEmpty` if the kinds do not fit; `InvalidInput` into itself.
pub async fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    open::rename(from.as_ref(), to.as_ref())
}

/// Removes a file's name. Its content stays while it is open.
///
/// # Errors
/// `NotFound`, `IsADirectory`.
pub async fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    open::remove(path.as_ref(), false)
}

/// Removes an empty directory.
///
/// # Errors
/// `NotFound`, `NotADirectory`, `DirectoryNotEmpty`.
pub async fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    open::remove(path.as_ref(), true)
}

/// Removes a directory and all in it.
///
/// # Errors
/// `NotFound`, `NotADirectory`.
pub async fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    open::remove_dir_all(path.as_ref())
}

/// Whether there is a file or directory.
///
/// # Errors
/// Those of [`metadata`] other than `NotFound`.
pub async fn try_exists(path: impl AsRef<Path>) -> io::Result<bool> {
    open::try_exists(path.as_ref())
}

/// Kind and length of a file or directory.
///
/// # Errors
/// `NotFound`, `NotADirectory`.
pub async fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    open::metadata(path.as_ref())
}

/// See [`read_dir`].
#[derive(Debug)]
pub struct ReadDir(std::vec::IntoIter<DirEntry>);

impl ReadDir {
    /// The next entry; `None` after the last. Entries are those of the call of [`read_dir`].
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub async fn next_entry(&mut self) -> io::Result<Option<DirEntry>> {
        Ok(self.0.next())
    }
}

/// A name in a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    pub(crate) directory: PathBuf,
    pub(crate) name: OsString,
    pub(crate) metadata: Metadata,
}

impl DirEntry {
    /// The directory's path, as [`read_dir`] got it, and the name.
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// The name alone.
    pub fn file_name(&self) -> OsString {
        self.name.clone()
    }

    /// Kind and length at the call of [`read_dir`].
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        Ok(self.metadata)
    }

    /// File or directory.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub async fn file_type(&self) -> io::Result<FileType> {
        Ok(self.metadata.file_type())
    }
}
