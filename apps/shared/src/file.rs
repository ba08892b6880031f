//! Files that a command line names, with errors that name them too.
//!
//! Tests: below.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Makes a file, or empties it.
///
/// # Errors
/// The system's, with the path.
pub fn create(path: &Path) -> io::Result<File> {
    File::create(path).map_err(|error| at(path, error))
}

/// That a file can be written, later. What is in it stays until then.
///
/// # Errors
/// The system's, with the path.
pub fn check(path: &Path) -> io::Result<()> {
    File::options().append(true).create(true).open(path).map_err(|error| at(path, error))?;
    Ok(())
}

/// Writes a whole file.
///
/// # Errors
/// The system's, with the path.
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    fs::write(path, contents).map_err(|error| at(path, error))
}

/// An error about a file.
pub fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_file() {
        let path = Path::new("/nonexistent/folder/file");
        for error in [create(path).unwrap_err(), check(path).unwrap_err(), write(path, "x").unwrap_err()] {
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
            assert!(error.to_string().starts_with("/nonexistent/folder/file: No such file"), "{error}");
        }
    }

    #[test]
    fn a_check_leaves_what_is_in_the_file() {
        let path = std::env::temp_dir().join(format!("sockeye-file-{}", std::process::id()));
        write(&path, "of before").unwrap();
        check(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"of before");
        fs::remove_file(&path).unwrap();
    }
}
