//! Sockeye's side: the library over its own loopback interface.
//!
//! Purpose: Sockeye as a program would use it that changes nothing but, where the case says so, the spinning,
//! or the setting that an experiment compares.
//!
//! Does not depend on the workloads.
//!
//! Invariants: one stack and one listener live as long as their provider, as on the kernel's side:
//! [`Provider::listen`] hands out clones of the listener, so the TIME-WAIT states that `crr` leaves
//! stay on one port and are met again by the next sample.
//!
//! Tests: below.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::plan::Spin;
use crate::provider::{BACKLOG_MAX, Counters, EVENTS_MAX, Poller, Provider};
use crate::providers::handoffs;
use crate::providers::std_shape::std_shape;
use ::sockeye::poll::{Events, Interest, Poll, Token, Trigger};
use ::sockeye::{Config, Stack, TcpListener, TcpSocket, TcpStream};

/// A stack of its own.
pub struct Sockeye {
    listener: TcpListener,
    stack: Stack,
}

impl Sockeye {
    /// With the default configuration but for `spin`.
    pub fn new(spin: Spin) -> io::Result<Self> {
        let default = Config::default();
        Self::over(match spin {
            Spin::On => default,
            Spin::Off => Config { spin_max: Duration::ZERO, ..default },
        })
    }

    /// With this configuration.
    pub fn over(config: Config) -> io::Result<Self> {
        let stack = Stack::new(config)?;
        Ok(Self { listener: listen_on(&stack)?, stack })
    }
}

impl Provider for Sockeye {
    type Listener = TcpListener;
    type Stream = TcpStream;
    type Poller = Readiness;

    fn listen(&self) -> io::Result<TcpListener> {
        self.listener.try_clone()
    }

    fn listen_anew(&self) -> io::Result<TcpListener> {
        listen_on(&self.stack)
    }

    fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect_on(&self.stack, to)
    }

    fn poller(&self) -> io::Result<Readiness> {
        Ok(readiness(&self.stack))
    }

    fn counters(&self) -> Counters {
        let named = |(name, value): (&str, u64)| (name.to_owned(), value);
        self.stack.counters().into_iter().chain(handoffs::so_far()).map(named).collect()
    }

    fn pairs_max(&self) -> usize {
        // Every connection is two pcbs here.
        self.stack.config().connections_max / 2
    }
}

std_shape!(TcpListener, TcpStream, |stream| stream.set_linger(Some(Duration::ZERO)));

/// Sockeye's readiness, level-triggered.
pub struct Readiness {
    poll: Poll,
    events: Events,
}

impl Poller for Readiness {
    type Stream = TcpStream;

    fn register(&mut self, stream: &TcpStream, token: usize) -> io::Result<()> {
        self.poll.register(stream, Token(token), Interest::READABLE, Trigger::Level)
    }

    fn wait(&mut self, timeout: Duration, mut ready: impl FnMut(usize) -> io::Result<()>) -> io::Result<()> {
        self.poll.wait(&mut self.events, Some(timeout))?;
        for event in &self.events {
            ready(event.token().0)?;
        }
        Ok(())
    }
}

/// A poller that spins as the stack's sockets do.
pub fn readiness(stack: &Stack) -> Readiness {
    Readiness { poll: Poll::new(stack.config().spin_max), events: Events::with_capacity(EVENTS_MAX) }
}

fn listen_on(stack: &Stack) -> io::Result<TcpListener> {
    let mut socket = TcpSocket::new_v4(stack);
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    socket.listen(BACKLOG_MAX as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::checks;

    #[test]
    fn bytes_arrive_and_the_poller_reports_them_until_they_are_read() {
        checks::readiness_is_level_triggered(&Sockeye::new(Spin::On).unwrap());
        checks::readiness_is_level_triggered(&Sockeye::new(Spin::Off).unwrap());
    }

    #[test]
    fn a_closed_peer_is_an_unexpected_eof_for_read_exact() {
        checks::a_closed_peer_ends_the_stream(&Sockeye::new(Spin::On).unwrap());
    }
}
