//! `rr`: request and response in turn on open connections.
//!
//! Purpose: the cost of a round trip, in one of two shapes: one connection with a blocking thread at each end
//! ([`blocking`]), or N connections with T threads a side that serve whatever is ready ([`polled`]). Where
//! one process may not hold the descriptors of both ends, the server side runs in a second one ([`remote`]),
//! with the same code.
//!
//! Does not depend on the provider.
//!
//! Tests: in the three files; `remote` in `tests/bench`.

use std::io;

use crate::meter::{Timing, Window};
use crate::pin::Placement;
use crate::provider::Provider;

mod blocking;
mod polled;
pub mod remote;

/// Its parameters.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Open connections, each with one request under way.
    pub connections: usize,
    /// Threads a side that wait for readiness; `None` for one connection with blocking threads.
    pub threads: Option<usize>,
    /// Bytes of a request, and of a response.
    pub size: usize,
    /// TCP_NODELAY at both ends.
    pub nodelay: bool,
}

impl Spec {
    /// Threads at each end: never more than there are connections.
    pub fn threads_a_side(&self) -> usize {
        self.threads.map_or(1, |threads| threads.min(self.connections))
    }
}

/// Transactions completed in the window.
pub fn sample<P: Provider>(
    provider: &P,
    spec: &Spec,
    placement: &Placement,
    timing: Timing,
) -> io::Result<Window> {
    if spec.threads.is_none() {
        blocking::sample(provider, spec, placement, timing)
    } else if spec.connections <= provider.pairs_max() {
        polled::sample(provider, spec, placement, timing)
    } else {
        remote::sample(provider, spec, placement, timing)
    }
}

/// Bytes of a message with readiness, at most. It fits any socket's empty send buffer, so a write
/// practically never comes up short and readiness for writing need not be watched.
pub const POLLED_SIZE_MAX: usize = 4096;

/// Connections at most.
pub const CONNECTIONS_MAX: usize = 100_000;

/// Threads a side at most.
pub const THREADS_MAX: usize = 256;
