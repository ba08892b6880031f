//! Connections that were handed to workers: they have items in their backlog, and no thread runs them.
//!
//! A lane of workers (`rt/workers.rs`) has one queue here; a connection's lane follows from its hash. A connection is put into the queue
//! before the worker is notified, and a worker looks into the queue after it has announced that it will sleep: that file has the argument.
//!
//! Bound: a connection is in a queue once for each time that it was handed over. Tests: those of workers.

use sockeye_sync::RunQueue;
use sockeye_sync::facade::Arc;

use crate::tcp::Core;
use crate::tcp::conn::Conn;

/// See the module's head.
pub(crate) struct Handed(Box<[Lane]>);

/// Each is written by the thread that hands over and by one worker.
#[repr(align(128))]
struct Lane(RunQueue<Arc<Conn>>);

impl Handed {
    pub fn new(lanes: usize) -> Self {
        Self((0..lanes).map(|_| Lane(RunQueue::new())).collect())
    }

    /// Brings a connection that has work which no thread runs to its worker, as a message that does not wait.
    #[cfg(feature = "experiments")]
    pub fn call(&self, core: &Core, conn: &Arc<Conn>) {
        core.workers.call(core, self.push(core, conn));
    }

    /// Leaves a connection with items in its backlog to its worker. True if the worker was asleep and has been woken.
    pub fn leave(&self, core: &Core, conn: &Arc<Conn>) -> bool {
        core.workers.leave_to(core, self.push(core, conn))
    }

    /// Returns the lane.
    fn push(&self, core: &Core, conn: &Arc<Conn>) -> usize {
        let lane = core.workers.lane_of(conn.hash);
        self.0[lane].0.push(Arc::clone(conn));
        lane
    }

    /// Whether a lane has none, the moment it was looked at.
    pub fn is_empty(&self, lane: usize) -> bool {
        self.0[lane].0.is_empty()
    }

    /// Takes those of a lane.
    pub fn take(&self, lane: usize) -> Vec<Arc<Conn>> {
        self.0[lane].0.take_all().collect()
    }
}
