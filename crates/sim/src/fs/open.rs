//! Calls on the disk of the running program's host: what files of both kinds, asynchronous and blocking, share.
//!
//! Programs that were ended change nothing any more: a program of `blocking::run` by a kill or a crash, any other by a crash. Their destructors run later, and may make calls.
//!
//! Nothing here waits: a sync is begun and ended by its caller, who lets the time pass in between.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::DirEntry;
use crate::blocking;
use crate::disk::{Errno, FileSystem, Ino, Mode, Node, Sync};
use crate::event::Nanos;
use crate::executor::Ambient;
use crate::world::{State, World};

/// `OpenOptions` but for its `open`, which blocks for the one shape and is asynchronous for the other.
macro_rules! open_options {
    () => {
        /// How a file is to be opened, with the meanings of `std::fs::OpenOptions`.
        #[derive(Clone, Debug, Default)]
        pub struct OpenOptions(Mode);

        impl OpenOptions {
            /// Nothing is set.
            pub fn new() -> Self {
                Self::default()
            }

            /// For reading.
            pub fn read(&mut self, read: bool) -> &mut Self {
                self.0.read = read;
                self
            }

            /// For writing.
            pub fn write(&mut self, write: bool) -> &mut Self {
                self.0.write = write;
                self
            }

            /// For writing, always at the end.
            pub fn append(&mut self, append: bool) -> &mut Self {
                self.0.append = append;
                self
            }

            /// Empties it.
            pub fn truncate(&mut self, truncate: bool) -> &mut Self {
                self.0.truncate = truncate;
                self
            }

            /// Makes it if it is not there.
            pub fn create(&mut self, create: bool) -> &mut Self {
                self.0.create = create;
                self
            }

            /// Makes it, and it must not be there.
            pub fn create_new(&mut self, create_new: bool) -> &mut Self {
                self.0.create_new = create_new;
                self
            }
        }
    };
}
pub(crate) use open_options;

/// Kind and length of a file or directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata {
    len: u64,
    is_dir: bool,
}

impl Metadata {
    /// Bytes of a file; 0 for a directory.
    #[expect(clippy::len_without_is_empty, reason = "std has none")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it is a file.
    pub fn is_file(&self) -> bool {
        !self.is_dir
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.is_dir
    }

    /// Which of the two it is.
    pub fn file_type(&self) -> FileType {
        FileType { is_dir: self.is_dir }
    }
}

/// File or directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileType {
    is_dir: bool,
}

impl FileType {
    /// Whether it is a file.
    pub fn is_file(&self) -> bool {
        !self.is_dir
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.is_dir
    }
}

/// Calls `f` with the world's state and the host of the running program, unless that was ended.
fn here<R>(f: impl FnOnce(&Arc<World>, &mut State, usize) -> io::Result<R>) -> io::Result<R> {
    blocking::check_not_ending()?;
    let Ambient { world, host, life, .. } = Ambient::current();
    let none = "the main program is on no host and has no disk: use the file system in a host's program";
    let host = host.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, none))?;
    let mut state = world.lock();
    if state.hosts[host].life != life {
        return Err(blocking::ending());
    }
    f(&world, &mut state, host)
}

/// Calls `f` on the host's file system.
fn on_disk<R>(f: impl FnOnce(&mut FileSystem) -> Result<R, Errno>) -> io::Result<R> {
    here(|_, state, host| Ok(f(&mut state.hosts[host].disk)?))
}

/// The same for a change of names, which is noted.
fn change(text: String, f: impl FnOnce(&mut FileSystem) -> Result<(), Errno>) -> io::Result<()> {
    here(|_, state, host| {
        f(&mut state.hosts[host].disk)?;
        state.note_disk(host, text);
        Ok(())
    })
}

