//! The transport that takes frames' segments in runs, as input knows it.
//!
//! Threads that take frames run the connections' protocol code. This code is generic over the transport: no segment goes by a
//! pointer to a function. There is one, TCP (`tcp/input.rs`).

use std::ops::Deref;

use super::{Batch, Place};
use crate::inet::Core;
use crate::inet::netif::NetifId;

/// See the module's head.
pub(crate) trait Transport: Deref<Target = Core> {
    /// Handles the packets taken from a queue in a call: those to come [before](super::before) the segments, these, and
    /// the [rest](super::after).
    fn input(&self, at: Place, batch: &mut Batch);

    /// An interface is gone: whatever can only go by it ends.
    fn interface_gone(&self, netif: NetifId);
}
