//! A stack in an existing event loop: no thread but the program's own. `byo_loop [DEVICE]`.
//!
//! An echo server behind a TUN device, at 10.9.0.2 port 7. The program sleeps in one `epoll_wait`, in which its other
//! descriptors would stand too. Its duties to the stack are all in [`Looped::turn`] and [`Looped::sleep`]:
//!
//! * call `Stack::poll` whenever it is awake, with the time by its own clock; that reads the device, too;
//! * look at its sockets, which do not block;
//! * sleep until the device has frames, the time that `poll` named, or the eventfd to which `set_driver_wake` writes.
//!
//! The eventfd makes this right: a call that the program made *after* `poll` may have set an earlier timer.
//!
//! Needs root (CAP_NET_ADMIN). Tests: `tests/examples.rs`.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use sockeye::netif::{Netif, Prefix};
use sockeye::poll::{Events, Interest, Poll, Token, Trigger};
use sockeye::{Config, Stack, TcpListener, TcpStream};
use sockeye_drivers::{Tun, TunConfig};

/// The kernel's address on the device, and ours.
pub const KERNEL: &str = "10.9.0.1/24";
/// Likewise.
pub const SERVER: &str = "10.9.0.2/24";
/// Most connections; more wait in the listener's queue.
const CONNECTIONS_MAX: usize = 1024;
/// Bytes that are read from one connection at a time, and kept if they cannot be sent yet.
const CHUNK: usize = 64 << 10;
/// The listener's token; connections have those above.
const LISTENER: Token = Token(0);

#[allow(dead_code, reason = "a test makes a `Looped` instead")]
fn main() -> ExitCode {
    let device = std::env::args().nth(1).unwrap_or_default();
    let ran = Looped::new(&device).and_then(|mut looped| {
        println!("echo on 10.9.0.2:7 through {}", looped.tun.link().name());
        while !looped.tun.is_down() {
            let next = looped.turn()?;
            looped.sleep(next)?;
        }
        Ok(())
    });
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("byo_loop: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The program and its stack.
pub struct Looped {
    pub tun: Tun,
    stack: Stack,
    start: Instant,
    /// The descriptors that the program sleeps on: the device's queues and `wake`.
    epoll: OwnedFd,
    wake: Arc<OwnedFd>,
    /// Which of the stack's sockets may be ready. Never waited in.
    poll: Poll,
    events: Events,
    listener: TcpListener,
    connections: HashMap<Token, Connection>,
    next_token: usize,
}

struct Connection {
    stream: TcpStream,
    /// Read, and not written yet. Nothing is read meanwhile, so the peer is stopped.
    kept: Vec<u8>,
}

impl Looped {
    pub fn new(device: &str) -> io::Result<Self> {
        let prefix = |text: &str| text.parse::<Prefix>().map_err(io::Error::other);
        let tun = Tun::open(&TunConfig { name: device.to_owned(), ..TunConfig::default() })?;
        tun.link().add_addr(prefix(KERNEL)?)?;
        let stack = Stack::new(Config { workers: 0, ..Config::default() })?;
        stack.attach(tun.clone(), &[prefix(SERVER)?])?;

        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let bell = Arc::clone(&wake);
        stack.set_driver_wake(Some(move || {
            // It fails only when the eventfd is full, and then it is readable anyway.
            let _ = rustix::io::write(&bell, &1u64.to_ne_bytes());
        }));
        for fd in tun.descriptors() {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;

        let listener = TcpListener::bind_on(&stack, (prefix(SERVER)?.addr(), 7))?;
        listener.set_nonblocking(true)?;
        let poll = Poll::new(Duration::ZERO);
        poll.register(&listener, LISTENER, Interest::READABLE, Trigger::Level)?;
        Ok(Self {
            tun,
            stack,
            start: Instant::now(),
            epoll,
            wake,
            poll,
            events: Events::with_capacity(64),
            listener,
            connections: HashMap::new(),
            next_token: LISTENER.0 + 1,
        })
    }

    /// The time by the loop's clock, since the stack was made.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Runs the stack once. Returns when to be called again at the latest; `None`: not before something happens.
    pub fn turn(&mut self) -> io::Result<Option<Duration>> {
        let next = self.stack.poll(self.now());
        self.poll.wait(&mut self.events, Some(Duration::ZERO))?;
        // A full server accepts no client until another has left, which is an event of its own.
        let is_full = self.connections.len() >= CONNECTIONS_MAX;
        let tokens = self.events.iter().map(|event| event.token());
        let tokens: Vec<Token> = tokens.filter(|token| !(is_full && *token == LISTENER)).collect();
        for token in &tokens {
            if *token == LISTENER {
                self.accept()?;
            } else if self.connections.get_mut(token).is_some_and(|it| !it.turn(&self.poll, *token)) {
                self.connections.remove(token);
            }
        }
        // A socket that was ready may be so again: there is more to do before sleeping.
        Ok(if tokens.is_empty() { next } else { Some(Duration::ZERO) })
    }

    /// Sleeps until `next`, a frame or a wake.
    pub fn sleep(&self, next: Option<Duration>) -> io::Result<()> {
        let timeout = next.map(|next| next.saturating_sub(self.now()));
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        let mut events = Vec::with_capacity(8);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Taken before `poll` is called again: a wake after this one is seen by the next sleep.
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        while self.connections.len() < CONNECTIONS_MAX {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            stream.set_nonblocking(true)?;
            let token = Token(self.next_token);
            self.next_token += 1;
            self.poll.register(&stream, token, Interest::READABLE, Trigger::Level)?;
            self.connections.insert(token, Connection { stream, kept: Vec::new() });
        }
        Ok(())
    }
}

impl Connection {
    /// Sends back the received bytes. False if the connection is over.
    fn turn(&mut self, poll: &Poll, token: Token) -> bool {
        let waited = !self.kept.is_empty();
        let is_over = match self.echo() {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        let waits = !self.kept.is_empty();
        let interest = if waits { Interest::WRITABLE } else { Interest::READABLE };
        let changed =
            waited == waits || poll.reregister(&self.stream, token, interest, Trigger::Level).is_ok();
        changed && !is_over
    }

    /// Returns how many bytes have moved; 0 at the end.
    fn echo(&mut self) -> io::Result<usize> {
        if self.kept.is_empty() {
            let mut buffer = vec![0; CHUNK];
            let len = self.stream.read(&mut buffer)?;
            buffer.truncate(len);
            self.kept = buffer;
        }
        let len = self.kept.len();
        if len == 0 {
            return Ok(0);
        }
        let written = self.stream.write(&self.kept)?;
        self.kept.drain(..written);
        Ok(written)
    }
}
