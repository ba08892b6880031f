//! epoll: each set is a `Poll` of the stack, which decides when an edge is told. Its event then has all of the socket's readiness, as the kernel's does.
//!
//! A socket may be in a set before it connects or listens; it is registered with the stack when it does (`World::register`). Pipes are not in sets.
//! Tests: `tests/interface.rs`.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::time::Duration;

use sockeye::poll::{Events, Poll, Token, Trigger};

use crate::adapter::{Adapter, World};
use crate::error::{Call, Errno};
use crate::files::{File, Files};
use crate::ready::{self, ALWAYS};
use crate::socket::{Shape, Socket};

/// A set.
pub(crate) struct Epoll {
    poll: Poll,
    items: BTreeMap<RawFd, Item>,
}

/// A socket in a set.
#[derive(Clone, Copy)]
struct Item {
    /// Wanted bits, with the flags EPOLLET and EPOLLONESHOT.
    events: u32,
    data: u64,
    /// The stack knows of it.
    is_registered: bool,
    /// EPOLLONESHOT has told its event.
    is_spent: bool,
}

const EDGE: u32 = libc::EPOLLET as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
/// Most events of one wait.
const EVENTS_MAX: usize = 1024;

impl Adapter {
    pub(crate) fn epoll_create(&self) -> Call<RawFd> {
        let epoll = Epoll { poll: Poll::new(Duration::ZERO), items: BTreeMap::new() };
        self.lock().files.add(File::Epoll(epoll))
    }

    pub(crate) fn epoll_ctl(&self, set: RawFd, op: i32, fd: RawFd, event: Option<(u32, u64)>) -> Call<()> {
        let mut world = self.lock();
        let (File::Epoll(epoll), File::Socket(socket)) = world.files.two(set, fd)? else {
            return Err(Errno(libc::EINVAL));
        };
        let is_there = epoll.items.contains_key(&fd);
        match op {
            libc::EPOLL_CTL_ADD if is_there => return Err(Errno(libc::EEXIST)),
            libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL if !is_there => return Err(Errno(libc::ENOENT)),
            libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD => {
                let (events, data) = event.ok_or(Errno(libc::EFAULT))?;
                epoll.withdraw(fd, socket);
                let item = Item { events, data, is_registered: false, is_spent: false };
                let _ = epoll.items.insert(fd, item);
                epoll.register(fd, socket)?;
            }
            libc::EPOLL_CTL_DEL => {
                epoll.withdraw(fd, socket);
                let _ = epoll.items.remove(&fd);
            }
            _ => return Err(Errno(libc::EINVAL)),
        }
        drop(self.settle(world));
        Ok(())
    }

    /// Bits and data of ready sockets, at most `max`.
    pub(crate) fn epoll_wait(
        &self,
        set: RawFd,
        max: usize,
        timeout: Option<Duration>,
    ) -> Call<Vec<(u32, u64)>> {
        if max == 0 {
            return Err(Errno(libc::EINVAL));
        }
        let world = self.lock();
        let until = timeout.map(|timeout| world.now + timeout);
        let (_world, done) = self.block(world, until, |world| match collect(world, set, max) {
            Ok(found) if found.is_empty() => None,
            found => Some(found),
        });
        done.unwrap_or_else(|| Ok(Vec::new()))
    }
}

impl World {
    /// Tells the sets of a socket that has just got another shape.
    pub(crate) fn register(&mut self, fd: RawFd) -> Call<()> {
        let Self { files, .. } = self;
        for set in files.sets_of(fd) {
            if let (File::Epoll(epoll), File::Socket(socket)) = files.two(set, fd)? {
                epoll.register(fd, socket)?;
            }
        }
        Ok(())
    }
}

impl Files {
    /// The sets that have a descriptor.
    fn sets_of(&self, fd: RawFd) -> Vec<RawFd> {
        self.iter()
            .filter_map(|(set, file)| match file {
                File::Epoll(epoll) if epoll.items.contains_key(&fd) => Some(set),
                File::Epoll(_) | File::Socket(_) | File::Pipe(_) => None,
            })
            .collect()
    }
}

