//! A panic in the stack's own code ends the connection or entry that it was about, and nothing else.
//!
//! The panics are injected by [`failpoints`], whose table is the process's: these tests stand in a binary of their own, and each
//! takes a [`turn`].

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
mod polls;
mod random;
mod sockets;
mod tables;
mod unix;
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
