//! The observations of a case, line by line, and the comparison.
//!
//! Each stack chooses its own ports, so a story refers to addresses by the names that the case gave them.

use std::fmt::{Debug, Write as _};
use std::io;
use std::net::SocketAddr;

use crate::common;
use crate::provider::{Kernel, Ours, Socket};

/// See the module's head.
#[derive(Default)]
pub struct Story {
    lines: String,
    names: Vec<(u16, &'static str)>,
}

impl Story {
    /// From now on the socket's port is called `name`.
    pub fn name(&mut self, name: &'static str, socket: &impl Socket) {
        self.names.insert(0, (socket.local().port(), name));
    }

    fn line(&mut self, text: &str) {
        writeln!(self.lines, "{text}").expect("a String takes everything");
    }

    pub fn note(&mut self, what: &str, result: io::Result<impl Debug>) {
        match result {
            Ok(value) => self.line(&format!("{what}: {value:?}")),
            Err(error) => self.line(&format!("{what}: {}", errno(&error))),
        }
    }

    pub fn addr(&self, addr: SocketAddr) -> String {
        match self.names.iter().find(|(port, _)| *port == addr.port()) {
            Some((_, name)) => format!("{}:{name}", addr.ip()),
            None if addr.port() == 0 => format!("{}:0", addr.ip()),
            None => format!("{}:?", addr.ip()),
        }
    }

    pub fn addresses(&mut self, who: &str, socket: &impl Socket) {
        let local = self.addr(socket.local());
        let peer = socket.peer().map(|peer| self.addr(peer));
        self.line(&format!("{who} is {local}"));
        self.note(&format!("{who} has the peer"), peer);
    }

    /// The result of a receive into `room` bytes.
    pub fn recv(&mut self, who: &str, socket: &impl Socket, room: usize) {
        let mut buf = vec![0; room];
        let got = socket.recv(&mut buf).map(|(len, from)| (text(&buf[..len]), self.addr(from)));
        self.note(&format!("{who} receives"), got);
    }

    pub fn peek(&mut self, who: &str, socket: &impl Socket, room: usize) {
        let mut buf = vec![0; room];
        let got = socket.peek(&mut buf).map(|(len, from)| (text(&buf[..len]), self.addr(from)));
        self.note(&format!("{who} peeks"), got);
    }

    /// Readiness and pending error, in that order.
    pub fn state(&mut self, who: &str, socket: &impl Socket) {
        self.note(&format!("{who} is ready"), Ok(socket.ready()));
        let error = socket.take_error().map(|error| errno(&error));
        self.note(&format!("{who} has the error"), Ok(error));
    }
}

fn text(bytes: &[u8]) -> String {
    match bytes.len() {
        0..=32 => String::from_utf8_lossy(bytes).into_owned(),
        len => format!("{len} bytes of {}", bytes[0]),
    }
}

/// An error by its number, as programs see it.
pub fn errno(error: &io::Error) -> String {
    let number = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    match (number, error.kind()) {
        (Some(number), _) => format!("{number:?}"),
        (None, io::ErrorKind::AddrInUse) => format!("{:?}", rustix::io::Errno::ADDRINUSE),
        (None, io::ErrorKind::AddrNotAvailable) => format!("{:?}", rustix::io::Errno::ADDRNOTAVAIL),
        (None, kind) => format!("{kind:?}"),
    }
}

/// A line that is meant to read otherwise here.
struct Difference {
    case: &'static str,
    kernel: &'static str,
    sockeye: &'static str,
    why: &'static str,
}

/// The whole list. Anything else that differs fails the test.
const DIFFERENCES: &[Difference] = &[];

/// Runs a case on both and holds the stories against each other.
pub fn compare(case: &str, on_kernel: fn(&Kernel, &mut Story), on_ours: fn(&Ours, &mut Story)) {
    let _guard = common::watchdog("udp");
    let (mut kernel, mut ours) = (Story::default(), Story::default());
    let net = Ours::new();
    on_kernel(&Kernel, &mut kernel);
    on_ours(&net, &mut ours);
    assert!(kernel.lines.lines().count() > 1, "{case}: nothing was compared");
    let (theirs, ours): (Vec<_>, Vec<_>) = (kernel.lines.lines().collect(), ours.lines.lines().collect());
    let is_meant = |a: &str, b: &str| {
        DIFFERENCES.iter().any(|d| d.case == case && d.kernel == a && d.sockeye == b && !d.why.is_empty())
    };
    let mut found = Vec::new();
    for place in 0..theirs.len().max(ours.len()) {
        let (a, b) = (theirs.get(place).unwrap_or(&"-"), ours.get(place).unwrap_or(&"-"));
        if a != b && !is_meant(a, b) {
            found.push(format!("line {place}\n  kernel:  {a}\n  sockeye: {b}"));
        }
    }
    assert!(
        found.is_empty(),
        "{case}: {} differences\n{}\n\n{}",
        found.len(),
        found.join("\n"),
        kernel.lines
    );
    common::eventually("all packet memory is back", || net.0.memory_in_use() == 0);
}

/// Makes a test of each named case: functions over [`Net`](crate::provider::Net).
macro_rules! cases {
    ($($case:ident),+ $(,)?) => {
        mod on_both {
            $(
                #[test]
                fn $case() {
                    crate::story::compare(stringify!($case), super::$case, super::$case);
                }
            )+
        }
    };
}
pub(crate) use cases;