impl Epoll {
    /// Registers an item with the stack, if it is one of the stack's by now.
    fn register(&mut self, fd: RawFd, socket: &Socket) -> Call<()> {
        let Some(item) = self.items.get_mut(&fd) else { return Ok(()) };
        let token = Token(usize::try_from(fd).unwrap_or(0));
        let trigger = if item.events & EDGE != 0 { Trigger::Edge } else { Trigger::Level };
        let interest = ready::interest(item.events);
        match &socket.shape {
            Shape::Connecting(stream) | Shape::Connected(stream) => {
                self.poll.register(stream, token, interest, trigger)?;
            }
            Shape::Listening(listener) => self.poll.register(listener, token, interest, trigger)?,
            Shape::Datagram(udp) => self.poll.register(udp, token, interest, trigger)?,
            Shape::Fresh(_) | Shape::Gone => return Ok(()),
        }
        item.is_registered = true;
        if item.events & ONCE == 0 {
            item.is_spent = false;
        }
        Ok(())
    }

    /// Takes an item's registration away.
    fn withdraw(&mut self, fd: RawFd, socket: &Socket) {
        let Some(item) = self.items.get_mut(&fd) else { return };
        item.is_registered = false;
        // A socket that has got another shape is not registered, which is no error.
        let _ = match &socket.shape {
            Shape::Connecting(stream) | Shape::Connected(stream) => self.poll.deregister(stream),
            Shape::Listening(listener) => self.poll.deregister(listener),
            Shape::Datagram(udp) => self.poll.deregister(udp),
            Shape::Fresh(_) | Shape::Gone => Ok(()),
        };
    }

    /// A descriptor is closed.
    pub(crate) fn forget(&mut self, fd: RawFd) {
        let _ = self.items.remove(&fd);
    }
}

fn collect(world: &mut World, set: RawFd, max: usize) -> Call<Vec<(u32, u64)>> {
    let File::Epoll(epoll) = world.file(set)? else { return Err(Errno(libc::EINVAL)) };
    let mut events = Events::with_capacity(max.min(EVENTS_MAX));
    let _ = epoll.poll.wait(&mut events, Some(Duration::ZERO))?;
    let mut found = Vec::new();
    for event in &events {
        let fd = RawFd::try_from(event.token().0).unwrap_or(-1);
        found.push((fd, ready::of_event(event)));
    }
    // Sockets that the stack does not know yet.
    for (&fd, item) in &epoll.items {
        if !item.is_registered && !item.is_spent && found.len() < max {
            found.push((fd, 0));
        }
    }
    let mut told = Vec::new();
    for (fd, bits) in found {
        told.extend(tell(world, set, fd, bits)?);
    }
    Ok(told)
}

/// What a set says of a socket for which the stack has reported `bits`.
fn tell(world: &mut World, set: RawFd, fd: RawFd, bits: u32) -> Call<Option<(u32, u64)>> {
    let Ok((File::Epoll(epoll), File::Socket(socket))) = world.files.two(set, fd) else { return Ok(None) };
    let Some(item) = epoll.items.get(&fd).copied().filter(|item| !item.is_spent) else { return Ok(None) };
    // As the kernel's `ep_send_events`: the stack says that something has changed, and what is told is all that is so now.
    let all = if bits == 0 && item.is_registered { 0 } else { ready::of_socket(socket)? };
    let bits = all & (item.events | ALWAYS);
    if bits == 0 {
        return Ok(None);
    }
    // An edge of a socket that the stack does not know yet is told once, too.
    if item.events & ONCE != 0 || (item.events & EDGE != 0 && !item.is_registered) {
        epoll.withdraw(fd, socket);
        if let Some(item) = epoll.items.get_mut(&fd) {
            item.is_spent = true;
        }
    }
    Ok(Some((bits, item.data)))
}
