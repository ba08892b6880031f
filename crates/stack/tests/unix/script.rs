//! The language of the cases: calls on sockets that have names, each noted with its answer.
//!
//! Purpose: a case reads like a trace of system calls, and its transcript is one, with nothing in it that
//! depends on the implementation: names instead of descriptors, errno by name. Every call notes itself, so
//! that no answer can be forgotten.
//!
//! Does not depend on the provider. Invariants: a call on a socket that was never made, or is closed, is
//! noted and touches nothing, so a difference early on does not stop a case.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use crate::provider::{
    Answer, Carried, Direction, Flags, Handle, Kind, Name, Outgoing, Provider, Refusal, Room, Side,
};
use crate::words::{Verbatim, bits, described, errno_name, options, shown, spelled, whose, wishes};

/// One run of a case on one provider.
pub struct Run<P: Provider> {
    provider: Arc<P>,
    sockets: BTreeMap<String, Arc<P::Socket>>,
    files: BTreeMap<String, OwnedFd>,
    transcript: Vec<Line>,
}

/// A call and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub call: String,
    /// `None` where the provider's types have no such call.
    pub answer: Option<String>,
}

impl<P: Provider> Run<P> {
    pub fn new(provider: P) -> Self {
        Self {
            provider: Arc::new(provider),
            sockets: BTreeMap::new(),
            files: BTreeMap::new(),
            transcript: Vec::new(),
        }
    }

    /// Returns the transcript; every socket and file is closed.
    pub fn finish(self) -> Vec<Line> {
        self.transcript
    }

    /// The transcript so far.
    pub fn lines(&self) -> &[Line] {
        &self.transcript
    }

    /// Takes back every note but the first `count`.
    pub fn forget_after(&mut self, count: usize) {
        self.transcript.truncate(count);
    }

    /// Records a line that is not a call's answer, such as a conclusion from several answers.
    pub fn note(&mut self, what: &str, value: impl Debug) {
        self.transcript.push(Line { call: what.to_owned(), answer: Some(format!("{value:?}")) });
    }

    fn answered<T: Debug>(&mut self, call: String, answer: Answer<T>) -> Option<T> {
        let text = match &answer {
            Ok(value) => Some(format!("{value:?}")),
            Err(refusal) => spelled(*refusal),
        };
        self.transcript.push(Line { call, answer: text });
        answer.ok()
    }

    /// A call on one socket, or a note that there is none of that name.
    fn on<T: Debug>(
        &mut self,
        call: String,
        name: &str,
        ask: impl FnOnce(&P, &P::Socket) -> Answer<T>,
    ) -> Option<T> {
        let Some(socket) = self.sockets.get(name) else {
            self.transcript.push(Line { call, answer: Some("no such socket".to_owned()) });
            return None;
        };
        let answer = ask(&self.provider, socket);
        self.answered(call, answer)
    }

    // Making and naming.

    pub fn socket(&mut self, kind: Kind, name: &str) {
        let made = self.provider.socket(kind);
        self.keep(format!("{name} = socket({kind:?})"), made.map(|socket| ((), socket)), name);
    }

    pub fn pair(&mut self, kind: Kind, one: &str, other: &str) {
        let call = format!("{one}, {other} = socketpair({kind:?})");
        match self.provider.pair(kind) {
            Ok((left, right)) => {
                self.put(one, left);
                self.keep(call, Ok(((), right)), other);
            }
            Err(refusal) => drop(self.answered::<()>(call, Err(refusal))),
        }
    }

    fn put(&mut self, name: &str, socket: P::Socket) {
        self.sockets.insert(name.to_owned(), Arc::new(socket));
    }

    fn keep<T: Debug>(&mut self, call: String, made: Answer<(T, P::Socket)>, name: &str) {
        let answer = made.map(|(described, socket)| {
            self.put(name, socket);
            described
        });
        self.answered(call, answer);
    }

    pub fn bind(&mut self, name: &str, to: &Name) {
        self.on(format!("bind({name}, {to:?})"), name, |p, s| p.bind(s, to));
    }

    pub fn listen(&mut self, name: &str, backlog: i32) {
        self.on(format!("listen({name}, {backlog})"), name, |p, s| p.listen(s, backlog));
    }

    /// A socket of `kind` that is bound and listens.
    pub fn listener(&mut self, kind: Kind, name: &str, at: &Name, backlog: i32) {
        self.socket(kind, name);
        self.bind(name, at);
        self.listen(name, backlog);
        self.nonblocking(name);
    }

