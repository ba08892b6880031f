//! The names of a stack's UNIX-domain sockets: pathnames and abstract names, each in a table of its own.
//!
//! Nothing touches the file system. A pathname is bound as if every directory existed and was writable; it
//! stays when its socket closes, and then refuses connections, until it is unlinked. An abstract name ends
//! with its socket. A path that leads *through* a bound socket's name is no directory (ENOTDIR).
//!
//! Bound: a name per socket, and the pathnames that are not unlinked. Sharded by a keyed hash; a shard's mutex is
//! a leaf. Does not depend on the sockets. Tests: below, `tests/unix/`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use rustix::io::Errno;
use sockeye_sync::Mutex;
use sockeye_sync::facade::{Arc, AtomicU32, Ordering};

use super::addr::{Name, SocketAddr};
use super::pcb::{Kind, Pcb};
use crate::base::addr::HashKey;
use crate::rt::env::Env;
use crate::rt::failpoints::{self, Point};
use crate::rt::panics::{self, PanicSource};

/// Shards of the table.
const SHARDS: usize = 16;
/// Abstract names that autobind can choose: five hexadecimal digits.
const AUTOBIND_NAMES: u32 = 1 << 20;

/// See the module's head.
pub(crate) struct Names {
    shards: [Mutex<HashMap<Key, Bound>>; SHARDS],
    key: HashKey,
    next_auto: AtomicU32,
}

/// A pathname is there once; an abstract name once for each type of socket, as on Linux.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    name: Arc<Name>,
    kind: Option<Kind>,
}

impl Key {
    fn new(name: &Arc<Name>, kind: Kind) -> Self {
        let kind = match &**name {
            Name::Path(_) => None,
            Name::Abstract(_) => Some(kind),
        };
        Self { name: Arc::clone(name), kind }
    }
}

/// The socket that has a name: `None` if the socket has closed and only its pathname is left.
type Bound = Option<Arc<Pcb>>;

impl Names {
    pub fn new(key: HashKey) -> Self {
        // Not from 0: names of two runs of a program should differ.
        let next_auto = AtomicU32::new((key.0 as u32) % AUTOBIND_NAMES);
        Self { shards: std::array::from_fn(|_| Mutex::default()), key, next_auto }
    }

    fn shard(&self, name: &Name) -> &Mutex<HashMap<Key, Bound>> {
        let bytes = match name {
            Name::Path(bytes) | Name::Abstract(bytes) => bytes,
        };
        let hash = siphasher::sip::SipHasher13::new_with_keys(self.key.0, self.key.1).hash(bytes);
        &self.shards[hash as usize % SHARDS]
    }

    /// bind(2). An unnamed address takes a free abstract name.
    ///
    /// # Errors
    /// EINVAL (bound already), EADDRINUSE, ENOTDIR, ENOSPC (no name is free).
    pub fn bind(&self, pcb: &Arc<Pcb>, addr: &SocketAddr) -> Result<(), Errno> {
        let Some(name) = &addr.0 else { return self.autobind(pcb) };
        self.check_parents(name)?;
        // A pathname that exists is found out before a socket that is bound, as on Linux.
        let is_abstract = matches!(&**name, Name::Abstract(_));
        if is_abstract && pcb.name.get().is_some() {
            return Err(Errno::INVAL);
        }
        self.insert(pcb, name)
    }

    fn insert(&self, pcb: &Arc<Pcb>, name: &Arc<Name>) -> Result<(), Errno> {
        let key = || Key::new(name, pcb.kind);
        let mut shard = self.shard(name).lock();
        let Entry::Vacant(entry) = shard.entry(key()) else { return Err(Errno::ADDRINUSE) };
        entry.insert(Some(Arc::clone(pcb)));
        let named = panics::catch(PanicSource::Protocol, "a UNIX name", || {
            failpoints::hit(Point::UnixName, 0);
            // Two threads may bind one socket: the first name counts.
            pcb.name.set(Arc::clone(name)).is_ok()
        });
        if !matches!(named, Ok(true)) {
            // Never the last reference: the caller has one.
            shard.remove(&key());
        }
        drop(shard);
        match named {
            Ok(true) => Ok(()),
            Ok(false) => Err(Errno::INVAL),
            Err(caught) => caught.resume(),
        }
    }

    /// Gives a socket without a name a name of five hexadecimal digits; a socket that has a name keeps it.
    pub fn autobind(&self, pcb: &Arc<Pcb>) -> Result<(), Errno> {
        if pcb.name.get().is_some() {
            return Ok(());
        }
        for _ in 0..AUTOBIND_NAMES {
            let number = self.next_auto.fetch_add(1, Ordering::Relaxed) % AUTOBIND_NAMES;
            let digits = format!("{number:05x}").into_bytes();
            match self.insert(pcb, &Arc::new(Name::Abstract(digits.into()))) {
                Err(Errno::ADDRINUSE) => {}
                Err(Errno::INVAL) => return Ok(()),
                done => return done,
            }
        }
        Err(Errno::NOSPC)
    }