fn metadata_of(disk: &FileSystem, ino: Ino) -> Result<Metadata, Errno> {
    Ok(match &disk.tree().inode(ino)?.node {
        Node::File(content) => Metadata { len: content.len() as u64, is_dir: false },
        Node::Directory(_) => Metadata { len: 0, is_dir: true },
    })
}

pub(crate) fn metadata(path: &Path) -> io::Result<Metadata> {
    on_disk(|disk| metadata_of(disk, disk.tree().find(path)?))
}

pub(crate) fn try_exists(path: &Path) -> io::Result<bool> {
    match metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    change(format!("made directory {}", path.display()), |disk| {
        match disk.tree().find(path) {
            Ok(_) => return Err(Errno::Exists),
            Err(Errno::NoEntry) => {}
            Err(error) => return Err(error),
        }
        let slot = disk.slot(path)?;
        disk.tree_mut().create(slot, true).map(drop)
    })
}

pub(crate) fn create_dir_all(path: &Path) -> io::Result<()> {
    let is_directory = || metadata(path).is_ok_and(|metadata| metadata.is_dir());
    match (create_dir(path), path.parent()) {
        (Err(error), Some(above)) if error.kind() == io::ErrorKind::NotFound => {
            create_dir_all(above)?;
            create_dir(path)
        }
        (Err(_), _) if is_directory() => Ok(()),
        (done, _) => done,
    }
}

pub(crate) fn read_dir(path: &Path) -> io::Result<Vec<DirEntry>> {
    on_disk(|disk| {
        let directory = disk.tree().directory(disk.tree().find(path)?)?;
        let entry = |(name, ino): (&std::ffi::OsString, &Ino)| {
            let metadata = metadata_of(disk, *ino)?;
            Ok(DirEntry { directory: path.to_owned(), name: name.clone(), metadata })
        };
        directory.now.iter().map(entry).collect()
    })
}

pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    change(format!("renamed {} to {}", from.display(), to.display()), |disk| {
        let (from, to) = (disk.slot(from)?, disk.slot(to)?);
        disk.tree_mut().rename(from, to)
    })
}

pub(crate) fn remove(path: &Path, is_directory: bool) -> io::Result<()> {
    change(format!("removed {}", path.display()), |disk| {
        let slot = disk.slot(path)?;
        disk.tree_mut().remove(slot, is_directory)
    })
}

pub(crate) fn remove_dir_all(path: &Path) -> io::Result<()> {
    for entry in read_dir(path)? {
        let path = entry.path();
        if entry.metadata.is_dir() { remove_dir_all(&path)? } else { remove(&path, false)? }
    }
    remove(path, true)
}

/// An open file or directory, until the last of its owners drops it.
pub(crate) struct OpenFile {
    world: Arc<World>,
    host: usize,
    /// Of the disk, when it was opened.
    life: u32,
    ino: Ino,
    mode: Mode,
    place: Mutex<Place>,
}

struct Place {
    at: u64,
    /// Failed syncs that it was told of.
    failures: u32,
}

impl OpenFile {
    pub fn open(path: &Path, mode: Mode) -> io::Result<Arc<Self>> {
        here(|world, state, host| {
            let disk = &mut state.hosts[host].disk;
            let is_new = disk.tree().find(path).is_err();
            let ino = disk.open(path, mode)?;
            let (life, failures) = (disk.life, disk.tree().inode(ino)?.failures);
            if is_new || mode.truncate {
                let what = if is_new { "made" } else { "emptied" };
                state.note_disk(host, format!("{what} {}", path.display()));
            }
            let (world, place) = (Arc::clone(world), Mutex::new(Place { at: 0, failures }));
            Ok(Arc::new(Self { world, host, life, ino, mode, place }))
        })
    }

