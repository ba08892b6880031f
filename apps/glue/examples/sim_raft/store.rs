//! The log and the vote of a Raft node in files, and the state machine: registers that have names.
//!
//! The log is a file of lines: entries, and what was cut off. It is only ever appended to and synced before openraft is told, so after a power loss it ends at the first line
//! that is no record. The vote is a file that is replaced: written, synced, renamed, and its folder synced.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::io::{self, Cursor};
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex};

use openraft::storage::{LogFlushed, RaftLogStorage, RaftStateMachine};
use openraft::{
    BasicNode, Entry, EntryPayload, LogId, LogState, RaftLogReader, RaftSnapshotBuilder, Snapshot,
    SnapshotMeta, StorageError, StorageIOError, StoredMembership, Vote,
};
use serde::{Deserialize, Serialize};
use sockeye_sim::fs::{self, File};
use tokio::io::AsyncWriteExt;

use crate::witness::Witness;
use crate::{Bug, Types};

const LOG: &str = "/log";
const VOTE: &str = "/vote";

type Failure = StorageError<u64>;

#[derive(Serialize, Deserialize)]
enum Line {
    Entry(Entry<Types>),
    /// Entries from this index on are gone.
    Cut(u64),
    /// Entries up to this one are gone.
    Purged(LogId<u64>),
}

#[derive(Default)]
struct Entries {
    by_index: BTreeMap<u64, Entry<Types>>,
    purged: Option<LogId<u64>>,
}

impl Entries {
    fn take(&mut self, line: Line) {
        match line {
            Line::Entry(entry) => drop(self.by_index.insert(entry.log_id.index, entry)),
            Line::Cut(index) => drop(self.by_index.split_off(&index)),
            Line::Purged(id) => {
                self.by_index = self.by_index.split_off(&(id.index + 1));
                self.purged = Some(id);
            }
        }
    }
}

/// The log's file, with what it says in memory.
pub struct LogStore {
    file: File,
    entries: Arc<Mutex<Entries>>,
    bug: Bug,
}

impl LogStore {
    pub async fn open(bug: Bug) -> io::Result<Self> {
        let mut entries = Entries::default();
        let mut end = 0;
        let bytes = if fs::try_exists(LOG).await? { fs::read(LOG).await? } else { Vec::new() };
        for line in bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            let Ok(record) = serde_json::from_slice(line) else { break };
            entries.take(record);
            end += line.len() as u64;
        }
        let mut file = File::options().create(true).write(true).append(true).open(LOG).await?;
        file.set_len(end).await?;
        file.flush().await?;
        file.sync_all().await?;
        File::open("/").await?.sync_all().await?;
        Ok(Self { file, entries: Arc::new(Mutex::new(entries)), bug })
    }

    async fn write(&mut self, lines: Vec<Line>) -> io::Result<()> {
        let mut bytes = Vec::new();
        for line in &lines {
            serde_json::to_writer(&mut bytes, line)?;
            bytes.push(b'\n');
        }
        self.file.write_all(&bytes).await?;
        self.file.flush().await?;
        self.file.sync_data().await?;
        let mut entries = self.entries.lock().unwrap();
        lines.into_iter().for_each(|line| entries.take(line));
        Ok(())
    }

    async fn replace_vote(&self, vote: &Vote<u64>) -> io::Result<()> {
        let bytes = serde_json::to_vec(vote)?;
        if self.bug == Bug::VoteIsNotSynced {
            return fs::write(VOTE, bytes).await;
        }
        let new = format!("{VOTE}.new");
        fs::write(&new, bytes).await?;
        File::open(&new).await?.sync_all().await?;
        fs::rename(&new, VOTE).await?;
        File::open("/").await?.sync_all().await
    }
}

async fn saved_vote() -> io::Result<Option<Vote<u64>>> {
    if !fs::try_exists(VOTE).await? {
        return Ok(None);
    }
    // A file without an end was never synced: there is no vote.
    Ok(serde_json::from_slice(&fs::read(VOTE).await?).ok())
}

/// What replication reads the log with.
pub struct Reader(Arc<Mutex<Entries>>);

