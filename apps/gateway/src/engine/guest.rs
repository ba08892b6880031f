//! A loop whose device is a virtual machine's network card ([`VhostUser`]), and the monitors that connect to it.
//!
//! Does not depend on frames. Tests: `tests/machines/vhost.rs`, and a guest of QEMU in `tests/machines/guest.rs`.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};

use sockeye_drivers::VhostUser;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::Shared;
use super::port::Turns;
use crate::readiness::register;

/// A card, or the place for one.
pub struct Guest {
    /// The device.
    pub card: VhostUser,
    events: AsyncFd<OwnedFd>,
    /// A front end has come, and was not yet found to be gone.
    is_served: bool,
    listener: Option<(tokio::net::UnixListener, Turns)>,
}

impl Guest {
    /// Whoever comes to the listener.
    ///
    /// # Errors
    /// The system's.
    pub fn of_listener(card: VhostUser, listener: UnixListener, turns: Turns) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let events = register(card.descriptor()?, Interest::READABLE)?;
        Ok(Self { card, events, is_served: false, listener: Some((listener, turns)) })
    }

    /// The front end at this socket.
    ///
    /// # Errors
    /// The system's.
    pub fn of_socket(card: VhostUser, socket: UnixStream) -> io::Result<Self> {
        let events = register(card.descriptor()?, Interest::READABLE)?;
        card.connect(socket)?;
        Ok(Self { card, events, is_served: true, listener: None })
    }

    /// As [`Port::ready`](super::port::Port::ready).
    ///
    /// # Errors
    /// The runtime ends.
    pub async fn ready(&mut self, shared: &Shared) -> io::Result<()> {
        if self.card.is_connected() {
            self.events.readable().await?.clear_ready();
            // What is taken away here is looked for behind this call, in `Stack::poll`.
            self.card.take_events();
            return Ok(());
        }
        let was_served = std::mem::take(&mut self.is_served);
        if let Some(error) = self.card.take_refusal() {
            eprintln!("sockeye gateway: the machine's front end was let go: {error}");
        }
        if was_served && self.listener.as_ref().is_none_or(|(_, turns)| *turns == Turns::One) {
            self.card.end();
            return Ok(());
        }
        let Some((listener, _)) = &self.listener else { return std::future::pending().await };
        let (socket, _) = listener.accept().await?;
        // Another machine than before, perhaps.
        shared.router.forget();
        self.card.connect(socket.into_std()?)?;
        self.is_served = true;
        Ok(())
    }
}
