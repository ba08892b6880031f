//! Shared by the command and the bench.
//!
//! Purpose: one home for how a program ends ([`end`]), how quantities are written on a command line ([`parse`]), files that it
//! names ([`mod@file`]), its completions and man pages ([`manual`]), how far a long run is ([`progress`]), and the CPU time
//! ([`cpu`]) and limits ([`limit`]) of the process.
//!
//! Does not depend on any stack or program.
//!
//! Tests: in the modules.
#![forbid(unsafe_code)]

pub mod cpu;
pub mod end;
pub mod file;
pub mod limit;
pub mod manual;
pub mod parse;
pub mod progress;
pub mod testing;