    /// A socket of `kind` that has been bound and does not block.
    pub fn bound(&mut self, kind: Kind, name: &str, at: &Name) {
        self.socket(kind, name);
        self.bind(name, at);
        self.nonblocking(name);
    }

    pub fn connect(&mut self, name: &str, to: &Name) {
        self.on(format!("connect({name}, {to:?})"), name, |p, s| p.connect(s, to));
    }

    pub fn disconnect(&mut self, name: &str) {
        self.on(format!("disconnect({name})"), name, |p, s| p.disconnect(s));
    }

    pub fn accept(&mut self, listener: &str, name: &str) {
        let call = format!("{name} = accept({listener})");
        let Some(socket) = self.sockets.get(listener) else {
            return self.note(&call, "no such socket");
        };
        let accepted = self.provider.accept(socket).map(|(socket, from)| (from, socket));
        self.keep(call, accepted, name);
    }

    pub fn local_name(&mut self, name: &str) {
        self.on(format!("getsockname({name})"), name, |p, s| p.local(s));
    }

    pub fn peer_name(&mut self, name: &str) {
        self.on(format!("getpeername({name})"), name, |p, s| p.peer(s));
    }

    pub fn names(&mut self, name: &str) {
        self.local_name(name);
        self.peer_name(name);
    }

    pub fn unlink(&mut self, name: &Name) {
        let answer = self.provider.unlink(name);
        self.answered(format!("unlink({name:?})"), answer);
    }

    pub fn close(&mut self, name: &str) {
        let was = self.sockets.remove(name).is_some() | self.files.remove(name).is_some();
        self.note(&format!("close({name})"), if was { "closed" } else { "no such socket" });
    }

    /// Two ends of a connection that are not blocking, made by way of a listener at `at`.
    pub fn connected(&mut self, kind: Kind, client: &str, server: &str, at: &Name) {
        self.listener(kind, "listener", at, 5);
        self.socket(kind, client);
        self.connect(client, at);
        self.accept("listener", server);
        self.nonblocking(client);
        self.nonblocking(server);
    }

    /// A socket pair that does not block.
    pub fn quiet_pair(&mut self, kind: Kind, one: &str, other: &str) {
        self.pair(kind, one, other);
        self.nonblocking(one);
        self.nonblocking(other);
    }

    // Data.

    pub fn send(&mut self, name: &str, data: &[u8]) {
        self.send_with(name, data, None, None, Flags::default());
    }

    pub fn send_to(&mut self, name: &str, data: &[u8], to: &Name) {
        self.send_with(name, data, Some(to), None, Flags::default());
    }

    /// Sends `data` with the named sockets and files.
    pub fn send_rights(&mut self, name: &str, data: &[u8], rights: &[&str]) {
        self.send_with(name, data, None, Some(rights), Flags::default());
    }

    pub fn send_with(
        &mut self,
        name: &str,
        data: &[u8],
        to: Option<&Name>,
        rights: Option<&[&str]>,
        flags: Flags,
    ) {
        let call = format!("send({name}, {}{})", shown(data), options(to, rights, flags));
        let (sockets, files) = (&self.sockets, &self.files);
        let found = rights.map(|names| names.iter().filter_map(|name| carried(sockets, files, name)));
        let rights = found.map(Iterator::collect);
        let Some(socket) = sockets.get(name) else { return self.note(&call, "no such socket") };
        let answer = self.provider.send(socket, Outgoing { data, to, rights, flags });
        self.answered(call, answer);
    }

    pub fn recv(&mut self, name: &str, room: usize) {
        self.recv_with(name, Room { data: room, ..NOTHING_BUT_DATA }, &[]);
    }

    pub fn peek(&mut self, name: &str, room: usize) {
        let flags = Flags { peek: true, ..Flags::default() };
        self.recv_with(name, Room { data: room, flags, ..NOTHING_BUT_DATA }, &[]);
    }

    /// Receives with room for as many rights as there are `names` for them.
    pub fn recv_rights(&mut self, name: &str, room: usize, names: &[&str]) {
        self.recv_with(name, Room { data: room, rights: names.len(), ..NOTHING_BUT_DATA }, names);
    }

    /// Received files are kept under `names`, in order; those without a name are closed.
    pub fn recv_with(&mut self, name: &str, room: Room, names: &[&str]) {
        let call = format!("recv({name}, {}{})", room.data, wishes(room));
        let Some(socket) = self.sockets.get(name) else { return self.note(&call, "no such socket") };
        let answer = self.provider.receive(socket, room);
        let answer = answer.map(|incoming| {
            let described = described(&incoming);
            for (handle, name) in incoming.rights.into_iter().zip(names) {
                match handle {
                    Handle::Socket(socket) => self.put(name, socket),
                    Handle::File(file) => self.keep_file(name, file),
                }
            }
            described
        });
        self.answered(call, answer.map(Verbatim));
    }

