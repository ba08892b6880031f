//! Programs of the bench that are not in its workspace.
//!
//! Purpose: where such a program is, and how it is built. Under cargo the bench builds it, so that no older one is measured;
//! otherwise it is looked for beside the bench.
//!
//! Does not depend on the work of the programs.
//!
//! Tests: below; `tests/bench`.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program in a folder beside the bench's.
pub struct Built {
    /// Its name.
    pub program: &'static str,
    /// The folder of its manifest.
    pub folder: &'static str,
    /// The folder of its build, in cargo's own.
    pub target: &'static str,
}

/// The handling of the lock file in a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// It has to fit.
    Kept,
    /// It is of another checkout, and cargo changes the parts that do not fit.
    Adapted,
}

impl Built {
    /// Makes sure that there is a program. Under cargo this builds it, which blocks for minutes the first time.
    ///
    /// # Errors
    /// It cannot be built; or it is not there, with the command that builds it.
    pub fn prepare(&self) -> io::Result<()> {
        let here = env::current_exe()?;
        match env::var_os("CARGO") {
            Some(cargo) => {
                self.build(&cargo, &self.manifest(Path::new(SOURCES)), &self.target_of(&here), Lock::Kept)
            }
            None => self.find(&here).map(drop),
        }
    }

    /// Builds the program of a checkout in a target folder; cargo shows how far it is.
    pub fn build(&self, cargo: &OsString, manifest: &Path, target: &Path, lock: Lock) -> io::Result<()> {
        let mut command = Command::new(cargo);
        command.args(["build", "--release", "--manifest-path"]).arg(manifest);
        set_profile(&mut command);
        match lock {
            Lock::Kept => drop(command.arg("--locked")),
            Lock::Adapted => {}
        }
        if command.arg("--target-dir").arg(target).status()?.success() {
            return Ok(());
        }
        Err(io::Error::other(format!("cargo did not build {}; its message is above", self.program)))
    }

    /// The manifest in a checkout, given the folder of the bench there.
    pub fn manifest(&self, bench: &Path) -> PathBuf {
        bench.with_file_name(self.folder).join("Cargo.toml")
    }

    /// Cargo's folder for the program: beside the folder of the bench's profile.
    fn target_of(&self, bench: &Path) -> PathBuf {
        bench.parent().and_then(Path::parent).unwrap_or(Path::new("target")).join(self.target)
    }

    /// The program: beside the bench, or where [`prepare`](Self::prepare) built it.
    pub fn find(&self, bench: &Path) -> io::Result<PathBuf> {
        let built = self.target_of(bench).join("release").join(self.program);
        let places = [bench.with_file_name(self.program), built];
        places.into_iter().find(|place| place.is_file()).ok_or_else(|| {
            let message = format!(
                "there is no {} beside {}; build it with `cargo build --release --manifest-path apps/{}/Cargo.toml \
                 --target-dir {}`",
                self.program,
                bench.display(),
                self.folder,
                self.target_of(bench).display()
            );
            io::Error::new(io::ErrorKind::NotFound, message)
        })
    }
}

/// The `release` profile of this checkout: for a checkout that has another, so that two builds differ by their source only (ADR 191).
const PROFILE: [&str; 7] = [
    "lto = \"off\"",
    "codegen-units = 16",
    "package.sockeye.codegen-units = 1",
    "package.sockeye-proto.codegen-units = 1",
    "package.sockeye-sync.codegen-units = 1",
    "package.sockeye-mbuf.codegen-units = 1",
    "package.sockeye-netif.codegen-units = 1",
];

/// Has cargo build with the settings of [`PROFILE`].
pub fn set_profile(cargo: &mut Command) {
    for setting in PROFILE {
        cargo.args(["--config", &format!("profile.release.{setting}")]);
    }
}

/// Where this package was built from.
pub const SOURCES: &str = env!("CARGO_MANIFEST_DIR");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::counting;
    use crate::sim::SIM;
    use crate::workloads::http;

    #[test]
    fn a_program_is_looked_for_beside_the_bench_and_the_message_has_the_command() {
        let error = http::APPS.find(Path::new("/nonexistent/release/sockeye-bench")).unwrap_err().to_string();
        let part = "--manifest-path apps/bench-apps/Cargo.toml --target-dir /nonexistent/apps`";
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn other_checkouts_are_built_with_the_profile_of_this_one() {
        let bench = Path::new(SOURCES);
        // The workspaces of the bench and of its programs.
        let workspaces = ["../..", "../glue", "../bench-counted"].map(|folder| bench.join(folder));
        for manifest in workspaces.map(|folder| folder.join("Cargo.toml")) {
            let text = std::fs::read_to_string(&manifest).unwrap();
            for setting in PROFILE {
                let (table, line) = match setting.strip_prefix("package.") {
                    Some(line) => ("[profile.release.package]\n", line),
                    None => ("[profile.release]\n", setting),
                };
                let (_, settings) = text.split_once(table).unwrap();
                let settings = settings.split("\n[").next().unwrap();
                assert!(settings.lines().any(|found| found == line), "{setting}: {}", manifest.display());
            }
        }
    }

    #[test]
    fn the_sources_are_in_the_repository_and_bear_the_name() {
        for built in [http::APPS, counting::COUNTED, SIM] {
            let text = std::fs::read_to_string(built.manifest(Path::new(SOURCES))).unwrap();
            assert!(text.contains(&format!("name = \"{}\"", built.program)));
        }
    }
}
