//! One scenario on the kernel: its sockets, its place in time and its trace.
//!
//! It does not wait. Tests: `tests/written.rs`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use libc::c_int;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{
    set_socket_linger, set_socket_reuseaddr, set_tcp_congestion, socket_error, socket_linger,
};
use rustix::net::{
    AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType, acceptfrom_with, bind, connect,
};
use rustix::net::{RecvFlags, listen, recv, send, sendto, shutdown, socket_with};

use super::{Device, sys};
use crate::codec::Names;
use crate::scenario::{Action, How, Question, Scenario, SockOpt};
use crate::segment::pattern;
use crate::settings;
use crate::trace::{Info, Ready, Record, State, Trace, What};

/// A run in progress.
pub struct Run<'s> {
    scenario: &'s Scenario,
    /// The scenario's place in the caller's list.
    index: usize,
    start: Instant,
    /// The event that comes next.
    next: usize,
    names: Names,
    socket: Option<OwnedFd>,
    /// The socket has called `connect`, or is an accepted one.
    is_stream: bool,
    listener: Option<OwnedFd>,
    written: u32,
    read: u32,
    pub trace: Trace,
}

/// The time from making the socket to the begin of the scenario.
const LEAD: Duration = Duration::from_millis(1);

impl<'s> Run<'s> {
    pub fn new(
        scenario: &'s Scenario,
        index: usize,
        peer: (IpAddr, u16),
        local: (IpAddr, u16),
    ) -> io::Result<Self> {
        let socket = fresh_socket(scenario)?;
        Ok(Self {
            scenario,
            index,
            start: Instant::now() + LEAD,
            next: 0,
            names: Names::new(peer, local).with_cookies(scenario.has_cookies()),
            socket: Some(socket),
            is_stream: false,
            listener: None,
            written: 0,
            read: 0,
            trace: Trace::default(),
        })
    }

    /// When the next event, or the end, is due.
    pub fn next_due(&self) -> Instant {
        self.start + self.scenario.events.get(self.next).map_or(self.scenario.end(), |event| event.at())
    }

    pub fn is_over(&self) -> bool {
        self.next >= self.scenario.events.len()
    }

    fn record(&mut self, what: What) {
        self.trace.records.push(Record { at: self.start.elapsed(), what });
    }

    /// Takes a packet that the kernel has sent.
    pub fn sent(&mut self, packet: &[u8]) {
        let packet = self.names.decode(packet);
        self.record(What::Sent(packet));
    }

    /// Records the state, before the next event.
    pub fn look(&mut self) {
        if self.next > 0 {
            let state = self.state();
            self.record(What::State(self.next - 1, state));
        }
    }

    /// The scenario's place, and its trace. Ends its sockets without sending anything.
    pub fn finish(self) -> (usize, Trace) {
        if let Some(socket) = self.socket.as_ref().filter(|_| self.is_stream) {
            let _ = set_socket_linger(socket, Some(Duration::ZERO));
        }
        (self.index, self.trace)
    }

