//! A host behind the interface, and the packets of its peer.

use std::ffi::{c_int, c_short, c_void};
use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sockeye_packetdrill::abi::{self, Interface};

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;
pub const URG: u8 = 32;

const LOCAL: [u8; 4] = [192, 168, 0, 1];
const REMOTE: [u8; 4] = [192, 0, 2, 1];
const PORT: u16 = 8080;
const PEER_PORT: u16 = 40_000;

/// One at a time in this process, as in packetdrill's: calls of libc know one adapter.
static ONE: Mutex<()> = Mutex::new(());

pub struct Host {
    pub ifc: Interface,
    _one: MutexGuard<'static, ()>,
}

// SAFETY: as packetdrill, which calls from two threads: the adapter locks.
unsafe impl Sync for Host {}

/// A segment of the stack. Sequence numbers are as they are, the peer's begin at 0.
#[derive(Clone, Debug)]
pub struct Packet {
    pub at: Duration,
    pub src_port: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub text: Vec<u8>,
}

pub fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn result(value: isize) -> Result<usize, c_int> {
    usize::try_from(value).map_err(|_| errno())
}

impl Host {
    pub fn new(flags: &str) -> Self {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let flags = std::ffi::CString::new(flags).unwrap();
        let mut ifc = MaybeUninit::uninit();
        // SAFETY: a C string, and a place for the struct, which is then filled.
        let ifc = unsafe {
            abi::init(flags.as_ptr(), ifc.as_mut_ptr());
            ifc.assume_init()
        };
        Self { ifc, _one: one }
    }

    pub fn socket(&self, flags: c_int) -> c_int {
        // SAFETY: no pointers but the interface's own.
        unsafe { (self.ifc.socket)(self.ifc.userdata, libc::AF_INET, libc::SOCK_STREAM | flags, 0) }
    }

    pub fn listener(&self) -> c_int {
        let fd = self.socket(0);
        let addr = sockaddr(LOCAL);
        // SAFETY: the address lives for the call.
        let bound = unsafe { (self.ifc.bind)(self.ifc.userdata, fd, addr.as_ptr().cast(), 16) };
        // SAFETY: no pointers.
        let listening = unsafe { (self.ifc.listen)(self.ifc.userdata, fd, 1) };
        assert_eq!((bound, listening), (0, 0));
        fd
    }

    pub fn accept(&self, fd: c_int) -> Result<c_int, c_int> {
        let (mut addr, mut len) = ([0_u8; 128], 128_u32);
        // SAFETY: the places live for the call.
        let fd = unsafe { (self.ifc.accept)(self.ifc.userdata, fd, addr.as_mut_ptr().cast(), &raw mut len) };
        let mut peer = sockaddr(REMOTE);
        peer[2..4].copy_from_slice(&PEER_PORT.to_be_bytes());
        if fd >= 0 {
            assert_eq!((&addr[..16], len), (&peer[..], 16))
        };
        if fd >= 0 { Ok(fd) } else { Err(errno()) }
    }

    /// The peer's handshake. Returns the stack's first sequence number.
    pub fn shake(&self) -> u32 {
        self.inject(SYN, 0, 0, b"");
        let answer = self.next().unwrap();
        assert_eq!((answer.flags, answer.ack), (SYN | ACK, 1));
        self.inject(ACK, 1, answer.seq + 1, b"");
        answer.seq
    }

    /// A connection that does not block, and its first sequence number.
    pub fn accepted(&self) -> (c_int, u32) {
        let listener = self.listener();
        let isn = self.shake();
        let fd = self.accept(listener).unwrap();
        // SAFETY: no pointers.
        let set = unsafe { (self.ifc.fcntl)(self.ifc.userdata, fd, libc::F_SETFL, libc::O_NONBLOCK.into()) };
        assert_eq!((set, self.close(listener)), (0, 0));
        (fd, isn)
    }

    pub fn set_blocking(&self, fd: c_int) {
        // SAFETY: no pointers.
        assert_eq!(unsafe { (self.ifc.fcntl)(self.ifc.userdata, fd, libc::F_SETFL, 0) }, 0);
    }

    pub fn connect(&self, fd: c_int) -> Result<(), c_int> {
        let addr = sockaddr(REMOTE);
        // SAFETY: the address lives for the call.
        result(unsafe { (self.ifc.connect)(self.ifc.userdata, fd, addr.as_ptr().cast(), 16) } as isize)
            .map(drop)
    }

