//! Whether a network namespace that others made is still there under its name: by a process, or by a path where it is mounted.
//!
//! Everything is opened before the process gives up its files. Does not depend on the namespace itself, which lives on as long as its device does. Tests: below; `tests/names`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;

use crate::readiness::register;

/// Bytes for events: some of the longest names.
const EVENTS_LEN: usize = 4096;

/// A name of a namespace.
pub enum Name {
    /// That of a process.
    Process(OwnedFd),
    /// An entry of a folder.
    Entry {
        /// Tells of changes of the folder.
        changes: OwnedFd,
        /// The entry's name.
        name: OsString,
    },
}

impl Name {
    /// What `--netns` names: a process, by its number or a path in its folder of `/proc`, or a path.
    ///
    /// # Errors
    /// The system's, such as for a process that is not there.
    pub fn of(netns: &str) -> io::Result<Self> {
        let path = Path::new(netns);
        let in_proc = path.strip_prefix("/proc").ok().and_then(|rest| rest.iter().next()?.to_str());
        let number = netns.parse::<u32>().ok().or_else(|| in_proc?.parse().ok());
        if let Some(number) = number {
            let pid = i32::try_from(number).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
            return Ok(Self::Process(pidfd_open(pid, PidfdFlags::empty())?));
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let goes = WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::DELETE_SELF;
        inotify::add_watch(&changes, folder, goes)?;
        Ok(Self::Entry { changes, name: name.to_owned() })
    }

    /// Returns when the process has ended, or the entry or its folder has gone.
    ///
    /// # Errors
    /// The system's, if it cannot be waited for.
    pub async fn gone(self) -> io::Result<()> {
        let (changes, name) = match self {
            Self::Process(process) => {
                register(process, Interest::READABLE)?.readable().await?.retain_ready();
                return Ok(());
            }
            Self::Entry { changes, name } => (register(changes, Interest::READABLE)?, name),
        };
        loop {
            let mut ready = changes.readable().await?;
            let mut room = [MaybeUninit::uninit(); EVENTS_LEN];
            let mut events = inotify::Reader::new(changes.get_ref(), &mut room);
            // An error: it has told everything.
            while let Ok(event) = events.next() {
                let of = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                // The folder itself has no name here. What was too much to tell could have been this.
                let is_over = event
                    .events()
                    .intersects(ReadFlags::DELETE_SELF | ReadFlags::IGNORED | ReadFlags::QUEUE_OVERFLOW);
                if is_over || of == Some(&name) {
                    return Ok(());
                }
            }
            ready.clear_ready();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_process_and_an_entry_are_gone_when_they_end() {
        let folder = std::env::temp_dir().join(format!("sockeye-gateway-gone-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("name");
        for word in ["name", "other"] {
            fs::write(folder.join(word), "").unwrap();
        }
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let names = [path.to_str().unwrap().to_owned(), pid.to_string(), format!("/proc/{pid}/ns/net")];
        let names = names.map(|name| tokio::spawn(Name::of(&name).unwrap().gone()));
        fs::remove_file(folder.join("other")).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(names.iter().all(|name| !name.is_finished()), "they are there");
        fs::remove_file(&path).unwrap();
        child.kill().unwrap();
        for name in names {
            timeout(Duration::from_secs(20), name).await.unwrap().unwrap().unwrap();
        }
        child.wait().unwrap();
        fs::remove_dir(&folder).unwrap();
        assert!(Name::of("4000000000").is_err() && Name::of("/nowhere/at/all").is_err());
    }
}