    /// The socket of this name and kind.
    ///
    /// # Errors
    /// EINVAL (unnamed), ENOENT (no such pathname), ENOTDIR, ECONNREFUSED (closed, or no such abstract name),
    /// EPROTOTYPE (a pathname of another type).
    pub fn find(&self, addr: &SocketAddr, kind: Kind) -> Result<Arc<Pcb>, Errno> {
        let Some(name) = &addr.0 else { return Err(Errno::INVAL) };
        let bound = self.shard(name).lock().get(&Key::new(name, kind)).cloned();
        match (bound, &**name) {
            (Some(Some(pcb)), _) if pcb.kind == kind => Ok(pcb),
            (Some(Some(_)), _) => Err(Errno::PROTOTYPE),
            (Some(None), _) | (None, Name::Abstract(_)) => Err(Errno::CONNREFUSED),
            (None, Name::Path(_)) => {
                self.check_parents(name)?;
                Err(Errno::NOENT)
            }
        }
    }

    /// unlink(2): the pathname is free again. Its socket continues to work, but is no longer found.
    ///
    /// # Errors
    /// EINVAL (no pathname), ENOENT, ENOTDIR.
    pub fn unlink(&self, addr: &SocketAddr) -> Result<(), Errno> {
        let Some(name) = addr.0.as_ref().filter(|name| matches!(&***name, Name::Path(_))) else {
            return Err(Errno::INVAL);
        };
        let key = Key { name: Arc::clone(name), kind: None };
        let gone = {
            let mut shard = self.shard(name).lock();
            failpoints::hit(Point::UnixUnlink, 0);
            shard.remove(&key)
        };
        if gone.is_none() {
            self.check_parents(name)?;
            return Err(Errno::NOENT);
        }
        Ok(())
    }

    /// Whether a path leads through a socket's name.
    fn check_parents(&self, name: &Name) -> Result<(), Errno> {
        let Name::Path(path) = name else { return Ok(()) };
        let slashes = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
        for (at, _) in slashes {
            let parent = Arc::new(Name::Path(path[..at].into()));
            let key = Key { name: Arc::clone(&parent), kind: None };
            if self.shard(&parent).lock().contains_key(&key) {
                return Err(Errno::NOTDIR);
            }
        }
        Ok(())
    }
}

/// The socket closes: its abstract name is free, its pathname refuses from now on.
pub(crate) fn forget(core: &Env, pcb: &Arc<Pcb>) {
    let Some(name) = pcb.name.get() else { return };
    let key = Key::new(name, pcb.kind);
    let mut shard = super::shared(core).names.shard(name).lock();
    let is_ours = |bound: &Bound| bound.as_ref().is_some_and(|known| Arc::ptr_eq(known, pcb));
    // An accepted socket shares its listener's name, and one that was unlinked may have a successor.
    if !shard.get(&key).is_some_and(is_ours) {
        return;
    }
    let gone = match &**name {
        Name::Path(_) => shard.insert(key, None),
        Name::Abstract(_) => shard.remove(&key),
    };
    drop(shard);
    failpoints::hit(Point::UnixForget, 0);
    drop(gone);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn pcb() -> Arc<Pcb> {
        Pcb::new(Kind::Stream, &Config::default(), 1)
    }

    #[test]
    fn names_are_found_by_kind_and_stay_taken() {
        let names = Names::new(HashKey(1, 2));
        let (a, b) = (pcb(), pcb());
        let path = SocketAddr::from_pathname("/run/x").unwrap();
        names.bind(&a, &path).unwrap();
        assert_eq!(names.bind(&b, &path), Err(Errno::ADDRINUSE));
        let other = SocketAddr::from_pathname("/run/y").unwrap();
        assert_eq!(names.bind(&a, &other), Err(Errno::INVAL));
        assert!(Arc::ptr_eq(&names.find(&path, Kind::Stream).unwrap(), &a));
        assert_eq!(names.find(&path, Kind::Datagram).err(), Some(Errno::PROTOTYPE));
        assert_eq!(names.find(&other, Kind::Stream).err(), Some(Errno::NOENT));
        let below = SocketAddr::from_pathname("/run/x/z").unwrap();
        assert_eq!(names.bind(&b, &below), Err(Errno::NOTDIR));
        let name = SocketAddr::from_abstract_name("/run/x").unwrap();
        assert_eq!(names.find(&name, Kind::Stream).err(), Some(Errno::CONNREFUSED));
        names.unlink(&path).unwrap();
        assert_eq!(names.unlink(&path), Err(Errno::NOENT));
        names.bind(&b, &path).unwrap();
    }

    #[test]
    fn autobind_gives_five_digits_once() {
        let names = Names::new(HashKey(3, 4));
        let a = pcb();
        names.bind(&a, &SocketAddr::UNNAMED).unwrap();
        let first = SocketAddr(a.name.get().cloned());
        let digits = first.as_abstract_name().unwrap();
        assert!(digits.len() == 5 && digits.iter().all(u8::is_ascii_hexdigit));
        names.autobind(&a).unwrap();
        assert_eq!(SocketAddr(a.name.get().cloned()), first);
        let b = pcb();
        names.autobind(&b).unwrap();
        assert_ne!(SocketAddr(b.name.get().cloned()), first);
    }
}
