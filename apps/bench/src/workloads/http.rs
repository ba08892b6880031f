//! `http1`, `http2`: calls of an HTTP library over both sides' sockets under tokio.
//!
//! Purpose: what an application sees. hyper is on both ends of each connection, which has one call under way; both ends are in
//! one tokio runtime or each in its own. The program that does this is `sockeye-bench-apps`, from a workspace of its own, so
//! that building the bench builds no HTTP library. It is asked for one sample at a time.
//!
//! Must not know: HTTP.
//!
//! Invariant: [`prepare`] comes before the first sample. Under cargo it builds the program, so that no older one is measured.
//!
//! Tests: below; `apps/bench-apps/tests`.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

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

/// What the program answers.
#[derive(Deserialize)]
struct Answer {
    value: f64,
    cpu: f64,
}

/// Makes sure that there is a program to take samples with. Under cargo this builds it, which blocks for minutes the first time.
///
/// # Errors
/// It cannot be built; or it is not there, with the command that builds it.
pub fn prepare() -> io::Result<()> {
    let here = env::current_exe()?;
    match env::var_os("CARGO") {
        Some(cargo) => build(&cargo, &manifest(Path::new(SOURCES)), &target_of(&here), Lock::Kept),
        None => program(&here).map(drop),
    }
}

/// Builds the program of a checkout in a target folder; cargo shows how far it is.
pub fn build(cargo: &OsString, manifest: &Path, target: &Path, lock: Lock) -> io::Result<()> {
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--manifest-path"]).arg(manifest);
    match lock {
        Lock::Kept => drop(command.arg("--locked")),
        Lock::Adapted => {}
    }
    if command.arg("--target-dir").arg(target).status()?.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("cargo did not build {PROGRAM}; its message is above")))
}

/// What becomes of the lock file in a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// It has to fit.
    Kept,
    /// It is of another checkout, and cargo changes what does not fit.
    Adapted,
}

/// Puts the sources of this program's checkout into another one, which has none, and returns the manifest there.
pub fn lend(bench: &Path) -> io::Result<PathBuf> {
    let (from, to) = (manifest(Path::new(SOURCES)), manifest(bench));
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

/// The manifest in a checkout, given the folder of the bench there.
pub fn manifest(bench: &Path) -> PathBuf {
    bench.with_file_name("bench-apps").join("Cargo.toml")
}

/// Cargo's folder for the program: beside the folder of the bench's profile.
fn target_of(bench: &Path) -> PathBuf {
    bench.parent().and_then(Path::parent).unwrap_or(Path::new("target")).join("apps")
}

/// The program: beside the bench, or where [`prepare`] built it.
pub fn program(bench: &Path) -> io::Result<PathBuf> {
    let places = [bench.with_file_name(PROGRAM), target_of(bench).join("release").join(PROGRAM)];
    places.into_iter().find(|place| place.is_file()).ok_or_else(|| {
        let message = format!(
            "there is no {PROGRAM} beside {}; build it with `cargo build --release --manifest-path \
             apps/bench-apps/Cargo.toml --target-dir {}`",
            bench.display(),
            target_of(bench).display()
        );
        io::Error::new(io::ErrorKind::NotFound, message)
    })
}

/// Calls a second. Blocks for warm-up and window.
pub fn sample(side: Side, spec: &Spec, timing: Timing) -> io::Result<Sample> {
    let mut command = Command::new(program(&env::current_exe()?)?);
    command.args(words(side, spec, timing));
    // Shorter than the watchdog's patience, so that the row fails and not the run.
    let ended = process::run(&mut command, timing.warm_up + timing.timed + watchdog::GRACE / 2)?;
    if !ended.status.success() {
        return Err(io::Error::other(ended.complaint()));
    }
    let answer: Answer = serde_json::from_str(&ended.stdout)?;
    Ok(Sample { value: answer.value, cpu: Some(answer.cpu), counters: Counters::new() })
}

/// What the program is asked for a sample.
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
/// What a value counts.
pub const UNIT: &str = "calls/s";
/// The program.
pub const PROGRAM: &str = "sockeye-bench-apps";
/// Where this package was built from.
const SOURCES: &str = env!("CARGO_MANIFEST_DIR");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_looked_for_beside_the_bench_and_the_message_has_the_command() {
        let error = program(Path::new("/nonexistent/release/sockeye-bench")).unwrap_err().to_string();
        let part = "--manifest-path apps/bench-apps/Cargo.toml --target-dir /nonexistent/apps`";
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn its_sources_are_in_the_repository_and_bear_its_name() {
        let text = std::fs::read_to_string(manifest(Path::new(SOURCES))).unwrap();
        assert!(text.contains(&format!("name = \"{PROGRAM}\"")));
    }
}
