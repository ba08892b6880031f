//! Time stamps of UDP beside the kernel: which reports there are, with which numbers, and which datagrams have a time.
//!
//! The same calls on a connected pair of each kind; what they return must be equal. The times themselves are not compared, only that each side's
//! are in order. On the kernel, datagrams that came before a time was asked for have one if any program on the machine has asked, so that case is
//! tested on Sockeye alone (`crates/stack/tests/udp/stamps.rs`).

use std::fmt::Write as _;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::time::Duration;

use sockeye::poll::{Events, Interest, Poll, Token, Trigger};
use sockeye::{Config, Report, SendMeta, Stack, Timestamping};
use sockeye_conform::kernel::sys;

const SCHEDULED: Timestamping = Timestamping::SCHEDULED;
const SENT: Timestamping = Timestamping::SENT;
const ACKED: Timestamping = Timestamping::ACKED;
const RECEIVED: Timestamping = Timestamping::RECEIVED;
const NUMBERED: Timestamping = Timestamping::NUMBERED;

/// A socket of either kind, which does not block.
trait Socket {
    fn connect(&self, to: &Self) -> io::Result<()>;
    fn set(&self, wanted: Timestamping) -> io::Result<()>;
    fn set_segment_size(&self, size: u16);
    fn send(&self, bytes: &[u8]) -> io::Result<usize>;
    fn send_asking(&self, bytes: &[u8], asked: Timestamping) -> io::Result<usize>;
    /// Bytes, and the time if there is one, in nanoseconds.
    fn recv(&self) -> io::Result<(usize, Option<u128>)>;
    /// What, its number, and its time.
    fn report(&self) -> io::Result<(&'static str, u32, u128)>;
    fn error(&self) -> Option<i32>;
    /// Readable, in error.
    fn ready(&self) -> (bool, bool);
}

/// `SOF_TIMESTAMPING_*` of `linux/net_tstamp.h`.
const FLAGS: [(Timestamping, u32); 5] =
    [(SCHEDULED, 1 << 8), (SENT, 1 << 1), (ACKED, 1 << 9), (RECEIVED, 1 << 3), (NUMBERED, 1 << 7)];
/// SOF_TIMESTAMPING_SOFTWARE and _OPT_TSONLY.
const ALWAYS: u32 = 1 << 4 | 1 << 11;
/// Of `linux/errqueue.h`.
const ORIGIN_TIMESTAMPING: u8 = 4;
/// Of `linux/udp.h`.
const UDP_SEGMENT: i32 = 103;

fn flags(wanted: Timestamping) -> u32 {
    FLAGS.iter().filter(|(flag, _)| wanted.has(*flag)).map(|(_, bit)| bit).sum()
}

/// The first of three `timespec`s, in nanoseconds.
fn nanos(value: &[u8]) -> Option<u128> {
    let word = |at: usize| Some(u64::from_ne_bytes(value.get(at..at + 8)?.try_into().ok()?));
    Some(u128::from(word(0)?) * 1_000_000_000 + u128::from(word(8)?))
}

impl Socket for UdpSocket {
    fn connect(&self, to: &Self) -> io::Result<()> {
        self.connect(to.local_addr()?)
    }
    fn set(&self, wanted: Timestamping) -> io::Result<()> {
        let value = if wanted == Timestamping::NONE { 0 } else { flags(wanted) | ALWAYS };
        sys::set_option(self, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, value.cast_signed())?;
        // The kernel turns the time of arrival on in a thread of its own.
        std::thread::sleep(Duration::from_millis(if wanted.has(RECEIVED) { 100 } else { 0 }));
        Ok(())
    }
    fn set_segment_size(&self, size: u16) {
        sys::set_option(self, libc::IPPROTO_UDP, UDP_SEGMENT, size.into()).unwrap();
    }
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.send(bytes)
    }
    fn send_asking(&self, bytes: &[u8], asked: Timestamping) -> io::Result<usize> {
        sys::send_message(self, bytes, (libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags(asked)))
    }
    fn recv(&self) -> io::Result<(usize, Option<u128>)> {
        let (bytes, control) = sys::recv_message(self, 9000, 0)?;
        let is_time = |(level, kind): (i32, i32)| level == libc::SOL_SOCKET && kind == libc::SO_TIMESTAMPING;
        let time = control.iter().find(|(level, kind, _)| is_time((*level, *kind)));
        Ok((bytes.len(), time.and_then(|(_, _, value)| nanos(value)).filter(|time| *time != 0)))
    }
    fn report(&self) -> io::Result<(&'static str, u32, u128)> {
        let (bytes, control) = sys::recv_message(self, 9000, libc::MSG_ERRQUEUE)?;
        assert!(bytes.is_empty(), "OPT_TSONLY");
        let of = |wanted: (i32, i32)| {
            let found = control.iter().find(|(level, kind, _)| (*level, *kind) == wanted);
            found.map(|(_, _, value)| &value[..]).unwrap()
        };
        let at = nanos(of((libc::SOL_SOCKET, libc::SO_TIMESTAMPING))).unwrap();
        let error = of((libc::SOL_IP, libc::IP_RECVERR));
        assert_eq!(error[4], ORIGIN_TIMESTAMPING);
        let word = |at: usize| u32::from_ne_bytes(error[at..at + 4].try_into().unwrap());
        let what = *["sent", "scheduled", "acknowledged"].get(word(8) as usize).unwrap();
        Ok((what, word(12), at))
    }
    fn error(&self) -> Option<i32> {
        self.take_error().unwrap().and_then(|error| error.raw_os_error())
    }
    fn ready(&self) -> (bool, bool) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(self, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        let found = fds[0].revents();
        (found.contains(PollFlags::IN), found.contains(PollFlags::ERR))
    }
}

