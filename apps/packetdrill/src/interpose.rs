//! Calls of libc that packetdrill makes with the adapter's descriptors and not through the interface.
//!
//! The plug-in exports functions of these names (`apps/packetdrill-plugin`), which packetdrill finds first when the plug-in is also preloaded. Each gives
//! `None` for a descriptor that is not ours, which is then the kernel's.

use std::ffi::{c_int, c_void};

use libc::{off_t, size_t, socklen_t, ssize_t};

use crate::abi::{answer, current_of, done};
use crate::error::{Call, Errno};
use crate::marshal::put;
use crate::socket::transfer::Text;
use crate::user;

/// Most bytes of a file that one `sendfile` reads.
const SENDFILE_MAX: usize = 1 << 20;

/// `close`.
pub fn close(fd: c_int) -> Option<c_int> {
    current_of(fd).map(|adapter| done(adapter.close(fd)))
}

/// `getsockopt`.
pub fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> Option<c_int> {
    let adapter = current_of(fd)?;
    Some(done(adapter.getsockopt(fd, level, name).and_then(|bytes| put(value, len, &bytes))))
}

/// `sendfile` to a socket.
pub fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> Option<ssize_t> {
    let adapter = current_of(to)?;
    let sent = file_bytes(from, offset, count).and_then(|(at, bytes)| {
        let sent = adapter.send(to, Text::from(&*bytes), 0, None)?;
        let end = at + off_t::try_from(sent).unwrap_or(0);
        if !offset.is_null() {
            user::write(offset.cast(), &end.to_ne_bytes())?;
        } else {
            // SAFETY: no pointers.
            let _ = unsafe { libc::lseek(from, end, libc::SEEK_SET) };
        }
        Ok(sent)
    });
    Some(answer(sent))
}

/// The position, and the bytes there.
fn file_bytes(from: c_int, offset: *mut off_t, count: size_t) -> Call<(off_t, Vec<u8>)> {
    let at = if offset.is_null() {
        // SAFETY: no pointers.
        unsafe { libc::lseek(from, 0, libc::SEEK_CUR) }
    } else {
        let bytes = user::read(offset.cast(), size_of::<off_t>())?;
        off_t::from_ne_bytes(bytes.first_chunk().copied().unwrap_or_default())
    };
    let mut bytes = vec![0; count.min(SENDFILE_MAX)];
    // SAFETY: the vector may be written for its length.
    let got = unsafe { libc::pread(from, bytes.as_mut_ptr().cast(), bytes.len(), at) };
    bytes.truncate(usize::try_from(got).map_err(|_| Errno(libc::EINVAL))?);
    Ok((at, bytes))
}
