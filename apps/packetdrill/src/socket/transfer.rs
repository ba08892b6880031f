//! Reads and writes, with their flags.
//!
//! A read or write of a blocking socket goes on in `Adapter::block`; one that has moved some bytes when its time is over, or an error comes, returns
//! their count, and the error is the next call's.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::RawFd;

use sockeye::{SendFlags, TcpStream, UdpSocket, fastopen};

use super::message::{self, Received};
use super::open::{has_connected, settled, until};
use super::{Shape, Socket};
use crate::adapter::{Adapter, EPOCH, World};
use crate::error::{Call, Errno};
use crate::files::File;
use crate::ready;

/// Bytes of the longest datagram.
const DATAGRAM_MAX: usize = 65_536;
/// What ends the wait of a writer.
const WAKES: u32 = ready::OUT | ready::ERR | ready::HUP;
/// Most bytes of a first write, which the stack takes in one go.
const FIRST_WRITE_MAX: usize = 65_536;
/// Most bytes that a read takes at once: more than any receive buffer.
const READ_MAX: usize = 64 << 20;

impl Adapter {
    /// Up to `len` bytes.
    pub(crate) fn recv(&self, fd: RawFd, len: usize, flags: i32) -> Call<Received> {
        let mut world = self.lock();
        let (nonblocking, timeout) = match world.file(fd)? {
            File::Socket(socket) => (socket.nonblocking, socket.rcv_timeout),
            File::Pipe(pipe) => (pipe.nonblocking, None),
            File::Epoll(_) => return Err(Errno(libc::EINVAL)),
        };
        let nonblocking = nonblocking || flags & (libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE) != 0;
        let until = until(&world, nonblocking, timeout);
        let wants_all = flags & libc::MSG_WAITALL != 0 && flags & libc::MSG_PEEK == 0;
        let mut got = Vec::new();
        let (mut world, done) = self.block(world, until, |world| {
            loop {
                match recv_now(world, fd, len.min(READ_MAX) - got.len(), flags) {
                    Ok(received) if wants_all && !received.bytes.is_empty() => {
                        got.extend(&received.bytes);
                        if got.len() == len {
                            return Some(Ok(received));
                        }
                    }
                    result => return settled(result),
                }
            }
        });
        let mut received = match done {
            Some(Ok(received)) => received,
            Some(Err(_)) | None if !got.is_empty() => Received::default(),
            Some(Err(error)) => return Err(error),
            None => return Err(Errno(libc::EAGAIN)),
        };
        if !got.is_empty() {
            received.bytes = got;
        }
        let epoch = EPOCH + world.since();
        if flags & libc::MSG_ERRQUEUE == 0
            && let Ok(socket) = world.files.socket(fd)
        {
            message::fill_control(socket, &mut received, epoch)?;
        }
        Ok(received)
    }

    /// Sends `text`. With `to` and MSG_FASTOPEN it connects as well.
    pub(crate) fn send(&self, fd: RawFd, text: Text<'_>, flags: i32, to: Option<SocketAddr>) -> Call<usize> {
        let (mut world, bytes) = (self.lock(), text.bytes);
        let (mut nonblocking, timeout) = match world.file(fd)? {
            File::Socket(socket) => (socket.nonblocking, socket.snd_timeout),
            File::Pipe(pipe) => (pipe.nonblocking, None),
            File::Epoll(_) => return Err(Errno(libc::EINVAL)),
        };
        nonblocking |= flags & libc::MSG_DONTWAIT != 0;
        let mut taken = 0;
        if let Some(first) = self.first_send(&mut world, fd, (bytes, flags, nonblocking), to)? {
            world = self.settle(world);
            if nonblocking {
                // What the SYN has not taken is the caller's to send again.
                return if first > 0 { Ok(first) } else { Err(Errno(libc::EINPROGRESS)) };
            }
            taken = first;
            let until = until(&world, false, timeout);
            let (settled, connected) = self.await_connect(world, fd, until);
            connected?;
            if taken == bytes.len() {
                return Ok(taken);
            }
            world = settled;
        }
        let until = until(&world, nonblocking, timeout);
        let mut is_full = false;
        let (_world, done) = self.block(world, until, |world| {
            // A writer that waits is woken when the socket is writable, which is later than when it has room for a byte.
            if is_full
                && world.file(fd).is_ok_and(|file| ready::of_file(file).is_ok_and(|bits| bits & WAKES == 0))
            {
                return None;
            }
            loop {
                match send_now(world, fd, text.behind(taken), flags, to) {
                    Ok(more) => {
                        taken += more;
                        if taken == bytes.len() || more == 0 {
                            return Some(Ok(()));
                        }
                    }
                    Err(error) => {
                        is_full = true;
                        return settled(Err(error));
                    }
                }
            }
        });
        match done {
            Some(Ok(())) => Ok(taken),
            Some(Err(_)) | None if taken > 0 => Ok(taken),
            Some(Err(error)) => Err(error),
            None => Err(Errno(libc::EAGAIN)),
        }
    }

