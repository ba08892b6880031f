//! Pairs of interfaces, for tests and measurements that need the kernel as the peer; signals for all threads, for tests of interrupted
//! calls.
//!
//! Nothing outside of the [`Namespace`]s that are named is touched. [`unavailable`] says why there can be none, and [`skipped`]
//! lets a test pass then, with a reason. Tests: below, `tests/devices.rs`.

mod netlink;
mod signals;

pub use netlink::{delete_link, veth_pair};
pub use signals::Signals;

use std::ffi::OsStr;
use std::io::Write;
use std::thread;

use crate::Namespace;

/// Why there can be no namespaces and devices here; `None` if there can.
pub fn unavailable() -> Option<String> {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(error) => return Some(format!("no network namespaces: {error}")),
    };
    let opened = namespace.run(|| crate::Tun::open(&crate::TunConfig::default()).map(drop));
    opened.and_then(|opened| opened).err().map(|error| format!("no TUN devices: {error}"))
}

/// Whether the calling test cannot run here as there can be no namespaces and devices, which [`skip`] says.
///
/// # Panics
/// As [`skip`].
#[must_use = "a test that cannot run has to return"]
pub fn skipped() -> bool {
    unavailable().inspect(|reason| skip(reason)).is_some()
}

/// Says that the calling test, or a part of it, cannot run here and why.
///
/// # Panics
/// If the environment has `CI=true` or `CI=1`, as in continuous integration, where all tests are to run.
pub fn skip(reason: &str) {
    assert!(!is_ci(std::env::var_os("CI").as_deref()), "this has to run in continuous integration: {reason}");
    say_skipped(reason);
}

/// [`skip`] for what even continuous integration may lack. Writes to standard error itself: the test harness hides what a
/// test that passes has printed.
pub fn say_skipped(reason: &str) {
    let thread = thread::current();
    let _ = writeln!(std::io::stderr(), "skipped: {}: {reason}", thread.name().unwrap_or("a test"));
}

fn is_ci(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| value == "true" || value == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continuous_integration_says_so_in_the_environment() {
        assert!(["true", "1"].iter().all(|value| is_ci(Some(value.as_ref()))));
        assert!(["", "0", "false"].iter().all(|value| !is_ci(Some(value.as_ref()))) && !is_ci(None));
    }
}
