//! The host's side of a connection: a kernel socket, registered in the loop's epoll instance.
//!
//! tokio's `TcpStream` assumes that a read which does not fill its buffer has emptied the socket, and then waits for the next edge from epoll. The kernel's read also stops
//! before an urgent byte, so with that rule the urgent byte and everything behind it would wait until the peer sends more. This type therefore also waits for urgent data
//! (EPOLLPRI), which sets a *mark*.
//!
//! # Rules
//! * While a mark is known, the caller keeps reading until the kernel returns EAGAIN. A read that begins at the mark takes the urgent byte alone.
//! * Without a mark, a read that does not fill its buffer is the last one before the next edge. This saves the read that would return EAGAIN.
//! * A read that fills its buffer may have stopped at a mark that no edge has reported yet, so the next read checks for one (SIOCATMARK).
//!
//! # Why no byte is left waiting
//! Consider a byte that a short read without a known mark has left in the socket. Either it arrived after the read, or the read stopped before an urgent byte that arrived since the
//! last edge. Both arrivals raise an edge that the runtime has not seen yet, so the caller is woken again. An edge reports the state at the time when it is seen, so the caller knows
//! about a mark that is still ahead before it reads.
//!
//! Does not depend on flows. Tests: below; `tests/gateway/truth.rs`.

use std::cell::Cell;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use socket2::SockRef;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::io::{Interest, Ready};

use crate::readiness::register;

/// Reads in one [`HostStream::discard`]: the peer may never stop sending.
const DISCARDS_MAX: usize = 256;

/// A connected or connecting socket of the host.
pub struct HostStream {
    socket: AsyncFd<TcpStream>,
    /// Urgent data was told of, and the kernel has had more to read ever since.
    is_marked: Cell<bool>,
    /// The last read filled its buffer.
    was_full: Cell<bool>,
}

impl HostStream {
    /// Registers a socket, which does not block, in the loop's runtime.
    ///
    /// # Errors
    /// The system's.
    pub fn new(socket: TcpStream) -> io::Result<Self> {
        let interest = Interest::READABLE | Interest::WRITABLE | Interest::PRIORITY;
        let socket = register(socket, interest)?;
        Ok(Self { socket, is_marked: Cell::new(false), was_full: Cell::new(false) })
    }

    /// The socket.
    pub fn get_ref(&self) -> &TcpStream {
        self.socket.get_ref()
    }

    /// Waits until there may be something to read, the end or an error.
    ///
    /// # Errors
    /// The runtime ends.
    pub async fn readable(&self) -> io::Result<Readable<'_>> {
        let mut guard = self.socket.ready(Interest::READABLE | Interest::PRIORITY).await?;
        if guard.ready().is_priority() {
            self.is_marked.set(true);
            guard.clear_ready_matching(Ready::PRIORITY);
        }
        Ok(Readable { guard, of: self })
    }

    /// Waits until there may be room to write, or a connect has ended.
    ///
    /// # Errors
    /// The runtime ends.
    pub fn poll_writable(&self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.socket.poll_write_ready(task))?.retain_ready();
        Poll::Ready(Ok(()))
    }

    /// Writes as much as is taken now.
    ///
    /// # Errors
    /// `WouldBlock`; the system's.
    pub fn try_write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.socket.try_io(Interest::WRITABLE, |mut socket| socket.write_vectored(pieces))
    }

    /// Writes as much as is taken now, the last byte of it urgent.
    ///
    /// # Errors
    /// `WouldBlock`; the system's.
    pub fn try_write_urgent(&self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.try_io(Interest::WRITABLE, |socket| SockRef::from(socket).send_out_of_band(bytes))
    }

    /// Reads what has come and forgets it. To be called before the socket is closed: the kernel resets a connection that is closed with bytes unread, and what it still had to send is lost.
    pub fn discard(&self, buffer: &mut [u8]) {
        for _ in 0..DISCARDS_MAX {
            if !self.get_ref().read(buffer).is_ok_and(|len| len > 0) {
                return;
            }
        }
    }
}

impl AsFd for HostStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.get_ref().as_fd()
    }
}

/// A socket that may have something to read.
pub struct Readable<'a> {
    guard: AsyncFdReadyGuard<'a, TcpStream>,
    of: &'a HostStream,
}

