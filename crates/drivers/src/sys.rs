//! `ioctl`, for interfaces and for TUN devices.
//!
//! It must not know what the requests mean. The one invariant: what a request reads or writes behind the pointer is no
//! larger than what lies there, which is the caller's part and stated at each function. Tests: through `link.rs`, `tun/`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libc::{Ioctl, c_int, c_ulong};

/// Bytes of an interface's name with its closing zero.
pub(crate) const NAME_LEN: usize = libc::IFNAMSIZ;
/// Bytes of the part of an `ifreq` behind the name.
const DATA_LEN: usize = size_of::<libc::ifreq>() - NAME_LEN;

/// The kernel's `struct ifreq`, its union as plain bytes.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct IfReq {
    name: [u8; NAME_LEN],
    data: [u8; DATA_LEN],
}

const _: () = assert!(size_of::<IfReq>() == size_of::<libc::ifreq>());
const _: () = assert!(align_of::<IfReq>() >= align_of::<libc::ifreq>());

impl IfReq {
    /// A request about the interface `name`.
    ///
    /// # Errors
    /// `InvalidInput` for a name that is too long or has a zero in it.
    pub fn new(name: &str) -> io::Result<Self> {
        let bytes = name.as_bytes();
        if bytes.len() >= NAME_LEN || bytes.contains(&0) {
            let message = format!("{name:?} is no interface's name: it has 1 to {} bytes", NAME_LEN - 1);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut request = Self { name: [0; NAME_LEN], data: [0; DATA_LEN] };
        request.name[..bytes.len()].copy_from_slice(bytes);
        Ok(request)
    }

    /// The name, which the kernel may have changed.
    pub fn name(&self) -> String {
        let len = self.name.iter().position(|byte| *byte == 0).unwrap_or(NAME_LEN);
        String::from_utf8_lossy(&self.name[..len]).into_owned()
    }

    /// The union's first bytes.
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.data[..N]);
        bytes
    }

    /// Sets the union's first bytes.
    pub fn set_bytes(&mut self, bytes: &[u8]) {
        self.data[..bytes.len()].copy_from_slice(bytes);
    }

    /// The union as an `int`.
    pub fn int(&self) -> c_int {
        c_int::from_ne_bytes(self.bytes())
    }
}

/// A request that reads and writes an `ifreq`. `request` must be one of those.
pub(crate) fn with_ifreq(fd: impl AsFd, request: Ioctl, argument: &mut IfReq) -> io::Result<()> {
    with_struct(fd, request, argument)
}

/// A request that reads and writes a `T`, plain old data. `request` must be one for that structure.
pub(crate) fn with_struct<T>(fd: impl AsFd, request: Ioctl, argument: &mut T) -> io::Result<()> {
    // SAFETY: the pointer is to a live `T`, which ours alone is meanwhile; the kernel keeps to the size that the
    // request stands for, which is that of `T` by this function's contract.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request, std::ptr::from_mut(argument)) };
    checked(result)
}

/// A request whose argument is a number.
pub(crate) fn with_number(fd: impl AsFd, request: Ioctl, argument: u32) -> io::Result<()> {
    // SAFETY: no memory of ours is concerned: the argument is a value to these requests.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request, c_ulong::from(argument)) };
    checked(result)
}

fn checked(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_or_is_refused() {
        assert_eq!(IfReq::new("tun0").unwrap().name(), "tun0");
        assert_eq!(IfReq::new("fifteen-letters").unwrap().name(), "fifteen-letters");
        for bad in ["sixteen-letters-", "a\0b"] {
            assert_eq!(IfReq::new(bad).err().unwrap().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
