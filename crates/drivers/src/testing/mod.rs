//! Pairs of interfaces, for tests and measurements that need the kernel as the peer; signals for all threads, for tests of interrupted
//! calls.
//!
//! Nothing outside of the [`Namespace`]s that are named is touched. [`unavailable`] says why there can be none, so
//! that a test can skip with a reason. Tests: `tests/devices.rs`.

mod netlink;
mod signals;

pub use netlink::{delete_link, veth_pair};
pub use signals::Signals;

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
