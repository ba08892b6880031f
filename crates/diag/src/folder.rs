//! Where programs of one user meet.
//!
//! Invariant: a path that [`ensure`] returns is a folder of this user that no other user may enter. It is checked and
//! not believed, since any user can take the name under `/tmp`.
//!
//! Tests: `tests/diag.rs`.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The folder for this user's programs, whether it exists or not. See the crate's head.
pub fn folder() -> PathBuf {
    let named =
        |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("SOCKEYE_DIAG_DIR")
        .or_else(|| Some(named("XDG_RUNTIME_DIR")?.join("sockeye")))
        .unwrap_or_else(|| PathBuf::from(format!("/tmp/sockeye-{}", rustix::process::geteuid().as_raw())))
}

/// Makes the folder if it is missing, and checks whose it is.
pub(crate) fn ensure(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).recursive(false).create(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(at(folder, error)),
    }
    check(folder)
}

/// Whether the folder is this user's alone.
pub(crate) fn check(folder: &Path) -> io::Result<()> {
    let meta = std::fs::symlink_metadata(folder).map_err(|error| at(folder, error))?;
    let (own, mode) = (rustix::process::geteuid().as_raw(), meta.mode() & 0o777);
    if !meta.is_dir() || meta.uid() != own || mode & 0o077 != 0 {
        let message = format!(
            "{} is not a folder of this user alone (owner {}, mode {mode:o}): remove it, or name another in \
             SOCKEYE_DIAG_DIR",
            folder.display(),
            meta.uid()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(())
}

/// The error with the name of its subject.
pub(crate) fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
