//! tokio, whose sockets are ours: a module of this crate comes before one of the same name that it takes from tokio as a whole.

pub use real::*;

/// In place of `tokio::net`.
pub mod net {
    pub use sockeye::tokio::*;
}
