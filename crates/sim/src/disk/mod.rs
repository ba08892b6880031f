//! A host's disk: files that outlive its programs, and of which a power loss takes what was not synced.
//!
//! The page cache is part of the host's kernel: [`Host::kill`] leaves all as programs see it, [`Host::crash`] leaves what the disk has. What that is, `content.rs` says for bytes and `tree.rs` for
//! names. All calls come through `fs` (`crate::fs`, `crate::blocking::fs`), under the world's mutex; nothing here waits. Tests: `tests/hosts/fs.rs`.

mod content;
mod errno;
mod tree;

use std::fmt;
use std::path::Path;
use std::time::Duration;

pub(crate) use content::SECTOR;
pub(crate) use errno::Errno;
pub(crate) use tree::{Ino, Node};

use crate::event::Nanos;
use crate::network::Host;
use crate::pipe::nanos;
use crate::rng::Rng;
use crate::trace::What;
use crate::world::State;
use tree::{Slot, Tree, ends_with_slash};

/// Settings of a host's disk. Start from [`DiskConfig::default`].
#[derive(Clone, PartialEq, Debug)]
pub struct DiskConfig {
    /// Bytes that all files may have together; beyond them writing fails with `StorageFull`. Default 256 MiB.
    pub capacity: u64,
    /// How long a sync takes. Syncs of one disk go one after the other. Default 1 ms.
    pub sync_time: Duration,
    /// A sync takes up to so much longer, evenly drawn. Default 1 ms.
    pub sync_jitter: Duration,
    /// Part of the reads that fail with `EIO`. Default 0.
    pub read_error: f64,
    /// Part of the writes that fail with `EIO`, having written nothing. Default 0.
    pub write_error: f64,
    /// Part of the syncs that fail with `EIO`. As on Linux, what a failed sync of a file should have brought to the disk stays visible, and no later sync brings it there: only a part,
    /// drawn as in a power loss, is on the disk. Each open file is told once. Default 0.
    pub sync_error: f64,
}

impl Default for DiskConfig {
    fn default() -> Self {
        Self {
            capacity: 256 << 20,
            sync_time: Duration::from_millis(1),
            sync_jitter: Duration::from_millis(1),
            read_error: 0.0,
            write_error: 0.0,
            sync_error: 0.0,
        }
    }
}

/// A host's disk, for the test: its settings and faults. Programs use [`fs`](crate::fs).
#[derive(Clone)]
pub struct Disk(Host);

impl Host {
    /// Its disk, which is empty at first and stays the same over crashes and kills.
    pub fn disk(&self) -> Disk {
        Disk(self.clone())
    }
}

impl Disk {
    /// Changes its settings, from now on.
    pub fn update(&self, change: impl FnOnce(&mut DiskConfig)) {
        change(&mut self.0.net.world.lock().hosts[self.0.index].disk.config);
    }

    /// Bytes of all files, as programs see them.
    pub fn used(&self) -> u64 {
        self.0.net.world.lock().hosts[self.0.index].disk.tree.used()
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk")
            .field("host", &self.0.name())
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mode {
    pub read: bool,
    pub write: bool,
    pub append: bool,
    pub truncate: bool,
    pub create: bool,
    pub create_new: bool,
}

/// A sync that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sync {
    mark: u64,
    /// When it is over.
    pub at: Nanos,
    /// Nothing has to be written.
    is_idle: bool,
    fails: bool,
}

/// Things that the report of a power loss names.
const REPORTED_MAX: usize = 8;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct FileSystem {
    pub config: DiskConfig,
    /// Its host has opened a file.
    pub is_used: bool,
    rng: Rng,
    tree: Tree,
    /// Power losses so far. Files that were opened before one are closed.
    pub life: u32,
    /// When the disk is through with the syncs that have begun.
    free_at: Nanos,
}

impl FileSystem {
    pub fn new(seed: u64, host: usize) -> Self {
        // From a stream of its own, which other draws of the host do not move.
        let rng = Rng::new(seed).fork(0xd15c).fork(host as u64);
        Self { config: DiskConfig::default(), is_used: false, rng, tree: Tree::new(), life: 0, free_at: 0 }
    }

    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    pub fn tree_mut(&mut self) -> &mut Tree {
        &mut self.tree
    }

