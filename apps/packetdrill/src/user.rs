//! Memory of the caller: reads and writes that answer EFAULT where there is none, as those of a kernel do.
//!
//! Scripts pass bad addresses on purpose. The kernel itself is asked to copy (`process_vm_readv`), which fails instead of faulting. Tests: below.

use std::ffi::c_void;

use crate::error::{Call, Errno};

/// Most bytes of one copy: more than any script moves at once.
const COPY_MAX: usize = 64 << 20;

/// The bytes at an address of the caller.
///
/// # Errors
/// EFAULT if they are not all there; EINVAL for more than 64 MiB.
pub(crate) fn read(from: *const c_void, len: usize) -> Call<Vec<u8>> {
    if len > COPY_MAX {
        return Err(Errno(libc::EINVAL));
    }
    let mut bytes = vec![0_u8; len];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
    let remote = libc::iovec { iov_base: from.cast_mut(), iov_len: len };
    // SAFETY: `local` is the vector, which is writable for `len` bytes; the kernel checks `remote`, and fails where nothing can be read.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    whole(copied, len)?;
    Ok(bytes)
}

/// Puts bytes at an address of the caller.
///
/// # Errors
/// EFAULT if not all of it can be written.
pub(crate) fn write(into: *mut c_void, bytes: &[u8]) -> Call<()> {
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: into, iov_len: bytes.len() };
    // SAFETY: `local` is only read; the kernel checks `remote`. What lies there is the caller's, who lends it for this call, as to the
    // call of libc that this one stands for.
    let copied = unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
    whole(copied, bytes.len())
}

/// A value of plain bytes.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_int(from: *const c_void) -> Call<i32> {
    let bytes = read(from, 4)?;
    Ok(i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// The pieces of an `iovec` array: addresses and lengths.
///
/// # Errors
/// EFAULT; EINVAL or EMSGSIZE for a count out of bounds.
pub(crate) fn read_iovecs(from: *const c_void, count: usize) -> Call<Vec<(*mut c_void, usize)>> {
    if count > libc::UIO_MAXIOV as usize {
        return Err(Errno(libc::EMSGSIZE));
    }
    let bytes = read(from, count * IOVEC_LEN)?;
    let word = |part: &[u8]| usize::from_ne_bytes(part.first_chunk().copied().unwrap_or_default());
    let pieces = bytes.chunks_exact(IOVEC_LEN).map(|iovec| {
        let (base, len) = iovec.split_at(WORD_LEN);
        (word(base) as *mut c_void, word(len))
    });
    Ok(pieces.collect())
}

/// Bytes of a pointer or length.
const WORD_LEN: usize = size_of::<usize>();
/// Bytes of `struct iovec`.
const IOVEC_LEN: usize = 2 * WORD_LEN;

fn whole(copied: isize, len: usize) -> Call<()> {
    if usize::try_from(copied) == Ok(len) { Ok(()) } else { Err(Errno(libc::EFAULT)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_there_is_copied_and_other_is_a_fault() {
        let mut place = [1_u8, 2, 3, 4];
        assert_eq!(read(place.as_ptr().cast(), 4).unwrap(), [1, 2, 3, 4]);
        write(place.as_mut_ptr().cast(), &[9, 8]).unwrap();
        assert_eq!(place, [9, 8, 3, 4]);
        assert_eq!(read(std::ptr::null(), 1), Err(Errno(libc::EFAULT)));
        assert_eq!(write(std::ptr::null_mut(), &[1]), Err(Errno(libc::EFAULT)));
        assert_eq!(read(std::ptr::null(), 0), Ok(Vec::new()));
        assert_eq!(read(place.as_ptr().cast(), usize::MAX), Err(Errno(libc::EINVAL)));
    }
}
