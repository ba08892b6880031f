//! Lookup of TCP's sockets: connections by 4-tuple, ports, listeners by address.

pub(crate) mod demux;
pub(crate) mod listeners;
pub(crate) mod ports;