    /// A write that goes with a SYN: how many bytes that took. `None` if the write has nothing to do with one.
    fn first_send(
        &self,
        world: &mut World,
        fd: RawFd,
        (bytes, flags, nonblocking): (&[u8], i32, bool),
        to: Option<SocketAddr>,
    ) -> Call<Option<usize>> {
        let File::Socket(socket) = world.file(fd)? else { return Ok(None) };
        if socket.is_deferred {
            socket.is_deferred = false;
            return first_write(socket.stream()?, bytes, flags, nonblocking).map(Some);
        }
        if flags & libc::MSG_FASTOPEN == 0 {
            return Ok(None);
        }
        if self.config()?.tcp.fastopen & fastopen::CLIENT == 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        if matches!(socket.shape, Shape::Connecting(_)) && has_connected(socket)? {
            return Ok(None);
        }
        let before = world.sent_count();
        let socket = world.files.socket(fd)?;
        let waits = !nonblocking && !bytes.is_empty();
        let mut taken = fast_open(socket, (!waits).then_some(bytes), flags, to)?;
        if waits && world.sent_count() == before {
            taken = first_write(world.files.socket(fd)?.stream()?, bytes, flags, false)?;
        }
        world.register(fd)?;
        Ok(Some(taken))
    }

    /// `splice`, one of whose ends is a pipe.
    pub(crate) fn splice(&self, from: RawFd, to: RawFd, len: usize, flags: u32) -> Call<usize> {
        let mut world = self.lock();
        let (one, other) = world.files.two(from, to)?;
        if !matches!((&one, &other), (File::Pipe(_), _) | (_, File::Pipe(_))) {
            return Err(Errno(libc::EINVAL));
        }
        let is_nonblocking = |file: &File| match file {
            File::Socket(socket) => socket.nonblocking,
            File::Pipe(pipe) => pipe.nonblocking,
            File::Epoll(_) => true,
        };
        let nonblocking =
            flags & libc::SPLICE_F_NONBLOCK != 0 || is_nonblocking(one) || is_nonblocking(other);
        let until = until(&world, nonblocking, None);
        let (_world, done) = self.block(world, until, |world| settled(splice_now(world, from, to, len)));
        done.unwrap_or(Err(Errno(libc::EAGAIN)))
    }
}

/// Bytes that are there now.
fn recv_now(world: &mut World, fd: RawFd, len: usize, flags: i32) -> Call<Received> {
    let since = world.since();
    let socket = match world.file(fd)? {
        File::Socket(socket) => socket,
        File::Pipe(pipe) => return Ok(Received { bytes: pipe.take(len)?, ..Received::default() }),
        File::Epoll(_) => return Err(Errno(libc::EINVAL)),
    };
    if flags & libc::MSG_ERRQUEUE != 0 {
        let epoch = EPOCH + since;
        return message::from_error_queue(socket, epoch);
    }
    if let Shape::Datagram(udp) = &socket.shape {
        return datagram(udp, len, flags);
    }
    let stream = socket.stream()?;
    if flags & libc::MSG_OOB != 0 {
        // Urgent bytes are always in line, as with SO_OOBINLINE.
        return Err(Errno(libc::EINVAL));
    }
    let mut bytes = vec![0; len];
    let got = if flags & libc::MSG_PEEK != 0 { stream.peek(&mut bytes)? } else { read(stream, &mut bytes)? };
    bytes.truncate(got);
    Ok(Received { bytes, ..Received::default() })
}

/// A datagram, or its first `len` bytes.
fn datagram(udp: &UdpSocket, len: usize, flags: i32) -> Call<Received> {
    let mut bytes = vec![0; DATAGRAM_MAX];
    let (got, from) =
        if flags & libc::MSG_PEEK != 0 { udp.peek_from(&mut bytes)? } else { udp.recv_from(&mut bytes)? };
    bytes.truncate(got.min(len));
    let flags = if got > len { libc::MSG_TRUNC } else { 0 };
    Ok(Received { bytes, flags, from: Some(from), ..Received::default() })
}

fn read(mut stream: &TcpStream, bytes: &mut [u8]) -> Call<usize> {
    Ok(stream.read(bytes)?)
}

/// Bytes of a send, and the lengths of the slices that they came in; none for one slice.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a> {
    pub bytes: &'a [u8],
    pub lens: &'a [usize],
}

impl<'a> From<&'a [u8]> for Text<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, lens: &[] }
    }
}

impl<'a> Text<'a> {
    /// Without the first `taken` bytes. A slice of which some were taken is one with those behind it.
    fn behind(self, mut taken: usize) -> Self {
        let (bytes, mut lens) = (&self.bytes[taken..], self.lens);
        while let Some((first, rest)) = lens.split_first().filter(|_| taken > 0) {
            lens = if taken < *first { &[] } else { rest };
            taken = taken.saturating_sub(*first);
        }
        Self { bytes, lens }
    }