    /// Does the next event.
    pub fn perform(&mut self, device: &Device) {
        let index = self.next;
        self.next += 1;
        self.names.begin_event(self.scenario.events[index].at_ms);
        let returned = match &self.scenario.events[index].action {
            Action::Segment(segment) => {
                let packets = segment.packets();
                return packets.for_each(|packet| device.write(&self.names.encode(&packet), packet.gso_size));
            }
            Action::Report(report) => return device.write(&self.names.encode_report(*report), 0),
            Action::Wait => return,
            Action::Listen(backlog) => self.listen(*backlog),
            Action::Connect => self.connect(),
            Action::ConnectWith(len) => self.connect_with(*len),
            Action::Again => self.again(),
            Action::Accept => self.accept(),
            Action::Read(len) => self.read(index, *len),
            Action::ReadInq(len) => self.read_inq(index, *len),
            Action::Peek(len) => self.peek(index, *len),
            Action::Write(len) => self.write(*len, SendFlags::empty()),
            Action::WriteMore(len) => self.write(*len, SendFlags::MORE),
            Action::WriteUrgent(len) => self.write(*len, SendFlags::OOB),
            Action::WriteRecord(len) => self.write(*len, SendFlags::EOR),
            Action::Shutdown(how) => self.shut(*how),
            Action::Close => {
                self.is_stream = false;
                self.socket.take().map(close).map(|()| 0).ok_or_else(no_socket)
            }
            Action::CloseListener => self.listener.take().map(|_| 0).ok_or_else(no_socket),
            Action::Set(option, value) => self.set(*option, *value).map(|()| 0),
            Action::Get(option) => self.get(*option),
            Action::TakeError => self.error(),
            Action::Ask(question) => self.ask(*question),
        };
        self.record(What::Returned(
            index,
            returned.map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL)),
        ));
    }

    fn socket(&self) -> io::Result<&OwnedFd> {
        self.socket.as_ref().ok_or_else(no_socket)
    }

    fn listen(&mut self, backlog: u32) -> io::Result<u32> {
        let socket = self.socket()?;
        bind(socket, &SocketAddr::from(self.names.local))?;
        listen(socket, backlog as i32)?;
        self.listener = self.socket.take();
        Ok(0)
    }

    fn connect(&mut self) -> io::Result<u32> {
        match connect(self.socket()?, &SocketAddr::from(self.names.peer)) {
            Err(rustix::io::Errno::INPROGRESS) => {}
            other => other?,
        }
        self.is_stream = true;
        Ok(0)
    }

    fn connect_with(&mut self, len: u32) -> io::Result<u32> {
        let bytes: Vec<u8> = (0..len).map(pattern).collect();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL | FAST_OPEN;
        let taken = match sendto(self.socket()?, &bytes, flags, &SocketAddr::from(self.names.peer)) {
            Err(rustix::io::Errno::INPROGRESS) => 0,
            taken => taken? as u32,
        };
        self.is_stream = true;
        self.written = taken;
        Ok(taken)
    }

    fn again(&mut self) -> io::Result<u32> {
        self.socket = Some(fresh_socket(self.scenario)?);
        self.is_stream = false;
        (self.written, self.read) = (0, 0);
        self.names.begin_anew();
        Ok(0)
    }

    fn accept(&mut self) -> io::Result<u32> {
        let listener = self.listener.as_ref().ok_or_else(no_socket)?;
        let (socket, _) = acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
        (self.socket, self.is_stream) = (Some(socket), true);
        Ok(0)
    }

    fn read(&mut self, index: usize, len: u32) -> io::Result<u32> {
        let mut bytes = vec![0; len as usize];
        let (got, _) = recv(self.socket()?, &mut bytes[..], RecvFlags::DONTWAIT)?;
        self.check(index, &bytes[..got]);
        self.read += got as u32;
        Ok(got as u32)
    }

    /// TCP_INQ comes as a control message.
    fn read_inq(&mut self, index: usize, len: u32) -> io::Result<u32> {
        sys::set_option(self.socket()?, libc::IPPROTO_TCP, libc::TCP_INQ, 1)?;
        let (bytes, control) = sys::recv_message(self.socket()?, len as usize, libc::MSG_DONTWAIT)?;
        self.check(index, &bytes);
        self.read += bytes.len() as u32;
        self.record(What::Returned(index, Ok(bytes.len() as u32)));
        let is_inq =
            |(level, kind, _): &&sys::Control| (*level, *kind) == (libc::IPPROTO_TCP, libc::TCP_CM_INQ);
        let inq = control.iter().find(is_inq).and_then(|(.., value)| value[..].try_into().ok());
        inq.map(u32::from_ne_bytes).ok_or_else(|| io::Error::from_raw_os_error(libc::ENODATA))
    }

    fn peek(&mut self, index: usize, len: u32) -> io::Result<u32> {
        let mut bytes = vec![0; len as usize];
        let (got, _) = recv(self.socket()?, &mut bytes[..], RecvFlags::DONTWAIT | RecvFlags::PEEK)?;
        self.check(index, &bytes[..got]);
        Ok(got as u32)
    }

    /// Notes bytes that are not those of the peer's stream.
    fn check(&mut self, index: usize, bytes: &[u8]) {
        if !bytes.iter().zip(self.read..).all(|(byte, at)| *byte == pattern(at)) {
            self.record(What::Corrupt(index));
        }
    }

    fn write(&mut self, len: u32, flags: SendFlags) -> io::Result<u32> {
        let bytes: Vec<u8> = (self.written..self.written + len).map(pattern).collect();
        let taken = send(self.socket()?, &bytes, flags | SendFlags::DONTWAIT | SendFlags::NOSIGNAL)? as u32;
        self.written += taken;
        Ok(taken)
    }

    fn shut(&self, how: How) -> io::Result<u32> {
        let how = match how {
            How::Read => Shutdown::Read,
            How::Write => Shutdown::Write,
            How::Both => Shutdown::Both,
        };
        Ok(shutdown(self.socket()?, how).map(|()| 0)?)
    }

    fn error(&self) -> io::Result<u32> {
        Ok(socket_error(self.socket()?)?.map_or_else(|error| error.raw_os_error() as u32, |()| 0))
    }

    fn set(&self, option: SockOpt, value: u32) -> io::Result<()> {
        let socket = self.socket()?;
        if option == SockOpt::Linger {
            return Ok(set_socket_linger(socket, Some(Duration::from_secs(value.into())))?);
        }
        let (level, name) = self.number_of(option);
        sys::set_option(socket, level, name, value.cast_signed())
    }

    fn get(&self, option: SockOpt) -> io::Result<u32> {
        let (level, name) = self.number_of(option);
        sys::get_option(self.socket()?, level, name).map(c_int::cast_unsigned)
    }

    fn ask(&self, question: Question) -> io::Result<u32> {
        let request = match question {
            Question::Mark => SIOCATMARK,
            Question::Unread => libc::FIONREAD,
            Question::Unacknowledged => libc::TIOCOUTQ,
        };
        sys::ask(self.socket()?, request).map(c_int::cast_unsigned)
    }

    /// The level and the number of an option.
    fn number_of(&self, option: SockOpt) -> (c_int, c_int) {
        match (option, self.names.peer.0.is_ipv6()) {
            (SockOpt::Tos, true) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            (SockOpt::Ttl, true) => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
            (option, _) => number_of(option),
        }
    }

    fn state(&self) -> State {
        match (self.socket.as_ref().filter(|_| self.is_stream), &self.listener) {
            (Some(socket), _) => {
                State { ready: ready(socket), info: sys::tcp_info(socket).ok().map(|bytes| figures(&bytes)) }
            }
            (None, Some(listener)) => State { ready: ready(listener), info: None },
            (None, None) => State::default(),
        }
    }
}

