//! Machines on an Ethernet segment whose router is the gateway: stacks of this process, BusyBox's DHCP client, and a guest of QEMU.
//!
//! What is not there is said, and its test passes; in continuous integration (`CI=true`) that is so for what `.ci/run` does not install only.

#[allow(dead_code)]
#[path = "../common/mod.rs"]
mod common;

mod clients;
mod front;
mod guest;
mod socket;
mod vhost;

use std::path::PathBuf;
use std::process::Command;

use sockeye_drivers::testing::say_skipped;

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

/// Whether BusyBox is there, with this applet.
fn busybox(applet: &str) -> Option<PathBuf> {
    let busybox = program("busybox")?;
    let list = Command::new(&busybox).arg("--list").output().unwrap();
    let has = String::from_utf8_lossy(&list.stdout).lines().any(|line| line == applet);
    if !has {
        say_skipped(&format!("this BusyBox has no {applet}"));
    }
    has.then_some(busybox)
}
