//! `ioctl`, for interfaces, for TUN devices and for the mark of a socket; an option of sockets.
//!
//! The invariant: a request reads or writes no more behind the pointer than lies there. A request is only a number to the
//! compiler, so those whose argument is an `ifreq` or a number are listed here, by a type for each of the two, and a request
//! with any other argument goes through an `unsafe fn`. Tests: here, and through `link.rs` and `tun/`.

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

/// A request that reads and writes one `ifreq` and follows no pointer in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IfRequest(Ioctl);

impl IfRequest {
    // C libraries do not agree on a request's type, and `libc` has these as glibc's.
    pub const GET_FLAGS: Self = Self(libc::SIOCGIFFLAGS as Ioctl);
    pub const GET_INDEX: Self = Self(libc::SIOCGIFINDEX as Ioctl);
    pub const GET_LLADDR: Self = Self(libc::SIOCGIFHWADDR as Ioctl);
    pub const GET_MTU: Self = Self(libc::SIOCGIFMTU as Ioctl);
    /// Name and flags of a TUN device's descriptor. No other driver has this number.
    pub const GET_TUN: Self = Self(libc::TUNGETIFF);
    pub const SET_ADDR: Self = Self(libc::SIOCSIFADDR as Ioctl);
    pub const SET_FLAGS: Self = Self(libc::SIOCSIFFLAGS as Ioctl);
    pub const SET_MTU: Self = Self(libc::SIOCSIFMTU as Ioctl);
    pub const SET_NETMASK: Self = Self(libc::SIOCSIFNETMASK as Ioctl);
    /// Makes or joins a TUN device.
    pub const SET_TUN: Self = Self(libc::TUNSETIFF);
}

/// A request whose argument is a number and no pointer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumberRequest(Ioctl);

impl NumberRequest {
    pub const SET_PERSIST: Self = Self(libc::TUNSETPERSIST);
    pub const SET_OFFLOAD: Self = Self(libc::TUNSETOFFLOAD);
}

/// Makes a request about an interface.
pub(crate) fn with_ifreq(fd: impl AsFd, request: IfRequest, argument: &mut IfReq) -> io::Result<()> {
    // SAFETY: the requests of this type read and write one `ifreq` and no memory beside it; `IfReq` has its layout, and
    // any bytes are a valid one.
    unsafe { with_struct(fd, request.0, argument) }
}

/// Makes a request that reads and writes a `T`.
///
/// # Safety
/// For the device or socket `fd`, `request` must be one that reads and writes at most the bytes of one `T` at its argument, that
/// follows no pointer in it, and that leaves a valid `T` there, whether it succeeds or not.
pub(crate) unsafe fn with_struct<T>(fd: impl AsFd, request: Ioctl, argument: &mut T) -> io::Result<()> {
    // SAFETY: the pointer is to a live `T`, to which nothing else refers during the call; by this function's contract the
    // kernel touches nothing else and leaves a `T`.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request, std::ptr::from_mut(argument)) };
    checked(result)
}

/// Makes a request whose argument is a number.
pub(crate) fn with_number(fd: impl AsFd, request: NumberRequest, argument: u32) -> io::Result<()> {
    // SAFETY: requests of this type take their argument as a value, so no memory is concerned.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request.0, c_ulong::from(argument)) };
    checked(result)
}

/// Numbers that `libc` does not have for Linux, on machines where they are these.
#[cfg(any(
    target_arch = "x86_64",
    target_arch = "x86",
    target_arch = "aarch64",
    target_arch = "arm",
    target_arch = "riscv64"
))]
mod numbers {
    use super::{Ioctl, c_int};

    /// The number of the request that [`sockatmark`](super::sockatmark) makes, for filters of system calls.
    pub const SIOCATMARK: Ioctl = 0x8905;
    /// The option that [`network_of`](super::network_of) asks for.
    pub const SO_NETNS_COOKIE: c_int = 71;
}
pub use numbers::SIOCATMARK;
use numbers::SO_NETNS_COOKIE;

/// Whether the next byte that a TCP socket of the kernel has to read is the last of its peer's urgent data (sockatmark(3), which `std` and `rustix` do not have). Does not block.
///
/// # Errors
/// The system's: `EBADF`, and `ENOTTY` for what is no such socket.
pub fn sockatmark(socket: impl AsFd) -> io::Result<bool> {
    let mut is_at_mark: c_int = 0;
    // SAFETY: of a socket the request writes one `int`, and drivers of other files do not have it.
    unsafe { with_struct(socket, SIOCATMARK, &mut is_at_mark) }?;
    Ok(is_at_mark != 0)
}

/// The network namespace of a socket, as a number that no other one has until the system starts again (`SO_NETNS_COOKIE`). An accepted UNIX socket has
/// that of its client, which cannot choose another. Does not block.
///
/// # Errors
/// The system's: `ENOPROTOOPT` before Linux 5.14, `EBADF`, `ENOTSOCK`.
pub fn network_of(socket: impl AsFd) -> io::Result<u64> {
    let mut network = 0u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    let (fd, place) = (socket.as_fd().as_raw_fd(), std::ptr::from_mut(&mut network).cast());
    // SAFETY: the kernel writes at most `len` bytes behind `place`, which are those of a live `u64`, and the new length. Any bytes are a valid one.
    let result = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE, place, &raw mut len) };
    checked(result).map(|()| network)
}

fn checked(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unix_socket_that_was_accepted_has_the_network_of_its_client() {
        use std::os::unix::net::{UnixListener, UnixStream};
        let path = std::env::temp_dir().join(format!("sockeye-network-of-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let own = network_of(&listener).unwrap();
        let _client = UnixStream::connect(&path).unwrap();
        assert_eq!(network_of(listener.accept().unwrap().0).unwrap(), own);
        match crate::Namespace::new() {
            Ok(other) => {
                let _client = other.run(|| UnixStream::connect(&path).unwrap()).unwrap();
                assert_ne!(network_of(listener.accept().unwrap().0).unwrap(), own);
            }
            Err(error) => eprintln!("skipped: a client in another network: {error}"),
        }
        std::fs::remove_file(&path).unwrap();
        assert!(network_of(std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn a_name_fits_or_is_refused() {
        assert_eq!(IfReq::new("tun0").unwrap().name(), "tun0");
        assert_eq!(IfReq::new("fifteen-letters").unwrap().name(), "fifteen-letters");
        for bad in ["sixteen-letters-", "a\0b"] {
            assert_eq!(IfReq::new(bad).err().unwrap().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
