//! Interfaces as the stack sees them.
//!
//! There is one so far, [`loopback`]. Its segments never become bytes: a receiver in the same process
//! gets the sender's header and references to the sender's mbufs.

pub(crate) mod loopback;