impl Socket for sockeye::UdpSocket {
    fn connect(&self, to: &Self) -> io::Result<()> {
        self.connect(to.local_addr()?)
    }
    fn set(&self, wanted: Timestamping) -> io::Result<()> {
        self.set_timestamping(wanted)
    }
    fn set_segment_size(&self, size: u16) {
        self.set_segment_size(size).unwrap();
    }
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.send(bytes)
    }
    fn send_asking(&self, bytes: &[u8], asked: Timestamping) -> io::Result<usize> {
        self.send_msg(&[IoSlice::new(bytes)], &SendMeta { timestamping: Some(asked), ..SendMeta::default() })
    }
    fn recv(&self) -> io::Result<(usize, Option<u128>)> {
        let meta = self.recv_msg(&mut [IoSliceMut::new(&mut [0; 9000])])?;
        Ok((meta.len, meta.received_at.map(|at| at.as_nanos())))
    }
    fn report(&self) -> io::Result<(&'static str, u32, u128)> {
        let Report::Timestamp { what, key, at } = self.recv_report()? else { panic!("no time stamp") };
        let name = [(SENT, "sent"), (SCHEDULED, "scheduled"), (ACKED, "acknowledged")]
            .into_iter()
            .find(|(flag, _)| *flag == what);
        Ok((name.unwrap().1, key, at.as_nanos()))
    }
    fn error(&self) -> Option<i32> {
        self.take_error().unwrap().and_then(|error| error.raw_os_error())
    }
    fn ready(&self) -> (bool, bool) {
        let poll = Poll::new(Duration::ZERO);
        poll.register(self, Token(0), Interest::READABLE, Trigger::Level).unwrap();
        let mut events = Events::with_capacity(4);
        poll.wait(&mut events, Some(Duration::ZERO)).unwrap();
        let any = |f: fn(&sockeye::poll::Event) -> bool| events.iter().any(f);
        (any(sockeye::poll::Event::is_readable), any(sockeye::poll::Event::is_error))
    }
}