    /// Opens a file, or a directory for reading.
    pub fn open(&mut self, path: &Path, mode: Mode) -> Result<Ino, Errno> {
        let Mode { read, write, append, truncate, create, create_new } = mode;
        let writes = write || append;
        let makes = truncate || create || create_new;
        self.is_used = true;
        if !(writes || (read && !makes)) || (append && truncate && !create_new) {
            return Err(Errno::Invalid);
        }
        let found = self.tree.find(path);
        let ino = match found {
            Ok(_) if create_new => return Err(Errno::Exists),
            Ok(ino) => ino,
            Err(Errno::NoEntry) if create || create_new => {
                if ends_with_slash(path) {
                    return Err(Errno::IsDirectory);
                }
                let slot = self.tree.slot(path)?;
                self.tree.create(slot, false)?
            }
            Err(error) => return Err(error),
        };
        if writes {
            self.tree.file(ino)?;
        }
        if truncate {
            self.tree.edit(ino, |file| file.set_len(0))?;
        }
        self.tree.show(ino);
        Ok(ino)
    }

    pub fn read(&mut self, ino: Ino, at: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        let file = self.tree.file(ino)?;
        if self.rng.chance(self.config.read_error) {
            return Err(Errno::Io);
        }
        Ok(file.read(at, buf))
    }

    /// Writes as much as there is room for.
    pub fn write(&mut self, ino: Ino, at: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let len = self.tree.file(ino)?.len() as u64;
        if bytes.is_empty() {
            return Ok(0);
        }
        if self.rng.chance(self.config.write_error) {
            return Err(Errno::Io);
        }
        let end_max = len.saturating_add(self.config.capacity.saturating_sub(self.tree.used()));
        let room = usize::try_from(end_max.saturating_sub(at)).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        if bytes.is_empty() {
            return Err(Errno::NoSpace);
        }
        let at = usize::try_from(at).map_err(|_| Errno::NoSpace)?;
        self.tree.edit(ino, |file| file.write(at, bytes))?;
        Ok(bytes.len())
    }

    pub fn set_len(&mut self, ino: Ino, len: u64) -> Result<(), Errno> {
        let more = len.saturating_sub(self.tree.file(ino)?.len() as u64);
        if more > self.config.capacity.saturating_sub(self.tree.used()) {
            return Err(Errno::NoSpace);
        }
        let len = usize::try_from(len).map_err(|_| Errno::NoSpace)?;
        self.tree.edit(ino, |file| file.set_len(len))
    }

    /// A sync begins.
    pub fn begin_sync(&mut self, ino: Ino, now: Nanos) -> Result<Sync, Errno> {
        let (mark, is_idle) = match &self.tree.inode(ino)?.node {
            Node::File(content) => (content.mark(), content.pending() == 0),
            Node::Directory(_) => (self.tree.mark(), !self.tree.is_pending(ino)),
        };
        if is_idle {
            return Ok(Sync { mark, at: now, is_idle, fails: false });
        }
        let longer = self.rng.below(nanos(self.config.sync_jitter).saturating_add(1));
        let time = nanos(self.config.sync_time).saturating_add(longer);
        self.free_at = self.free_at.max(now).saturating_add(time);
        Ok(Sync { mark, at: self.free_at, is_idle, fails: self.rng.chance(self.config.sync_error) })
    }

    /// A sync is over. `seen` is how many failures the open file was told of. Returns what to tell the report, if anything.
    pub fn end_sync(&mut self, ino: Ino, sync: Sync, seen: &mut u32) -> Result<Option<String>, Errno> {
        let Sync { mark, fails, is_idle, .. } = sync;
        let rng = &mut self.rng;
        let inode = self.tree.inode_mut(ino)?;
        inode.failures += u32::from(fails);
        let failures = inode.failures;
        let path = inode.path.clone();
        match &mut inode.node {
            Node::File(content) if fails => {
                content.fail(mark, rng);
            }
            Node::File(content) => content.sync(mark),
            Node::Directory(_) if fails => {}
            Node::Directory(_) => self.tree.sync(ino, mark),
        }
        if failures != *seen {
            *seen = failures;
            return Err(Errno::Io);
        }
        Ok((!is_idle).then(|| format!("synced {path}")))
    }

    /// The power goes. Returns what was lost, in words.
    pub fn lose_power(&mut self) -> Option<String> {
        self.life += 1;
        self.free_at = 0;
        let mut rng = self.rng.fork(self.life.into());
        let (mut words, mut more) = (Vec::new(), 0);
        self.tree.lose_power(&mut rng, |text| {
            if words.len() < REPORTED_MAX { words.push(text.to_string()) } else { more += 1 }
        });
        if more > 0 {
            words.push(format!("and {more} more"));
        }
        (!words.is_empty()).then(|| format!("power loss, {}", words.join("; ")))
    }

    /// The place that a path names.
    pub fn slot(&self, path: &Path) -> Result<Slot, Errno> {
        self.tree.slot(path)
    }
}

impl State {
    /// A host's program has done something to its disk.
    pub fn note_disk(&mut self, host: usize, text: String) {
        self.note(What::Said { host: Some(host), is_fault: false, text: text.into() });
    }
}