    /// A received file. The kernel does not report its kind, so a case that passes sockets gives them names that
    /// begin with an upper-case letter.
    fn keep_file(&mut self, name: &str, file: OwnedFd) {
        match P::adopt(file, name.starts_with(|c: char| c.is_ascii_uppercase())) {
            Handle::Socket(socket) => self.put(name, socket),
            Handle::File(file) => drop(self.files.insert(name.to_owned(), file)),
        }
    }

    pub fn shutdown(&mut self, name: &str, side: Side) {
        self.on(format!("shutdown({name}, {side:?})"), name, |p, s| p.shutdown(s, side));
    }

    /// Sends `chunk` bytes at a time until that is refused, and notes how it was refused; how much fits is
    /// each implementation's own affair. At most [`FILL_MAX`] times.
    pub fn fill(&mut self, name: &str, chunk: usize) -> usize {
        let data = vec![b'f'; chunk];
        let mut sent = 0;
        let refusal = loop {
            let Some(socket) = self.sockets.get(name) else { break None };
            let message = Outgoing { data: &data, to: None, rights: None, flags: DONT_WAIT };
            match self.provider.send(socket, message) {
                Ok(_) if sent >= FILL_MAX => break None,
                Ok(_) => sent += 1,
                Err(refusal) => break Some(refusal),
            }
        };
        let how = refusal.map_or(Some("never refused".to_owned()), spelled);
        self.transcript.push(Line { call: format!("fill({name}, {chunk})"), answer: how });
        self.note("something fitted", sent > 0);
        sent
    }

    /// Reads until nothing is left, `room` bytes at a time, and notes how it ends.
    pub fn drain(&mut self, name: &str, room: usize) -> usize {
        let mut total = 0;
        let room = Room { data: room, flags: DONT_WAIT, ..NOTHING_BUT_DATA };
        let end = loop {
            let Some(socket) = self.sockets.get(name) else { break None };
            match self.provider.receive(socket, room) {
                Ok(incoming) if incoming.len == 0 => break Some("end".to_owned()),
                Ok(incoming) => total += incoming.len,
                Err(refusal) => break spelled(refusal),
            }
        };
        self.transcript.push(Line { call: format!("drain({name})"), answer: end });
        total
    }

    /// Receives if something is there, without a note.
    pub fn silently_recv(&self, name: &str, room: usize) {
        let room = Room { data: room, flags: DONT_WAIT, ..NOTHING_BUT_DATA };
        let _ = self.sockets.get(name).map(|socket| self.provider.receive(socket, room));
    }

    // State and options.

    pub fn poll(&mut self, name: &str) {
        self.on(format!("poll({name})"), name, |p, s| p.poll(s).map(|r| Verbatim(bits(r))));
    }

    pub fn take_error(&mut self, name: &str) {
        self.on(format!("SO_ERROR({name})"), name, |p, s| p.take_error(s).map(|e| Verbatim(errno_name(e))));
    }

    pub fn unread(&mut self, name: &str) {
        self.on(format!("SIOCINQ({name})"), name, |p, s| p.unread(s));
    }

    pub fn nonblocking(&mut self, name: &str) {
        self.on(format!("nonblocking({name})"), name, |p, s| p.set_nonblocking(s, true));
    }

    pub fn timeout(&mut self, name: &str, direction: Direction, timeout: Duration) {
        let call = format!("timeout({name}, {direction:?})");
        self.on(call, name, |p, s| p.set_timeout(s, direction, timeout));
    }

    pub fn buffer(&mut self, name: &str, direction: Direction, bytes: usize) {
        let call = format!("buffer({name}, {direction:?}, {bytes})");
        self.on(call, name, |p, s| p.set_buffer(s, direction, bytes));
    }

    pub fn set_passcred(&mut self, name: &str, on: bool) {
        self.on(format!("set_passcred({name}, {on})"), name, |p, s| p.set_passcred(s, on));
        self.on(format!("passcred({name})"), name, |p, s| p.passcred(s));
    }

    pub fn peer_credentials(&mut self, name: &str) {
        let call = format!("SO_PEERCRED({name})");
        self.on(call, name, |p, s| p.peer_credentials(s).map(|c| Verbatim(whose(c))));
    }

    /// Everything that can be asked of an end without changing it.
    pub fn look(&mut self, name: &str) {
        self.poll(name);
        self.unread(name);
    }

