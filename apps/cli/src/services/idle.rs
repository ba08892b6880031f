//! How long a connection may stay on which no byte moves, in either direction.
//!
//! A client that connects and is silent, or stops to read, would otherwise hold its task and its connection for as long as its
//! host answers, which is for ever. Two clocks share the bound, as there are two ways to stand still:
//!
//! ```text
//!   something is to be sent, and nothing of it is acknowledged   the stack's (TCP_USER_TIMEOUT), which goes on to count when
//!                                                                the service has closed and only the stack has the rest
//!   nothing is to be sent, and nothing comes                     `read`'s
//! ```
//!
//! A byte that was written moves when the peer acknowledges it: a read that was in vain for the whole time waits once more if
//! that happened meanwhile. So a client is given up after the time that was set, and before twice that.
//!
//! It does not depend on the service. Tests: below; `small.rs`, and over a device `tests/cli/tun.rs`.

use std::io;
use std::time::Duration;

use sockeye::tokio::TcpStream;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

/// The bound; none by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IdleMax(Option<Duration>);

impl IdleMax {
    /// The longest that can be set: more than a stack's clock of milliseconds takes is none.
    const LONGEST: Duration = Duration::from_millis(u32::MAX as u64);

    /// A bound of `time`; none if that is zero.
    pub fn new(time: Duration) -> Self {
        Self(Some(time.min(Self::LONGEST)).filter(|time| !time.is_zero()))
    }

    /// Has the stack watch over outgoing data, from now on until the connection has ended.
    pub fn watch(self, stream: &TcpStream) -> io::Result<()> {
        stream.get_ref().set_user_timeout(self.0)
    }

    /// Reads the next bytes. If none come for too long, and outgoing data stands still as well, the connection is reset
    /// when it is dropped.
    ///
    /// # Errors
    /// The connection's; `TimedOut` if it is given up.
    pub async fn read(self, stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(most) = self.0 else { return stream.read(buffer).await };
        let mut unacknowledged = stream.get_ref().unacknowledged()?;
        loop {
            // A read that is given up has taken nothing.
            if let Ok(done) = timeout(most, stream.read(buffer)).await {
                return done;
            }
            let before = std::mem::replace(&mut unacknowledged, stream.get_ref().unacknowledged()?);
            if unacknowledged == before {
                stream.set_linger(Some(Duration::ZERO))?;
                let message = format!("nothing has moved for {most:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sockeye::tokio::TcpListener;
    use sockeye::{Config, Stack};
    use tokio::io::AsyncWriteExt;
    use tokio::time::Instant;

    use super::*;

    /// Two ends of a connection over the loopback of a stack.
    async fn pair() -> (TcpStream, TcpStream) {
        let stack = Stack::new(Config::default()).unwrap();
        let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect_on(&stack, listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn a_read_of_a_silent_connection_fails_and_resets_it() {
        let (mut client, mut server) = pair().await;
        let idle = IdleMax::new(Duration::from_millis(5));
        client.write_all(b"hello").await.unwrap();
        let mut buffer = [0; 10];
        assert_eq!(idle.read(&mut server, &mut buffer).await.unwrap(), 5);
        assert_eq!(idle.read(&mut server, &mut buffer).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(server);
        assert_eq!(client.read(&mut buffer).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn a_read_without_a_reached_bound_is_a_plain_read() {
        for idle in [IdleMax::default(), IdleMax::new(Duration::ZERO), IdleMax::new(Duration::MAX)] {
            let (mut client, mut server) = pair().await;
            idle.watch(&server).unwrap();
            let mut buffer = [0; 10];
            let reading = idle.read(&mut server, &mut buffer);
            let writing = async {
                tokio::task::yield_now().await;
                client.write_all(b"late").await
            };
            let (read, written) = tokio::join!(reading, writing);
            written.unwrap();
            assert_eq!(read.unwrap(), 4);
            drop(client);
            assert_eq!(idle.read(&mut server, &mut buffer).await.unwrap(), 0);
        }
        assert_eq!(IdleMax::new(Duration::MAX), IdleMax(Some(IdleMax::LONGEST)));
    }

    /// A client that says nothing and takes 60,000 bytes in small steps, longer than the bound in all. Returns its longest pause
    /// between two steps, and the bytes left when the server disconnected it.
    async fn taken_slowly(most: Duration) -> (Duration, usize) {
        let (mut client, mut server) = pair().await;
        server.get_ref().set_send_buffer_size(64 << 10).unwrap();
        client.get_ref().set_recv_buffer_size(4 << 10).unwrap();
        server.write_all(&[7; 60_000]).await.unwrap();
        let taking = async {
            let (mut longest, mut buffer) = (Duration::ZERO, [0; 4096]);
            while client.read(&mut buffer).await.is_ok_and(|len| len > 0) {
                let taken_at = Instant::now();
                tokio::time::sleep(most / 8).await;
                longest = longest.max(taken_at.elapsed());
            }
            longest
        };
        let giving_up = async {
            let error = IdleMax::new(most).read(&mut server, &mut [0; 10]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            let left = server.get_ref().unacknowledged().unwrap();
            drop(server);
            left
        };
        tokio::join!(taking, giving_up)
    }

    #[tokio::test]
    async fn a_silent_client_that_reads_is_not_idle() {
        let most = Duration::from_millis(200);
        for _ in 0..20 {
            // A machine that holds the client up for long makes it look idle.
            let (longest, left) = taken_slowly(most).await;
            if longest < most / 2 {
                return assert_eq!(left, 0, "it was given up while it was reading");
            }
        }
        panic!("a machine on which no sleep is shorter than {most:?}");
    }
}
