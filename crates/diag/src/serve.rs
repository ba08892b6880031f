//! The side of the program whose stack is shown.
//!
//! One thread sleeps in `accept`. It keeps the stack. Dropping the
//! [`Published`] handle ends it by connecting to the socket once more after setting `stop`, and removes the name.
//!
//! Tests: `tests/diag.rs`.

use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sockeye::Stack;

use crate::folder::{at, ensure, folder};
use crate::report::Report;

/// How long one client may take to read.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(1);

/// A stack that is shown until this is dropped. Keeps the stack.
#[must_use = "the stack is shown for as long as this lives"]
#[derive(Debug)]
pub struct Published {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Shows `stack` under `name` to programs of the same user.
///
/// # Errors
/// `PermissionDenied` if the [`folder`] is not this user's alone; the system's error if the socket or
/// the thread cannot be made.
pub fn publish(stack: &Stack, name: &str) -> io::Result<Published> {
    publish_in(&folder(), stack, name)
}

/// [`publish`] in a folder of your own choice.
///
/// # Errors
/// As for [`publish`].
pub fn publish_in(folder: &Path, stack: &Stack, name: &str) -> io::Result<Published> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    ensure(folder)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("{}-{number}.sock", std::process::id()));
    // An earlier process of our number has left it.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).map_err(|error| at(&path, error))?;
    let stop = Arc::new(AtomicBool::new(false));
    let shown = Shown { stack: stack.clone(), name: name.to_owned(), since: Instant::now() };
    let thread = {
        let stop = Arc::clone(&stop);
        std::thread::Builder::new()
            .name("sockeye-diag".to_owned())
            .spawn(move || shown.serve(&listener, &stop))
    };
    let thread = thread.inspect_err(|_| drop(std::fs::remove_file(&path)))?;
    Ok(Published { path, stop, thread: Some(thread) })
}

impl Drop for Published {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the thread, which then sees `stop`. If nobody listens any more it is gone already.
        let woken = UnixStream::connect(&self.path).is_ok();
        let _ = std::fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

struct Shown {
    stack: Stack,
    name: String,
    since: Instant,
}

impl Shown {
    fn serve(&self, listener: &UnixListener, stop: &AtomicBool) {
        for client in listener.incoming() {
            if stop.load(Ordering::Acquire) {
                return;
            }
            match client {
                // Who went away or does not read gets no report, and the next one does.
                Ok(client) => drop(self.answer(client)),
                // Out of descriptors, say: not at full speed.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    fn answer(&self, mut client: UnixStream) -> io::Result<()> {
        client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
        let report = Report::of(&self.stack, &self.name, self.since.elapsed().as_secs_f64());
        let mut line = serde_json::to_vec(&report)?;
        line.push(b'\n');
        client.write_all(&line)
    }
}
