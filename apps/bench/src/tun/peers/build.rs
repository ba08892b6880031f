//! Building the peers' programs.
//!
//! Purpose: `go build` and `cargo build` in their folders under `benches/peers`, into `target/peers` of the same repository.
//! Both tools do nothing when nothing has changed.
//!
//! Does not depend on how the programs are used.
//!
//! Invariant: a build ends within [`BUILD_MAX`], or is ended.
//!
//! Tests: below; with the real tools in `tests/bench/tun.rs`, where asked for.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::Kind;

/// Builds the program, saying so. Blocks until it is there; returns where.
pub fn build(kind: Kind) -> io::Result<PathBuf> {
    let repository = repository()?;
    let folder = repository.join(FOLDER).join(kind.name());
    let out = repository.join("target/peers");
    eprintln!("building {} in {} (the first time takes a minute or two)", kind.name(), folder.display());
    let program = out.join(kind.name());
    match kind {
        Kind::Gvisor => {
            let mut go = Command::new("go");
            go.args(["build", "-trimpath", "-o"]).arg(&program).arg(".");
            run(go, &folder, BUILD_MAX)?;
        }
        Kind::Smoltcp => {
            let target = out.join("smoltcp-target");
            let mut cargo = Command::new("cargo");
            cargo.args(["build", "--release", "--locked", "--target-dir"]).arg(&target);
            run(cargo, &folder, BUILD_MAX)?;
            fs::copy(target.join("release").join(PACKAGE_SMOLTCP), &program)?;
        }
    }
    Ok(program)
}

/// Runs a tool in `folder` to its end.
fn run(mut command: Command, folder: &Path, most: Duration) -> io::Result<()> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let started = command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let mut process = started.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "`{tool}` is not installed, which builds {}; install it, or give programs that were built \
                 elsewhere by --peers=FOLDER",
                folder.display()
            ),
        ),
        _ => error,
    })?;
    let deadline = Instant::now() + most;
    while Instant::now() < deadline {
        if let Some(status) = process.try_wait()? {
            if status.success() {
                return Ok(());
            }
            let message = format!("`{tool}` failed in {}; its message is above", folder.display());
            return Err(io::Error::other(message));
        }
        thread::sleep(POLL);
    }
    // Both can only fail because it has just ended.
    let _ = process.kill();
    let _ = process.wait();
    let message = format!("`{tool}` in {} took more than {} s", folder.display(), most.as_secs());
    Err(io::Error::new(io::ErrorKind::TimedOut, message))
}

/// Where the sources are: the repository that this program was built from, or else the working directory.
fn repository() -> io::Result<PathBuf> {
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let places = [built_from, PathBuf::from(".")];
    let found = places.iter().find(|place| place.join(FOLDER).is_dir());
    found.map_or_else(
        || {
            let message = format!(
                "there is no {FOLDER} here; run from the repository, or give built programs by --peers=FOLDER"
            );
            Err(io::Error::new(io::ErrorKind::NotFound, message))
        },
        |place| place.canonicalize(),
    )
}

/// From the root of the repository.
const FOLDER: &str = "benches/peers";
/// Its name in its manifest.
const PACKAGE_SMOLTCP: &str = "sockeye-bench-peer-smoltcp";
/// Longest time of a build: modules are fetched the first time.
const BUILD_MAX: Duration = Duration::from_secs(900);
const POLL: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_a_failure_and_a_timeout_have_different_errors() {
        let here = Path::new(".");
        let long = Duration::from_secs(60);
        let missing = run(Command::new("no-such-tool-of-ours"), here, long).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(missing.to_string().contains("--peers=FOLDER"), "{missing}");
        let failed = run(Command::new("false"), here, long).unwrap_err();
        assert!(failed.to_string().contains("`false` failed"), "{failed}");
        run(Command::new("true"), here, long).unwrap();
        let mut sleep = Command::new("sleep");
        sleep.arg("60");
        let late = run(sleep, here, Duration::from_millis(100)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn the_sources_of_each_peer_are_in_the_repository() {
        let folder = repository().unwrap().join(FOLDER);
        assert!(folder.join("gvisor/go.mod").is_file() && folder.join("smoltcp/Cargo.lock").is_file());
        let manifest = std::fs::read_to_string(folder.join("smoltcp/Cargo.toml")).unwrap();
        assert!(manifest.contains(&format!("name = \"{PACKAGE_SMOLTCP}\"")));
    }
}
