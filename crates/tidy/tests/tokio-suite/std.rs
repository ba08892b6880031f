//! The standard library, whose sockets are ours: a module of this crate comes before one of the same name that it takes from `std` as a
//! whole. The tests say `stdx` where they said `std`.

pub use std::*;

/// In place of `std::net`.
pub mod net {
    pub use sockeye::{TcpListener, TcpStream, UdpSocket};
    pub use std::net::*;
}

/// In place of `std::os`.
pub mod os {
    pub use std::os::*;

    /// In place of `std::os::unix`.
    pub mod unix {
        pub use std::os::unix::*;

        /// In place of `std::os::unix::net`.
        pub mod net {
            pub use sockeye::unix::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
        }
    }
}
