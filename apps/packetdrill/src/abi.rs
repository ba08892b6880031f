//! The interface as packetdrill sees it: a struct of C functions, filled by [`init`].
//!
//! Each function turns its arguments into safe ones, calls the adapter and turns the result into -1 and `errno`. Memory of the caller is read and
//! written by the kernel (`user.rs`), so that a bad address is an EFAULT. `fcntl` and `ioctl` are variadic in C; on 64-bit x86 and ARM a last argument
//! is passed in the same register either way. Tests: `tests/interface.rs`.

use std::ffi::{CStr, c_char, c_int, c_long, c_longlong, c_short, c_uint, c_ulong, c_void};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use libc::{epoll_event, msghdr, pollfd, size_t, sockaddr, socklen_t, ssize_t, timeval};

use crate::adapter::Adapter;
use crate::error::{Call, Errno};
use crate::files;
use crate::marshal::{
    POLLFD_LEN, address_at, count_of, destination, gather, header_at, is_unspecified, put, scatter,
    timeout_of, total,
};
use crate::socket::message::Received;
use crate::socket::options::Setting;
use crate::socket::transfer::Text;
use crate::{sockaddr as address, sysctl, user};

/// `struct packetdrill_interface`: an opaque pointer, and a function for each call.
#[repr(C)]
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "each is the call of its name, with `userdata` before its arguments")]
pub struct Interface {
    pub userdata: *mut c_void,
    pub free: unsafe extern "C" fn(*mut c_void),
    pub socket: unsafe extern "C" fn(*mut c_void, c_int, c_int, c_int) -> c_int,
    pub bind: unsafe extern "C" fn(*mut c_void, c_int, *const sockaddr, socklen_t) -> c_int,
    pub listen: unsafe extern "C" fn(*mut c_void, c_int, c_int) -> c_int,
    pub accept: unsafe extern "C" fn(*mut c_void, c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    pub connect: unsafe extern "C" fn(*mut c_void, c_int, *const sockaddr, socklen_t) -> c_int,
    pub read: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, size_t) -> ssize_t,
    pub readv: unsafe extern "C" fn(*mut c_void, c_int, *const c_void, c_int) -> ssize_t,
    pub recv: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, size_t, c_int) -> ssize_t,
    pub recvfrom: unsafe extern "C" fn(
        *mut c_void,
        c_int,
        *mut c_void,
        size_t,
        c_int,
        *mut sockaddr,
        *mut socklen_t,
    ) -> ssize_t,
    pub recvmsg: unsafe extern "C" fn(*mut c_void, c_int, *mut msghdr, c_int) -> ssize_t,
    pub write: unsafe extern "C" fn(*mut c_void, c_int, *const c_void, size_t) -> ssize_t,
    pub writev: unsafe extern "C" fn(*mut c_void, c_int, *const c_void, c_int) -> ssize_t,
    pub send: unsafe extern "C" fn(*mut c_void, c_int, *const c_void, size_t, c_int) -> ssize_t,
    pub sendto: unsafe extern "C" fn(
        *mut c_void,
        c_int,
        *const c_void,
        size_t,
        c_int,
        *const sockaddr,
        socklen_t,
    ) -> ssize_t,
    pub sendmsg: unsafe extern "C" fn(*mut c_void, c_int, *const msghdr, c_int) -> ssize_t,
    pub fcntl: unsafe extern "C" fn(*mut c_void, c_int, c_int, c_long) -> c_int,
    pub ioctl: unsafe extern "C" fn(*mut c_void, c_int, c_ulong, *mut c_int) -> c_int,
    pub close: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    pub shutdown: unsafe extern "C" fn(*mut c_void, c_int, c_int) -> c_int,
    pub getsockopt:
        unsafe extern "C" fn(*mut c_void, c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
    pub setsockopt: unsafe extern "C" fn(*mut c_void, c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
    pub poll: unsafe extern "C" fn(*mut c_void, *mut pollfd, c_ulong, c_int) -> c_int,
    pub netdev_send: unsafe extern "C" fn(*mut c_void, *const c_void, size_t) -> c_int,
    pub netdev_receive: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut size_t, *mut c_longlong) -> c_int,
    pub usleep: unsafe extern "C" fn(*mut c_void, c_uint) -> c_int,
    pub gettimeofday: unsafe extern "C" fn(*mut c_void, *mut timeval, *mut c_void) -> c_int,
    pub epoll_create: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    pub epoll_ctl: unsafe extern "C" fn(*mut c_void, c_int, c_int, c_int, *mut epoll_event) -> c_int,
    pub epoll_wait: unsafe extern "C" fn(*mut c_void, c_int, *mut epoll_event, c_int, c_int) -> c_int,
    pub pipe: unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int,
    pub splice: unsafe extern "C" fn(
        *mut c_void,
        c_int,
        *mut c_longlong,
        c_int,
        *mut c_longlong,
        size_t,
        c_uint,
    ) -> c_int,
}

