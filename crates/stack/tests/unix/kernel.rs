//! The kernel's sockets: the reference for the cases.
//!
//! Does not depend on the cases. Invariants: pathnames are in a folder of this provider's own, and abstract
//! names begin with its tag, so that cases can run in parallel; dropping the provider removes both.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, ioctl_fionbio, ioctl_fionread};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::provider::{
    Answer, Carried, Credentials, Direction, Handle, Incoming, Kind, Name, Outgoing, Provider, Readiness,
    Refusal, Room, Side,
};

/// A folder and a prefix for names.
pub struct Kernel {
    folder: PathBuf,
    tag: String,
}

impl Kernel {
    pub fn new() -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let tag = format!("sockeye-{}-{serial}-", std::process::id());
        let folder = std::env::temp_dir().join(&tag);
        std::fs::create_dir_all(&folder).expect("a folder for temporary files that can be written to");
        Self { folder, tag }
    }

    fn address(&self, name: &Name) -> Answer<SocketAddrUnix> {
        let in_folder = |name: &str| format!("{}/{name}", self.folder.display());
        Ok(match name {
            Name::Unnamed | Name::Chosen => SocketAddrUnix::new_unnamed(),
            Name::Path(name) => SocketAddrUnix::new(in_folder(name))?,
            Name::PathOf(len) => SocketAddrUnix::new(padded(in_folder(""), *len))?,
            Name::Abstract(name) => {
                SocketAddrUnix::new_abstract_name(format!("{}{name}", self.tag).as_bytes())?
            }
            Name::AbstractOf(len) => {
                SocketAddrUnix::new_abstract_name(padded(self.tag.clone(), *len).as_bytes())?
            }
        })
    }

    fn name(&self, address: Option<SocketAddrAny>) -> Option<Name> {
        let address = SocketAddrUnix::try_from(address?).ok()?;
        if let Some(bytes) = address.path_bytes() {
            let path = String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
            let name = path.strip_prefix(&format!("{}/", self.folder.display())).unwrap_or(&path);
            return Some(logical(name, path.len(), Name::PathOf, Name::Path));
        }
        let Some(bytes) = address.abstract_name() else { return Some(Name::Unnamed) };
        if bytes.is_empty() {
            // The system call's answer for a socket without a name; no case uses the empty abstract name.
            return Some(Name::Unnamed);
        }
        let text = String::from_utf8_lossy(bytes).into_owned();
        match text.strip_prefix(&self.tag) {
            Some(name) => Some(logical(name, bytes.len(), Name::AbstractOf, Name::Abstract)),
            None => Some(chosen_or(text)),
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// `prefix` with as many letters behind it as make it `len` bytes.
pub fn padded(prefix: String, len: usize) -> String {
    let missing = len.saturating_sub(prefix.len());
    prefix + &PADDING.to_string().repeat(missing)
}

/// A name that consists of padding is recognised by its total length.
pub fn logical(name: &str, len: usize, padded: fn(usize) -> Name, plain: fn(String) -> Name) -> Name {
    let is_padding = !name.is_empty() && name.chars().all(|c| c == PADDING);
    if is_padding { padded(len) } else { plain(name.to_owned()) }
}

/// Autobind turns an empty name into five hexadecimal digits.
pub fn chosen_or(name: String) -> Name {
    let is_chosen = name.len() == 5 && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if is_chosen { Name::Chosen } else { Name::Abstract(name) }
}

const PADDING: char = 'p';

impl Provider for Kernel {
    type Socket = OwnedFd;

    fn adopt(file: OwnedFd, is_socket: bool) -> Handle<OwnedFd> {
        if is_socket { Handle::Socket(file) } else { Handle::File(file) }
    }

    fn socket(&self, kind: Kind) -> Answer<OwnedFd> {
        Ok(rustix::net::socket_with(AddressFamily::UNIX, socket_type(kind), SocketFlags::CLOEXEC, None)?)
    }

    fn pair(&self, kind: Kind) -> Answer<(OwnedFd, OwnedFd)> {
        Ok(rustix::net::socketpair(AddressFamily::UNIX, socket_type(kind), SocketFlags::CLOEXEC, None)?)
    }

    fn bind(&self, socket: &OwnedFd, to: &Name) -> Answer<()> {
        Ok(rustix::net::bind(socket, &self.address(to)?)?)
    }

    fn listen(&self, socket: &OwnedFd, backlog: i32) -> Answer<()> {
        Ok(rustix::net::listen(socket, backlog)?)
    }

    fn connect(&self, socket: &OwnedFd, to: &Name) -> Answer<()> {
        Ok(rustix::net::connect(socket, &self.address(to)?)?)
    }

    fn disconnect(&self, socket: &OwnedFd) -> Answer<()> {
        Ok(rustix::net::connect_unspec(socket)?)
    }

    fn accept(&self, socket: &OwnedFd) -> Answer<(OwnedFd, Name)> {
        let (accepted, from) = rustix::net::acceptfrom_with(socket, SocketFlags::CLOEXEC)?;
        Ok((accepted, self.name(from).unwrap_or(Name::Unnamed)))
    }

    fn local(&self, socket: &OwnedFd) -> Answer<Name> {
        Ok(self.name(Some(rustix::net::getsockname(socket)?)).unwrap_or(Name::Unnamed))
    }

    fn peer(&self, socket: &OwnedFd) -> Answer<Name> {
        Ok(self.name(rustix::net::getpeername(socket)?).unwrap_or(Name::Unnamed))
    }

    fn unlink(&self, name: &Name) -> Answer<()> {
        let Name::Path(name) = name else { return Err(Refusal::Inexpressible) };
        Ok(std::fs::remove_file(self.folder.join(name))?)
    }

    fn send(&self, socket: &OwnedFd, message: Outgoing<'_, OwnedFd>) -> Answer<usize> {
        let carried: Vec<BorrowedFd<'_>> = message.rights.iter().flatten().map(descriptor).collect();
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(carried.len()))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if message.rights.is_some() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&carried)), "room was made");
        }
        let data = [IoSlice::new(message.data)];
        let mut flags = SendFlags::NOSIGNAL;
        flags.set(SendFlags::DONTWAIT, message.flags.dont_wait);
        flags.set(SendFlags::EOR, message.flags.end_of_record);
        Ok(match message.to {
            Some(to) => rustix::net::sendmsg_addr(socket, &self.address(to)?, &data, &mut control, flags)?,
            None => rustix::net::sendmsg(socket, &data, &mut control, flags)?,
        })
    }

    fn receive(&self, socket: &OwnedFd, room: Room) -> Answer<Incoming<OwnedFd>> {
        let mut data = vec![0; room.data];
        let mut space = vec![MaybeUninit::uninit(); control_len(room)];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut flags = RecvFlags::CMSG_CLOEXEC;
        flags.set(RecvFlags::DONTWAIT, room.flags.dont_wait);
        flags.set(RecvFlags::PEEK, room.flags.peek);
        flags.set(RecvFlags::WAITALL, room.flags.wait_all);
        flags.set(RecvFlags::TRUNC, room.flags.trunc);
        let got = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut data)], &mut control, flags)?;
        let (mut rights, mut credentials) = (Vec::new(), None);
        for message in control.drain() {
            match message {
                RecvAncillaryMessage::ScmRights(files) => rights.extend(files.map(Handle::File)),
                RecvAncillaryMessage::ScmCredentials(from) => credentials = Some(credentials_of(from)),
                _ => {}
            }
        }
        // Its drop would look for further messages behind a length that is no multiple of a header's alignment, at an
        // unaligned address. No message is left, and it owns nothing else.
        std::mem::forget(control);
        data.truncate(got.bytes);
        Ok(Incoming {
            len: got.bytes,
            data,
            truncated: got.flags.contains(ReturnFlags::TRUNC),
            control_truncated: got.flags.contains(ReturnFlags::CTRUNC),
            end_of_record: got.flags.contains(ReturnFlags::EOR),
            from: self.name(got.address),
            rights,
            credentials,
        })
    }

    fn shutdown(&self, socket: &OwnedFd, side: Side) -> Answer<()> {
        let how = match side {
            Side::Read => Shutdown::Read,
            Side::Write => Shutdown::Write,
            Side::Both => Shutdown::Both,
        };
        Ok(rustix::net::shutdown(socket, how)?)
    }

    fn poll(&self, socket: &OwnedFd) -> Answer<Readiness> {
        let wanted = PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP;
        let mut asked = [PollFd::new(socket, wanted)];
        rustix::event::poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        let found = asked[0].revents();
        Ok(Readiness {
            readable: found.contains(PollFlags::IN),
            writable: found.contains(PollFlags::OUT),
            read_hang_up: found.contains(PollFlags::RDHUP),
            hang_up: found.contains(PollFlags::HUP),
            error: found.contains(PollFlags::ERR),
        })
    }

    fn take_error(&self, socket: &OwnedFd) -> Answer<i32> {
        Ok(sockopt::socket_error(socket)?.err().map_or(0, Errno::raw_os_error))
    }

    fn unread(&self, socket: &OwnedFd) -> Answer<usize> {
        usize::try_from(ioctl_fionread(socket)?).map_err(|_| Refusal::Inexpressible)
    }

    fn set_nonblocking(&self, socket: &OwnedFd, on: bool) -> Answer<()> {
        Ok(ioctl_fionbio(socket, on)?)
    }

    fn set_timeout(&self, socket: &OwnedFd, direction: Direction, timeout: Duration) -> Answer<()> {
        let which = match direction {
            Direction::Send => Timeout::Send,
            Direction::Receive => Timeout::Recv,
        };
        Ok(sockopt::set_socket_timeout(socket, which, Some(timeout))?)
    }

    fn set_buffer(&self, socket: &OwnedFd, direction: Direction, bytes: usize) -> Answer<()> {
        match direction {
            Direction::Send => sockopt::set_socket_send_buffer_size(socket, bytes)?,
            Direction::Receive => sockopt::set_socket_recv_buffer_size(socket, bytes)?,
        }
        Ok(())
    }

    fn set_passcred(&self, socket: &OwnedFd, on: bool) -> Answer<()> {
        Ok(sockopt::set_socket_passcred(socket, on)?)
    }

    fn passcred(&self, socket: &OwnedFd) -> Answer<bool> {
        Ok(sockopt::socket_passcred(socket)?)
    }

    fn peer_credentials(&self, socket: &OwnedFd) -> Answer<Credentials> {
        Ok(credentials_of(sockopt::socket_peercred(socket)?))
    }
}