/// The results of a case, one call a line.
struct Story(String);

impl Story {
    fn note(&mut self, what: &str, result: io::Result<impl std::fmt::Debug>) {
        let result = result.map_err(|error| rustix::io::Errno::from_io_error(&error));
        writeln!(self.0, "{what}: {result:?}").unwrap();
    }

    /// All reports of a socket. Their times go up.
    fn reports(&mut self, socket: &impl Socket) -> u128 {
        let mut last = 0;
        self.note("ready", Ok(socket.ready()));
        loop {
            let report = socket.report();
            let shown = report.as_ref().map(|(what, key, _)| (*what, *key));
            self.note("report", shown.map_err(|error| io::Error::from(error.kind())).map_err(again));
            let Ok((_, _, at)) = report else { return last };
            assert!(at >= last, "reports are in the order of their times");
            last = at;
        }
    }

    fn recv(&mut self, socket: &impl Socket) -> Option<u128> {
        let got = socket.recv();
        let shown = got.as_ref().map(|(len, at)| (*len, at.is_some()));
        self.note("received", shown.map_err(|error| io::Error::from_raw_os_error(errno(error))));
        got.ok()?.1
    }
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EAGAIN)
}

fn again(_: io::Error) -> io::Error {
    io::Error::from_raw_os_error(libc::EAGAIN)
}

type Case<S> = fn(&S, &S, &mut Story);

/// Makes the pair of both kinds for each of the named cases, and a test that compares.
macro_rules! cases {
    ($($case:ident),+ $(,)?) => { $(
        #[test]
        fn $case() {
            compare(cases::$case, cases::$case);
        }
    )+ };
}

cases! {
    sends_are_reported_in_order,
    without_numbers_the_key_is_zero,
    nothing_is_acknowledged,
    sends_that_fail_take_no_number,
    numbers_begin_anew_with_the_option,
    a_call_asks_for_itself,
    datagrams_have_a_time,
    a_buffer_of_many_is_one_send,
    a_closed_port_has_a_report_and_an_error,
}

fn compare(on_kernel: Case<UdpSocket>, on_ours: Case<sockeye::UdpSocket>) {
    let (mut theirs, mut ours) = (Story(String::new()), Story(String::new()));
    let kernel = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    kernel.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
    on_kernel(&kernel[0], &kernel[1], &mut theirs);
    let stack = Stack::new(Config::default()).unwrap();
    let both = [(); 2].map(|()| sockeye::UdpSocket::bind_on(&stack, "127.0.0.1:0").unwrap());
    both.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
    on_ours(&both[0], &both[1], &mut ours);
    assert!(theirs.0.lines().count() > 2, "nothing was compared");
    assert_eq!(theirs.0, ours.0, "the kernel is on the left");
}

mod cases {
    use super::*;

    pub fn sends_are_reported_in_order<S: Socket>(a: &S, b: &S, story: &mut Story) {
        a.connect(b).unwrap();
        story.reports(a);
        story.note("sends", a.send(b"not asked"));
        story.note("asks", a.set(SCHEDULED.with(SENT).with(NUMBERED)));
        for _ in 0..3 {
            story.note("sends", a.send(b"x"));
        }
        story.note("error", Ok(a.error()));
        story.reports(a);
        story.note("sends", a.send(b""));
        story.recv(a);
        story.reports(a);
        story.note("no longer asks", a.set(Timestamping::NONE));
        story.note("sends", a.send(b"x"));
        story.reports(a);
    }

    pub fn without_numbers_the_key_is_zero<S: Socket>(a: &S, b: &S, story: &mut Story) {
        a.connect(b).unwrap();
        for wanted in [SENT, SCHEDULED] {
            story.note("asks", a.set(wanted));
            story.note("sends", a.send(b"x"));
            story.note("sends", a.send(b"y"));
            story.reports(a);
        }
    }

