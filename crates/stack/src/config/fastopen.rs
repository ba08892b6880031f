//! The bits of [`TcpConfig::fastopen`](super::TcpConfig::fastopen), which are those of Linux's `tcp_fastopen`.

/// `TcpConfig::fastopen`: connects may send text with their SYN.
pub const CLIENT: u32 = 1;
/// `TcpConfig::fastopen`: listeners that ask for it take text from SYNs.
pub const SERVER: u32 = 2;
/// `TcpConfig::fastopen`: a client sends text although it has no cookie.
pub const CLIENT_WITHOUT_COOKIE: u32 = 4;
/// `TcpConfig::fastopen`: a server takes text from a SYN without the option.
pub const SERVER_WITHOUT_COOKIE: u32 = 0x200;
/// `TcpConfig::fastopen`: every listener takes text, with its backlog as the queue's length.
pub const SERVER_ALL: u32 = 0x400;
/// All bits that mean something.
pub(crate) const ALL: u32 = CLIENT | SERVER | CLIENT_WITHOUT_COOKIE | SERVER_WITHOUT_COOKIE | SERVER_ALL;