impl Readable<'_> {
    /// Whether the next byte is urgent: it is to be read by itself.
    ///
    /// # Errors
    /// The system's.
    pub fn is_at_mark(&self) -> io::Result<bool> {
        let may_be = self.of.is_marked.get() || self.of.was_full.get();
        Ok(may_be && sockeye_drivers::sockatmark(self.of)?)
    }

    /// Whether the end or an error stands behind what a read takes that does not fill its buffer, as far as is known.
    pub fn is_last(&self) -> bool {
        self.guard.ready().is_read_closed() && !self.of.is_marked.get()
    }

    /// Reads what is there into `room`, up to a mark.
    ///
    /// # Errors
    /// `WouldBlock`; the system's.
    pub fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let read = rustix::io::read(self.of, &mut *room);
        self.note(read, room.len());
        Ok(read?)
    }

    /// The same into memory that holds nothing yet. Returns the part that was read.
    ///
    /// # Errors
    /// `WouldBlock`; the system's.
    pub fn read_uninit<'b>(&mut self, room: &'b mut [MaybeUninit<u8>]) -> io::Result<&'b mut [u8]> {
        let most = room.len();
        let read = rustix::io::read(self.of, room).map(|(read, _)| read);
        self.note(read.as_ref().map(|read| read.len()).map_err(|error| *error), most);
        Ok(read?)
    }

    fn note(&mut self, read: Result<usize, Errno>, most: usize) {
        let is_full = read == Ok(most);
        self.of.was_full.set(is_full);
        match read {
            Err(Errno::AGAIN) => self.of.is_marked.set(false),
            Ok(_) if !is_full && !self.of.is_marked.get() => {}
            _ => return,
        }
        self.guard.clear_ready_matching(Ready::READABLE);
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::TcpListener;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn pair() -> (TcpStream, HostStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        far.set_nodelay(true).unwrap();
        let (near, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        SockRef::from(&near).set_out_of_band_inline(true).unwrap();
        (far, HostStream::new(near).unwrap())
    }

    /// Reads `count` bytes, `step` at a time but for urgent ones, and returns them and the places of those.
    async fn take(near: &HostStream, (count, step): (usize, usize)) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut marks) = (Vec::new(), Vec::new());
        let taking = async {
            while bytes.len() < count {
                let mut readable = near.readable().await.unwrap();
                let is_urgent = readable.is_at_mark().unwrap();
                let mut room = vec![0; if is_urgent { 1 } else { step }];
                match readable.read(&mut room) {
                    Ok(0) => panic!("the end after {} bytes", bytes.len()),
                    Ok(len) => {
                        marks.extend(is_urgent.then_some(bytes.len()));
                        bytes.extend(&room[..len]);
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
        };
        let ended = timeout(Duration::from_secs(20), taking).await;
        assert!(ended.is_ok(), "nothing more comes after {} bytes of {count}", bytes.len());
        (bytes, marks)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_urgent_byte_is_found_wherever_it_stands_and_nothing_waits_behind_it() {
        for step in [1, 2, 3, 4, 100] {
            let (mut far, near) = pair();
            for round in 0..20 {
                // Nothing more comes before all of it is taken.
                let text = [b"abc".as_slice(), b"", b"abcdefg"][round % 3];
                let behind = [b"".as_slice(), b"de"][round % 2];
                SockRef::from(&far).send_out_of_band(&[text, b"!"].concat()).unwrap();
                far.write_all(behind).unwrap();
                if round % 5 == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let all = [text, b"!", behind].concat();
                let taken = take(&near, (all.len(), step)).await;
                assert_eq!(taken, (all, vec![text.len()]), "{step} at a time, round {round}");
            }
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_mark_that_comes_between_an_edge_and_its_read_is_found() {
        for room in [3, 10] {
            let (mut far, near) = pair();
            far.write_all(b"abc").unwrap();
            let mut readable = near.readable().await.unwrap();
            // The runtime does not see this before the read.
            SockRef::from(&far).send_out_of_band(b"!").unwrap();
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(readable.read(&mut vec![0; room]).unwrap(), 3);
            assert_eq!(take(&near, (1, 10)).await, (b"!".to_vec(), vec![0]), "a read of {room} before it");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn reads_that_leave_room_are_the_last_before_more_comes() {
        let (mut far, near) = pair();
        for word in [b"one".as_slice(), b"two", b"three"] {
            far.write_all(word).unwrap();
            let mut readable = near.readable().await.unwrap();
            let mut room = [0; 10];
            assert_eq!(readable.read(&mut room).unwrap(), word.len());
            let more = timeout(Duration::from_millis(20), near.readable()).await;
            assert!(more.is_err(), "told to read again behind {word:?}");
        }
        drop(far);
        let mut readable = near.readable().await.unwrap();
        assert!(readable.is_last());
        assert_eq!(readable.read(&mut [0; 10]).unwrap(), 0);
    }
}
