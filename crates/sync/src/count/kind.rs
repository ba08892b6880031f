//! Kind of a cache line that changes hands.
//!
//! A lock, a reference count and a guarded value show themselves by the type that was accessed. The type of an atomic word or a piece
//! of memory does not name its purpose; the file that accesses it does. A file that is not in [`FILES`] has words of kind
//! [`Kind::Other`]: counted all the same. Tests: at the end.

/// The type of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// An atomic word.
    Word,
    /// The word of a mutex or read-write lock.
    Lock,
    /// The counts of an `Arc`.
    References,
    /// Memory that is handed round: a buffer of a packet, a node of a queue.
    Memory,
    /// The value in a lock or a cell.
    Guarded,
}

/// Kind of a line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// The word of a lock or of a squeue (which is also the head of its queue).
    Lock,
    /// A queue's head or link, or a word by which threads and work items find each other.
    Queue,
    /// Statistics, a quota.
    Counter,
    /// The counts of an `Arc`.
    References,
    /// A buffer of packet memory.
    Buffer,
    /// The value in a lock or a squeue.
    Guarded,
    /// Any other word.
    Other,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 7] =
        [Self::Lock, Self::Queue, Self::Counter, Self::References, Self::Buffer, Self::Guarded, Self::Other];

    /// The name used in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Queue => "queue",
            Self::Counter => "counter",
            Self::References => "references",
            Self::Buffer => "buffer",
            Self::Guarded => "guarded",
            Self::Other => "other",
        }
    }

    /// Kind of the words of a source file; `None` if they have no kind of their own.
    pub(super) fn of_file(file: &str) -> Option<Self> {
        FILES.iter().find(|(part, _)| file.contains(part)).map(|&(_, kind)| kind)
    }

    /// Kind of an access of type `what` in `file`, which is empty if not known.
    pub(super) fn of(what: What, file: &str) -> Self {
        match what {
            What::Lock => Self::Lock,
            What::References => Self::References,
            What::Memory => Self::of_file(file).unwrap_or(Self::Buffer),
            What::Word => Self::of_file(file).unwrap_or(Self::Other),
            // The cells of queues are links of the queue.
            What::Guarded => match Self::of_file(file) {
                Some(Self::Queue) => Self::Queue,
                Some(_) | None => Self::Guarded,
            },
        }
    }
}

/// Parts of paths, with the kind of the words of such files; the first that fits decides.
const FILES: [(&str, Kind); 14] = [
    ("sync/src/experiments/squeue", Kind::Lock),
    ("sync/src/block.rs", Kind::Queue),
    ("sync/src/node.rs", Kind::Queue),
    ("sync/src/run_queue.rs", Kind::Queue),
    ("sync/src/notify.rs", Kind::Queue),
    ("sync/src/wait.rs", Kind::Queue),
    ("sync/src/sleeper.rs", Kind::Queue),
    ("sync/src/counters.rs", Kind::Counter),
    ("sync/src/spin", Kind::Counter),
    ("mbuf/src/stats.rs", Kind::Counter),
    ("mbuf/src/quota.rs", Kind::Counter),
    ("mbuf/src/", Kind::Buffer),
    ("stack/src/rt/memory.rs", Kind::Counter),
    ("stack/src/tcp/handshake/listen.rs", Kind::Queue),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_type_decides_before_the_file_does() {
        let file = "crates/sync/src/run_queue.rs";
        assert_eq!(Kind::of(What::Word, file), Kind::Queue);
        assert_eq!(Kind::of(What::Guarded, file), Kind::Queue);
        assert_eq!(Kind::of(What::Lock, file), Kind::Lock);
        assert_eq!(Kind::of(What::References, file), Kind::References);
        assert_eq!(Kind::of(What::Guarded, "crates/sync/src/experiments/squeue/inside.rs"), Kind::Guarded);
        assert_eq!(Kind::of(What::Word, "crates/sync/src/experiments/squeue/inside.rs"), Kind::Lock);
        assert_eq!(Kind::of(What::Word, "crates/new/src/lib.rs"), Kind::Other);
    }

    #[test]
    fn the_files_of_the_table_exist() {
        let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let crates = above.map(|folder| folder.join("crates")).find(|folder| folder.is_dir()).unwrap();
        for (part, _) in FILES {
            let path = crates.join(part);
            assert!(path.exists() || path.with_extension("rs").exists(), "{part}");
        }
    }
}
