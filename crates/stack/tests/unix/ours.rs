//! Sockeye's sockets, behind the same trait as the kernel's.
//!
//! Purpose: the library has a type for each kind and state of socket; here they are one handle again, as a
//! descriptor is. Calls that the types cannot express are answered with [`Refusal::Inexpressible`].
//!
//! Does not depend on the cases. Invariants: answers are passed on unchanged, except that credentials for
//! which the caller had no room are dropped (the library always has room for them).

use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use sockeye::Stack;
use sockeye::poll::{Events, Interest, Poll, Token, Trigger};
use sockeye::unix::{
    MsgFlags, RecvAncillary, RecvMsg, Right, SendAncillary, SocketAddr, UCred, UnixDatagram, UnixListener,
    UnixSeqListener, UnixSeqpacket, UnixSocket, UnixStream,
};

use crate::kernel::{chosen_or, logical, padded};
use crate::provider::{
    Answer, Carried, Credentials, Direction, Handle, Incoming, Kind, Name, Outgoing, Provider, Readiness,
    Refusal, Room, Side,
};

/// A stack's sockets.
pub struct Ours(Stack);

/// A socket in any state.
pub struct Socket {
    kind: Kind,
    /// As it was created; accepted sockets and pairs have their final type from the beginning.
    raw: Option<UnixSocket>,
    form: RwLock<Option<Arc<Form>>>,
}

enum Form {
    Stream(UnixStream),
    Seqpacket(UnixSeqpacket),
    Datagram(UnixDatagram),
    Listener(UnixListener),
    SeqListener(UnixSeqListener),
}

impl Ours {
    pub fn new(stack: &Stack) -> Self {
        Self(stack.clone())
    }
}

impl Socket {
    fn of(kind: Kind, form: Form) -> Self {
        Self { kind, raw: None, form: RwLock::new(Some(Arc::new(form))) }
    }

    fn form(&self) -> Option<Arc<Form>> {
        self.form.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn become_form(&self, form: Form) {
        *self.form.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(form));
    }

    fn raw(&self) -> Answer<&UnixSocket> {
        self.raw.as_ref().ok_or(Refusal::Inexpressible)
    }
}

/// Calls a method that all types have.
macro_rules! on_any {
    ($socket:expr, $each:ident => $call:expr) => {
        match ($socket.form().as_deref(), &$socket.raw) {
            (Some(Form::Stream($each)), _) => Ok($call?),
            (Some(Form::Seqpacket($each)), _) => Ok($call?),
            (Some(Form::Datagram($each)), _) => Ok($call?),
            (Some(Form::Listener($each)), _) => Ok($call?),
            (Some(Form::SeqListener($each)), _) => Ok($call?),
            (None, Some($each)) => Ok($call?),
            (None, None) => Err(Refusal::Inexpressible),
        }
    };
}

/// Calls a method of the types that carry data.
macro_rules! on_data {
    ($socket:expr, $each:ident => $call:expr) => {
        match $socket.form().as_deref() {
            Some(Form::Stream($each)) => Ok($call?),
            Some(Form::Seqpacket($each)) => Ok($call?),
            Some(Form::Datagram($each)) => Ok($call?),
            Some(Form::Listener(_) | Form::SeqListener(_)) | None => Err(Refusal::Inexpressible),
        }
    };
}

impl Provider for Ours {
    type Socket = Socket;

    fn adopt(file: OwnedFd, _: bool) -> Handle<Socket> {
        Handle::File(file)
    }

    fn socket(&self, kind: Kind) -> Answer<Socket> {
        let raw = match kind {
            Kind::Stream => UnixSocket::new_stream(&self.0),
            Kind::Datagram => UnixSocket::new_datagram(&self.0),
            Kind::Seqpacket => UnixSocket::new_seqpacket(&self.0),
        };
        let form = match kind {
            Kind::Datagram => Some(Arc::new(Form::Datagram(raw.datagram()?))),
            Kind::Stream | Kind::Seqpacket => None,
        };
        Ok(Socket { kind, raw: Some(raw), form: RwLock::new(form) })
    }

    fn pair(&self, kind: Kind) -> Answer<(Socket, Socket)> {
        let (one, other) = match kind {
            Kind::Stream => both(UnixStream::pair_on(&self.0)?, Form::Stream),
            Kind::Seqpacket => both(UnixSeqpacket::pair_on(&self.0)?, Form::Seqpacket),
            Kind::Datagram => both(UnixDatagram::pair_on(&self.0)?, Form::Datagram),
        };
        Ok((Socket::of(kind, one), Socket::of(kind, other)))
    }

    fn bind(&self, socket: &Socket, to: &Name) -> Answer<()> {
        Ok(socket.raw()?.bind(&address(to)?)?)
    }

    fn listen(&self, socket: &Socket, backlog: i32) -> Answer<()> {
        let backlog = usize::try_from(backlog).map_err(|_| Refusal::Inexpressible)?;
        let raw = socket.raw()?;
        socket.become_form(match socket.kind {
            Kind::Stream => Form::Listener(raw.listen(backlog)?),
            Kind::Seqpacket => Form::SeqListener(raw.listen_seqpacket(backlog)?),
            Kind::Datagram => return Err(Refusal::Inexpressible),
        });
        Ok(())
    }

