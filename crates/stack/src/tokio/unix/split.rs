//! The two halves of a [`UnixStream`].

use sockeye_sync::facade::Arc;

use super::UnixStream;
use crate::tokio::halves::{async_read, async_write, half_methods, halves};
use crate::unix::SocketAddr;

halves!(UnixStream, SocketAddr);