    fn slices(self) -> Vec<io::IoSlice<'a>> {
        let mut rest = self.bytes;
        let slices = self.lens.iter().map(|len| {
            let (slice, behind) = rest.split_at(*len);
            rest = behind;
            io::IoSlice::new(slice)
        });
        let mut slices: Vec<_> = slices.collect();
        slices.push(io::IoSlice::new(rest));
        slices
    }
}

/// Takes as many bytes as there is room for now.
fn send_now(world: &mut World, fd: RawFd, text: Text<'_>, flags: i32, to: Option<SocketAddr>) -> Call<usize> {
    let bytes = text.bytes;
    let socket = match world.file(fd)? {
        File::Socket(socket) => socket,
        File::Pipe(pipe) => return pipe.put(bytes),
        File::Epoll(_) => return Err(Errno(libc::EINVAL)),
    };
    if let Shape::Datagram(udp) = &socket.shape {
        return Ok(to.map_or_else(|| udp.send(bytes), |to| udp.send_to(bytes, to))?);
    }
    let Ok(mut stream) = socket.stream() else { return Err(Errno(libc::EPIPE)) };
    if flags & libc::MSG_OOB != 0 {
        return Ok(stream.send_urgent(bytes)?);
    }
    match send_flags(flags) {
        SendFlags::NONE => Ok(stream.write(bytes)?),
        flags => Ok(stream.send_with(&text.slices(), flags)?),
    }
}

/// Flags of send(2) that the stack has.
fn send_flags(flags: i32) -> SendFlags {
    let all = [
        (libc::MSG_MORE, SendFlags::MORE),
        (libc::MSG_EOR, SendFlags::EOR),
        (libc::MSG_ZEROCOPY, SendFlags::ZEROCOPY),
    ];
    let given = all.into_iter().filter(|(bit, _)| flags & bit != 0).map(|(_, flag)| flag);
    given.fold(SendFlags::NONE, SendFlags::with)
}

/// The write that a SYN takes along. One that blocks has the stack take all that fits in the send buffer, as the kernel's writer waits with the rest
/// while the handshake goes on; the call itself never sleeps here.
fn first_write(stream: &TcpStream, bytes: &[u8], flags: i32, nonblocking: bool) -> Call<usize> {
    let most = if nonblocking { bytes.len() } else { stream.send_buffer_size()?.min(FIRST_WRITE_MAX) };
    stream.set_nonblocking(nonblocking)?;
    let taken = stream.send_with(&[io::IoSlice::new(&bytes[..bytes.len().min(most)])], send_flags(flags));
    stream.set_nonblocking(true)?;
    match taken {
        Ok(taken) => Ok(taken),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Connects with the text on its SYN, as far as that is possible. Returns how much of it was taken. `None`: the SYN waits for a write, if it can take
/// one along.
fn fast_open(socket: &mut Socket, bytes: Option<&[u8]>, flags: i32, to: Option<SocketAddr>) -> Call<usize> {
    match std::mem::replace(&mut socket.shape, Shape::Gone) {
        Shape::Fresh(mut fresh) => {
            let Some(to) = to else {
                socket.shape = Shape::Fresh(fresh);
                return Err(Errno(libc::EDESTADDRREQ));
            };
            let connected = match bytes {
                Some(bytes) => fresh.connect_send(to, bytes, send_flags(flags)),
                None => {
                    fresh.set_fastopen_connect(true);
                    fresh.connect(to).map(|stream| (stream, 0))
                }
            };
            match connected {
                Ok((stream, taken)) => {
                    socket.shape = Shape::Connecting(stream);
                    Ok(taken)
                }
                Err(error) => {
                    socket.shape = Shape::Fresh(socket.fresh());
                    Err(error.into())
                }
            }
        }
        Shape::Connecting(stream) => {
            socket.shape = Shape::Connecting(stream);
            Err(Errno(libc::EALREADY))
        }
        shape => {
            socket.shape = shape;
            Err(Errno(libc::EISCONN))
        }
    }
}

fn splice_now(world: &mut World, from: RawFd, to: RawFd, len: usize) -> Call<usize> {
    match world.files.two(from, to)? {
        (File::Socket(socket), File::Pipe(pipe)) => {
            let room = pipe.room()?;
            let mut bytes = vec![0; len.min(room)];
            let stream = socket.stream()?;
            if stream.at_mark()? {
                // A splice does not go past urgent text (`tcp_read_sock`).
                return Ok(0);
            }
            let got = read(stream, &mut bytes)?;
            pipe.put(&bytes[..got])
        }
        (File::Pipe(pipe), File::Socket(socket)) => {
            let bytes = pipe.peek(len)?;
            let Ok(mut stream) = socket.stream() else { return Err(Errno(libc::EPIPE)) };
            let taken = if bytes.is_empty() { 0 } else { stream.write(&bytes)? };
            pipe.skip(taken);
            Ok(taken)
        }
        (File::Pipe(from), File::Pipe(to)) => {
            let bytes = from.peek(len.min(to.room()?))?;
            let taken = to.put(&bytes)?;
            from.skip(taken);
            Ok(taken)
        }
        (_, _) => Err(Errno(libc::EINVAL)),
    }
}