    pub fn read(&self, fd: c_int, len: usize) -> Result<Vec<u8>, c_int> {
        let mut bytes = vec![0_u8; len];
        // SAFETY: the vector may be written for its length.
        let got = unsafe { (self.ifc.read)(self.ifc.userdata, fd, bytes.as_mut_ptr().cast(), len) };
        bytes.truncate(result(got)?);
        Ok(bytes)
    }

    pub fn write(&self, fd: c_int, bytes: &[u8]) -> Result<usize, c_int> {
        // SAFETY: the bytes live for the call.
        result(unsafe { (self.ifc.write)(self.ifc.userdata, fd, bytes.as_ptr().cast(), bytes.len()) })
    }

    pub fn close(&self, fd: c_int) -> c_int {
        // SAFETY: no pointers.
        unsafe { (self.ifc.close)(self.ifc.userdata, fd) }
    }

    pub fn poll(&self, fd: c_int, events: c_short) -> c_short {
        let mut entry = libc::pollfd { fd, events, revents: 0 };
        // SAFETY: the entry lives for the call.
        let count = unsafe { (self.ifc.poll)(self.ifc.userdata, &raw mut entry, 1, 0) };
        assert_eq!(count, c_int::from(entry.revents != 0));
        entry.revents
    }

    pub fn epoll(&self) -> c_int {
        // SAFETY: no pointers.
        unsafe { (self.ifc.epoll_create)(self.ifc.userdata, 1) }
    }

    pub fn epoll_ctl(&self, set: c_int, op: c_int, fd: c_int, events: u32) -> Result<(), c_int> {
        let mut event = libc::epoll_event { events, u64: fd as u64 };
        // SAFETY: the event lives for the call.
        let done = unsafe { (self.ifc.epoll_ctl)(self.ifc.userdata, set, op, fd, &raw mut event) };
        result(done as isize).map(drop)
    }

