//! The cases, by subject.
//!
//! Must not know which provider runs them. A case leaves no blocked call behind.

mod blocking;
mod buffers;
mod closing;
mod credentials;
mod datagram;
mod names;
mod readiness;
mod records;
mod rights;
mod rights_order;
mod stream;