/// The level and the number of an option over IPv4.
fn number_of(option: SockOpt) -> (c_int, c_int) {
    let tcp = |name| (libc::IPPROTO_TCP, name);
    let socket = |name| (libc::SOL_SOCKET, name);
    match option {
        SockOpt::Nodelay => tcp(libc::TCP_NODELAY),
        SockOpt::Keepalive => socket(libc::SO_KEEPALIVE),
        SockOpt::KeepIdle => tcp(libc::TCP_KEEPIDLE),
        SockOpt::KeepInterval => tcp(libc::TCP_KEEPINTVL),
        SockOpt::KeepCount => tcp(libc::TCP_KEEPCNT),
        SockOpt::Linger => socket(libc::SO_LINGER),
        SockOpt::UserTimeout => tcp(libc::TCP_USER_TIMEOUT),
        SockOpt::Quickack => tcp(libc::TCP_QUICKACK),
        SockOpt::NotsentLowat => tcp(libc::TCP_NOTSENT_LOWAT),
        SockOpt::Cork => tcp(libc::TCP_CORK),
        SockOpt::RcvLowat => socket(libc::SO_RCVLOWAT),
        SockOpt::RcvBuf => socket(libc::SO_RCVBUF),
        SockOpt::SndBuf => socket(libc::SO_SNDBUF),
        SockOpt::MaxSeg => tcp(libc::TCP_MAXSEG),
        SockOpt::WindowClamp => tcp(libc::TCP_WINDOW_CLAMP),
        SockOpt::Linger2 => tcp(libc::TCP_LINGER2),
        SockOpt::RtoMax => tcp(sys::TCP_RTO_MAX_MS),
        SockOpt::MaxPacingRate => socket(libc::SO_MAX_PACING_RATE),
        SockOpt::FastOpen => tcp(libc::TCP_FASTOPEN),
        SockOpt::FastOpenConnect => tcp(libc::TCP_FASTOPEN_CONNECT),
        SockOpt::DeferAccept => tcp(libc::TCP_DEFER_ACCEPT),
        SockOpt::SynCount => tcp(libc::TCP_SYNCNT),
        SockOpt::Tos => (libc::IPPROTO_IP, libc::IP_TOS),
        SockOpt::Ttl => (libc::IPPROTO_IP, libc::IP_TTL),
    }
}

