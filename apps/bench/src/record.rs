//! Records of the packets on interfaces during a measurement (`--pcap`).
//!
//! Each stack that is opened with an interface gets a file of its own: the first the one that was named, the next ones with a
//! number before its ending; which is which is said on standard error. A recorded run is slower than one without a record.
//!
//! Does not depend on the measurement. Invariants: it belongs to the thread that opens stacks, and stacks opened outside
//! of [`labelled`] are not recorded. Tests: below, `tests/bench/records.rs`.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};

use sockeye::Stack;
use sockeye::netif::{CaptureConfig, Netif, NetifId, Prefix, capture};

/// Bytes of each frame that are kept: all headers.
const SNAPLEN: u32 = 128;
/// Bytes of a file; later packets are not recorded.
const FILE_MAX: u64 = 64 << 20;

#[derive(Default)]
struct Record {
    /// None if nothing is to be recorded.
    path: Option<PathBuf>,
    files: u32,
    /// The name of the case that is being opened.
    label: Option<String>,
}

thread_local! {
    static RECORD: RefCell<Record> = RefCell::default();
}

/// From now on records the stacks that this thread opens; into no file if there is none.
pub fn to(path: Option<&Path>) {
    RECORD.with_borrow_mut(|record| *record = Record { path: path.map(Path::to_owned), ..Record::default() });
}

/// Opens a case of this name. If it has no interface that could be recorded, prints that.
pub fn labelled<R>(label: impl FnOnce() -> String, open: impl FnOnce() -> R) -> R {
    let files = RECORD.with_borrow_mut(|record| {
        record.label = record.path.is_some().then(label);
        record.files
    });
    let opened = open();
    RECORD.with_borrow_mut(|record| {
        if let Some(label) = record.label.take().filter(|_| record.files == files) {
            eprintln!("nothing to record of {label}: it crosses no interface");
        }
    });
    opened
}

/// Where and how to record the interface that is being opened, if it is to be.
pub fn next() -> Option<(PathBuf, u32, u64)> {
    RECORD.with_borrow_mut(|record| {
        let (path, label) = (record.path.as_ref()?, record.label.as_ref()?);
        record.files += 1;
        let path = numbered(path, record.files);
        eprintln!("{}: {label}", path.display());
        Some((path, SNAPLEN, FILE_MAX))
    })
}

/// Attaches an interface that is recorded if it is to be.
///
/// # Errors
/// The stack's, and the file's.
pub fn attach(stack: &Stack, netif: impl Netif + 'static, addrs: &[Prefix]) -> io::Result<NetifId> {
    let Some((path, snaplen, file_max)) = next() else { return stack.attach(netif, addrs) };
    let (captured, _) = capture(netif, &CaptureConfig { snaplen, file_max, ..CaptureConfig::to(path) })?;
    stack.attach(captured, addrs)
}

/// The name of the file with this number, from 1.
fn numbered(path: &Path, number: u32) -> PathBuf {
    if number == 1 {
        return path.to_owned();
    }
    let ending = path.extension().map_or_else(String::new, |ending| format!(".{}", ending.to_string_lossy()));
    path.with_extension(format!("{number}{ending}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_numbered_from_the_second_on_and_only_labelled_stacks_get_one() {
        assert!(next().is_none());
        to(Some(Path::new("/tmp/a.b/trace.pcapng")));
        assert!(next().is_none());
        let paths = labelled(|| "two".to_owned(), || [next(), next()].map(|file| file.unwrap().0));
        assert_eq!(paths, ["/tmp/a.b/trace.pcapng", "/tmp/a.b/trace.2.pcapng"].map(PathBuf::from));
        assert!(next().is_none());
        assert_eq!(numbered(Path::new("trace"), 3), Path::new("trace.3"));
        to(None);
        assert!(labelled(|| "none".to_owned(), next).is_none());
    }
}
