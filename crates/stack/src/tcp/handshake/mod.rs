//! From a SYN to an accepted connection, on the side that listens; cookies of Fast Open for both sides.

pub(crate) mod admission;
pub mod fastopen;
pub(crate) mod listen;
pub(crate) mod passive;
pub(crate) mod values;
