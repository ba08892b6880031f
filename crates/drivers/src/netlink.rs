//! rtnetlink: questions to the kernel about interfaces, addresses and routes, and its answers.
//!
//! Messages are written by hand (netlink(7), rtnetlink(7)): we know three, and each is a header and a few attributes. It
//! does not depend on their purpose. Invariant: one question, one answer, on a socket of its own, so that no answer is
//! taken for another's. Tests: `tests/devices.rs`.

use std::io;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// A question of this kind.
pub(crate) fn message(kind: u16, flags: i32, body: &[u8]) -> Vec<u8> {
    let flags = flags | libc::NLM_F_REQUEST;
    let len = u32::try_from(NLMSGHDR_LEN + body.len()).unwrap_or(u32::MAX);
    let mut message = Vec::new();
    message.extend(len.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((flags as u16).to_ne_bytes());
    // Sequence number and sender: one question, one answer.
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// Asks for a change from the namespace that the thread is in, with a message that has `NLM_F_ACK`.
///
/// # Errors
/// The system's.
pub(crate) fn change(message: &[u8]) -> io::Result<()> {
    // An acknowledgment is an error message that says 0, which `ask` returns as any other answer.
    ask(message).map(drop)
}

/// Asks from the namespace that the thread is in. Returns the body of the first message of the answer.
///
/// # Errors
/// The system's; `InvalidData` for an answer that is none.
pub(crate) fn ask(message: &[u8]) -> io::Result<Vec<u8>> {
    // Protocol 0 is that of routes and interfaces.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, message, SendFlags::empty())?;
    let mut answer = [0; ANSWER_MAX];
    let (len, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let (header, body) =
        answer.get(..len).and_then(|it| it.split_at_checked(NLMSGHDR_LEN)).ok_or_else(invalid)?;
    if u16::from_ne_bytes([header[4], header[5]]) == libc::NLMSG_ERROR as u16 {
        let code = i32::from_ne_bytes(*body.first_chunk().ok_or_else(invalid)?);
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
        }
    }
    Ok(body.to_vec())
}

/// Appends an attribute, padded.
pub(crate) fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend(u16::try_from(4 + value.len()).unwrap_or(u16::MAX).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// A name as the kernel's attributes have it.
pub(crate) fn zero_ended(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

/// Bytes of `struct nlmsghdr`.
const NLMSGHDR_LEN: usize = 16;
/// Room for an answer, bytes: a route or an acknowledgment that quotes its question, both far shorter.
const ANSWER_MAX: usize = 4096;
