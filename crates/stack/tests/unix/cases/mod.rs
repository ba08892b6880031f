//! The cases, by subject.
//!
//! Does not depend on the provider. A case leaves no blocked call behind.

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
