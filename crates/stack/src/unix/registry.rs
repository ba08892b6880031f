//! Every UNIX-domain socket of a stack by its number, for diagnosis.
//!
//! A socket is entered when it is made and taken out when its last handle closes, each time under the mutex of one shard:
//! that of the core that made it, so that cores that make sockets of their own share nothing. Sending and receiving know
//! nothing of this. The numbers are given out here, too, and never twice.
//!
//! Does not depend on the sockets. Bound: an entry per socket. Rank: the mutex is a leaf; entries taken out are
//! dropped after it. Tests: below, `tests/unix/sockets.rs`.

use hashbrown::HashTable;
use sockeye_sync::Mutex;
use sockeye_sync::facade::{Arc, Weak};

use super::pcb::Pcb;

/// Shards of the table.
const SHARDS: u64 = 16;

/// See the module's head.
pub(crate) struct Registry {
    shards: [Shard; SHARDS as usize],
}

/// On cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    /// Sockets that were made here so far.
    made: u64,
    table: HashTable<Entry>,
}

struct Entry {
    serial: u64,
    pcb: Weak<Pcb>,
}

impl Registry {
    pub fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Shard::default()) }
    }

    /// Enters the socket that `make` makes of its number, which is not 0; `cpu` is where we run.
    pub fn enter(&self, cpu: u32, make: impl FnOnce(u64) -> Arc<Pcb>) -> Arc<Pcb> {
        let index = u64::from(cpu) % SHARDS;
        let mut entries = self.shards[index as usize].entries.lock();
        entries.made += 1;
        let serial = entries.made * SHARDS + index;
        let pcb = make(serial);
        let entry = Entry { serial, pcb: Arc::downgrade(&pcb) };
        entries.table.insert_unique(hash(serial), entry, |entry| hash(entry.serial));
        pcb
    }

    /// The socket has closed.
    pub fn leave(&self, serial: u64) {
        let mut entries = self.shards[(serial % SHARDS) as usize].entries.lock();
        let gone = entries.table.find_entry(hash(serial), |entry| entry.serial == serial);
        let gone = gone.ok().map(|found| found.remove().0);
        drop(entries);
        drop(gone);
    }

    /// All that there are, the oldest of each core first.
    pub fn all(&self) -> Vec<Arc<Pcb>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.entries.lock().table.iter().filter_map(|entry| entry.pcb.upgrade()));
        }
        all.sort_by_key(|pcb| pcb.serial);
        all
    }
}

/// Numbers follow each other: a product spreads them over all bits.
fn hash(serial: u64) -> u64 {
    serial.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::super::pcb::Kind;
    use super::*;
    use crate::Config;

    #[test]
    fn sockets_are_listed_by_numbers_of_their_own_until_they_leave() {
        let registry = Registry::new();
        let make = |cpu| registry.enter(cpu, |serial| Pcb::new(Kind::Stream, &Config::default(), serial));
        let pcbs = [make(0), make(1), make(0), make(17)];
        let mut serials = pcbs.each_ref().map(|pcb| pcb.serial);
        assert!(!serials.contains(&0));
        serials.sort_unstable();
        assert_eq!(registry.all().iter().map(|pcb| pcb.serial).collect::<Vec<_>>(), serials);
        assert!(serials.windows(2).all(|two| two[0] != two[1]));
        registry.leave(pcbs[1].serial);
        registry.leave(pcbs[1].serial);
        assert_eq!(registry.all().len(), 3);
        // One that was dropped without leaving is not listed either.
        drop(pcbs);
        assert!(registry.all().is_empty());
    }
}
