//! What Raft promises (figure 3 of its paper), seen by somebody who sees all nodes: at most one leader in a term, and at each place of the log the same entry is applied everywhere.
//!
//! It outlives the nodes, as no part of a real system does. Nothing here changes what they do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use openraft::LogId;

/// Clones are the same witness.
#[derive(Clone, Default)]
pub struct Witness(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    leaders: BTreeMap<u64, u64>,
    applied: BTreeMap<u64, LogId<u64>>,
    broken: Option<String>,
}

impl Witness {
    /// A node leads in a term.
    pub fn leads(&self, term: u64, node: u64) {
        let mut seen = self.0.lock().unwrap();
        let leader = *seen.leaders.entry(term).or_insert(node);
        if leader != node {
            seen.broken.get_or_insert(format!("term {term} has two leaders: {leader} and {node}"));
        }
    }

    /// A node has applied an entry.
    pub fn applies(&self, entry: LogId<u64>) {
        let mut seen = self.0.lock().unwrap();
        let first = *seen.applied.entry(entry.index).or_insert(entry);
        if first != entry {
            seen.broken.get_or_insert(format!("{entry} is applied where another node had {first}"));
        }
    }

    /// # Errors
    /// What was broken first.
    pub fn verdict(&self) -> Result<(), String> {
        self.0.lock().unwrap().broken.clone().map_or(Ok(()), Err)
    }
}
