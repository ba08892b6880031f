//! The `sockeye-packetdrill` program: runs a collection of packetdrill scripts, against a Sockeye stack or the kernel.
//!
//! Exit codes: 0: all scripts pass; 1: some do not; 2: the command line is wrong or something is missing.
#![cfg_attr(not(target_os = "linux"), allow(missing_docs))]

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    sockeye_packetdrill::run::main()
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("packetdrill's plug-ins are shared objects of Linux");
    ExitCode::from(2)
}
