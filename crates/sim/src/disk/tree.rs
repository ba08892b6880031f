//! Names: directories as programs see them and as they are on the disk, and the changes in between.
//!
//! A name that is made, renamed or removed is on the disk once its directory was synced, whatever else was: fsync(2) says that a file's own sync does not bring its name to the disk. At a
//! power loss, of the changes of a directory that were not synced those until some moment are there, and none after it, as journals of file systems (ext4, XFS) have it; each directory has a
//! moment of its own. A rename is there as a whole or not at all, also from one directory to another.
//!
//! So that no file is lost on its way between directories, a directory's removal is there only if all changes in it are, and what was moved into a new directory only if the directory is. A power loss
//! keeps to this, and a sync of one directory brings such changes of others, too.
//!
//! An inode is kept as long as something refers to it: a name that programs see, a name on the disk, a change of names that is not on the disk, an open file. Bounds:
//! [`INODES_MAX`], [`CHANGES_MAX`] changes of names, beyond which the older half goes to the disk. Tests: `tests/hosts/fs.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fmt;
use std::path::{Component, Path};

use super::content::{Content, Loss};
use super::errno::Errno;
use crate::rng::Rng;

/// Files and directories of a host.
const INODES_MAX: usize = 1 << 16;
/// Changes of names that are not on the disk.
const CHANGES_MAX: usize = 4096;
/// Bytes of a name (`NAME_MAX`).
const NAME_MAX: usize = 255;

/// The number of an inode.
pub(crate) type Ino = u64;
/// The directory `/`.
pub(crate) const ROOT: Ino = 0;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Tree {
    inodes: BTreeMap<Ino, Inode>,
    next: Ino,
    changes: VecDeque<Change>,
    /// Changes so far.
    change_count: u64,
    /// Bytes of all files.
    used: u64,
}

#[derive(Debug)]
pub(crate) struct Inode {
    pub node: Node,
    /// What refers to it.
    refs: usize,
    /// Those of them by which programs can see it: a name, an open file.
    sights: usize,
    /// Its latest name, for reports.
    pub path: String,
    /// Failed writes to the disk, of which each open file is told once.
    pub failures: u32,
}

#[derive(Debug)]
pub(crate) enum Node {
    File(Content),
    Directory(Directory),
}

#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub now: BTreeMap<OsString, Ino>,
    stable: BTreeMap<OsString, Ino>,
    parent: Ino,
}

/// A place for a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    pub directory: Ino,
    pub name: OsString,
}

/// A change of names.
#[derive(Debug)]
struct Change {
    from: Option<Slot>,
    to: Option<Slot>,
    ino: Ino,
    text: String,
    /// What it makes, moves or removes is a directory.
    is_directory: bool,
    /// It is there only if all before it are: a directory moves, which could otherwise end up within itself.
    is_barrier: bool,
    /// Its place among all changes.
    number: u64,
}

impl Change {
    fn directories(&self) -> impl Iterator<Item = Ino> {
        self.from.iter().chain(&self.to).map(|slot| slot.directory)
    }

    /// The directories that it has to do with: a new one, or one that goes, as well.
    fn concerned(&self) -> impl Iterator<Item = Ino> {
        self.directories().chain(self.is_directory.then_some(self.ino))
    }
}

impl Tree {
    pub fn new() -> Self {
        let root = Inode {
            node: Node::Directory(Directory::default()),
            refs: 1,
            sights: 1,
            path: "/".into(),
            failures: 0,
        };
        Self {
            inodes: BTreeMap::from([(ROOT, root)]),
            next: ROOT + 1,
            changes: VecDeque::new(),
            change_count: 0,
            used: 0,
        }
    }

    pub fn inode(&self, ino: Ino) -> Result<&Inode, Errno> {
        self.inodes.get(&ino).ok_or(Errno::NoEntry)
    }

