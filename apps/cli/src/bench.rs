//! `sockeye bench`: starts the measuring program, which is a package of its own.
//!
//! Purpose: the program `sockeye-bench` in the place of this one, with the arguments that follow `bench`. It is that beside this
//! executable. `cargo run` builds this program only, so under it cargo is asked first to build the other one, with the same profile
//! and into the same folder: so an older build is never measured. Why the two are apart stands in ADR 55.
//!
//! Does not depend on the arguments.
//!
//! Tests: `tests/cli/bench.rs`.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;
use sockeye_shared::end::CommandError;

/// Arguments of the measuring program.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Arguments of the measuring program; `sockeye bench --help` shows them
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Becomes the measuring program; returns only if that cannot be.
///
/// # Errors
/// There is no such program, with how to get it; cargo failed to build it.
pub fn bench(args: &BenchArgs) -> Result<ExitCode, CommandError> {
    let here = env::current_exe()?;
    if let (Some(cargo), Some(package)) = (env::var_os("CARGO"), env::var_os("CARGO_MANIFEST_DIR"))
        && env::var_os("CARGO_PKG_NAME").is_some_and(|name| name == env!("CARGO_PKG_NAME"))
    {
        build(&cargo, Path::new(&package), &here)?;
    }
    let program = here.with_file_name(PROGRAM);
    // Nothing that is started from there runs under cargo any more.
    let error = Command::new(&program).args(&args.args).env_remove("CARGO_PKG_NAME").exec();
    Err(CommandError::Io(match error.kind() {
        io::ErrorKind::NotFound => missing(&program, &here),
        _ => io::Error::new(error.kind(), format!("{}: {error}", program.display())),
    }))
}

/// Has the measuring program write its man page to `dir`, over the short one of `sockeye bench`, if it is beside this one.
///
/// # Errors
/// It cannot be started, or failed and has said why.
pub fn man(dir: &Path) -> io::Result<()> {
    let program = env::current_exe()?.with_file_name(PROGRAM);
    match Command::new(&program).arg("man").arg(dir).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(io::Error::other(format!("{} man: {status}", program.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", program.display()))),
    }
}

/// Has cargo build the program beside `here`. Blocks; cargo shows how far it is.
fn build(cargo: &OsString, package: &Path, here: &Path) -> io::Result<()> {
    let Some((target, profile)) = target_and_profile(here) else { return Ok(()) };
    let mut command = Command::new(cargo);
    // Not `--package`: with the same packages selected as in `cargo run`, the same features are chosen, and nothing is built twice.
    command.args(["build", "--bin", PROGRAM, "--profile", &profile, "--manifest-path"]);
    command.arg(package.join("../../Cargo.toml")).arg("--target-dir").arg(target);
    if command.status()?.success() {
        return Ok(());
    }
    Err(io::Error::other("cargo did not build the measuring program; its message is above"))
}

/// Where cargo put an executable, and with which profile.
fn target_and_profile(executable: &Path) -> Option<(PathBuf, String)> {
    let folder = executable.parent()?;
    let profile = match folder.file_name()?.to_str()? {
        "debug" => "dev",
        name => name,
    };
    Some((folder.parent()?.to_owned(), profile.to_owned()))
}

fn missing(program: &Path, here: &Path) -> io::Error {
    let release =
        if target_and_profile(here).is_some_and(|(_, profile)| profile == "dev") { "" } else { "--release " };
    let message = format!(
        "there is no {}; build it in a checkout with `cargo build {release}--package {PACKAGE}`, or install it beside \
         this program with `cargo install --path apps/bench`",
        program.display()
    );
    io::Error::new(io::ErrorKind::NotFound, message)
}

/// The package and its program.
const PACKAGE: &str = "sockeye-bench";
const PROGRAM: &str = PACKAGE;
