//! What a stack has where there are UNIX-domain sockets: their names, and TCP's sockets as rights in their messages.
//!
//! Neither of the two families knows the other. Tests: `tests/unix/rights.rs`, `tests/unix`.

use std::io;

use super::Core;
use crate::rt::handle::Stack;
use crate::tcp::socket::{TcpListener, TcpStream};
use crate::unix::rights::Passed;
use crate::unix::{self, Foreign, Right};

impl Stack {
    /// Removes the pathname of a UNIX-domain socket from the stack's names: it can be bound again. The socket continues
    /// to work.
    ///
    /// # Errors
    /// `NotFound` (ENOENT), ENOTDIR; EINVAL for an abstract name.
    pub fn unix_unlink<P: AsRef<std::path::Path>>(&self, path: P) -> io::Result<()> {
        unix::unlink(self.core::<Core>()?, path.as_ref())
    }

    /// Rights (sockets, of this or other stacks, and file descriptors) that were sent over this stack's UNIX-domain sockets and
    /// not received yet.
    pub fn unix_rights_in_flight(&self) -> usize {
        self.core::<Core>().map_or(0, |core| unix::shared(core).in_flight())
    }
}

macro_rules! passed {
    ($($socket:ty),+) => {
        $(impl Passed for $socket {
            fn duplicate(&self) -> io::Result<Foreign> {
                self.try_clone().map(Foreign::new)
            }
        }

        impl From<$socket> for Right {
            fn from(socket: $socket) -> Self {
                Self::Foreign(Foreign::new(socket))
            }
        }

        /// Out of a message that was received. The error is the right as it was: it is something else.
        impl TryFrom<Right> for $socket {
            type Error = Right;

            fn try_from(right: Right) -> Result<Self, Right> {
                match right {
                    Right::Foreign(socket) => socket.into_inner().map_err(Right::Foreign),
                    other => Err(other),
                }
            }
        })+
    };
}

passed!(TcpStream, TcpListener);