    pub fn inode_mut(&mut self, ino: Ino) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&ino).ok_or(Errno::NoEntry)
    }

    pub fn file(&self, ino: Ino) -> Result<&Content, Errno> {
        match &self.inode(ino)?.node {
            Node::File(content) => Ok(content),
            Node::Directory(_) => Err(Errno::IsDirectory),
        }
    }

    pub fn file_mut(&mut self, ino: Ino) -> Result<&mut Content, Errno> {
        match &mut self.inode_mut(ino)?.node {
            Node::File(content) => Ok(content),
            Node::Directory(_) => Err(Errno::IsDirectory),
        }
    }

    pub fn directory(&self, ino: Ino) -> Result<&Directory, Errno> {
        match &self.inode(ino)?.node {
            Node::Directory(directory) => Ok(directory),
            Node::File(_) => Err(Errno::NotDirectory),
        }
    }

    fn directory_mut(&mut self, ino: Ino) -> Result<&mut Directory, Errno> {
        match &mut self.inode_mut(ino)?.node {
            Node::Directory(directory) => Ok(directory),
            Node::File(_) => Err(Errno::NotDirectory),
        }
    }

    /// Bytes of all files.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Changes a file's bytes, and counts them.
    pub fn edit(&mut self, ino: Ino, edit: impl FnOnce(&mut Content)) -> Result<(), Errno> {
        let file = self.file_mut(ino)?;
        let before = file.len() as u64;
        edit(file);
        let after = file.len() as u64;
        self.used = self.used + after - before;
        Ok(())
    }

    /// The inode at a path. Relative paths begin at `/`.
    pub fn find(&self, path: &Path) -> Result<Ino, Errno> {
        if path.as_os_str().is_empty() {
            return Err(Errno::NoEntry);
        }
        let mut at = ROOT;
        for component in path.components() {
            at = self.step(at, component)?;
        }
        // `file/` is no file.
        if ends_with_slash(path) {
            self.directory(at)?;
        }
        Ok(at)
    }

    fn step(&self, at: Ino, component: Component<'_>) -> Result<Ino, Errno> {
        let directory = self.directory(at)?;
        match component {
            Component::RootDir | Component::Prefix(_) => Ok(ROOT),
            Component::CurDir => Ok(at),
            Component::ParentDir => Ok(directory.parent),
            Component::Normal(name) => directory.now.get(name).copied().ok_or(Errno::NoEntry),
        }
    }

    /// The place that a path names, which may be free.
    pub fn slot(&self, path: &Path) -> Result<Slot, Errno> {
        let mut components = path.components();
        let name = match components.next_back() {
            Some(Component::Normal(name)) => name,
            None => return Err(Errno::NoEntry),
            Some(_) => return Err(Errno::Invalid),
        };
        if name.len() > NAME_MAX {
            return Err(Errno::NameTooLong);
        }
        let mut directory = ROOT;
        for component in components {
            directory = self.step(directory, component)?;
        }
        self.directory(directory)?;
        Ok(Slot { directory, name: name.to_owned() })
    }

    pub fn at(&self, slot: &Slot) -> Option<Ino> {
        self.directory(slot.directory).ok()?.now.get(&slot.name).copied()
    }

    fn path_of(&self, slot: &Slot) -> String {
        let directory = self.inode(slot.directory).map_or("", |inode| inode.path.trim_end_matches('/'));
        format!("{directory}/{}", slot.name.display())
    }

    /// Makes an empty file or directory in a free place.
    pub fn create(&mut self, slot: Slot, is_directory: bool) -> Result<Ino, Errno> {
        if self.inodes.len() >= INODES_MAX {
            return Err(Errno::NoSpace);
        }
        let ino = self.next;
        self.next += 1;
        let path = self.path_of(&slot);
        let node = if is_directory {
            Node::Directory(Directory { parent: slot.directory, ..Directory::default() })
        } else {
            Node::File(Content::default())
        };
        let text = format!("creation of {path}");
        self.inodes.insert(ino, Inode { node, refs: 0, sights: 0, path, failures: 0 });
        self.change(None, Some(slot), ino, text);
        Ok(ino)
    }

    pub fn remove(&mut self, slot: Slot, is_directory: bool) -> Result<(), Errno> {
        let ino = self.at(&slot).ok_or(Errno::NoEntry)?;
        match (&self.inode(ino)?.node, is_directory) {
            (Node::Directory(directory), true) if directory.now.is_empty() => {}
            (Node::Directory(_), true) => return Err(Errno::NotEmpty),
            (Node::Directory(_), false) => return Err(Errno::IsDirectory),
            (Node::File(_), true) => return Err(Errno::NotDirectory),
            (Node::File(_), false) => {}
        }
        let text = format!("removal of {}", self.path_of(&slot));
        self.change(Some(slot), None, ino, text);
        Ok(())
    }

    pub fn rename(&mut self, from: Slot, to: Slot) -> Result<(), Errno> {
        let ino = self.at(&from).ok_or(Errno::NoEntry)?;
        let old = self.at(&to);
        if old == Some(ino) {
            return Ok(());
        }
        let is_directory = matches!(self.inode(ino)?.node, Node::Directory(_));
        let mut above = to.directory;
        while above != ROOT {
            if above == ino {
                return Err(Errno::Invalid);
            }
            above = self.directory(above)?.parent;
        }
        if let Some(old) = old {
            match (&self.inode(old)?.node, is_directory) {
                (Node::Directory(directory), true) if directory.now.is_empty() => {}
                (Node::Directory(_), true) => return Err(Errno::NotEmpty),
                (Node::Directory(_), false) => return Err(Errno::IsDirectory),
                (Node::File(_), true) => return Err(Errno::NotDirectory),
                (Node::File(_), false) => {}
            }
        }
        let path = self.path_of(&to);
        let text = format!("rename of {} to {path}", self.path_of(&from));
        let inode = self.inode_mut(ino)?;
        inode.path = path;
        if let Node::Directory(directory) = &mut inode.node {
            directory.parent = to.directory;
        }
        self.change(Some(from), Some(to), ino, text);
        Ok(())
    }

    /// Changes what programs see, and notes it for the disk.
    fn change(&mut self, from: Option<Slot>, to: Option<Slot>, ino: Ino, text: String) {
        self.hold(ino);
        let old = self.apply(from.as_ref(), to.as_ref(), ino, |directory| &mut directory.now);
        if to.is_some() {
            self.show(ino);
        }
        let is_directory = self.directory(ino).is_ok();
        let is_barrier = is_directory && from.is_some() && to.is_some();
        self.changes.push_back(Change {
            from,
            to,
            ino,
            text,
            is_directory,
            is_barrier,
            number: self.change_count,
        });
        self.change_count += 1;
        old.into_iter().for_each(|old| self.hide(old));
        if self.changes.len() > CHANGES_MAX {
            let rest = self.changes.split_off(CHANGES_MAX / 2);
            let older = std::mem::replace(&mut self.changes, rest);
            older.into_iter().for_each(|change| self.bring(&change));
        }
    }

    /// Changes one view of the directories. Returns what it does not refer to any more.
    fn apply(
        &mut self,
        from: Option<&Slot>,
        to: Option<&Slot>,
        ino: Ino,
        view: impl Fn(&mut Directory) -> &mut BTreeMap<OsString, Ino>,
    ) -> Vec<Ino> {
        let mut old = Vec::new();
        if let Some(slot) = from
            && let Ok(directory) = self.directory_mut(slot.directory)
        {
            old.extend(view(directory).remove(&slot.name));
        }
        if let Some(slot) = to
            && let Ok(directory) = self.directory_mut(slot.directory)
        {
            old.extend(view(directory).insert(slot.name.clone(), ino));
        }
        old
    }

    /// A change comes to the disk.
    fn bring(&mut self, change: &Change) {
        let (from, to) = (change.from.as_ref(), change.to.as_ref());
        if to.is_some_and(|slot| self.directory(slot.directory).is_ok()) {
            self.hold(change.ino);
        }
        let old = self.apply(from, to, change.ino, |directory| &mut directory.stable);
        old.into_iter().chain([change.ino]).for_each(|ino| self.release(ino));
    }

    /// Programs can see it in one way more.
    pub fn show(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.sights += 1;
            inode.refs += 1;
        }
    }

    /// Programs can see it in one way less. Without any it takes no room.
    pub fn hide(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.sights -= 1;
            if let (0, Node::File(content)) = (inode.sights, &inode.node) {
                self.used -= content.len() as u64;
            }
        }
        self.release(ino);
    }

    /// One reference more.
    fn hold(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.refs += 1;
        }
    }

    /// One reference less. What nothing refers to goes.
    fn release(&mut self, ino: Ino) {
        let mut gone = vec![ino];
        while let Some(ino) = gone.pop() {
            let Some(inode) = self.inodes.get_mut(&ino) else { continue };
            inode.refs -= 1;
            if inode.refs > 0 {
                continue;
            }
            // A directory that was removed is empty, but its names on the disk go with it.
            if let Some(Inode { node: Node::Directory(directory), .. }) = self.inodes.remove(&ino) {
                gone.extend(directory.stable.into_values());
            }
        }
    }

    /// Changes so far: what a sync that begins now has to bring to the disk.
    pub fn mark(&self) -> u64 {
        self.change_count
    }

    /// Whether a directory has changes that are not on the disk.
    pub fn is_pending(&self, directory: Ino) -> bool {
        self.changes.iter().any(|change| change.directories().any(|one| one == directory))
    }

    /// Brings the changes of a directory until this mark to the disk, and those of other directories that they depend on.
    pub fn sync(&mut self, directory: Ino, mark: u64) {
        let mut directories = BTreeSet::from([directory]);
        // Directories that something was moved into: they have to be there.
        let mut targets = BTreeSet::new();
        let mut due: Vec<Change> = Vec::new();
        let mut rest = VecDeque::new();
        let mut all = false;
        for change in std::mem::take(&mut self.changes).into_iter().rev() {
            let is_target = change.is_directory && targets.contains(&change.ino);
            let is_due = all || is_target || change.directories().any(|one| directories.contains(&one));
            if is_due && change.number < mark {
                all |= change.is_barrier;
                directories.extend(change.directories());
                match (&change.from, &change.to) {
                    (Some(_), None) if change.is_directory => directories.extend([change.ino]),
                    (Some(_), Some(to)) => targets.extend([to.directory]),
                    (None, Some(to)) if is_target => targets.extend([to.directory]),
                    _ => {}
                }
                due.push(change);
            } else {
                rest.push_front(change);
            }
        }
        self.changes = rest;
        due.iter().rev().for_each(|change| self.bring(change));
    }

    /// Takes the power away: what is on the disk is what there is. Returns what was lost.
    pub fn lose_power(&mut self, rng: &mut Rng, mut report: impl FnMut(fmt::Arguments<'_>)) {
        // Each change is on the disk with this probability, if those before it are.
        let chance = [0.0, 1.0, 0.5, 0.8][usize::try_from(rng.below(4)).unwrap_or(0)];
        let mut ended = BTreeSet::new();
        for change in std::mem::take(&mut self.changes) {
            let is_next = change.concerned().all(|one| !ended.contains(&one));
            if is_next && (ended.is_empty() || !change.is_barrier) && rng.chance(chance) {
                self.bring(&change);
            } else {
                ended.extend(change.concerned());
                report(format_args!("lost: {}", change.text));
            }
        }
        self.keep_what_is_on_the_disk();
        self.used = 0;
        for inode in self.inodes.values_mut() {
            let Node::File(content) = &mut inode.node else { continue };
            let loss = content.lose_power(rng);
            if loss != Loss::default() {
                let path = &inode.path;
                report(format_args!(
                    "unsynced changes of {path}: {} lost, {} torn, {} kept",
                    loss.lost, loss.torn, loss.kept
                ));
            }
            self.used += content.len() as u64;
        }
    }

    /// Names and inodes are those that the disk has.
    fn keep_what_is_on_the_disk(&mut self) {
        let mut found = BTreeMap::from([(ROOT, 1)]);
        let mut open = vec![(ROOT, ROOT, String::new())];
        while let Some((ino, parent, path)) = open.pop() {
            let Some(inode) = self.inodes.get_mut(&ino) else { continue };
            inode.path = if path.is_empty() { "/".into() } else { path.clone() };
            if let Node::Directory(directory) = &mut inode.node {
                directory.parent = parent;
                directory.now.clone_from(&directory.stable);
                for (name, child) in &directory.stable {
                    // A name that programs see, and one on the disk.
                    *found.entry(*child).or_insert(0) += 1;
                    open.push((*child, ino, format!("{path}/{}", name.display())));
                }
            }
        }
        self.inodes.retain(|ino, inode| {
            inode.sights = found.get(ino).copied().unwrap_or(0);
            inode.refs = 2 * inode.sights;
            inode.refs > 0
        });
    }
}

/// Whether a path can only be a directory's.
pub(crate) fn ends_with_slash(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/")
}
