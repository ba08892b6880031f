//! Urgent data of a [`TcpStream`]: send, and find the mark again (RFC 6093, `SO_OOBINLINE`).
//!
//! Urgent bytes always stay in the stream; there is no buffer beside it and no signal. Does not depend on the pcb: the
//! mark to send stands in `SendBuf::rare`, the received one in `RecvBuf::urgent`, both under the socket lock. Tests:
//! `tests/tcp/oracle.rs`, `tests/tcp/urgent.rs`.

use std::io;

use super::TcpStream;
use crate::tcp::conn::user;

impl TcpStream {
    /// Sends `buf` as urgent data (send(2) with MSG_OOB): the next segment, or the next probe of the peer's closed
    /// window, announces that the last of the bytes taken is urgent, ahead of data that the window may hold back.
    /// Blocks as a write does, and takes as much as a write would; none of the bytes is sent before the call has taken
    /// all, or waits for room. Each call moves the mark. New programs should not use it (RFC 6093 section 5).
    ///
    /// # Errors
    /// As for a write.
    pub fn send_urgent(&self, buf: &[u8]) -> io::Result<usize> {
        let (core, ends) = self.sending()?;
        user::send_urgent(core, &ends, buf)
    }

    /// Whether the next byte to be read is the last of the peer's urgent data (sockatmark(3)). A read or peek never
    /// continues beyond the mark unless it begins there; after the byte is read, there is no mark. A mark may be
    /// announced before its byte has arrived: then this returns true although there is nothing to read.
    /// `Interest::PRIORITY` of a [`Poll`](crate::poll::Poll) reports a mark.
    ///
    /// # Errors
    /// None today.
    pub fn at_mark(&self) -> io::Result<bool> {
        Ok(self.conn()?.so.lock().rcv.at_mark())
    }
}
