//! Listeners and streams in the shape of `std::net`: the kernel's and Sockeye's have the same methods, so that both sides make the same calls.
//!
//! Does not depend on which side it is compiled for. Tests: the providers'.

/// Implements [`Listener`](crate::provider::Listener) and [`Stream`](crate::provider::Stream). `$discard` has a stream send a reset and
/// keep nothing when it is closed.
macro_rules! std_shape {
    ($listener:ty, $stream:ty, |$this:ident| $discard:expr) => {
        impl crate::provider::Listener for $listener {
            type Stream = $stream;

            fn accept(&self) -> std::io::Result<$stream> {
                <$listener>::accept(self).map(|(stream, _)| stream)
            }

            fn local_addr(&self) -> std::io::Result<std::net::SocketAddr> {
                <$listener>::local_addr(self)
            }

            fn try_clone(&self) -> std::io::Result<Self> {
                <$listener>::try_clone(self)
            }
        }

        impl crate::provider::Stream for $stream {
            fn read(&self, buf: &mut [u8]) -> std::io::Result<usize> {
                let mut stream = self;
                std::io::Read::read(&mut stream, buf)
            }

            fn write(&self, buf: &[u8]) -> std::io::Result<usize> {
                let mut stream = self;
                std::io::Write::write(&mut stream, buf)
            }

            fn write_all(&self, buf: &[u8]) -> std::io::Result<()> {
                let mut stream = self;
                std::io::Write::write_all(&mut stream, buf)
            }

            fn shutdown_write(&self) -> std::io::Result<()> {
                self.shutdown(std::net::Shutdown::Write)
            }

            fn set_nodelay(&self, on: bool) -> std::io::Result<()> {
                <$stream>::set_nodelay(self, on)
            }

            fn set_nonblocking(&self, on: bool) -> std::io::Result<()> {
                <$stream>::set_nonblocking(self, on)
            }

            fn discard_on_close(&self) -> std::io::Result<()> {
                let $this = self;
                $discard
            }

            fn local_addr(&self) -> std::io::Result<std::net::SocketAddr> {
                <$stream>::local_addr(self)
            }

            fn peer_addr(&self) -> std::io::Result<std::net::SocketAddr> {
                <$stream>::peer_addr(self)
            }
        }
    };
}
pub(super) use std_shape;
