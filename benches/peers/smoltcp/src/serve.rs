//! The services of each port.
//!
//! Purpose: two sockets for each port, so that a connection may arrive while the one before it closes.
//!
//! Does not depend on the device.
//!
//! Invariant: bytes are copied out of and into a buffer of the service's own, as an application has it.
//!
//! Tests: the bench's own.

use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};

use crate::args::Args;

/// The work on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    /// Read and forget.
    Receive,
    /// Write as much as possible.
    Send,
    /// Write back each byte.
    Rr,
}

const ALL: [Work; 3] = [Work::Receive, Work::Send, Work::Rr];
/// Sockets of a port.
const SOCKETS: usize = 2;
/// Bytes of a read or write, as the bench's other far ends have it.
const CHUNK: usize = 256 << 10;

/// All sockets and their work.
pub struct Services {
    sockets: Vec<(SocketHandle, Work, u16)>,
    buffer: Vec<u8>,
}

impl Services {
    /// With sockets in `set`.
    pub fn new(set: &mut SocketSet<'_>, args: &Args) -> Self {
        let mut sockets = Vec::new();
        for (work, port) in ALL.into_iter().zip(args.ports) {
            for _ in 0..SOCKETS {
                let room = || SocketBuffer::new(vec![0; args.buffer]);
                let mut socket = Socket::new(room(), room());
                socket.set_nagle_enabled(false);
                socket.set_ack_delay(None);
                sockets.push((set.add(socket), work, port));
            }
        }
        Self { sockets, buffer: vec![0; CHUNK] }
    }

    /// Gives every socket its turn. Returns whether any byte moved.
    pub fn serve(&mut self, set: &mut SocketSet<'_>) -> bool {
        let mut moved = false;
        for &(handle, work, port) in &self.sockets {
            let socket = set.get_mut::<Socket<'_>>(handle);
            match socket.state() {
                // A port that is not 0 can always be listened to by a socket that is closed.
                State::Closed => moved |= socket.listen(port).is_ok(),
                State::Established => moved |= work.on(socket, &mut self.buffer),
                State::CloseWait => socket.close(),
                State::Listen
                | State::SynSent
                | State::SynReceived
                | State::FinWait1
                | State::FinWait2
                | State::Closing
                | State::LastAck
                | State::TimeWait => {}
            }
        }
        moved
    }
}

impl Work {
    fn on(self, socket: &mut Socket<'_>, buffer: &mut [u8]) -> bool {
        // The connection is open, so neither call can fail for another reason than that it has just ended.
        let moved = match self {
            Work::Receive => socket.recv_slice(buffer).unwrap_or(0),
            Work::Send => socket.send_slice(buffer).unwrap_or(0),
            Work::Rr if socket.send_capacity() > socket.send_queue() => {
                let read = socket.recv_slice(&mut buffer[..1]).unwrap_or(0);
                socket.send_slice(&buffer[..read]).unwrap_or(0)
            }
            Work::Rr => 0,
        };
        moved > 0
    }
}
