//! The side of the program whose stack is shown.
//!
//! One thread owns the listening socket and everything that is reported through it. It sleeps in `poll` on that socket, on the
//! clients that have not read all of their report, and on one end of a pair of sockets; dropping [`Published`] shuts down
//! the other end. Nothing here connects to the name in the folder, which any program of the same user can remove or
//! replace.
//!
//! # Bounds
//! [`CLIENTS_MAX`] clients at a time, each with one deadline for the whole exchange; further ones wait in the kernel's queue. No
//! client blocks the thread: bytes that a client does not take at once stay beside its socket until it takes them, or until its
//! deadline.
//!
//! The thread gives the stack back when it ends, so that the last handle is dropped by the thread that drops [`Published`]
//! and never by a thread that another one joins.
//!
//! Tests: `tests/diag.rs`, `tests/hostile.rs`.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use sockeye::Stack;
use sockeye::fork::Origin;

use crate::folder::{ensure, folder};
use crate::name::Name;
use crate::report::Report;

/// How long one client may take, from when its report is made until it has all of it.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(1);
/// Clients that are served at a time. Each may keep a whole report in memory.
const CLIENTS_MAX: usize = 4;
/// How long no client is accepted after the system refused one, for want of descriptors, say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A stack that is shown until this is dropped. Keeps the stack. In a child of `fork` it does nothing when it is dropped.
#[must_use = "the stack is shown for as long as this lives"]
#[derive(Debug)]
pub struct Published {
    name: Name,
    /// The process that shows it. A child of `fork` has no thread to end, and the name is not its own.
    origin: Origin,
    /// The other end is watched by the thread.
    stop: UnixStream,
    thread: Option<JoinHandle<Shown>>,
}

/// Shows `stack` under `name` to programs of the same user.
///
/// # Errors
/// `PermissionDenied` if the [`folder`] is not this user's alone; the system's error if the socket or
/// the thread cannot be made.
pub fn publish(stack: &Stack, name: &str) -> io::Result<Published> {
    publish_in(&folder(), stack, name)
}

/// [`publish`] in a folder of your own choice.
///
/// # Errors
/// As for [`publish`].
pub fn publish_in(folder: &Path, stack: &Stack, name: &str) -> io::Result<Published> {
    ensure(folder)?;
    let (listener, path) = Name::take(folder)?;
    listener.set_nonblocking(true)?;
    let (stop, stopped) = UnixStream::pair()?;
    let shown = Shown { stack: stack.clone(), name: name.to_owned(), since: Instant::now() };
    let server = Server { listener, stopped, shown, clients: Vec::new(), paused_until: None };
    let thread = std::thread::Builder::new().name("sockeye-diag".to_owned()).spawn(move || server.run());
    let thread = thread.inspect_err(|_| path.remove())?;
    Ok(Published { name: path, origin: Origin::here(), stop, thread: Some(thread) })
}

impl Drop for Published {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            // Not even detached: the C library would look for the thread.
            std::mem::forget(self.thread.take());
            return;
        }
        // While the socket is open, its file's number cannot belong to another.
        self.name.remove();
        let _ = self.stop.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // Its stack is dropped here. An error is a panic, which has been reported already.
            drop(thread.join());
        }
    }
}

#[derive(Debug)]
struct Shown {
    stack: Stack,
    name: String,
    since: Instant,
}

impl Shown {
    fn line(&self) -> io::Result<Vec<u8>> {
        let report = Report::of(&self.stack, &self.name, self.since.elapsed().as_secs_f64());
        let mut line = serde_json::to_vec(&report)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// A client that has not read all of its report.
struct Client {
    stream: UnixStream,
    line: Vec<u8>,
    sent: usize,
    deadline: Instant,
}

impl Client {
    /// Sends as much as the client's socket takes now. Whether there is more to send.
    fn has_more(&mut self) -> bool {
        while self.sent < self.line.len() {
            // Without a signal when the client is gone, whatever the program does about SIGPIPE.
            match send(&self.stream, &self.line[self.sent..], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(len) => self.sent += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        false
    }
}

struct Server {
    listener: UnixListener,
    /// Readable once the thread is to end.
    stopped: UnixStream,
    shown: Shown,
    clients: Vec<Client>,
    paused_until: Option<Instant>,
}

impl Server {
    /// Serves until it is stopped, and gives back the reporter.
    fn run(mut self) -> Shown {
        loop {
            let now = Instant::now();
            self.clients.retain(|client| client.deadline > now);
            self.paused_until = self.paused_until.filter(|until| *until > now);
            match self.wait(now) {
                Ok(Ready { stop: true, .. }) => return self.shown,
                Ok(ready) => self.serve(&ready),
                // Out of memory, say. It comes back without running at full speed, and still sees that it is to end.
                Err(_) => std::thread::sleep(ACCEPT_PAUSE),
            }
        }
    }

    /// Sleeps until something is to be done.
    fn wait(&self, now: Instant) -> io::Result<Ready> {
        let is_accepting = self.clients.len() < CLIENTS_MAX && self.paused_until.is_none();
        let none = PollFlags::empty();
        let mut fds = vec![
            PollFd::new(&self.stopped, PollFlags::IN),
            PollFd::new(&self.listener, if is_accepting { PollFlags::IN } else { none }),
        ];
        fds.extend(self.clients.iter().map(|client| PollFd::new(&client.stream, PollFlags::OUT)));
        let deadlines = self.clients.iter().map(|client| client.deadline).chain(self.paused_until);
        let timeout = deadlines.min().map(|at| at.saturating_duration_since(now));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        Ok(Ready {
            stop: is_ready(&fds[0]),
            accept: is_ready(&fds[1]) && is_accepting,
            clients: fds[2..].iter().map(is_ready).collect(),
        })
    }

    fn serve(&mut self, ready: &Ready) {
        let mut is_ready = ready.clients.iter();
        self.clients.retain_mut(|client| !is_ready.next().is_some_and(|ready| *ready) || client.has_more());
        if ready.accept {
            match self.accept() {
                Ok(Some(mut client)) => {
                    if client.has_more() {
                        self.clients.push(client);
                    }
                }
                Ok(None) => {}
                Err(_) => self.paused_until = Some(Instant::now() + ACCEPT_PAUSE),
            }
        }
    }

    /// The next client with its report; none if it went away.
    fn accept(&self) -> io::Result<Option<Client>> {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        // With thousands of sockets on a busy machine this takes a while, for which the client is not to blame.
        let line = self.shown.line()?;
        Ok(Some(Client { stream, line, sent: 0, deadline: Instant::now() + CLIENT_TIMEOUT }))
    }
}

/// The next step.
struct Ready {
    stop: bool,
    accept: bool,
    /// In the order of the server's.
    clients: Vec<bool>,
}