fn socket_type(kind: Kind) -> SocketType {
    match kind {
        Kind::Stream => SocketType::STREAM,
        Kind::Datagram => SocketType::DGRAM,
        Kind::Seqpacket => SocketType::SEQPACKET,
    }
}

fn descriptor<'a>(carried: &Carried<'a, OwnedFd>) -> BorrowedFd<'a> {
    match *carried {
        Carried::Socket(socket) => socket.as_fd(),
        Carried::File(file) => file.as_fd(),
    }
}

fn credentials_of(from: rustix::net::UCred) -> Credentials {
    Credentials { pid: from.pid.as_raw_nonzero().get(), uid: from.uid.as_raw(), gid: from.gid.as_raw() }
}

/// Exactly enough room for the requested number of descriptors and for no other: the space for one, rounded up
/// as by CMSG_SPACE, would hold two. Behind another message it still has to be rounded up, or the kernel does not
/// find it.
fn control_len(room: Room) -> usize {
    const HEADER: usize = 16;
    const DESCRIPTOR: usize = 4;
    // struct ucred, rounded up to the alignment of the next header.
    const CREDENTIALS: usize = HEADER + 16;
    let rights = if room.rights > 0 { HEADER + DESCRIPTOR * room.rights } else { 0 };
    if room.credentials { CREDENTIALS + rights.next_multiple_of(align_of::<usize>()) } else { rights }
}