/// The adapter whose descriptors the interposed calls of libc mean.
static CURRENT: RwLock<Option<Arc<Adapter>>> = RwLock::new(None);

/// The adapter of this process, if a descriptor is one of its.
pub(crate) fn current_of(fd: c_int) -> Option<Arc<Adapter>> {
    if !files::is_ours(fd) {
        return None;
    }
    CURRENT.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Fills packetdrill's struct. Flags that are not understood end the process with a message, since there is no other way to say so.
///
/// # Safety
/// `flags` is null or a C string, `interface` may be written.
pub unsafe fn init(flags: *const c_char, interface: *mut Interface) {
    // SAFETY: by the caller.
    let text = if flags.is_null() { c"" } else { unsafe { CStr::from_ptr(flags) } };
    let made = Adapter::new(&text.to_string_lossy(), std::env::var_os(sysctl::FILE).map(Into::into));
    let adapter = made.map(Arc::new).unwrap_or_else(|bad| {
        eprintln!("sockeye: --so_flags: {bad}");
        std::process::exit(2);
    });
    *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&adapter));
    let filled = Interface {
        userdata: Arc::into_raw(adapter).cast_mut().cast(),
        free,
        socket,
        bind,
        listen,
        accept,
        connect,
        read,
        readv,
        recv,
        recvfrom,
        recvmsg,
        write,
        writev,
        send,
        sendto,
        sendmsg,
        fcntl,
        ioctl,
        close,
        shutdown,
        getsockopt,
        setsockopt,
        poll,
        netdev_send,
        netdev_receive,
        usleep,
        gettimeofday,
        epoll_create,
        epoll_ctl,
        epoll_wait,
        pipe,
        splice,
    };
    // SAFETY: by the caller.
    unsafe { interface.write(filled) };
}

/// The adapter of a `userdata`.
///
/// # Safety
/// It is that of [`init`], and `free` was not called.
unsafe fn of<'a>(userdata: *mut c_void) -> &'a Adapter {
    // SAFETY: by the caller; the count of `into_raw` keeps it until `free`.
    unsafe { &*userdata.cast::<Adapter>() }
}

/// -1 and `errno`, or the value.
pub(crate) fn answer<T, R: TryFrom<T> + From<i8>>(call: Call<T>) -> R {
    match call {
        Ok(value) => R::try_from(value).unwrap_or_else(|_| R::from(i8::MAX)),
        Err(Errno(number)) => {
            // SAFETY: the place is this thread's.
            unsafe { *libc::__errno_location() = number };
            R::from(-1)
        }
    }
}

pub(crate) fn done(call: Call<()>) -> c_int {
    answer(call.map(|()| 0_i32))
}

unsafe extern "C" fn free(userdata: *mut c_void) {
    // SAFETY: packetdrill calls it once, last, with what `init` gave.
    let adapter = unsafe { Arc::from_raw(userdata.cast::<Adapter>().cast_const()) };
    let mut current = CURRENT.write().unwrap_or_else(PoisonError::into_inner);
    if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &adapter)) {
        *current = None;
    }
    drop(current);
    adapter.clear();
}

unsafe extern "C" fn socket(ud: *mut c_void, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: packetdrill's promise.
    answer(unsafe { of(ud) }.socket(domain, kind, protocol))
}

unsafe extern "C" fn bind(ud: *mut c_void, fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: packetdrill's promise.
    let adapter = unsafe { of(ud) };
    done(address_at(addr, len).and_then(|addr| adapter.bind(fd, addr)))
}

unsafe extern "C" fn listen(ud: *mut c_void, fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: packetdrill's promise.
    done(unsafe { of(ud) }.listen(fd, backlog))
}

