//! The cases, by what they are about.
//!
//! Must not know: which provider runs them. A case leaves nothing behind that blocks.

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
