//! Where machines come in, one after the other: what keeps one from coming is reported, and the next may come.
//!
//! Descriptors may be used up when one comes, by the flows of others. So a refusal ends nothing: after a pause there is another try. Does not depend on what a machine
//! speaks. Tests: below, and `tests/machines/socket.rs`.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::port::Turns;

/// Between a refusal and the next try.
pub const PAUSE: Duration = Duration::from_secs(1);

/// A listener for machines.
pub struct Door {
    listener: tokio::net::UnixListener,
    turns: Turns,
    /// After a refusal: the time of the next try. It outlives a caller that stops waiting.
    shut_until: Option<Instant>,
}

impl Door {
    /// Whoever comes to this listener.
    ///
    /// # Errors
    /// The system's.
    pub fn new(listener: UnixListener, turns: Turns) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        Ok(Self { listener, turns, shut_until: None })
    }

    /// Whether nobody comes after the first.
    pub fn is_for_one(&self) -> bool {
        self.turns == Turns::One
    }

    /// Returns what `connect` makes of the next machine.
    pub async fn next<T>(&mut self, mut connect: impl FnMut(UnixStream) -> io::Result<T>) -> T {
        loop {
            if let Some(until) = self.shut_until {
                sleep_until(until).await;
                self.shut_until = None;
            }
            let came = self.listener.accept().await.and_then(|(socket, _)| socket.into_std());
            match came.and_then(&mut connect) {
                Ok(connected) => return connected,
                Err(error) => {
                    eprintln!("sockeye gateway: a machine could not be connected: {error}");
                    self.shut_until = Some(Instant::now() + PAUSE);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_cannot_be_connected_leaves_the_door_to_the_next_after_a_pause() {
        let path = std::env::temp_dir().join(format!("sockeye-gateway-door-{}", std::process::id()));
        let mut door = Door::new(UnixListener::bind(&path).unwrap(), Turns::All).unwrap();
        let _machines = [UnixStream::connect(&path).unwrap(), UnixStream::connect(&path).unwrap()];
        std::fs::remove_file(&path).unwrap();
        let (mut tries, begun) = (0, Instant::now());
        let mut connect = |_| {
            tries += 1;
            if tries == 1 { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(tries) }
        };
        // Whoever waits here is called away in the pause, as the driver is.
        assert!(timeout(PAUSE / 4, door.next(&mut connect)).await.is_err());
        assert!(timeout(PAUSE / 4, door.next(&mut connect)).await.is_err());
        assert_eq!(door.next(&mut connect).await, 2);
        assert!(begun.elapsed() >= PAUSE);
    }
}
