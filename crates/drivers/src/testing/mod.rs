//! Network namespaces and pairs of interfaces, for tests and measurements that need the kernel as the peer; signals for all
//! threads, for tests of interrupted calls.
//!
//! Nothing else on the machine is touched: a namespace is made on a thread of its own and is gone with its last
//! descriptor, and all devices in it with it. All of it needs CAP_SYS_ADMIN; [`unavailable`] says why it cannot be had, so
//! that a test can skip with a reason. Tests: `tests/devices.rs`.

mod namespace;
mod netlink;
mod signals;

pub use namespace::{Namespace, unavailable};
pub use netlink::{add_route, delete_link, veth_pair};
pub use signals::Signals;