    fn connect(&self, socket: &Socket, to: &Name) -> Answer<()> {
        let to = address(to)?;
        match (socket.kind, socket.form().as_deref()) {
            (Kind::Datagram, Some(Form::Datagram(datagram))) => Ok(datagram.connect_addr(&to)?),
            (Kind::Datagram, _) => Err(Refusal::Inexpressible),
            (Kind::Stream, _) => {
                socket.become_form(Form::Stream(socket.raw()?.connect(&to)?));
                Ok(())
            }
            (Kind::Seqpacket, _) => {
                socket.become_form(Form::Seqpacket(socket.raw()?.connect_seqpacket(&to)?));
                Ok(())
            }
        }
    }

    fn disconnect(&self, socket: &Socket) -> Answer<()> {
        match socket.form().as_deref() {
            Some(Form::Datagram(datagram)) => Ok(datagram.disconnect()?),
            _ => Err(Refusal::Inexpressible),
        }
    }

    fn accept(&self, socket: &Socket) -> Answer<(Socket, Name)> {
        match socket.form().as_deref() {
            Some(Form::Listener(listener)) => {
                let (accepted, from) = listener.accept()?;
                Ok((Socket::of(Kind::Stream, Form::Stream(accepted)), name(&from)))
            }
            Some(Form::SeqListener(listener)) => {
                let (accepted, from) = listener.accept()?;
                Ok((Socket::of(Kind::Seqpacket, Form::Seqpacket(accepted)), name(&from)))
            }
            _ => Err(Refusal::Inexpressible),
        }
    }

    fn local(&self, socket: &Socket) -> Answer<Name> {
        on_any!(socket, any => any.local_addr()).map(|address| name(&address))
    }

    fn peer(&self, socket: &Socket) -> Answer<Name> {
        on_data!(socket, any => any.peer_addr()).map(|address| name(&address))
    }

    fn unlink(&self, name: &Name) -> Answer<()> {
        let Name::Path(path) = name else { return Err(Refusal::Inexpressible) };
        Ok(self.0.unix_unlink(path)?)
    }

    fn send(&self, socket: &Socket, message: Outgoing<'_, Socket>) -> Answer<usize> {
        let mut ancillary = SendAncillary::new();
        for carried in message.rights.iter().flatten() {
            ancillary.add_right(right(carried)?);
        }
        let to = message.to.map(address).transpose()?;
        let data = [IoSlice::new(message.data)];
        let flags =
            [(message.flags.dont_wait, MsgFlags::DONTWAIT), (message.flags.end_of_record, MsgFlags::EOR)];
        let flags = set_of(&flags) | MsgFlags::NOSIGNAL;
        on_data!(socket, any => any.send_msg(&data, to.as_ref(), &mut ancillary, flags))
    }

    fn receive(&self, socket: &Socket, room: Room) -> Answer<Incoming<Socket>> {
        let mut data = vec![0; room.data];
        let mut ancillary = RecvAncillary::with_capacity(room.rights);
        let flags = set_of(&[
            (room.flags.dont_wait, MsgFlags::DONTWAIT),
            (room.flags.peek, MsgFlags::PEEK),
            (room.flags.wait_all, MsgFlags::WAITALL),
            (room.flags.trunc, MsgFlags::TRUNC),
        ]);
        let bufs = &mut [IoSliceMut::new(&mut data)];
        let got: RecvMsg = on_data!(socket, any => any.recv_msg(bufs, &mut ancillary, flags))?;
        data.truncate(got.bytes);
        Ok(Incoming {
            len: got.bytes,
            data,
            truncated: got.flags.contains(MsgFlags::TRUNC),
            control_truncated: got.flags.contains(MsgFlags::CTRUNC),
            end_of_record: got.flags.contains(MsgFlags::EOR),
            from: Some(name(&got.addr)),
            credentials: ancillary.credentials().filter(|_| room.credentials).map(credentials_of),
            rights: ancillary.take_rights().into_iter().map(handle).collect(),
        })
    }

    fn shutdown(&self, socket: &Socket, side: Side) -> Answer<()> {
        let how = match side {
            Side::Read => Shutdown::Read,
            Side::Write => Shutdown::Write,
            Side::Both => Shutdown::Both,
        };
        on_any!(socket, any => any.shutdown(how))
    }

    fn poll(&self, socket: &Socket) -> Answer<Readiness> {
        let poll = Poll::new(Duration::ZERO);
        let interest = Interest::READABLE | Interest::WRITABLE;
        on_any!(socket, any => poll.register(any, Token(0), interest, Trigger::Level))?;
        let mut events = Events::with_capacity(1);
        poll.wait(&mut events, Some(Duration::ZERO))?;
        let found = events.iter().next().map_or(Readiness::default(), |event| Readiness {
            readable: event.is_readable(),
            writable: event.is_writable(),
            read_hang_up: event.is_read_closed(),
            hang_up: event.is_hung_up(),
            error: event.is_error(),
        });
        Ok(found)
    }