unsafe extern "C" fn accept(ud: *mut c_void, fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: packetdrill's promise.
    let adapter = unsafe { of(ud) };
    answer(adapter.accept(fd).and_then(|(fd, peer)| {
        if !addr.is_null() {
            // As in the kernel, the connection is closed if its address cannot be written.
            put(addr.cast(), len, &address::write(peer)).inspect_err(|_| {
                let _ = adapter.close(fd);
            })?;
        }
        Ok(fd)
    }))
}

unsafe extern "C" fn connect(ud: *mut c_void, fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: packetdrill's promise.
    let adapter = unsafe { of(ud) };
    done(match address_at(addr, len) {
        Ok(addr) => adapter.connect(fd, addr),
        Err(Errno(libc::EAFNOSUPPORT)) if is_unspecified(addr) => adapter.disconnect(fd),
        Err(error) => Err(error),
    })
}

unsafe extern "C" fn read(ud: *mut c_void, fd: c_int, into: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: packetdrill's promise.
    unsafe { recv(ud, fd, into, len, 0) }
}

unsafe extern "C" fn readv(ud: *mut c_void, fd: c_int, iovecs: *const c_void, count: c_int) -> ssize_t {
    // SAFETY: packetdrill's promise.
    let adapter = unsafe { of(ud) };
    answer(count_of(count).and_then(|count| {
        let pieces = user::read_iovecs(iovecs, count)?;
        let received = adapter.recv(fd, total(&pieces)?, 0)?;
        scatter(&pieces, &received.bytes)
    }))
}

unsafe extern "C" fn recv(
    ud: *mut c_void,
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill's promise.
    let adapter = unsafe { of(ud) };
    answer(received_into(adapter, fd, into, len, flags).map(|(got, _from)| got))
}

/// Bytes received to the caller's memory, and a datagram's sender.
fn received_into(
    adapter: &Adapter,
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    flags: c_int,
) -> Call<(usize, Option<SocketAddr>)> {
    // MSG_TRUNC of TCP: the bytes are thrown away.
    let keeps = flags & libc::MSG_TRUNC == 0;
    if len > 0 && keeps && user::read(into, 1).is_err() {
        // Bytes that cannot be given stay where they are; the call waits for them all the same.
        let there = adapter.recv(fd, 1, flags | libc::MSG_PEEK)?;
        return if there.bytes.is_empty() { Ok((0, None)) } else { Err(Errno(libc::EFAULT)) };
    }
    let received = adapter.recv(fd, len, flags)?;
    if keeps {
        user::write(into, &received.bytes)?;
    }
    Ok((received.bytes.len(), received.from))
}

unsafe extern "C" fn recvfrom(
    ud: *mut c_void,
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: packetdrill's promise.
    let adapter = unsafe { of(ud) };
    answer(received_into(adapter, fd, into, len, flags).and_then(|(got, from)| {
        if !addr_len.is_null() {
            // A connection's bytes come without an address.
            put(addr.cast(), addr_len, &from.map(address::write).unwrap_or_default())?;
        }
        Ok(got)
    }))
}

unsafe extern "C" fn recvmsg(ud: *mut c_void, fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: packetdrill's promise.
    let adapter = unsafe { of(ud) };
    answer(header_at(message).and_then(|mut header| {
        let pieces = user::read_iovecs(header.msg_iov.cast(), header.msg_iovlen)?;
        let received = adapter.recv(fd, total(&pieces)?, flags)?;
        let Received { bytes, control, flags: message_flags, from } = &received;
        if flags & libc::MSG_TRUNC == 0 {
            let _ = scatter(&pieces, bytes)?;
        }
        let fits = control.len() <= header.msg_controllen;
        let control: &[u8] = if fits { control } else { &[] };
        user::write(header.msg_control, control)?;
        header.msg_flags = message_flags | if fits { 0 } else { libc::MSG_CTRUNC };
        let name = from.map(address::write).unwrap_or_default();
        let name = &name[..name.len().min(header.msg_namelen as usize)];
        user::write(header.msg_name, name)?;
        (header.msg_namelen, header.msg_controllen) = (name.len() as u32, control.len());
        // SAFETY: `header_at` has read the same place.
        unsafe { message.write(header) };
        Ok(bytes.len())
    }))
}

unsafe extern "C" fn write(ud: *mut c_void, fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: packetdrill's promise.
    unsafe { send(ud, fd, from, len, 0) }
}

