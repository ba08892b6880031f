//! `http1`, `http2`: calls of an HTTP library over both sides' sockets under tokio.
//!
//! Purpose: an application's view. hyper is on both ends of each connection, which has one call under way; both ends are in
//! one tokio runtime or each in its own. The program that does this is `sockeye-bench-apps`, from the workspace `apps/glue`, so
//! that building the bench builds no HTTP library. It is asked for one sample at a time.
//!
//! Does not depend on HTTP.
//!
//! Invariant: [`Built::prepare`] comes before the first sample. Under cargo it builds the program, so that no older one is measured.
//!
//! Tests: `tests/bench/apps.rs`; `apps/bench-apps/tests`.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use crate::built::{Built, SOURCES};
use crate::meter::Timing;
use crate::process;
use crate::provider::{Counters, Side};
use crate::watchdog;
use crate::workloads::Sample;

/// Its parameters.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The protocol.
    pub version: Version,
    /// Open connections, each with one call under way.
    pub connections: usize,
    /// 1: both ends in one runtime; 2: each in its own.
    pub runtimes: usize,
}

/// The protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.1, kept alive.
    One,
    /// HTTP/2, unary calls.
    Two,
}

impl Version {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Version::One => "http1",
            Version::Two => "http2",
        }
    }
}

/// The program's answers.
#[derive(Deserialize)]
struct Answer {
    value: f64,
    cpu: f64,
}

/// Puts the sources of this program's checkout into another one, which has none, and returns the manifest there.
pub fn lend(bench: &Path) -> io::Result<PathBuf> {
    let (from, to) = (APPS.manifest(Path::new(SOURCES)), APPS.manifest(bench));
    let [from_folder, to_folder] = [&from, &to].map(|manifest| manifest.with_file_name(""));
    fs::create_dir_all(to_folder.join("src"))?;
    for name in ["Cargo.toml", "Cargo.lock"] {
        fs::copy(from_folder.join(name), to_folder.join(name))?;
    }
    for entry in fs::read_dir(from_folder.join("src"))? {
        let entry = entry?;
        fs::copy(entry.path(), to_folder.join("src").join(entry.file_name()))?;
    }
    Ok(to)
}

/// Calls a second. Blocks for warm-up and window.
pub fn sample(side: Side, spec: &Spec, timing: Timing) -> io::Result<Sample> {
    let mut command = Command::new(APPS.find(&env::current_exe()?)?);
    command.args(words(side, spec, timing));
    // Shorter than the watchdog's patience, so that the row fails and not the run.
    let ended = process::run(&mut command, timing.warm_up + timing.timed + watchdog::GRACE / 2)?;
    if !ended.status.success() {
        return Err(io::Error::other(ended.complaint()));
    }
    let answer: Answer = serde_json::from_str(&ended.stdout)?;
    Ok(Sample { value: answer.value, cpu: Some(answer.cpu), counters: Counters::new() })
}

/// Requests to the program for a sample.
pub fn words(side: Side, spec: &Spec, timing: Timing) -> Vec<String> {
    let [warm_up, timed] = [timing.warm_up, timing.timed].map(|time| time.as_secs_f64().to_string());
    let (connections, runtimes) = (spec.connections.to_string(), spec.runtimes.to_string());
    let words =
        [spec.version.name(), "--on", side.name(), "--connections", &connections, "--runtimes", &runtimes];
    words.into_iter().chain(["--warm-up", &warm_up, "--seconds", &timed]).map(str::to_owned).collect()
}

/// The calls a second in the program's answer.
pub fn value(answer: &str) -> Option<f64> {
    serde_json::from_str(answer).ok().map(|Answer { value, .. }| value)
}

/// Of the default rows.
pub const CONNECTIONS_MANY: usize = 64;
/// The program's own limit.
pub const CONNECTIONS_MAX: usize = 1000;
/// More than a process takes to start, to connect and to end.
pub const START: Duration = Duration::from_millis(50);
/// Unit of a value.
pub const UNIT: &str = "calls/s";
/// The program.
pub const APPS: Built = Built { program: "sockeye-bench-apps", folder: "bench-apps", target: "apps" };