    pub fn nothing_is_acknowledged<S: Socket>(a: &S, b: &S, story: &mut Story) {
        a.connect(b).unwrap();
        story.note("asks", a.set(ACKED.with(NUMBERED)));
        story.note("sends", a.send(b"x"));
        story.recv(b);
        story.reports(a);
        story.note("asks", a.set(ACKED.with(SENT).with(NUMBERED)));
        story.note("sends", a.send(b"x"));
        story.reports(a);
    }

    pub fn sends_that_fail_take_no_number<S: Socket>(a: &S, b: &S, story: &mut Story) {
        story.note("asks", a.set(SENT.with(NUMBERED)));
        story.note("sends to nobody", a.send(b"x"));
        a.connect(b).unwrap();
        story.note("sends too much", a.send(&[0; 65_508]));
        story.note("sends", a.send(b"x"));
        story.reports(a);
    }

    pub fn numbers_begin_anew_with_the_option<S: Socket>(a: &S, b: &S, story: &mut Story) {
        a.connect(b).unwrap();
        for wanted in [SENT.with(NUMBERED), SENT, SENT.with(NUMBERED), SENT.with(SCHEDULED).with(NUMBERED)] {
            story.note("asks", a.set(wanted));
            story.note("sends", a.send(b"x"));
            story.note("sends", a.send(b"x"));
            story.reports(a);
        }
    }

    pub fn a_call_asks_for_itself<S: Socket>(a: &S, b: &S, story: &mut Story) {
        a.connect(b).unwrap();
        story.note("asks", a.set(NUMBERED));
        story.note("sends", a.send(b"x"));
        story.note("sends and asks", a.send_asking(b"x", SENT));
        story.note("sends and asks", a.send_asking(b"x", SENT.with(SCHEDULED)));
        story.note("sends and asks for too much", a.send_asking(b"x", RECEIVED));
        story.reports(a);
        story.note("asks", a.set(SENT.with(NUMBERED)));
        story.note("sends and does not ask", a.send_asking(b"x", Timestamping::NONE));
        story.note("sends", a.send(b"x"));
        story.reports(a);
    }

    pub fn datagrams_have_a_time<S: Socket>(a: &S, b: &S, story: &mut Story) {
        a.connect(b).unwrap();
        story.note("asks", a.set(SENT));
        story.note("asks", b.set(RECEIVED));
        story.note("sends", a.send(b"x"));
        story.note("sends", a.send(b"yy"));
        let sent = story.reports(a);
        let first = story.recv(b);
        let second = story.recv(b);
        assert!(first.unwrap() <= second.unwrap() && sent <= second.unwrap());
        story.recv(b);
        story.reports(b);
        story.note("no longer asks", b.set(Timestamping::NONE));
        story.note("sends", a.send(b"x"));
        story.recv(b);
    }

    pub fn a_buffer_of_many_is_one_send<S: Socket>(a: &S, b: &S, story: &mut Story) {
        a.connect(b).unwrap();
        a.set_segment_size(1000);
        story.note("asks", a.set(SENT.with(NUMBERED)));
        story.note("asks", b.set(RECEIVED));
        for len in [2500, 1000, 10] {
            story.note("sends", a.send(&vec![7; len]));
        }
        story.reports(a);
        for _ in 0..6 {
            story.recv(b);
        }
    }

    pub fn a_closed_port_has_a_report_and_an_error<S: Socket>(a: &S, b: &S, story: &mut Story) {
        // A peer that does not listen to this one.
        b.connect(b).unwrap();
        a.connect(b).unwrap();
        story.note("asks", a.set(SENT.with(NUMBERED)));
        story.note("sends", a.send(b"x"));
        story.note("ready", Ok(a.ready()));
        story.note("sends", a.send(b"y"));
        story.note("sends", a.send(b"z"));
        story.note("error", Ok(a.error()));
        story.reports(a);
    }
}