    fn take_error(&self, socket: &Socket) -> Answer<i32> {
        let taken: Option<io::Error> = on_any!(socket, any => any.take_error())?;
        taken.map_or(Ok(0), |error| error.raw_os_error().ok_or(Refusal::Numberless(error.kind())))
    }

    fn unread(&self, socket: &Socket) -> Answer<usize> {
        on_data!(socket, any => any.bytes_readable())
    }

    fn set_nonblocking(&self, socket: &Socket, on: bool) -> Answer<()> {
        on_any!(socket, any => any.set_nonblocking(on))
    }

    fn set_timeout(&self, socket: &Socket, direction: Direction, timeout: Duration) -> Answer<()> {
        match direction {
            Direction::Send => on_any!(socket, any => any.set_write_timeout(Some(timeout))),
            Direction::Receive => on_any!(socket, any => any.set_read_timeout(Some(timeout))),
        }
    }

    fn set_buffer(&self, socket: &Socket, direction: Direction, bytes: usize) -> Answer<()> {
        match direction {
            Direction::Send => on_any!(socket, any => any.set_send_buffer_size(bytes)),
            Direction::Receive => on_any!(socket, any => any.set_recv_buffer_size(bytes)),
        }
    }

    fn set_passcred(&self, socket: &Socket, on: bool) -> Answer<()> {
        on_any!(socket, any => any.set_passcred(on))
    }

    fn passcred(&self, socket: &Socket) -> Answer<bool> {
        on_any!(socket, any => any.passcred())
    }

    fn peer_credentials(&self, socket: &Socket) -> Answer<Credentials> {
        on_data!(socket, any => any.peer_cred()).map(credentials_of)
    }
}

fn both<T>((one, other): (T, T), form: fn(T) -> Form) -> (Form, Form) {
    (form(one), form(other))
}

fn set_of(flags: &[(bool, MsgFlags)]) -> MsgFlags {
    let set = flags.iter().filter(|(is_set, _)| *is_set);
    set.fold(MsgFlags::NONE, |all, (_, flag)| all | *flag)
}

fn address(name: &Name) -> Answer<SocketAddr> {
    Ok(match name {
        Name::Unnamed | Name::Chosen => SocketAddr::from_pathname("")?,
        Name::Path(path) => SocketAddr::from_pathname(path)?,
        Name::PathOf(len) => SocketAddr::from_pathname(padded(String::new(), *len))?,
        Name::Abstract(name) => SocketAddr::from_abstract_name(name)?,
        Name::AbstractOf(len) => SocketAddr::from_abstract_name(padded(String::new(), *len))?,
    })
}

fn name(address: &SocketAddr) -> Name {
    if let Some(path) = address.as_pathname() {
        let path = path.to_string_lossy();
        return logical(&path, path.len(), Name::PathOf, Name::Path);
    }
    let Some(bytes) = address.as_abstract_name() else { return Name::Unnamed };
    let name = String::from_utf8_lossy(bytes).into_owned();
    match logical(&name, bytes.len(), Name::AbstractOf, Name::Abstract) {
        Name::Abstract(name) => chosen_or(name),
        other => other,
    }
}

/// Another handle of the object to be passed, as passing a descriptor makes one.
fn right(carried: &Carried<'_, Socket>) -> Answer<Right> {
    let socket = match carried {
        Carried::File(file) => return Ok(file.try_clone()?.into()),
        Carried::Socket(socket) => socket,
    };
    Ok(match (socket.form().as_deref(), &socket.raw) {
        (Some(Form::Stream(stream)), _) => stream.try_clone()?.into(),
        (Some(Form::Seqpacket(seqpacket)), _) => seqpacket.try_clone()?.into(),
        (Some(Form::Datagram(datagram)), _) => datagram.try_clone()?.into(),
        (Some(Form::Listener(listener)), _) => listener.try_clone()?.into(),
        (Some(Form::SeqListener(listener)), _) => listener.try_clone()?.into(),
        (None, Some(raw)) => raw.try_clone()?.into(),
        (None, None) => return Err(Refusal::Inexpressible),
    })
}

fn handle(right: Right) -> Handle<Socket> {
    Handle::Socket(match right {
        Right::Stream(stream) => Socket::of(Kind::Stream, Form::Stream(stream)),
        Right::Seqpacket(seqpacket) => Socket::of(Kind::Seqpacket, Form::Seqpacket(seqpacket)),
        Right::Datagram(datagram) => Socket::of(Kind::Datagram, Form::Datagram(datagram)),
        Right::Listener(listener) => Socket::of(Kind::Stream, Form::Listener(listener)),
        Right::SeqListener(listener) => Socket::of(Kind::Seqpacket, Form::SeqListener(listener)),
        Right::Fd(file) => return Handle::File(file),
        other => panic!("no case passes a {other:?}"),
    })
}

fn credentials_of(from: UCred) -> Credentials {
    Credentials { pid: from.pid, uid: from.uid, gid: from.gid }
}
