//! TCP_NOTSENT_LOWAT of sockets and connections: the calls.
//!
//! `conn/notsent.rs` explains the mark and the wake-ups of its waiters. Does not depend on the pcb. Tests:
//! `tests/tcp/notsent.rs`, in tasks `tests/tokio/shape.rs`.

use std::io;

use super::{TcpSocket, TcpStream, stream};
use crate::tcp::conn::outbox::Context;
use crate::tcp::conn::{contain, engine, notsent, reason};

impl TcpSocket {
    /// TCP_NOTSENT_LOWAT of the connection, or of a listener's connections: see [`TcpStream::set_notsent_lowat`]. Default
    /// [`TcpConfig::notsent_lowat`](crate::TcpConfig::notsent_lowat).
    ///
    /// # Errors
    /// `InvalidInput` for `Some(0)`.
    pub fn set_notsent_lowat(&mut self, bytes: Option<u32>) -> io::Result<()> {
        self.settings.notsent_lowat = mark_of(bytes)?;
        Ok(())
    }
}

impl TcpStream {
    /// TCP_NOTSENT_LOWAT: a write may proceed only while fewer than this many written bytes are unsent (or than a full
    /// segment, if that is more), regardless of bytes in flight and of the size of the send buffer. It takes the bytes
    /// up to this number, and over an interface it fills the packet that it has begun, up to 64 KiB and at most half of
    /// the peer's window. So written data is sent soon, and data that the program decides to send next does not wait
    /// behind megabytes that it cannot withdraw. `None`, and 4,294,967,295: only the size of the buffer is a limit
    /// (even if [`TcpConfig::notsent_lowat`](crate::TcpConfig::notsent_lowat) says otherwise; 0 has that meaning on
    /// Linux).
    ///
    /// A blocking write waits until it may proceed; a non-blocking one fails with `WouldBlock`. A socket is *writable*,
    /// for [`Poll`](crate::poll::Poll) and tasks, while twice its unsent bytes are fewer than the mark (and as much of
    /// its buffer is free as without a mark). This is as on Linux, so that a waiter is woken for at least half a mark.
    /// Does not block.
    ///
    /// # Errors
    /// `InvalidInput` for `Some(0)`, with which no write could ever proceed.
    pub fn set_notsent_lowat(&self, bytes: Option<u32>) -> io::Result<()> {
        let lowat = mark_of(bytes)?;
        let (core, conn) = self.enter()?;
        contain::call(core, conn, "set_notsent_lowat", || {
            Context::run(core, |cx| {
                let mut so = conn.so.lock();
                if notsent::set(&mut so.snd, lowat) {
                    engine::wake_writers(cx, conn, &mut so);
                }
            });
            Ok(())
        })?;
        // How much was sent is the pcb's to say.
        self.notify(reason::OUTPUT)
    }

    /// The TCP_NOTSENT_LOWAT setting, bytes; `None` if there is no bound. Does not block.
    ///
    /// # Errors
    /// None today.
    pub fn notsent_lowat(&self) -> io::Result<Option<u32>> {
        let so = self.conn()?.so.lock();
        let lowat = so.snd.rare.as_deref().map(|rare| rare.mark.lowat());
        Ok(lowat.filter(|lowat| *lowat != notsent::NONE))
    }
}

fn mark_of(bytes: Option<u32>) -> io::Result<u32> {
    match bytes {
        Some(0) => {
            let message = "with a mark of 0 unsent bytes nothing could be written: give 1 or more, or None";
            Err(stream::invalid(message.into()))
        }
        Some(bytes) => Ok(bytes),
        None => Ok(notsent::NONE),
    }
}
