//! The two halves of a [`TcpStream`].

use std::net::SocketAddr;

use sockeye_sync::facade::Arc;

use super::TcpStream;
use super::halves::{async_read, async_write, half_methods, halves, read_half_methods, write_half_methods};

halves!(TcpStream, SocketAddr);
