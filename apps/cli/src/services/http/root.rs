//! The served directory, and how its files are found.
//!
//! The kernel resolves a path below the directory's descriptor and refuses whatever leads out of it (openat2(2) with
//! `RESOLVE_BENEATH`): `..`, absolute links, links that point elsewhere, also if another program changes them at that
//! moment. Does not depend on HTTP. Invariant: nothing is opened in any other way.
//!
//! Tests: below; with curl in `tests/cli/http.rs`.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// An open directory. Clones are the same.
#[derive(Clone, Debug)]
pub struct Root {
    path: PathBuf,
    fd: Arc<OwnedFd>,
}

impl PartialEq for Root {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for Root {}

/// Target of a path.
#[derive(Debug)]
pub enum Found {
    /// A file, and its length in bytes.
    File(File, u64),
    /// A directory.
    Directory(Listing),
}

/// A directory's names in order, those of directories with a slash.
#[derive(Debug, PartialEq, Eq)]
pub struct Listing {
    names: Vec<Vec<u8>>,
    /// There are more than [`LISTED_MAX`].
    is_cut: bool,
}

/// Why there is nothing.
#[derive(Debug)]
pub enum Refusal {
    /// The path is none.
    Malformed,
    /// There is no such file.
    Missing,
    /// It leads out of the directory, or to something that is no file, or may not be read.
    Forbidden,
    /// Something went wrong here.
    Failed(io::Error),
}

/// Names of a directory that are listed.
const LISTED_MAX: usize = 10_000;
/// Attempts while another program moves directories about: the kernel gives up rather than be led astray.
const ATTEMPTS: usize = 8;
/// Characters that need not be encoded in a path (RFC 3986 section 2.3), and the separator.
const PLAIN: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

impl Root {
    /// Opens it. Blocks for as long as the file system takes.
    ///
    /// # Errors
    /// The system's, with the path; so too if the kernel cannot keep paths below a directory (before Linux 5.6).
    pub fn open(path: &Path) -> io::Result<Self> {
        let explained = |errno: Errno| {
            let error = io::Error::from(errno);
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        let fd = openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let root = Self { path: path.to_owned(), fd: Arc::new(fd.map_err(explained)?) };
        root.open_below(b".").map_err(explained)?;
        Ok(root)
    }

    /// The path that it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Target of a request's path. Blocks likewise.
    pub fn find(&self, path: &str) -> Result<Found, Refusal> {
        let path: Vec<u8> = percent_decode_str(path.trim_start_matches('/')).collect();
        let fd = self.open_below(if path.is_empty() { b"." } else { &path })?;
        let stat = rustix::fs::fstat(&fd)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                Ok(Found::File(fd.into(), u64::try_from(stat.st_size).unwrap_or_default()))
            }
            FileType::Directory => Ok(Found::Directory(Listing::read(fd)?)),
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Err(Refusal::Forbidden),
        }
    }

    fn open_below(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        // Without waiting for the program at the other end of a FIFO.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let keep = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let open = || openat2(&*self.fd, path, flags, Mode::empty(), keep);
        let mut opened = open();
        for _ in 1..ATTEMPTS {
            if opened.as_ref().err() != Some(&Errno::AGAIN) {
                break;
            }
            opened = open();
        }
        opened
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::INVAL => Refusal::Malformed,
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => Refusal::Missing,
            // Out of the directory; links in a circle; no right; something that is no file and cannot be
            // opened.
            Errno::XDEV | Errno::LOOP | Errno::ACCESS | Errno::PERM | Errno::NXIO => Refusal::Forbidden,
            other => Refusal::Failed(other.into()),
        }
    }
}

impl Listing {
    fn read(fd: OwnedFd) -> Result<Self, Errno> {
        let mut listing = Self { names: Vec::new(), is_cut: false };
        for entry in Dir::new(fd)? {
            let entry = entry?;
            let mut name = entry.file_name().to_bytes().to_vec();
            if name == b"." || name == b".." {
                continue;
            }
            if listing.names.len() == LISTED_MAX {
                listing.is_cut = true;
                break;
            }
            if entry.file_type() == FileType::Directory {
                name.push(b'/');
            }
            listing.names.push(name);
        }
        listing.names.sort_unstable();
        Ok(listing)
    }

    /// A line for each name.
    pub fn lines(&self) -> String {
        let lines = self.names.iter().map(|name| format!("{}\n", String::from_utf8_lossy(name)));
        lines.chain(self.is_cut.then(|| format!("({CUT})\n"))).collect()
    }

