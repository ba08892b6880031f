//! `sockeye bench` starts the measuring program. Here that is a script beside a copy of the command.

use std::fs;
use std::path::{Path, PathBuf};

use sockeye_shared::testing;

use super::*;

/// A folder like cargo's, with the command in it; it is deleted with the value.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str, profile: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sockeye-start-{name}-{}", std::process::id()));
        let folder = Self(path.join(profile));
        fs::create_dir_all(&folder.0).unwrap();
        testing::copy_program(Path::new(env!("CARGO_BIN_EXE_sockeye")), &folder.0.join("sockeye"));
        folder
    }

    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        testing::script(&path, text);
        path
    }

    /// The command of this folder, which cargo did not start.
    pub fn sockeye(&self, line: &str) -> Command {
        let mut command = Command::new(self.0.join("sockeye"));
        command.args(line.split_whitespace()).stdin(Stdio::null());
        for name in ["CARGO", "CARGO_MANIFEST_DIR", "CARGO_PKG_NAME"] {
            command.env_remove(name);
        }
        command
    }

    /// The same as `cargo run` starts it.
    fn run_by(&self, cargo: &Path, line: &str) -> Command {
        let mut command = self.sockeye(line);
        command
            .env("CARGO", cargo)
            .env("CARGO_MANIFEST_DIR", "/checkout/apps/cli")
            .env("CARGO_PKG_NAME", "sockeye-cli");
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(self.0.parent().unwrap()));
    }
}

#[test]
fn every_argument_and_the_exit_code_are_passed_on() {
    let folder = Folder::new("args", "release");
    folder.script("sockeye-bench", "echo \"$@\"; exit 3");
    for line in ["bench --quick", "bench --help", "bench rr --connections 1,2 --json -h", "bench"] {
        let output = run(folder.sockeye(line));
        assert_eq!(output.status.code(), Some(3), "{line}: {}", stderr(&output));
        assert_eq!(stdout(&output).trim(), line.trim_start_matches("bench").trim());
    }
}

#[test]
fn without_the_program_the_message_has_the_command_that_builds_it() {
    for (profile, command) in [
        ("release", "`cargo build --release --package sockeye-bench`"),
        ("debug", "`cargo build --package sockeye-bench`"),
    ] {
        let folder = Folder::new("missing", profile);
        let output = run(folder.sockeye("bench --quick"));
        assert_eq!(output.status.code(), Some(1));
        let text = stderr(&output);
        assert!(text.contains(command) && text.contains("cargo install --path apps/bench"), "{text}");
    }
}

#[test]
fn under_cargo_the_program_is_built_first_with_the_same_profile() {
    for (profile, flag) in [("release", "--profile release"), ("debug", "--profile dev")] {
        let folder = Folder::new("cargo", profile);
        folder.script("made", "echo \"started with $1; $CARGO_PKG_NAME\"");
        let cargo = folder.script(
            "cargo",
            "echo \"$@\" >&2; cp \"$(dirname \"$0\")/made\" \"$(dirname \"$0\")/sockeye-bench\"",
        );
        let output = run(folder.run_by(&cargo, "bench idle"));
        assert_eq!((output.status.code(), stdout(&output).trim()), (Some(0), "started with idle;"));
        let target = folder.0.parent().unwrap().to_str().unwrap();
        let text = stderr(&output);
        let parts = [flag, "build --bin sockeye-bench", "/checkout/apps/cli/../../Cargo.toml", target];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[test]
fn a_build_that_fails_starts_nothing() {
    let folder = Folder::new("failed", "release");
    folder.script("sockeye-bench", "echo an older build");
    let cargo = folder.script("cargo", "exit 101");
    let output = run(folder.run_by(&cargo, "bench --quick"));
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
    assert!(stderr(&output).contains("cargo did not build"), "{}", stderr(&output));
}
