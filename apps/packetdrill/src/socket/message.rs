//! What recvmsg returns besides bytes: control messages, in the layout of `struct cmsghdr`, and the error queue.

use std::net::SocketAddr;
use std::time::Duration;

use sockeye::{Report, Timestamping};

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

/// Adds the control messages that the socket was asked for. `epoch`: when the stack was made.
pub(crate) fn fill_control(socket: &Socket, received: &mut Received, epoch: Duration) -> Call<()> {
    if let Ok(stream) = socket.stream()
        && let Some(at) = stream.recv_timestamp()?.filter(|_| !received.bytes.is_empty())
    {
        push(&mut received.control, libc::SOL_SOCKET, libc::SCM_TIMESTAMPING, &timestamps(epoch + at));
    }
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

/// The first entry of the error queue (MSG_ERRQUEUE). `epoch`: when the stack was made.
///
/// # Errors
/// EAGAIN if there is none.
pub(crate) fn from_error_queue(socket: &Socket, epoch: Duration) -> Call<Received> {
    let Ok(stream) = socket.stream() else { return Err(Errno(libc::EAGAIN)) };
    let mut received = Received { flags: libc::MSG_ERRQUEUE, ..Received::default() };
    let error = match stream.recv_report()? {
        Report::ZeroCopy { first, last, copied } => ExtendedError {
            errno: 0,
            origin: ORIGIN_ZEROCOPY,
            code: u8::from(copied),
            info: first,
            data: last,
        },
        Report::Timestamp { what, key, at } => {
            let info = match what {
                Timestamping::SCHEDULED => 1,
                Timestamping::ACKED => 2,
                _ => 0,
            };
            // The packet's bytes come along, for which packetdrill has no room.
            received.flags |= libc::MSG_TRUNC;
            let times = timestamps(epoch + at);
            push(&mut received.control, libc::SOL_SOCKET, libc::SCM_TIMESTAMPING, &times);
            let errno = libc::ENOMSG.unsigned_abs();
            ExtendedError { errno, origin: ORIGIN_TIMESTAMPING, code: 0, info, data: key }
        }
        _ => return Err(Errno(libc::EAGAIN)),
    };
    let (level, kind) = match socket.is_v6 {
        true => (libc::SOL_IPV6, libc::IPV6_RECVERR),
        false => (libc::SOL_IP, libc::IP_RECVERR),
    };
    let mut bytes = error.bytes();
    let offender_len =
        if socket.is_v6 { size_of::<libc::sockaddr_in6>() } else { size_of::<libc::sockaddr_in>() };
    bytes.resize(bytes.len() + offender_len, 0);
    push(&mut received.control, level, kind, &bytes);
    Ok(received)
}

/// `struct sock_extended_err`.
struct ExtendedError {
    errno: u32,
    origin: u8,
    code: u8,
    info: u32,
    data: u32,
}

impl ExtendedError {
    /// Without the offender's address behind it.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.errno.to_ne_bytes().to_vec();
        bytes.extend([self.origin, 0, self.code, 0]);
        bytes.extend(self.info.to_ne_bytes());
        bytes.extend(self.data.to_ne_bytes());
        bytes
    }
}

/// `struct scm_timestamping`, of which only the first time is software's.
fn timestamps(at: Duration) -> Vec<u8> {
    let mut bytes = at.as_secs().to_ne_bytes().to_vec();
    bytes.extend(u64::from(at.subsec_nanos()).to_ne_bytes());
    bytes.resize(3 * 16, 0);
    bytes
}

const ORIGIN_TIMESTAMPING: u8 = 4;
const ORIGIN_ZEROCOPY: u8 = 5;

/// Appends a control message.
fn push(control: &mut Vec<u8>, level: i32, kind: i32, data: &[u8]) {
    control.extend((HEADER_LEN + data.len()).to_ne_bytes());
    control.extend(level.to_ne_bytes());
    control.extend(kind.to_ne_bytes());
    control.extend(data);
    control.resize(control.len().next_multiple_of(size_of::<usize>()), 0);
}
