//! Arguments of C as values: addresses, message headers, pieces of memory.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::time::Duration;

use libc::{msghdr, sockaddr, socklen_t};

use crate::error::{Call, Errno};
use crate::{sockaddr as address, user};

/// Bytes of `struct pollfd`.
pub(crate) const POLLFD_LEN: usize = size_of::<libc::pollfd>();
/// Bytes of the longest address: `struct sockaddr_storage`.
const ADDRESS_MAX: usize = 128;

/// An address and how much memory it has.
pub(crate) fn address_at(addr: *const sockaddr, len: socklen_t) -> Call<SocketAddr> {
    if len as usize > ADDRESS_MAX {
        return Err(Errno(libc::EINVAL));
    }
    address::read(&user::read(addr.cast(), len as usize)?)
}

/// Whether the family is AF_UNSPEC.
pub(crate) fn is_unspecified(addr: *const sockaddr) -> bool {
    user::read(addr.cast(), 2).is_ok_and(|bytes| address::family(&bytes) == Ok(libc::AF_UNSPEC))
}

/// The address of a send, if there is one; with MSG_FASTOPEN it must have a family.
pub(crate) fn destination(addr: *const sockaddr, len: socklen_t, flags: c_int) -> Call<Option<SocketAddr>> {
    match address_at(addr, len) {
        _ if addr.is_null() || len == 0 => Ok(None),
        Err(Errno(libc::EAFNOSUPPORT)) if flags & libc::MSG_FASTOPEN != 0 && is_unspecified(addr) => {
            Err(Errno(libc::EOPNOTSUPP))
        }
        found => found.map(Some),
    }
}

/// A message header.
pub(crate) fn header_at(message: *const msghdr) -> Call<msghdr> {
    let bytes = user::read(message.cast(), size_of::<msghdr>())?;
    // SAFETY: as many bytes as the struct has, of which any are a value: numbers and raw pointers.
    Ok(unsafe { bytes.as_ptr().cast::<msghdr>().read_unaligned() })
}

/// A count that is not negative.
pub(crate) fn count_of(count: c_int) -> Call<usize> {
    usize::try_from(count).map_err(|_| Errno(libc::EINVAL))
}

/// All pieces' bytes together.
pub(crate) fn total(pieces: &[(*mut c_void, usize)]) -> Call<usize> {
    let sum = pieces.iter().try_fold(0_usize, |sum, (_, len)| sum.checked_add(*len));
    sum.filter(|sum| isize::try_from(*sum).is_ok()).ok_or(Errno(libc::EINVAL))
}

/// The bytes of all pieces.
pub(crate) fn gather(pieces: &[(*mut c_void, usize)]) -> Call<Vec<u8>> {
    let _ = total(pieces)?;
    let mut bytes = Vec::new();
    for (base, len) in pieces {
        bytes.extend(user::read(base.cast_const(), *len)?);
    }
    Ok(bytes)
}

/// Puts bytes into the pieces, in order. Returns how many fit.
pub(crate) fn scatter(pieces: &[(*mut c_void, usize)], bytes: &[u8]) -> Call<usize> {
    let mut rest = bytes;
    for (base, len) in pieces {
        let (part, behind) = rest.split_at(rest.len().min(*len));
        user::write(*base, part)?;
        rest = behind;
    }
    Ok(bytes.len() - rest.len())
}

/// Puts a value where the caller has room for `len` bytes, cuts it there, and says its length.
pub(crate) fn put(into: *mut c_void, len: *mut socklen_t, bytes: &[u8]) -> Call<()> {
    let room = usize::try_from(user::read_int(len.cast())?).map_err(|_| Errno(libc::EINVAL))?;
    let part = &bytes[..bytes.len().min(room)];
    user::write(into, part)?;
    user::write(len.cast(), &u32::try_from(part.len()).unwrap_or(u32::MAX).to_ne_bytes())
}

/// Milliseconds; negative for no end.
pub(crate) fn timeout_of(millis: c_int) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}
