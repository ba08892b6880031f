//! What recvmsg returns besides bytes: control messages, in the layout of `struct cmsghdr`, and the error queue.

use std::net::SocketAddr;

use super::Socket;
use super::options::TCP_INQ;
use crate::error::{Call, Errno};

/// The result of a read.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub bytes: Vec<u8>,
    /// Control messages, each aligned.
    pub control: Vec<u8>,
    /// `msg_flags`.
    pub flags: i32,
    /// The sender of a datagram.
    pub from: Option<SocketAddr>,
}

/// Bytes of `struct cmsghdr`: length, level, type.
const HEADER_LEN: usize = size_of::<usize>() + 8;

/// Adds the control messages that the socket was asked for.
pub(crate) fn fill_control(socket: &Socket, received: &mut Received) -> Call<()> {
    if let (true, Ok(stream)) = (socket.wants_inq, socket.stream()) {
        let left = match i32::try_from(stream.available()?).unwrap_or(i32::MAX) {
            // The end counts as a byte.
            0 if has_ended(stream.state_name()) => 1,
            left => left,
        };
        push(&mut received.control, libc::IPPROTO_TCP, TCP_INQ, &left.to_ne_bytes());
    }
    Ok(())
}

/// Whether the peer's FIN has come.
fn has_ended(state: &str) -> bool {
    matches!(state, "CLOSE-WAIT" | "CLOSING" | "LAST-ACK" | "TIME-WAIT" | "CLOSED")
}

/// The first entry of the error queue (MSG_ERRQUEUE).
///
/// # Errors
/// EAGAIN if there is none.
pub(crate) fn from_error_queue(_socket: &Socket) -> Call<Received> {
    Err(Errno(libc::EAGAIN))
}

/// Appends a control message.
fn push(control: &mut Vec<u8>, level: i32, kind: i32, data: &[u8]) {
    control.extend((HEADER_LEN + data.len()).to_ne_bytes());
    control.extend(level.to_ne_bytes());
    control.extend(kind.to_ne_bytes());
    control.extend(data);
    control.resize(control.len().next_multiple_of(size_of::<usize>()), 0);
}
