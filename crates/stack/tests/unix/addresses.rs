//! Addresses compared with those of `std`, which are the kernel's: which are valid, and how they are shown.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as Theirs;

use sockeye::unix::SocketAddr as Ours;

/// The view of both: pathname, abstract name, whether unnamed.
type Said = Result<(Option<Vec<u8>>, Option<Vec<u8>>, bool), io::ErrorKind>;

fn bytes(path: Option<&std::path::Path>) -> Option<Vec<u8>> {
    path.map(|path| path.as_os_str().as_encoded_bytes().to_vec())
}

fn theirs(address: io::Result<Theirs>) -> Said {
    let address = address.map_err(|error| error.kind())?;
    let name = address.as_abstract_name().map(<[u8]>::to_vec);
    Ok((bytes(address.as_pathname()), name, address.is_unnamed()))
}

fn ours(address: io::Result<Ours>) -> Said {
    let address = address.map_err(|error| error.kind())?;
    let name = address.as_abstract_name().map(<[u8]>::to_vec);
    Ok((bytes(address.as_pathname()), name, address.is_unnamed()))
}

#[test]
fn pathnames_are_accepted_and_refused_as_by_std() {
    let long = |len: usize| "p".repeat(len);
    for path in
        ["a", "/tmp/a b", "ü", "./../x", "a\0b", "\0", &long(106), &long(107), &long(108), &long(4000)]
    {
        assert_eq!(ours(Ours::from_pathname(path)), theirs(Theirs::from_pathname(path)), "{path:?}");
    }
    // std makes an unnamed address of the empty path too.
    assert!(ours(Ours::from_pathname("")).is_ok_and(|(.., unnamed)| unnamed));
    assert!(theirs(Theirs::from_pathname("")).is_ok_and(|(.., unnamed)| unnamed));
}

#[test]
fn abstract_names_are_accepted_and_refused_as_by_std() {
    let long = |len: usize| vec![b'n'; len];
    for name in [&b"a"[..], b"\0\0", b"a\0b", b"\xff", &long(106), &long(107), &long(108), &long(4000)] {
        assert_eq!(
            ours(Ours::from_abstract_name(name)),
            theirs(Theirs::from_abstract_name(name)),
            "{name:?}"
        );
    }
}
