//! `/etc/resolv.conf` inside: the gateway's name server, and the search domains and options of the system's file.
//!
//! The mount namespace is new, so what is mounted here is seen only inside. A file that is mounted over the system's would not stay: programs of the host replace that by renaming another one over it,
//! and the kernel then takes away what was mounted there, in every namespace. So a file system of our own is mounted over the *folder*. It has `resolv.conf`, and each other
//! entry of the folder from the host: files and folders as mounts of what is there at the start, links as copies.
//!
//! Tests: below; `tests/gateway/names.rs`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, mkdirat, open, openat, readlinkat, statat, symlinkat};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change};

use crate::args::GatewayArgs;
use crate::resolvers::{self, PATH, search};

const FOLDER: &str = "/etc";
const NAME: &str = "resolv.conf";

/// Has the inside ask the gateway. Where the system has no such folder there is nothing to mount over, and nothing is done.
///
/// # Errors
/// The system's.
pub fn point(args: &GatewayArgs) -> io::Result<()> {
    let said =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot change {PATH} inside: {error}"));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(host) = open(FOLDER, flags, Mode::empty()) else { return Ok(()) };
    let text = text(args, &resolvers::text());
    let entries = fs::read_dir(FOLDER).and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(said)?;
    let covered = || -> io::Result<()> {
        mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
        // What programs inside write here themselves stays inside, up to this size.
        mount("none", FOLDER, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=755,size=16m")?;
        fs::write(PATH, text)?;
        let own = open(FOLDER, flags, Mode::empty())?;
        for name in entries.iter().map(fs::DirEntry::file_name).filter(|name| name != NAME) {
            match show(host.as_fd(), own.as_fd(), &name) {
                Ok(()) => {}
                // It has gone meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // A mount of another user's, for example, or one that is dead: the others are there all the same.
                Err(error) => eprintln!(
                    "sockeye gateway: {} is not seen inside: {error}",
                    Path::new(FOLDER).join(&name).display()
                ),
            }
        }
        Ok(())
    };
    covered().map_err(said)
}

/// Shows an entry of the host's folder in our own.
fn show(host: BorrowedFd<'_>, own: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    match FileType::from_raw_mode(statat(host, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode) {
        FileType::Symlink => return Ok(symlinkat(readlinkat(host, name, Vec::new())?, own, name)?),
        FileType::Directory => mkdirat(own, name, Mode::RWXU)?,
        _ => drop(openat(own, name, OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC, Mode::RUSR)?),
    }
    // Through the descriptors, since our own folder lies over the host's. (`open_tree` would need Linux 5.2.)
    let at = |folder: BorrowedFd<'_>| {
        let mut path = OsString::from(format!("/proc/self/fd/{}/", folder.as_raw_fd()));
        path.push(name);
        path
    };
    Ok(mount_bind_recursive(at(host), at(own))?)
}

/// Options for the resolver of the C library (resolv.conf(5)): each has its sense with another server, too.
fn options(system: &[u8]) -> impl Iterator<Item = &str> {
    let lines = system.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    let lines = lines.filter_map(|line| line.strip_prefix("options"));
    lines.filter(|rest| rest.starts_with([' ', '\t'])).flat_map(str::split_ascii_whitespace)
}

fn text(args: &GatewayArgs, system: &[u8]) -> String {
    let search = search(args, system);
    let mut text = format!("nameserver {}\n", args.plan().names[0]);
    if !search.is_empty() {
        text += &format!("search {}\n", search.join(" "));
    }
    let options: Vec<&str> = options(system).collect();
    if !options.is_empty() {
        text += &format!("options {}\n", options.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::options;

    #[test]
    fn options_of_all_lines_are_kept() {
        let system =
            b"# caf\xe9\nnameserver 192.0.2.1\noptions ndots:5\n# options x\noptions\toptionsa  edns0 \noptionsb\n";
        assert_eq!(options(system).collect::<Vec<_>>(), ["ndots:5", "optionsa", "edns0"]);
        assert_eq!(options(b"").count(), 0);
    }
}
