//! The two halves of a [`UnixStream`].

use sockeye_sync::facade::Arc;

use super::UnixStream;
use crate::tokio::halves::{
    async_read, async_write, half_methods, halves, read_half_methods, write_half_methods,
};
use crate::unix::SocketAddr;

halves!(UnixStream, SocketAddr);