unsafe extern "C" fn writev(ud: *mut c_void, fd: c_int, iovecs: *const c_void, count: c_int) -> ssize_t {
    // SAFETY: packetdrill's promise.
    let adapter = unsafe { of(ud) };
    answer(count_of(count).and_then(|count| {
        let bytes = gather(&user::read_iovecs(iovecs, count)?)?;
        adapter.send(fd, Text::from(&*bytes), 0, None)
    }))
}

unsafe extern "C" fn send(
    ud: *mut c_void,
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill's promise.
    unsafe { sendto(ud, fd, from, len, flags, std::ptr::null(), 0) }
}

unsafe extern "C" fn sendto(
    ud: *mut c_void,
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> ssize_t {
    // SAFETY: packetdrill's promise.
    let adapter = unsafe { of(ud) };
    answer(
        destination(addr, addr_len, flags)
            .and_then(|to| adapter.send(fd, Text::from(&*user::read(from, len)?), flags, to)),
    )
}

unsafe extern "C" fn sendmsg(ud: *mut c_void, fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: packetdrill's promise.
    let adapter = unsafe { of(ud) };
    answer(header_at(message).and_then(|header| {
        let to = destination(header.msg_name.cast_const().cast(), header.msg_namelen, flags)?;
        let pieces = user::read_iovecs(header.msg_iov.cast_const().cast(), header.msg_iovlen)?;
        let (bytes, lens) = (gather(&pieces)?, pieces.iter().map(|(_, len)| *len).collect::<Vec<_>>());
        adapter.send(fd, Text { bytes: &bytes, lens: &lens }, flags, to)
    }))
}

unsafe extern "C" fn fcntl(ud: *mut c_void, fd: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: packetdrill's promise.
    // An `int`: the upper half of the register may be anything.
    answer(unsafe { of(ud) }.fcntl(fd, command, argument as i32))
}

unsafe extern "C" fn ioctl(ud: *mut c_void, fd: c_int, request: c_ulong, argument: *mut c_int) -> c_int {
    // SAFETY: packetdrill's promise.
    let adapter = unsafe { of(ud) };
    // packetdrill passes an `int` sign-extended.
    let given = user::read_int(argument.cast()).ok();
    done(adapter.ioctl(fd, request as u32, given).and_then(|result| match result {
        Some(value) => user::write(argument.cast(), &value.to_ne_bytes()),
        None => Ok(()),
    }))
}

unsafe extern "C" fn close(ud: *mut c_void, fd: c_int) -> c_int {
    if !files::is_ours(fd) {
        // SAFETY: a file that the script has opened by `open`.
        return unsafe { libc::syscall(libc::SYS_close, fd) } as c_int;
    }
    // SAFETY: packetdrill's promise.
    done(unsafe { of(ud) }.close(fd))
}

unsafe extern "C" fn shutdown(ud: *mut c_void, fd: c_int, how: c_int) -> c_int {
    // SAFETY: packetdrill's promise.
    done(unsafe { of(ud) }.shutdown(fd, how))
}

unsafe extern "C" fn getsockopt(
    ud: *mut c_void,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: packetdrill's promise.
    let adapter = unsafe { of(ud) };
    done(adapter.getsockopt(fd, level, name).and_then(|bytes| put(value, len, &bytes)))
}

unsafe extern "C" fn setsockopt(
    ud: *mut c_void,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: packetdrill's promise.
    let adapter = unsafe { of(ud) };
    let value = user::read(value, len as usize);
    done(value.and_then(|value| adapter.setsockopt(fd, Setting { level, name, value })))
}

unsafe extern "C" fn poll(ud: *mut c_void, fds: *mut pollfd, count: c_ulong, timeout: c_int) -> c_int {
    // SAFETY: packetdrill's promise.
    let adapter = unsafe { of(ud) };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    answer(user::read(fds.cast(), count.saturating_mul(POLLFD_LEN)).and_then(|mut bytes| {
        let entries = bytes.chunks_exact(POLLFD_LEN).map(|entry| {
            let fd = i32::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]]);
            (fd, u32::from(u16::from_ne_bytes([entry[4], entry[5]])))
        });
        let entries: Vec<_> = entries.collect();
        let found = adapter.poll(&entries, timeout_of(timeout))?;
        for (entry, bits) in bytes.chunks_exact_mut(POLLFD_LEN).zip(&found) {
            entry[6..8].copy_from_slice(&(*bits as c_short).to_ne_bytes());
        }
        user::write(fds.cast(), &bytes)?;
        Ok(found.iter().filter(|bits| **bits != 0).count())
    }))
}