    /// The state with the disk, for a call of a program that was not ended, unless the host has crashed since.
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        blocking::check_not_ending()?;
        Ok(self.state_of_its_life()?)
    }

    fn state_of_its_life(&self) -> Result<MutexGuard<'_, State>, Errno> {
        let state = self.world.lock();
        if state.hosts[self.host].disk.life == self.life { Ok(state) } else { Err(Errno::BadFile) }
    }

    pub fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let mut state = self.state()?;
        if !self.mode.read {
            return Err(Errno::BadFile.into());
        }
        Ok(state.hosts[self.host].disk.read(self.ino, at, buf)?)
    }

    pub fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.write_somewhere(bytes, at).map(|(len, _)| len)
    }

    /// Writes, at the end if it was opened to append. Returns how much, and where that ends.
    fn write_somewhere(&self, bytes: &[u8], at: u64) -> io::Result<(usize, u64)> {
        let mut state = self.state()?;
        if !(self.mode.write || self.mode.append) {
            return Err(Errno::BadFile.into());
        }
        let disk = &mut state.hosts[self.host].disk;
        let at = if self.mode.append { disk.tree().file(self.ino)?.len() as u64 } else { at };
        let written = disk.write(self.ino, at, bytes);
        let path = disk.tree().inode(self.ino)?.path.clone();
        let text = match written {
            Ok(len) => format!("wrote {len} bytes at {at} of {path}"),
            Err(error) => format!("writing at {at} of {path} failed: {error:?}"),
        };
        state.note_disk(self.host, text);
        let len = written?;
        Ok((len, at.saturating_add(len as u64)))
    }

    pub fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let mut place = self.place.lock();
        let len = self.read_at(buf, place.at)?;
        place.at += len as u64;
        Ok(len)
    }

    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut place = self.place.lock();
        let (len, end) = self.write_somewhere(bytes, place.at)?;
        place.at = end;
        Ok(len)
    }

    pub fn seek(&self, to: io::SeekFrom) -> io::Result<u64> {
        let mut place = self.place.lock();
        let at = match to {
            io::SeekFrom::Start(at) => Some(at),
            io::SeekFrom::Current(by) => place.at.checked_add_signed(by),
            io::SeekFrom::End(by) => self.metadata()?.len().checked_add_signed(by),
        };
        // An offset is signed in the kernel.
        place.at = at.filter(|at| i64::try_from(*at).is_ok()).ok_or(Errno::Invalid)?;
        Ok(place.at)
    }

    pub fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state()?;
        if !(self.mode.write || self.mode.append) {
            return Err(Errno::Invalid.into());
        }
        let disk = &mut state.hosts[self.host].disk;
        disk.set_len(self.ino, len)?;
        let text = format!("set the length of {} to {len}", disk.tree().inode(self.ino)?.path);
        state.note_disk(self.host, text);
        Ok(())
    }

    pub fn metadata(&self) -> io::Result<Metadata> {
        let state = self.state()?;
        Ok(metadata_of(&state.hosts[self.host].disk, self.ino)?)
    }

    pub fn begin_sync(&self) -> io::Result<Sync> {
        let mut state = self.state()?;
        let now: Nanos = state.now;
        Ok(state.hosts[self.host].disk.begin_sync(self.ino, now)?)
    }

    pub fn end_sync(&self, sync: Sync) -> io::Result<()> {
        let mut place = self.place.lock();
        let mut state = self.state()?;
        let disk = &mut state.hosts[self.host].disk;
        match disk.end_sync(self.ino, sync, &mut place.failures) {
            Ok(Some(text)) => state.note_disk(self.host, text),
            Ok(None) => {}
            Err(error) => {
                let path = disk.tree().inode(self.ino).map_or("", |inode| &inode.path);
                let text = format!("syncing {path} failed: {error:?}");
                state.fault(Some(self.host), text);
                return Err(error.into());
            }
        }
        Ok(())
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if let Ok(mut state) = self.state_of_its_life() {
            state.hosts[self.host].disk.tree_mut().hide(self.ino);
        }
    }
}

impl std::fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("host", &self.host).field("inode", &self.ino).finish_non_exhaustive()
    }
}