    /// Another name for a socket.
    pub fn rename(&mut self, from: &str, to: &str) {
        if let Some(socket) = self.sockets.remove(from) {
            self.sockets.insert(to.to_owned(), socket);
        }
        self.note(&format!("{to} is what was {from}"), self.sockets.contains_key(to));
    }

    /// Whether an end hangs up, without a note: for asking until it does.
    pub fn is_hung_up(&self, name: &str) -> bool {
        let asked = self.sockets.get(name).map(|socket| self.provider.poll(socket));
        asked.and_then(Result::ok).is_some_and(|readiness| readiness.hang_up)
    }

    /// Something of which nothing is to be noted.
    pub fn silently(&self, what: impl FnOnce(&P)) {
        what(&self.provider);
    }

    // Files and threads.

    /// The two ends of a pipe, to be passed along.
    pub fn pipe(&mut self, reader: &str, writer: &str) {
        let (read, write) = std::io::pipe().expect("a pipe");
        self.files.insert(reader.to_owned(), read.into());
        self.files.insert(writer.to_owned(), write.into());
    }

    /// Writes to a file and records the result; for pipes.
    pub fn file_write(&mut self, name: &str, data: &[u8]) {
        let answer = match self.files.get(name) {
            Some(file) => rustix::io::write(file, data).map_err(Refusal::from),
            None => Err(Refusal::Errno(Errno::BADF.raw_os_error())),
        };
        self.answered(format!("write({name}, {})", shown(data)), answer);
    }

    /// Reads from a file; blocks until there is data or no writer is left.
    pub fn file_read(&mut self, name: &str, room: usize) {
        let mut data = vec![0; room];
        let answer = match self.files.get(name) {
            Some(file) => rustix::io::read(file, &mut data[..]).map_err(Refusal::from),
            None => Err(Refusal::Errno(Errno::BADF.raw_os_error())),
        };
        let answer = answer.map(|len| Verbatim(shown(&data[..len])));
        self.answered(format!("read({name}, {room})"), answer);
    }

    /// Runs `blocked`, which is expected to block on the socket `name`, in a thread, and `event` a moment
    /// later in this one; the blocked call's answer is recorded last. Their order must not change the answers.
    pub fn meanwhile(
        &mut self,
        call: &str,
        name: &str,
        blocked: impl FnOnce(&P, &P::Socket) -> Answer<String> + Send + 'static,
        event: impl FnOnce(&mut Self),
    ) {
        let call = format!("{call}({name})");
        let Some(socket) = self.sockets.get(name).cloned() else { return self.note(&call, "no such socket") };
        let provider = Arc::clone(&self.provider);
        let waiting = std::thread::spawn(move || blocked(&provider, &socket));
        std::thread::sleep(MOMENT);
        event(self);
        let answer = waiting.join().expect("a call that returns");
        self.answered(call, answer.map(Verbatim));
    }
}

/// Sends `data`, in the shape of a blocked call.
pub fn sends<P: Provider>(provider: &P, socket: &P::Socket, data: &[u8]) -> Answer<String> {
    let message = Outgoing { data, to: None, rights: None, flags: NO_FLAGS };
    provider.send(socket, message).map(|len| len.to_string())
}

/// Receives, in the shape of a blocked call.
pub fn receives<P: Provider>(provider: &P, socket: &P::Socket, room: usize, flags: Flags) -> Answer<String> {
    let room = Room { data: room, flags, ..NOTHING_BUT_DATA };
    provider.receive(socket, room).map(|incoming| described(&incoming))
}

fn carried<'a, S>(
    sockets: &'a BTreeMap<String, Arc<S>>,
    files: &'a BTreeMap<String, OwnedFd>,
    name: &str,
) -> Option<Carried<'a, S>> {
    let socket = sockets.get(name).map(|socket| Carried::Socket(&**socket));
    socket.or_else(|| files.get(name).map(Carried::File))
}

/// No flags, no rights, no credentials.
pub const NOTHING_BUT_DATA: Room = Room { data: 0, rights: 0, credentials: false, flags: NO_FLAGS };
pub const NO_FLAGS: Flags =
    Flags { dont_wait: false, peek: false, wait_all: false, trunc: false, end_of_record: false };
pub const DONT_WAIT: Flags = Flags { dont_wait: true, ..NO_FLAGS };
/// Messages after which [`Run::fill`] gives up: more than any default buffer holds, of one byte each.
const FILL_MAX: usize = 1 << 20;
/// How long a thread is given to get into its blocking call.
const MOMENT: Duration = Duration::from_millis(20);
