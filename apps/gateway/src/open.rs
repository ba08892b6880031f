//! Opens the devices that the command line asks for; takes over descriptors that another program passes by number.
//!
//! Tests: below, `tests/`.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use sockeye_shared::file;
use tokio::io::Interest;

use crate::args::GatewayArgs;
use crate::behind::Behind;
use crate::engine::load::{Measure, System};
use crate::engine::port::{Source, Turns};
use crate::engine::queues::Queues;
use crate::gone::Name;
use crate::inside::Inside;
use crate::readiness::register;
use crate::sockets::{SocketFile, connect_to, listen_at};

/// Who uses the device.
pub enum Served {
    /// A command, which runs once it is told to.
    Command(Inside),
    /// Others.
    Device,
}

/// Devices, and what goes with them.
pub struct Opened {
    /// What the loops read: one source for each.
    pub sources: Vec<Source>,
    /// Who uses them.
    pub served: Served,
    /// A socket that was made for them.
    pub file: Option<SocketFile>,
}

/// Makes or takes the device.
///
/// # Errors
/// The system's, with a remedy.
pub fn open(args: &GatewayArgs, prefix: &[&str], given: &[OsString]) -> io::Result<Opened> {
    let frames = &args.frames;
    let device = |sources, file| Ok(Opened { sources, served: Served::Device, file });
    let turns = if frames.once { Turns::One } else { Turns::All };
    if let Some(path) = &frames.qemu {
        if let Some(socket) = connect_to(path)? {
            return device(vec![Source::Machine(socket.into())], None);
        }
        let (listener, file) = listen_at(path)?;
        return device(vec![Source::Machines(listener, turns)], Some(file));
    }
    if let Some(path) = &frames.vhost_user {
        if let Some(socket) = connect_to(path)? {
            return device(vec![Source::Card(socket)], None);
        }
        let (listener, file) = listen_at(path)?;
        return device(vec![Source::Cards(listener, turns)], Some(file));
    }
    if !frames.fd.is_empty() {
        let queues = frames.fd.iter().map(|number| copy("--fd", *number)).collect::<io::Result<_>>()?;
        return device(loops(queues, false, false), None);
    }
    let mut inside = Inside::start(prefix, given)?;
    let sources = loops(std::mem::take(&mut inside.queues), true, args.loops_join());
    if args.command.is_empty() {
        // Its work is done: the device is in the namespace.
        inside.go()?;
        inside.child.wait()?;
        return device(sources, None);
    }
    Ok(Opened { sources, served: Served::Command(inside), file: None })
}

/// Where the system's idle time stands.
const STAT: &str = "/proc/stat";

/// A source for each queue of a device. If they `join`, only the first reads at first, and stays alone where the system does not tell its idle time.
fn loops(queues: Vec<OwnedFd>, is_own: bool, join: bool) -> Vec<Source> {
    let count = queues.len();
    if count == 1 {
        return queues.into_iter().map(if is_own { Source::Own } else { Source::Queue }).collect();
    }
    let stat = join.then(|| File::open(STAT).ok()).flatten();
    let measure = stat.map(|stat| Box::new(System(stat)) as Box<dyn Measure>);
    let shared = Queues::new(queues, is_own, if join { 1 } else { count }, measure);
    (0..count).map(|index| Source::Shared(Arc::clone(&shared), index)).collect()
}

/// A copy of a descriptor by its number: nobody here owns what another program has left open.
fn copy(option: &str, number: i32) -> io::Result<OwnedFd> {
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    pidfd_getfd(&own, number, PidfdGetfdFlags::empty())
        .map_err(|error| io::Error::new(io::Error::from(error).kind(), format!("{option} {number}: {error}")))
}

/// Bytes of a file with a process's number, at most: no number is longer.
const NUMBER_MAX: u64 = 16;

/// Writes this process's number to a file, which may hold the number of an earlier one. A link is not followed, and a file that holds anything else stays as it is.
fn write_number(path: &Path) -> io::Result<()> {
    // A pipe without a reader would be waited for.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let mut file = options.open(path)?;
    let mut there = String::new();
    let is_number = file.metadata()?.is_file()
        && (&mut file).take(NUMBER_MAX).read_to_string(&mut there).is_ok()
        && file.metadata()?.len() < NUMBER_MAX
        && there.trim_end().bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "it is there and holds no process's number",
        ));
    }
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())
}

/// The descriptors by which another program learns that the network is served, and ends it.
pub struct Caller {
    ready: Option<OwnedFd>,
    exit: Option<OwnedFd>,
    name: Option<Name>,
    behind: Option<Behind>,
}

impl Caller {
    /// Those of the command line.
    ///
    /// # Errors
    /// The system's, with the option.
    pub fn of(args: &GatewayArgs) -> io::Result<Self> {
        let take = |option, number: Option<i32>| number.map(|number| copy(option, number)).transpose();
        let (ready, exit) = (args.frames.ready_fd, args.frames.exit_fd);
        if let Some(path) = &args.frames.pid_file {
            write_number(path).map_err(|error| file::at(path, error))?;
        }
        let behind = take("--behind", args.frames.behind)?.map(Behind::leave).transpose()?;
        let name = args.netns.as_ref().filter(|_| args.frames.until_gone);
        let named = |name: &String| {
            Name::of(name).map_err(|error| io::Error::new(error.kind(), format!("--netns {name}: {error}")))
        };
        let name = name.map(named).transpose()?;
        Ok(Self { ready: take("--ready-fd", ready)?, exit: take("--exit-fd", exit)?, name, behind })
    }

    /// Says that the network is served.
    ///
    /// # Errors
    /// The system's.
    pub fn ready(&mut self) -> io::Result<()> {
        if let Some(ready) = self.ready.take() {
            // What slirp4netns writes. If nobody wants to know any more, the network is served all the same.
            let _ = rustix::io::write(ready, b"1");
        }
        self.behind.take().map_or(Ok(()), Behind::served)
    }

    /// Returns when the other side of the pipe is closed, or the namespace has no name any more. Never without either.
    ///
    /// # Errors
    /// The system's, if it cannot be waited for.
    pub async fn exit(&mut self) -> io::Result<()> {
        let name = self.name.take();
        let gone = async {
            match name {
                Some(name) => name.gone().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            closed = self.closed() => closed,
            gone = gone => gone,
        }
    }

    async fn closed(&mut self) -> io::Result<()> {
        let Some(exit) = self.exit.take() else { return std::future::pending().await };
        let exit = register(exit, Interest::READABLE)?;
        loop {
            let mut ready = exit.readable().await?;
            if ready.ready().is_read_closed() {
                return Ok(());
            }
            ready.clear_ready();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_number_takes_the_place_of_a_number_and_of_nothing_else() {
        let folder = std::env::temp_dir().join(format!("sockeye-gateway-number-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("pid");
        let own = format!("{}\n", std::process::id());
        for before in [None, Some(""), Some("4711\n"), Some("99999999999")] {
            before.into_iter().for_each(|text| fs::write(&path, text).unwrap());
            write_number(&path).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), own, "{before:?}");
        }
        for precious in ["text", "4711 4712\n", "4711\n4712\n", "12345678901234567890"] {
            fs::write(&path, precious).unwrap();
            assert_eq!(write_number(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists, "{precious}");
            assert_eq!(fs::read_to_string(&path).unwrap(), precious);
        }
        fs::write(&path, "1\n").unwrap();
        symlink(&path, folder.join("link")).unwrap();
        assert!(write_number(&folder.join("link")).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
        assert!(write_number(&folder).is_err(), "a folder");
        fs::remove_dir_all(&folder).unwrap();
    }
}
