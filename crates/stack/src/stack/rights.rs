//! TCP's sockets as rights in messages of UNIX-domain sockets.
//!
//! Neither of the two families knows the other. Tests: `tests/unix_rights.rs`.

use std::io;

use crate::tcp::socket::{TcpListener, TcpStream};
use crate::unix::rights::Passed;
use crate::unix::{Foreign, Right};

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