fn ready(socket: &OwnedFd) -> Ready {
    let all = PollFlags::IN | PollFlags::OUT | PollFlags::PRI | PollFlags::RDHUP;
    let mut fds = [PollFd::new(socket, all)];
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut fds, Some(&zero)).is_err() {
        return Ready::default();
    }
    let got = fds[0].revents();
    Ready {
        readable: got.contains(PollFlags::IN),
        writable: got.contains(PollFlags::OUT),
        priority: got.contains(PollFlags::PRI),
        read_closed: got.contains(PollFlags::RDHUP),
        hung_up: got.contains(PollFlags::HUP),
        error: got.contains(PollFlags::ERR),
    }
}

/// The kernel's states by their names in RFC 9293, from number 1 on.
const STATES: [&str; 12] = [
    "ESTABLISHED",
    "SYN-SENT",
    "SYN-RECEIVED",
    "FIN-WAIT-1",
    "FIN-WAIT-2",
    "TIME-WAIT",
    "CLOSED",
    "CLOSE-WAIT",
    "LAST-ACK",
    "LISTEN",
    "CLOSING",
    "SYN-RECEIVED",
];

/// Reads the kernel's `struct tcp_info` by its offsets, which never change.
fn figures(bytes: &[u8; sys::INFO_LEN]) -> Info {
    let byte = |at: usize| u64::from(bytes[at]);
    let word = |at: usize| u64::from(u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes")));
    let long = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let figures = vec![
        ("ca_state", byte(1)),
        ("retransmits", byte(2)),
        ("probes", byte(3)),
        ("backoff", byte(4)),
        ("snd_mss", word(16)),
        ("snd_cwnd", word(80)),
        ("snd_ssthresh", word(76)),
        ("snd_wnd", word(228)),
        ("notsent_bytes", word(144)),
        ("dsack_dups", word(216)),
        ("bytes_retrans", long(208)),
        ("bytes_acked", long(120)),
        ("bytes_received", long(128)),
        ("data_segs_out", word(156)),
        ("reordering", word(88)),
        ("reord_seen", word(220)),
        ("bytes_sent", long(200)),
        ("wscales", (byte(6) & 15) << 4 | byte(6) >> 4),
        // Without bits for other things than those that both sides have: timestamps, SACK, scaled windows, ECN, text of a SYN.
        ("tcpi_options", byte(5) & 0b10_1111),
        ("advmss", word(84)),
        ("unacked", (word(24) > 0).into()),
        // Without SACK, the kernel counts duplicates.
        ("sacked", (byte(5) & 2 != 0 && word(28) > 0).into()),
    ];
    let state = STATES.get((bytes[0] as usize).wrapping_sub(1)).copied().unwrap_or("?");
    Info { state, figures, rto: Duration::from_micros(word(8)) }
}

/// A socket that does nothing yet.
fn fresh_socket(scenario: &Scenario) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let family = if scenario.is_ipv6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    set_socket_reuseaddr(&socket, true)?;
    set_tcp_congestion(&socket, &settings::kernel_congestion_control(&scenario.settings))?;
    // Urgent data is in line on the other tested side.
    sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_OOBINLINE, 1)?;
    Ok(socket)
}

/// Of `asm/sockios.h`.
const SIOCATMARK: libc::Ioctl = 0x8905;

/// MSG_FASTOPEN.
const FAST_OPEN: SendFlags = SendFlags::from_bits_retain(libc::MSG_FASTOPEN.cast_unsigned());

/// Closes a socket without waiting: with SO_LINGER's time the kernel would hold this thread, and all runs with it, until what was written is acknowledged.
fn close(socket: OwnedFd) {
    if socket_linger(&socket).is_ok_and(|linger| linger.is_some_and(|time| !time.is_zero())) {
        let _ = set_socket_linger(&socket, None);
    }
}

fn no_socket() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}
