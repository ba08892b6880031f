//! Sockets over interfaces within the process: wires, channels, captures, and what an interface can do wrong.
//!
//! The kernel at the other end of a device is tested in `crates/drivers/tests`.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../examples/vm_frames.rs"]
mod example;
#[path = "../common/lab.rs"]
mod lab;

mod bounds;
mod busy_polling;
mod capture;
mod channel;
mod faults;
mod large_frames;
mod leader;
mod transfers;
mod vm_frames;
