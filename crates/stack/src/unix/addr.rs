//! Names of UNIX-domain sockets: a pathname, an abstract name, or none.
//!
//! Does not depend on which socket has a name (`names.rs`). Invariant: a [`Name`] has at most as many bytes as fit
//! into the kernel's `sun_path`, and a pathname has at least one and no NUL. Tests: below.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;
use sockeye_sync::facade::Arc;

/// A bound name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Name {
    Path(Box<[u8]>),
    Abstract(Box<[u8]>),
}

/// The address of a UNIX-domain socket, in the shape of `std::os::unix::net::SocketAddr`. Names belong to
/// a stack: nothing touches the file system.
#[derive(Clone, PartialEq, Eq)]
pub struct SocketAddr(pub(crate) Option<Arc<Name>>);

/// Bytes of the kernel's `sun_path`: a pathname is shorter (its NUL counts), an abstract name too (it
/// begins with one).
pub(crate) const SUN_PATH_LEN: usize = 108;

impl SocketAddr {
    /// No address: a socket bound to it chooses an abstract name of its own.
    pub(crate) const UNNAMED: Self = Self(None);

    /// The pathname `path`; unnamed if that is empty.
    ///
    /// # Errors
    /// `InvalidInput` (EINVAL) for 108 bytes or more, or with a NUL in it.
    pub fn from_pathname<P: AsRef<Path>>(path: P) -> std::io::Result<Self> {
        let bytes = path.as_ref().as_os_str().as_bytes();
        if bytes.len() >= SUN_PATH_LEN || bytes.contains(&0) {
            return Err(Errno::INVAL.into());
        }
        if bytes.is_empty() {
            return Ok(Self::UNNAMED);
        }
        Ok(Self(Some(Arc::new(Name::Path(bytes.into())))))
    }

    /// The abstract name `name`, which may be any bytes and may be empty.
    ///
    /// # Errors
    /// `InvalidInput` (EINVAL) for 108 bytes or more.
    pub fn from_abstract_name<N: AsRef<[u8]>>(name: N) -> std::io::Result<Self> {
        let bytes = name.as_ref();
        if bytes.len() >= SUN_PATH_LEN {
            return Err(Errno::INVAL.into());
        }
        Ok(Self(Some(Arc::new(Name::Abstract(bytes.into())))))
    }

    /// The pathname, if it is one.
    pub fn as_pathname(&self) -> Option<&Path> {
        match self.0.as_deref() {
            Some(Name::Path(bytes)) => Some(Path::new(OsStr::from_bytes(bytes))),
            Some(Name::Abstract(_)) | None => None,
        }
    }

    /// The abstract name, if it is one.
    pub fn as_abstract_name(&self) -> Option<&[u8]> {
        match self.0.as_deref() {
            Some(Name::Abstract(bytes)) => Some(bytes),
            Some(Name::Path(_)) | None => None,
        }
    }

    /// Whether it is the address of a socket without a name.
    pub fn is_unnamed(&self) -> bool {
        self.0.is_none()
    }
}

impl fmt::Debug for SocketAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_deref() {
            None => f.write_str("(unnamed)"),
            Some(Name::Path(bytes)) => write!(f, "{:?} (pathname)", OsStr::from_bytes(bytes)),
            Some(Name::Abstract(bytes)) => write!(f, "\"{}\" (abstract)", bytes.escape_ascii()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_up_to_107_bytes_and_refused_beyond() {
        let at = |len: usize| SocketAddr::from_pathname("x".repeat(len));
        assert_eq!(at(107).unwrap().as_pathname().unwrap().as_os_str().len(), 107);
        assert_eq!(at(108).unwrap_err().raw_os_error(), Some(Errno::INVAL.raw_os_error()));
        assert!(SocketAddr::from_pathname("a\0b").is_err());
        assert!(SocketAddr::from_abstract_name([7; 107]).is_ok());
        assert!(SocketAddr::from_abstract_name([7; 108]).is_err());
    }

    #[test]
    fn the_three_kinds_are_distinguished() {
        let path = SocketAddr::from_pathname("/run/x").unwrap();
        let name = SocketAddr::from_abstract_name(b"x\0y").unwrap();
        assert!(path.as_pathname().is_some() && path.as_abstract_name().is_none() && !path.is_unnamed());
        assert!(name.as_abstract_name() == Some(b"x\0y") && name.as_pathname().is_none());
        assert!(SocketAddr::from_pathname("").unwrap().is_unnamed());
        assert_eq!(format!("{path:?} {name:?}"), "\"/run/x\" (pathname) \"x\\x00y\" (abstract)");
    }
}
