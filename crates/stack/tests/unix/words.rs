//! How a transcript spells the arguments and results of calls.
//!
//! Invariants: nothing in the text depends on the implementation, on the machine or on the run.

use std::fmt::{Debug, Write as _};

use rustix::io::Errno;

use crate::provider::{Credentials, Flags, Incoming, Name, Readiness, Refusal, Room};

/// Text that is its own description.
pub struct Verbatim(pub String);

impl Debug for Verbatim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

pub fn spelled(refusal: Refusal) -> Option<String> {
    match refusal {
        Refusal::Errno(number) => Some(errno_name(number)),
        Refusal::Numberless(kind) => Some(format!("an error without a number: {kind:?}")),
        Refusal::Inexpressible => None,
    }
}

pub fn errno_name(number: i32) -> String {
    let known = ERRNOS.iter().find(|(errno, _)| errno.raw_os_error() == number);
    match known {
        Some((_, name)) => (*name).to_owned(),
        None if number == 0 => "none".to_owned(),
        None => format!("errno {number}"),
    }
}

pub fn described<S>(incoming: &Incoming<S>) -> String {
    let mut text = shown(&incoming.data);
    let mut add = |part: &str| write!(text, ", {part}").expect("a String takes everything");
    if incoming.len != incoming.data.len() {
        add(&format!("length {}", incoming.len));
    }
    for (is_set, mark) in [
        (incoming.truncated, "MSG_TRUNC"),
        (incoming.control_truncated, "MSG_CTRUNC"),
        (incoming.end_of_record, "MSG_EOR"),
    ] {
        if is_set {
            add(mark);
        }
    }
    if let Some(from) = &incoming.from
        && *from != Name::Unnamed
    {
        add(&format!("from {from:?}"));
    }
    if !incoming.rights.is_empty() {
        add(&format!("{} rights", incoming.rights.len()));
    }
    if let Some(credentials) = incoming.credentials {
        add(&format!("credentials {}", whose(credentials)));
    }
    text
}

pub fn whose(credentials: Credentials) -> String {
    let own = Credentials {
        pid: rustix::process::getpid().as_raw_nonzero().get(),
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
    };
    if credentials == own { "one's own".to_owned() } else { format!("{credentials:?}") }
}

pub fn bits(readiness: Readiness) -> String {
    let all = [
        (readiness.readable, "IN"),
        (readiness.writable, "OUT"),
        (readiness.read_hang_up, "RDHUP"),
        (readiness.hang_up, "HUP"),
        (readiness.error, "ERR"),
    ];
    let set: Vec<&str> = all.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
    if set.is_empty() { "nothing".to_owned() } else { set.join("|") }
}

/// Bytes as text, long ones by their length and a sum that depends on every byte's place.
pub fn shown(data: &[u8]) -> String {
    if data.len() <= SHOWN_MAX {
        return format!("{:?}", String::from_utf8_lossy(data));
    }
    let sum = data.iter().fold(17_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
    format!("{} bytes ({sum:08x})", data.len())
}

pub fn options(to: Option<&Name>, rights: Option<&[&str]>, flags: Flags) -> String {
    let mut text = String::new();
    if let Some(to) = to {
        text.push_str(&format!(", to {to:?}"));
    }
    if let Some(rights) = rights {
        let few = rights.len() <= 8;
        text.push_str(&if few {
            format!(", rights {rights:?}")
        } else {
            format!(", {} rights", rights.len())
        });
    }
    text + &flag_names(flags)
}

pub fn wishes(room: Room) -> String {
    let rights = if room.rights > 0 { format!(", {} rights", room.rights) } else { String::new() };
    let credentials = if room.credentials { ", credentials" } else { "" };
    format!("{rights}{credentials}{}", flag_names(room.flags))
}

pub fn flag_names(flags: Flags) -> String {
    let all = [
        (flags.dont_wait, ", MSG_DONTWAIT"),
        (flags.peek, ", MSG_PEEK"),
        (flags.wait_all, ", MSG_WAITALL"),
        (flags.trunc, ", MSG_TRUNC"),
        (flags.end_of_record, ", MSG_EOR"),
    ];
    all.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect()
}

/// Bytes that a transcript spells out.
const SHOWN_MAX: usize = 32;
const ERRNOS: [(Errno, &str); 24] = [
    (Errno::AGAIN, "EAGAIN"),
    (Errno::PIPE, "EPIPE"),
    (Errno::CONNRESET, "ECONNRESET"),
    (Errno::CONNREFUSED, "ECONNREFUSED"),
    (Errno::NOTCONN, "ENOTCONN"),
    (Errno::ISCONN, "EISCONN"),
    (Errno::INVAL, "EINVAL"),
    (Errno::NOENT, "ENOENT"),
    (Errno::ADDRINUSE, "EADDRINUSE"),
    (Errno::PROTOTYPE, "EPROTOTYPE"),
    (Errno::PERM, "EPERM"),
    (Errno::MSGSIZE, "EMSGSIZE"),
    (Errno::NOBUFS, "ENOBUFS"),
    (Errno::NAMETOOLONG, "ENAMETOOLONG"),
    (Errno::OPNOTSUPP, "EOPNOTSUPP"),
    (Errno::DESTADDRREQ, "EDESTADDRREQ"),
    (Errno::BADF, "EBADF"),
    (Errno::TOOMANYREFS, "ETOOMANYREFS"),
    (Errno::NOTSOCK, "ENOTSOCK"),
    (Errno::FAULT, "EFAULT"),
    (Errno::ALREADY, "EALREADY"),
    (Errno::INPROGRESS, "EINPROGRESS"),
    (Errno::SHUTDOWN, "ESHUTDOWN"),
    (Errno::CONNABORTED, "ECONNABORTED"),
];