    /// A page of links to the names; the directory is at `path`, which is a request's.
    pub fn page(&self, path: &str) -> String {
        let above: Vec<u8> = percent_decode_str(path.trim_end_matches('/')).collect();
        let title = escaped(&above);
        let mut page = format!("<!DOCTYPE html>\n<title>{title}/</title>\n<h1>{title}/</h1>\n<ul>\n");
        let above = percent_encode(&above, &PLAIN);
        for name in &self.names {
            let (link, shown) = (percent_encode(name, &PLAIN), escaped(name));
            // Writing to a string cannot fail.
            let _ = writeln!(page, "<li><a href=\"{above}/{link}\">{shown}</a>");
        }
        page.push_str("</ul>\n");
        if self.is_cut {
            page.push_str(&format!("<p>{CUT}\n"));
        }
        page
    }
}

/// Said below a list that is not whole.
const CUT: &str = "there are more, which are not listed";

fn escaped(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory that is deleted with the value, and a secret beside the served part of it.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let place = std::env::temp_dir().join(format!("sockeye-root-{name}-{}", std::process::id()));
            fs::create_dir_all(place.join("served/sub")).unwrap();
            fs::write(place.join("secret"), "secret").unwrap();
            fs::write(place.join("served/a file"), "content").unwrap();
            Self(place)
        }

        fn root(&self) -> Root {
            Root::open(&self.0.join("served")).unwrap()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn files_are_found_by_encoded_names_and_directories_are_lists() {
        let place = Place::new("found");
        let root = place.root();
        for path in ["/a%20file", "//a%20file", "/sub/../a%20file"] {
            let found = root.find(path).unwrap();
            assert!(matches!(found, Found::File(_, 7)), "{path}: {found:?}");
        }
        for path in ["/", "", "/sub/.."] {
            let Ok(Found::Directory(listing)) = root.find(path) else { panic!("{path} is a directory") };
            assert_eq!(listing.lines(), "a file\nsub/\n");
        }
        assert!(matches!(root.find("/a%20file/"), Err(Refusal::Missing)));
        assert!(matches!(root.find("/nothing"), Err(Refusal::Missing)));
        assert!(matches!(root.find("/%00"), Err(Refusal::Malformed)));
    }

    #[test]
    fn paths_that_leave_the_root_are_refused_and_links_inside_are_followed() {
        let place = Place::new("out");
        let served = place.0.join("served");
        symlink("../secret", served.join("relative")).unwrap();
        symlink(place.0.join("secret"), served.join("absolute")).unwrap();
        symlink("..", served.join("up")).unwrap();
        symlink("circle", served.join("circle")).unwrap();
        symlink("../a file", served.join("sub/inside")).unwrap();
        let root = place.root();
        for path in ["/../secret", "/%2e%2e/secret", "/..%2fsecret", "/sub/../../secret", "/relative"]
            .into_iter()
            .chain(["/absolute", "/up/secret", "/up", "/circle", "/sub/%2e%2e/%2e%2e/secret"])
        {
            let found = root.find(path);
            assert!(matches!(found, Err(Refusal::Forbidden)), "{path}: {found:?}");
        }
        assert!(matches!(root.find("/sub/inside"), Ok(Found::File(_, 7))));
    }

    #[test]
    fn special_files_are_refused_without_blocking() {
        let place = Place::new("fifo");
        rustix::fs::mkfifoat(CWD, place.0.join("served/pipe"), Mode::RUSR).unwrap();
        assert!(matches!(place.root().find("/pipe"), Err(Refusal::Forbidden)));
        let error = Root::open(&place.0.join("secret")).unwrap_err().to_string();
        assert!(error.contains("secret") && error.contains("directory"), "{error}");
    }

    #[test]
    fn pages_link_by_whole_paths_and_escape_html() {
        let listing = Listing { names: vec![b"<b>&\"".to_vec(), b"sub/".to_vec()], is_cut: true };
        let page = listing.page("/with%20blank/");
        assert!(page.contains("<a href=\"/with%20blank/%3Cb%3E%26%22\">&lt;b&gt;&amp;&quot;</a>"), "{page}");
        assert!(page.contains("<a href=\"/with%20blank/sub/\">sub/</a>"), "{page}");
        assert!(
            page.ends_with("which are not listed\n")
                && listing.lines().ends_with("sub/\n(there are more, which are not listed)\n")
        );
    }
}
