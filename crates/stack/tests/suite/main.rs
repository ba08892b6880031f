//! The socket layer as applications see it, in one binary, so that the matrix of switches can run all of it again.
//!
//! Tests that need the defaults, a clock of their own or another API stand in binaries beside this one.

#[path = "../common/mod.rs"]
mod common;

mod abort;
mod blocking;
mod concurrency;
mod limits;
#[cfg(feature = "experiments")]
mod matrix;
mod mbufs;
mod notsent;
mod poll;
mod poll_fd;
mod poll_stress;
mod shapes;
mod smoke;
mod transfer;
