//! A loop whose device is a virtual machine's network card ([`VhostUser`]), and the monitors that connect to it.
//!
//! Does not depend on frames. Tests: `tests/machines/vhost.rs`, and a guest of QEMU in `tests/machines/guest.rs`.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use sockeye_drivers::VhostUser;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::Shared;
use super::door::Door;
use crate::readiness::register;

/// A card, or the place for one.
pub struct Guest {
    /// The device.
    pub card: VhostUser,
    events: AsyncFd<OwnedFd>,
    /// A front end has come, and was not yet found to be gone.
    is_served: bool,
    door: Option<Door>,
}

impl Guest {
    /// Whoever comes in.
    ///
    /// # Errors
    /// The system's.
    pub fn of_door(card: VhostUser, door: Door) -> io::Result<Self> {
        let events = register(card.descriptor()?, Interest::READABLE)?;
        Ok(Self { card, events, is_served: false, door: Some(door) })
    }

    /// The front end at this socket.
    ///
    /// # Errors
    /// The system's.
    pub fn of_socket(card: VhostUser, socket: UnixStream) -> io::Result<Self> {
        let events = register(card.descriptor()?, Interest::READABLE)?;
        card.connect(socket)?;
        Ok(Self { card, events, is_served: true, door: None })
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
        if was_served && self.door.as_ref().is_none_or(Door::is_for_one) {
            self.card.end();
            return Ok(());
        }
        let Some(door) = &mut self.door else { return std::future::pending().await };
        let card = &self.card;
        let connect = |socket| {
            // Another machine than before, perhaps.
            shared.router.forget();
            card.connect(socket)
        };
        door.next(connect).await;
        self.is_served = true;
        Ok(())
    }
}