unsafe extern "C" fn netdev_send(ud: *mut c_void, packet: *const c_void, len: size_t) -> c_int {
    // SAFETY: packetdrill's promise.
    let adapter = unsafe { of(ud) };
    done(user::read(packet, len).map(|packet| adapter.inject(packet)))
}

unsafe extern "C" fn netdev_receive(
    ud: *mut c_void,
    into: *mut c_void,
    len: *mut size_t,
    time_usecs: *mut c_longlong,
) -> c_int {
    // SAFETY: packetdrill's promise.
    let adapter = unsafe { of(ud) };
    // A length of 0, which fails the script, if nothing comes.
    let (at, packet) = adapter.receive().unwrap_or_else(|| (adapter.time(), Vec::new()));
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    let room = user::read(len.cast(), size_of::<size_t>());
    done(room.and_then(|room| {
        let room = usize::from_ne_bytes(room.first_chunk().copied().unwrap_or_default());
        let packet = &packet[..packet.len().min(room)];
        user::write(into, packet)?;
        user::write(len.cast(), &packet.len().to_ne_bytes())?;
        user::write(time_usecs.cast(), &micros.to_ne_bytes())
    }))
}

unsafe extern "C" fn usleep(ud: *mut c_void, micros: c_uint) -> c_int {
    // SAFETY: packetdrill's promise.
    unsafe { of(ud) }.sleep(Duration::from_micros(micros.into()));
    0
}

unsafe extern "C" fn gettimeofday(ud: *mut c_void, into: *mut timeval, _zone: *mut c_void) -> c_int {
    // SAFETY: packetdrill's promise.
    let now = unsafe { of(ud) }.time();
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let words = [seconds.to_ne_bytes(), i64::from(now.subsec_micros()).to_ne_bytes()];
    done(user::write(into.cast(), &words.concat()))
}

unsafe extern "C" fn epoll_create(ud: *mut c_void, size: c_int) -> c_int {
    // SAFETY: packetdrill's promise.
    let adapter = unsafe { of(ud) };
    if size <= 0 { done(Err(Errno(libc::EINVAL))) } else { answer(adapter.epoll_create()) }
}

unsafe extern "C" fn epoll_ctl(
    ud: *mut c_void,
    set: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: packetdrill's promise.
    let adapter = unsafe { of(ud) };
    let event = user::read(event.cast(), size_of::<epoll_event>()).ok().map(|bytes| {
        let events = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let data = bytes[bytes.len() - 8..].first_chunk().copied().unwrap_or_default();
        (events, u64::from_ne_bytes(data))
    });
    done(adapter.epoll_ctl(set, op, fd, event))
}

unsafe extern "C" fn epoll_wait(
    ud: *mut c_void,
    set: c_int,
    into: *mut epoll_event,
    max: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: packetdrill's promise.
    let adapter = unsafe { of(ud) };
    answer(adapter.epoll_wait(set, usize::try_from(max).unwrap_or(0), timeout_of(timeout)).and_then(
        |found| {
            let mut bytes = Vec::new();
            for (events, data) in &found {
                bytes.extend(events.to_ne_bytes());
                // Packed on x86-64, and padded elsewhere.
                bytes.resize(bytes.len() + size_of::<epoll_event>() - 12, 0);
                bytes.extend(data.to_ne_bytes());
            }
            user::write(into.cast(), &bytes)?;
            Ok(found.len())
        },
    ))
}

unsafe extern "C" fn pipe(ud: *mut c_void, into: *mut c_int) -> c_int {
    // SAFETY: packetdrill's promise.
    let adapter = unsafe { of(ud) };
    done(adapter.pipe().and_then(|ends| {
        let told = user::write(into.cast(), &ends.map(i32::to_ne_bytes).concat());
        told.inspect_err(|_| {
            for end in ends {
                let _ = adapter.close(end);
            }
        })
    }))
}

unsafe extern "C" fn splice(
    ud: *mut c_void,
    from: c_int,
    _from_at: *mut c_longlong,
    to: c_int,
    _to_at: *mut c_longlong,
    len: size_t,
    flags: c_uint,
) -> c_int {
    // SAFETY: packetdrill's promise.
    answer(unsafe { of(ud) }.splice(from, to, len, flags))
}
