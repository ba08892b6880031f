//! The gateway by the names of slirp4netns and pasta, called by hand, by Podman and by RootlessKit; and programs that people use, inside and outside.
//!
//! What is not installed, or does not run here without the gateway either, is said, and its test passes.

#[allow(dead_code)]
#[path = "../common/mod.rs"]
mod common;

mod by_hand;
mod engines;
mod manifest;
mod programs;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use sockeye_drivers::testing::say_skipped;

const PATIENCE: Duration = Duration::from_secs(30);

/// A program of the system, if it is there; else this is printed.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = folders.map(|folder| folder.join(name)).find(|file| file.is_file());
    if found.is_none() {
        say_skipped(&format!("{name} is not installed"));
    }
    found
}

/// A folder that everybody may use, and that goes with this.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = common::temporary(name);
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        Self(path)
    }

    /// The gateway by another name.
    fn named(&self, name: &str) -> PathBuf {
        let link = self.0.join(name);
        if !link.is_symlink() {
            symlink(common::gateway_program(), &link).unwrap();
        }
        link
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What others have mounted there keeps it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a program has printed on both streams, if it has succeeded.
fn succeeds(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = [String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)].concat();
    assert!(status.success(), "{command:?}: {status}\n{text}");
    text
}

/// Tries until there is something.
fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(Instant::now() < until, "{what}: not in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A free port of the host's loopback.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// What a server at this port says, as soon as one says something.
fn said_at(port: u16) -> String {
    eventually("an answer", || {
        let mut text = String::new();
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        std::io::Read::read_to_string(&mut stream, &mut text).ok()?;
        Some(text).filter(|text| !text.is_empty())
    })
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
