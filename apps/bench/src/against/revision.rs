//! Another build, made from a revision.
//!
//! Purpose: the program of a revision, from `target/against`. Where it is not there yet, the revision is checked out into a git worktree,
//! built with cargo's release profile and its own lock file, and the program is kept; the worktree is removed.
//!
//! Does not depend on how the program is used.
//!
//! Invariants: one process at a time builds, since it holds the lock of the file `lock`. Programs are copied into the folder `new`, which gets its
//! final name in one step, so one that is there is whole. A worktree ends with its [`Worktree`]; one that a killed process left behind ends when the next
//! begins.
//!
//! Tests: `tests/bench/against.rs`, with a small repository.

use std::collections::VecDeque;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sockeye_shared::progress::Activity;

use super::cannot;
use crate::built::{Lock, set_profile};
use crate::workloads::http;

/// The programs built.
pub struct Built {
    /// The revision, for output.
    pub name: String,
    /// Its program.
    pub program: PathBuf,
    /// The program of the applications over its stack, or why there is none; `None` if rows do not take it.
    pub apps: Option<Result<PathBuf, String>>,
}

/// Builds the revision unless that has been done before, with the program of the applications if rows take that. A revision that is
/// older than the applications is built with the sources of this program's checkout, over its own stack. Blocks for minutes.
///
/// # Errors
/// There is no git or cargo, no such revision, it is not one of this project, or it cannot be built. That the applications cannot
/// be built is no error.
pub fn build(named: &str, takes_apps: bool) -> io::Result<Built> {
    let repository = repository(named)?;
    let id = identity(&repository, named)?;
    let short = &id[..id.len().min(ID_SHOWN)];
    let name = if named == short { short.to_owned() } else { format!("{named} ({short})") };
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository.join("target"), |dir| repository.join(dir));
    let cache = target.join(FOLDER);
    // Not by the number alone: older builds with that name have another profile (ADR 72).
    let kept = cache.join(format!("{id}-16-units"));
    let apps = kept.join(http::APPS.program);
    if let Some(program) = program_in(&kept)
        && (!takes_apps || apps.is_file())
    {
        eprintln!("{name} was built before: {}", program.display());
        return Ok(Built { name, program, apps: takes_apps.then_some(Ok(apps)) });
    }
    fs::create_dir_all(&cache)?;
    let lock = File::create(cache.join("lock"))?;
    lock.lock()?;
    let source = cache.join("source");
    let program = match program_in(&kept) {
        // Another process was faster.
        Some(program) => program,
        None => {
            let worktree = Worktree::add(&repository, &source, &id)?;
            let new = cache.join("new");
            // Of a process that was killed here.
            let _ = fs::remove_dir_all(&new);
            fs::create_dir_all(&new)?;
            let program = worktree.build(&name, &cache.join("build"), &new)?;
            fs::rename(&new, &kept)?;
            kept.join(program)
        }
    };
    let apps = takes_apps.then(|| {
        if apps.is_file() {
            return Ok(apps);
        }
        let worktree = Worktree::add(&repository, &source, &id).map_err(|error| error.to_string())?;
        let new = cache.join("new-apps");
        worktree
            .build_apps(&cache.join("build-apps"), &new)
            .map_err(|error| format!("the applications cannot be built over the stack of {name}: {error}"))?;
        fs::rename(new, &apps).map_err(|error| error.to_string())?;
        Ok(apps)
    });
    Ok(Built { name, program, apps })
}

/// A revision, checked out.
struct Worktree<'a> {
    repository: &'a Path,
    path: &'a Path,
}

impl<'a> Worktree<'a> {
    fn add(repository: &'a Path, path: &'a Path, id: &str) -> io::Result<Self> {
        // Remains of a killed process.
        drop(Self { repository, path });
        let added =
            git(repository).args(["worktree", "add", "--detach", "--force"]).arg(path).arg(id).output()?;
        let worktree = Self { repository, path };
        if added.status.success() {
            return Ok(worktree);
        }
        let stderr = String::from_utf8_lossy(&added.stderr);
        Err(cannot(
            io::ErrorKind::Other,
            format!("git worktree failed in {}:\n{stderr}", repository.display()),
        ))
    }