    pub fn epoll_wait(&self, set: c_int, timeout: Duration) -> Vec<(u32, u64)> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 8];
        let millis = timeout.as_millis() as c_int;
        // SAFETY: room for 8.
        let count = unsafe { (self.ifc.epoll_wait)(self.ifc.userdata, set, events.as_mut_ptr(), 8, millis) };
        events[..result(count as isize).unwrap()].iter().map(|event| (event.events, event.u64)).collect()
    }

    pub fn pipe(&self) -> [c_int; 2] {
        let mut ends = [0; 2];
        // SAFETY: room for both.
        assert_eq!(unsafe { (self.ifc.pipe)(self.ifc.userdata, ends.as_mut_ptr()) }, 0);
        ends
    }

    pub fn splice(&self, from: c_int, to: c_int, len: usize) -> Result<usize, c_int> {
        let (mut zero, mut other) = (0, 0);
        // SAFETY: the places live for the call.
        let moved =
            unsafe { (self.ifc.splice)(self.ifc.userdata, from, &raw mut zero, to, &raw mut other, len, 0) };
        result(moved as isize)
    }

    pub fn set_int(&self, fd: c_int, level: c_int, name: c_int, value: c_int) -> Result<(), c_int> {
        self.set(fd, level, name, &value.to_ne_bytes())
    }

    pub fn set(&self, fd: c_int, level: c_int, name: c_int, value: &[u8]) -> Result<(), c_int> {
        let (value, len) = (value.as_ptr().cast(), value.len() as u32);
        // SAFETY: the value lives for the call.
        let done = unsafe { (self.ifc.setsockopt)(self.ifc.userdata, fd, level, name, value, len) };
        result(done as isize).map(drop)
    }

    pub fn get_int(&self, fd: c_int, level: c_int, name: c_int) -> Result<c_int, c_int> {
        self.get(fd, level, name, 4).map(|bytes| c_int::from_ne_bytes(bytes[..4].try_into().unwrap()))
    }

    pub fn get(&self, fd: c_int, level: c_int, name: c_int, len: u32) -> Result<Vec<u8>, c_int> {
        let (mut bytes, mut len) = (vec![0_u8; len as usize], len);
        let into: *mut c_void = bytes.as_mut_ptr().cast();
        // SAFETY: room for `len`.
        let done = unsafe { (self.ifc.getsockopt)(self.ifc.userdata, fd, level, name, into, &raw mut len) };
        result(done as isize)?;
        bytes.truncate(len as usize);
        Ok(bytes)
    }

    pub fn time(&self) -> Duration {
        let mut now = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: the place lives for the call.
        unsafe { (self.ifc.gettimeofday)(self.ifc.userdata, &raw mut now, std::ptr::null_mut()) };
        Duration::from_secs(now.tv_sec as u64) + Duration::from_micros(now.tv_usec as u64)
    }

    pub fn sleep(&self, time: Duration) {
        // SAFETY: no pointers.
        unsafe { (self.ifc.usleep)(self.ifc.userdata, time.as_micros() as u32) };
    }

    /// Waits until every other thread of the process sleeps in the kernel, which is how packetdrill knows that a call waits.
    pub fn wait_asleep(&self) {
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        let own = own.file_name().unwrap().to_owned();
        let is_asleep = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            task.file_name() == own || stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('S'))
        };
        let mut in_a_row = 0;
        while in_a_row < 20 {
            let all = std::fs::read_dir("/proc/self/task").unwrap().all(|task| is_asleep(task.unwrap()));
            in_a_row = if all { in_a_row + 1 } else { 0 };
            std::thread::yield_now();
        }
    }

    /// A segment from the peer's port of the tests to the stack's.
    pub fn inject(&self, flags: u8, seq: u32, ack: u32, text: &[u8]) {
        self.send(segment(PEER_PORT, PORT, flags, seq, ack, text));
    }

    /// A segment from the port that the stack has connected to.
    pub fn inject_to(&self, port: u16, flags: u8, seq: u32, ack: u32, text: &[u8]) {
        self.send(segment(PORT, port, flags, seq, ack, text));
    }

    fn send(&self, packet: Vec<u8>) {
        // SAFETY: the packet lives for the call.
        let done = unsafe { (self.ifc.netdev_send)(self.ifc.userdata, packet.as_ptr().cast(), packet.len()) };
        assert_eq!(done, 0);
    }

    /// The next segment; none if none comes.
    pub fn next(&self) -> Option<Packet> {
        let (mut bytes, mut len, mut time) = (vec![0_u8; 65_536], 65_536_usize, 0_i64);
        let into = bytes.as_mut_ptr().cast();
        // SAFETY: room for `len`, and places that live for the call.
        let done = unsafe { (self.ifc.netdev_receive)(self.ifc.userdata, into, &raw mut len, &raw mut time) };
        assert_eq!(done, 0);
        let tcp = bytes[..len].get(20..)?;
        let word = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
        Some(Packet {
            at: Duration::from_micros(time as u64),
            src_port: u16::from_be_bytes([tcp[0], tcp[1]]),
            seq: word(4),
            ack: word(8),
            flags: tcp[13],
            text: tcp[usize::from(tcp[12] >> 4) * 4..].to_vec(),
        })
    }

    /// The next segment that is no bare acknowledgment.
    pub fn next_with_text(&self) -> (Packet, Vec<u8>) {
        let packet = std::iter::from_fn(|| self.next()).find(|packet| !packet.text.is_empty()).unwrap();
        let text = packet.text.clone();
        (packet, text)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // SAFETY: the last call.
        unsafe { (self.ifc.free)(self.ifc.userdata) };
    }
}

fn sockaddr(addr: [u8; 4]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&PORT.to_be_bytes());
    bytes[4..8].copy_from_slice(&addr);
    bytes
}

/// A packet without options.
fn segment(src: u16, dst: u16, flags: u8, seq: u32, ack: u32, text: &[u8]) -> Vec<u8> {
    let mut tcp = Vec::new();
    tcp.extend(src.to_be_bytes());
    tcp.extend(dst.to_be_bytes());
    tcp.extend(seq.to_be_bytes());
    tcp.extend(ack.to_be_bytes());
    tcp.extend([5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    tcp.extend(text);
    let mut pseudo = [REMOTE, LOCAL].concat();
    pseudo.extend([0, 6]);
    pseudo.extend((tcp.len() as u16).to_be_bytes());
    let sum = checksum(&[pseudo, tcp.clone()].concat());
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    let mut ip = vec![0x45, 0];
    ip.extend((20 + tcp.len() as u16).to_be_bytes());
    ip.extend([0, 0, 0, 0, 64, 6, 0, 0]);
    ip.extend([REMOTE, LOCAL].concat());
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [ip, tcp].concat()
}

fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