impl RaftLogReader<Types> for Reader {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry<Types>>, Failure> {
        Ok(self.0.lock().unwrap().by_index.range(range).map(|(_, entry)| entry.clone()).collect())
    }
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry<Types>>, Failure> {
        Reader(Arc::clone(&self.entries)).try_get_log_entries(range).await
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Reader;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, Failure> {
        let entries = self.entries.lock().unwrap();
        let last = entries.by_index.last_key_value().map(|(_, entry)| entry.log_id).or(entries.purged);
        Ok(LogState { last_purged_log_id: entries.purged, last_log_id: last })
    }

    async fn get_log_reader(&mut self) -> Reader {
        Reader(Arc::clone(&self.entries))
    }

    async fn save_vote(&mut self, vote: &Vote<u64>) -> Result<(), Failure> {
        self.replace_vote(vote).await.map_err(|error| StorageIOError::write_vote(&error).into())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<u64>>, Failure> {
        saved_vote().await.map_err(|error| StorageIOError::read_vote(&error).into())
    }

    async fn append<I>(&mut self, entries: I, flushed: LogFlushed<Types>) -> Result<(), Failure>
    where
        I: IntoIterator<Item = Entry<Types>> + Send,
        I::IntoIter: Send,
    {
        let lines = entries.into_iter().map(Line::Entry).collect();
        self.write(lines).await.map_err(|error| StorageIOError::write_logs(&error))?;
        flushed.log_io_completed(Ok(()));
        Ok(())
    }

    async fn truncate(&mut self, from: LogId<u64>) -> Result<(), Failure> {
        let line = vec![Line::Cut(from.index)];
        self.write(line).await.map_err(|error| StorageIOError::write_logs(&error).into())
    }

    async fn purge(&mut self, to: LogId<u64>) -> Result<(), Failure> {
        self.write(vec![Line::Purged(to)]).await.map_err(|error| StorageIOError::write_logs(&error).into())
    }
}

/// The registers: in memory, made anew from the log after a start.
#[derive(Clone)]
pub struct Registers(Arc<Mutex<Applied>>, Witness);

#[derive(Clone, Default, Serialize, Deserialize)]
struct Applied {
    last: Option<LogId<u64>>,
    membership: StoredMembership<u64, BasicNode>,
    values: HashMap<String, u64>,
}

impl Registers {
    pub fn new(witness: Witness) -> Self {
        Self(Arc::default(), witness)
    }

    pub fn get(&self, key: &str) -> Option<u64> {
        self.0.lock().unwrap().values.get(key).copied()
    }

    fn snapshot(&self) -> Result<Snapshot<Types>, Failure> {
        let applied = self.0.lock().unwrap().clone();
        let bytes =
            serde_json::to_vec(&applied).map_err(|error| StorageIOError::read_state_machine(&error))?;
        let snapshot_id = applied.last.map_or_else(|| "empty".to_owned(), |last| last.to_string());
        let meta =
            SnapshotMeta { last_log_id: applied.last, last_membership: applied.membership, snapshot_id };
        Ok(Snapshot { meta, snapshot: Box::new(Cursor::new(bytes)) })
    }
}

impl RaftSnapshotBuilder<Types> for Registers {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, Failure> {
        self.snapshot()
    }
}

impl RaftStateMachine<Types> for Registers {
    type SnapshotBuilder = Self;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId<u64>>, StoredMembership<u64, BasicNode>), Failure> {
        let applied = self.0.lock().unwrap();
        Ok((applied.last, applied.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<()>, Failure>
    where
        I: IntoIterator<Item = Entry<Types>> + Send,
        I::IntoIter: Send,
    {
        let mut applied = self.0.lock().unwrap();
        let mut answers = Vec::new();
        for entry in entries {
            applied.last = Some(entry.log_id);
            self.1.applies(entry.log_id);
            match entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Normal(write) => drop(applied.values.insert(write.key, write.value)),
                EntryPayload::Membership(members) => {
                    applied.membership = StoredMembership::new(Some(entry.log_id), members);
                }
            }
            answers.push(());
        }
        Ok(answers)
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, Failure> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, BasicNode>,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), Failure> {
        let applied = serde_json::from_slice(snapshot.get_ref())
            .map_err(|error| StorageIOError::read_snapshot(Some(meta.signature()), &error))?;
        *self.0.lock().unwrap() = applied;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, Failure> {
        // The log is never purged (`SnapshotPolicy::Never`), so nobody needs an older one.
        if self.0.lock().unwrap().last.is_none() { Ok(None) } else { self.snapshot().map(Some) }
    }
}