    /// Builds the program and copies it into the folder `new`; returns its name.
    fn build(&self, name: &str, target: &Path, new: &Path) -> io::Result<&'static str> {
        let package =
            PACKAGES.iter().find(|(folder, ..)| self.path.join(folder).join("Cargo.toml").is_file());
        let Some((_, package, program)) = package else {
            let message =
                format!("{name} in {} has no bench; run in a checkout of Sockeye", self.repository.display());
            return Err(cannot(io::ErrorKind::InvalidInput, message));
        };
        let mut cargo = Command::new(cargo());
        cargo.args([
            "build",
            "--release",
            "--locked",
            "--package",
            package,
            "--bin",
            program,
            "--color",
            "never",
        ]);
        // As this build was optimised, whatever profile the revision has.
        set_profile(&mut cargo);
        cargo.arg("--target-dir").arg(target).current_dir(self.path);
        run(cargo, name)?;
        fs::copy(target.join("release").join(program), new.join(program))?;
        Ok(program)
    }

    /// Builds the program of the applications, and copies it to `new`.
    fn build_apps(&self, target: &Path, new: &Path) -> io::Result<()> {
        let bench = self.path.join("apps/bench");
        let manifest = http::APPS.manifest(&bench);
        if manifest.is_file() {
            http::APPS.build(&cargo(), &manifest, target, Lock::Kept)?;
        } else {
            http::APPS.build(&cargo(), &http::lend(&bench)?, target, Lock::Adapted)?;
        }
        fs::copy(target.join("release").join(http::APPS.program), new).map(drop)
    }
}

fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

impl Drop for Worktree<'_> {
    fn drop(&mut self) {
        // Each may fail because there is nothing to remove.
        let _ =
            git(self.repository).args(["worktree", "remove", "--force", "--force"]).arg(self.path).output();
        let _ = fs::remove_dir_all(self.path);
        let _ = git(self.repository).args(["worktree", "prune"]).output();
    }
}

/// Runs cargo to its end, showing its last line; its last lines are in the error if it fails.
fn run(mut cargo: Command, name: &str) -> io::Result<()> {
    let activity = Activity::begin(&format!("building {name}, which takes some minutes the first time"));
    let spawned = cargo.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut process = spawned.map_err(|error| missing(error, "cargo"))?;
    let mut tail = VecDeque::new();
    if let Some(stderr) = process.stderr.take() {
        for line in BufReader::new(stderr).lines() {
            let line = line?;
            activity.line(line.trim());
            tail.push_back(line);
            if tail.len() > TAIL_LINES {
                tail.pop_front();
            }
        }
    }
    if process.wait()?.success() {
        return Ok(());
    }
    let tail = Vec::from(tail).join("\n");
    let message = format!(
        "{name} does not build; choose another revision, or give a program that was built elsewhere. Cargo said at the \
         end:\n{tail}"
    );
    Err(cannot(io::ErrorKind::Other, message))
}

/// The repository of the working directory, or else the one that this program was built from.
fn repository(named: &str) -> io::Result<PathBuf> {
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR"));
    for place in [Path::new("."), built_from] {
        if !place.is_dir() {
            continue;
        }
        let asked = git(place)
            .args(["rev-parse", "--show-toplevel"])
            .output()
            .map_err(|error| missing(error, "git"))?;
        let path = String::from_utf8_lossy(&asked.stdout);
        if asked.status.success() && !path.trim().is_empty() {
            return Ok(PathBuf::from(path.trim()));
        }
    }
    let message = format!(
        "there is no file {named:?}, and this is no git repository in which it could be a revision; run in a checkout of \
         Sockeye, or give the path of a sockeye or sockeye-bench"
    );
    Err(cannot(io::ErrorKind::NotFound, message))
}

/// The commit that a revision names.
fn identity(repository: &Path, named: &str) -> io::Result<String> {
    let commit = format!("{named}^{{commit}}");
    let asked =
        git(repository).args(["rev-parse", "--verify", "--quiet", "--end-of-options", &commit]).output()?;
    let id = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
    if asked.status.success() && !id.is_empty() {
        return Ok(id);
    }
    let message = format!(
        "there is neither a file nor a revision {named:?}; give the path of a sockeye or sockeye-bench, or a revision that \
         git log knows (git fetch brings what is missing)"
    );
    Err(cannot(io::ErrorKind::NotFound, message))
}

/// The program that an earlier run kept.
fn program_in(kept: &Path) -> Option<PathBuf> {
    PACKAGES.iter().map(|(.., program)| kept.join(program)).find(|program| program.is_file())
}

fn git(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).stdin(Stdio::null());
    command
}

fn missing(error: io::Error, tool: &str) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => {
            let message = format!(
                "`{tool}` is not installed, and a revision takes it; install it, or give the path of a sockeye or \
                 sockeye-bench"
            );
            cannot(io::ErrorKind::NotFound, message)
        }
        _ => error,
    }
}

/// Where a revision may have its bench: folder, package and program.
const PACKAGES: [(&str, &str, &str); 2] =
    [("apps/bench", "sockeye-bench", "sockeye-bench"), ("apps/cli", "sockeye-cli", "sockeye")];
/// In cargo's target folder.
const FOLDER: &str = "against";
/// Of a failed build, in the message.
const TAIL_LINES: usize = 25;
/// Digits of a commit in output.
const ID_SHOWN: usize = 12;
