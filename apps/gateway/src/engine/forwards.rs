//! The published ports of the host, and changes of them.
//!
//! ```text
//! command line, ctl, -p auto ─ add ─► the host's sockets ─ Open ─► a loop ─ its tasks ─► handles in the table
//!                       remove, close ─► the handles: their tasks end, and the sockets with them
//! ```
//!
//! Bounds: [`FORWARDS_MAX`] published ports, [`WAITING_MAX`] sockets on their way to a loop. Lock: the table's mutex, a leaf, never held across an await. Tests:
//! `tests/gateway/control.rs`.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::inward::{Listening, Publish};
use crate::policy::Protocol;

/// Forwards at a time; a range of ports is one.
const FORWARDS_MAX: usize = 4096;
/// Sockets that a loop has not begun to serve.
pub const WAITING_MAX: usize = 64;

/// A socket that a loop is to serve.
pub struct Open {
    /// The socket.
    pub listening: Listening,
    /// Where its task is told, or why there is none.
    pub reply: oneshot::Sender<io::Result<AbortHandle>>,
}

/// See the module's head.
pub struct Forwards {
    /// The inside has IPv6.
    has_v6: bool,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    last_number: u64,
    forwards: Vec<Forward>,
    loops: Vec<mpsc::Sender<Open>>,
    next_loop: usize,
    is_closed: bool,
}

struct Forward {
    number: u64,
    publish: Publish,
    by: By,
    tasks: Vec<AbortHandle>,
}

/// Who has asked for a forward.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// The command line.
    Start,
    /// `gateway ctl`.
    Ctl,
    /// `-p auto`.
    Auto,
}

/// An entry of the list.
#[derive(Serialize, Debug)]
pub struct Entry {
    /// Its number, for `remove`.
    pub forward: u64,
    /// Its ports, as `add` takes them.
    pub publish: String,
    /// The same in words.
    pub leads: String,
    /// Who has asked for it.
    pub by: By,
}

impl Forwards {
    /// None yet.
    pub fn new(has_v6: bool) -> Self {
        Self { has_v6, table: Mutex::default() }
    }

    /// The loops that serve, once they run.
    pub fn set_loops(&self, loops: Vec<mpsc::Sender<Open>>) {
        self.lock().loops = loops;
    }

    /// Opens the host's sockets and has them served. Returns the forward's number.
    ///
    /// # Errors
    /// The system's, with the address; that there are too many.
    pub async fn add(&self, publish: Publish, by: By) -> io::Result<u64> {
        if self.lock().forwards.len() >= FORWARDS_MAX {
            return Err(io::Error::other(format!("there are {FORWARDS_MAX} forwards already")));
        }
        self.serve(publish, publish.listen(self.has_v6)?, by).await
    }

    /// Has sockets served that are open already. Returns the forward's number.
    ///
    /// # Errors
    /// The loop's; that none are served any more ([`Forwards::close`]).
    pub async fn serve(&self, publish: Publish, sockets: Vec<Listening>, by: By) -> io::Result<u64> {
        // Aborts those that are served when a later one cannot be.
        let mut served = Tasks(Vec::new());
        for listening in sockets {
            let to = self.lock().next_loop().ok_or_else(|| io::Error::other("there is no loop"))?;
            let (reply, replied) = oneshot::channel();
            let gone = || io::Error::other("the loop has ended");
            to.send(Open { listening, reply }).await.map_err(|_| gone())?;
            served.0.push(replied.await.map_err(|_| gone())??);
        }
        let mut table = self.lock();
        if table.is_closed {
            return Err(io::Error::other("the gateway ends"));
        }
        table.last_number += 1;
        let number = table.last_number;
        table.forwards.push(Forward { number, publish, by, tasks: std::mem::take(&mut served.0) });
        Ok(number)
    }

    /// Closes the sockets of a forward. False if there is none of this number. Connections that were accepted go on.
    pub fn remove(&self, number: u64) -> bool {
        let mut table = self.lock();
        let Some(at) = table.forwards.iter().position(|forward| forward.number == number) else {
            return false;
        };
        let forward = table.forwards.remove(at);
        drop(table);
        drop(Tasks(forward.tasks));
        true
    }

    /// Closes the sockets of all forwards, and of those to come. Connections that were accepted go on.
    pub fn close(&self) {
        let mut table = self.lock();
        table.is_closed = true;
        let forwards = std::mem::take(&mut table.forwards);
        drop(table);
        drop(Tasks(forwards.into_iter().flat_map(|forward| forward.tasks).collect()));
    }

    /// All forwards.
    pub fn list(&self) -> Vec<Entry> {
        let entry = |forward: &Forward| Entry {
            forward: forward.number,
            publish: forward.publish.text(),
            leads: forward.publish.to_string(),
            by: forward.by,
        };
        self.lock().forwards.iter().map(entry).collect()
    }

    /// Whether somebody but `-p auto` has taken this port.
    pub fn is_taken(&self, port: u16, protocol: Protocol) -> bool {
        self.lock().forwards.iter().any(|it| it.by != By::Auto && it.publish.takes(port, protocol))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Ports are spread over the loops.
    fn next_loop(&mut self) -> Option<mpsc::Sender<Open>> {
        self.next_loop = self.next_loop.wrapping_add(1);
        let index = self.next_loop.checked_rem(self.loops.len())?;
        self.loops.get(index).cloned()
    }
}

/// Tasks that end with this.
struct Tasks(Vec<AbortHandle>);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}
