//! The transport that takes frames' segments in runs, as input knows it.
//!
//! Threads that take frames run the connections' protocol code, and a reader that waits lends its buffer to input. What does that is generic
//! over the transport: no segment goes by a pointer to a function. There is one, TCP (`tcp/input.rs`).

use std::ops::Deref;

use sockeye_sync::facade::Arc;

use super::{Batch, DirectSegment, Packet, Place};
use crate::base::addr::FourTuple;
use crate::inet::Core;
use crate::inet::netif::NetifId;

/// What lies in the buffer of a reader that waits.
pub(crate) struct Lent<'a> {
    pub segments: &'a mut Vec<DirectSegment>,
    /// Bytes of the buffer that are received.
    pub taken: &'a mut usize,
}

/// See the module's head.
pub(crate) trait Transport: Deref<Target = Core> {
    /// A connection.
    type Conn;

    /// Its name.
    fn tuple(conn: &Self::Conn) -> &FourTuple;

    /// Handles what was taken from a queue in a call: what is to come [before](super::before) the segments, these, and the
    /// [rest](super::after).
    fn input(&self, at: Place, batch: &mut Batch);

    /// The same where the first segments, all of `conn`, lie in the buffer of a reader that waits. Those that are not accepted are `copied`
    /// to packet memory and come before the others.
    fn input_direct(
        &self,
        conn: &Arc<Self::Conn>,
        at: Place,
        batch: &mut Batch,
        lent: Lent<'_>,
        copied: impl FnMut(DirectSegment) -> Option<Packet>,
    );

    /// An interface is gone: whatever can only go by it ends.
    fn interface_gone(&self, netif: NetifId);
}
