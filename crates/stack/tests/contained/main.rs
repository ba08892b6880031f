//! A panic in the stack's own code ends the connection or entry that it was about, and nothing else.
//!
//! [`failpoints`] inject the panics. Their table is global to the process, so these tests have a binary of their own, and
//! each takes a [`turn`].

#[path = "../common/mod.rs"]
mod common;
#[path = "../link/lab.rs"]
#[allow(dead_code)]
mod hub;
#[path = "../common/lab.rs"]
mod lab;

#[path = "../ip/host.rs"]
#[allow(dead_code)]
mod host;

mod connections;
mod groups;
mod hosts;
mod polled;
mod polls;
mod random;
mod sockets;
mod tables;
mod unix;
mod unix_halves;
mod waiters;
mod world;

use std::sync::{Mutex, MutexGuard};

/// The right to arm failpoints. The panics that are injected are not printed.
pub struct Turn {
    _turn: MutexGuard<'static, ()>,
}

/// Waits for one's turn.
pub fn turn() -> Turn {
    static TURN: Mutex<()> = Mutex::new(());
    static QUIET: std::sync::Once = std::sync::Once::new();
    QUIET.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let is_injected =
                info.payload().downcast_ref::<String>().is_some_and(|text| text.starts_with("failpoint "));
            if !is_injected {
                print(info);
            }
        }));
    });
    let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    sockeye::failpoints::disarm_all();
    Turn { _turn: turn }
}

impl Drop for Turn {
    fn drop(&mut self) {
        sockeye::failpoints::disarm_all();
    }
}

/// Points that no test arms, and why not.
const EXEMPT: &[(&str, &str)] = &[];

#[test]
fn every_point_is_armed_by_a_test() {
    let tests = [
        include_str!("connections.rs"),
        include_str!("groups.rs"),
        include_str!("hosts.rs"),
        include_str!("polled.rs"),
        include_str!("polls.rs"),
        include_str!("random.rs"),
        include_str!("sockets.rs"),
        include_str!("tables.rs"),
        include_str!("unix.rs"),
        include_str!("unix_halves.rs"),
        include_str!("waiters.rs"),
    ];
    let is_named = |point: &str| tests.iter().any(|test| test.contains(&format!("\"{point}\"")));
    for point in sockeye::failpoints::NAMES {
        let reason = EXEMPT.iter().find(|(exempt, _)| exempt == point);
        assert!(is_named(point) != reason.is_some(), "{point} is armed nowhere, or exempt without need");
    }
}
