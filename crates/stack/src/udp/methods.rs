//! Common parts of the sockets on a [`Handle`](super::naming::Handle): their handles, poll, errors and timeouts.
//!
//! A macro, as the methods are each type's own in the documentation. It does not depend on the type of
//! datagrams. Tests: `tests/udp/`, `tests/ip/sockets.rs`.

/// The methods of a type whose field `handle` is an `Arc<Handle>`.
macro_rules! handle_methods {
    ($type:ident) => {
        impl $type {
            /// Another handle of the same socket.
            ///
            /// # Errors
            /// None; the signature is that of `std`.
            pub fn try_clone(&self) -> std::io::Result<Self> {
                let handle = sockeye_sync::facade::Arc::clone(self.handle.open()?);
                Ok(Self { handle: $crate::rt::fork::Held::new(self.stack().clone(), handle) })
            }

            /// Takes the pending error (SO_ERROR).
            ///
            /// # Errors
            /// None; the signature is that of `std`.
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                Ok(self.handle.open()?.pcb.take_error().map(std::io::Error::from))
            }

            /// The stack that the socket belongs to.
            pub fn stack(&self) -> &$crate::rt::handle::Stack {
                self.handle.stack()
            }

            pub(super) fn options(&self) -> std::io::Result<&$crate::udp::options::Options> {
                Ok(&self.handle.open()?.pcb.options)
            }

            /// O_NONBLOCK, of all handles of the socket.
            ///
            /// # Errors
            /// None; the signature is that of `std`.
            pub fn set_nonblocking(&self, nonblocking: bool) -> std::io::Result<()> {
                self.options()?.nonblocking.store(nonblocking, sockeye_sync::facade::Ordering::Relaxed);
                Ok(())
            }

            /// SO_RCVTIMEO: how long a receive waits at most; `None` for no limit. Receives then fail with `WouldBlock`.
            ///
            /// # Errors
            /// `InvalidInput` for zero.
            pub fn set_read_timeout(&self, timeout: Option<std::time::Duration>) -> std::io::Result<()> {
                $crate::rt::blocking::store_timeout(&self.options()?.rcv_timeout, timeout)
            }

            /// The value set.
            ///
            /// # Errors
            /// None; the signature is that of `std`.
            pub fn read_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                Ok($crate::rt::blocking::load_timeout(&self.options()?.rcv_timeout))
            }
        }

        impl $crate::rt::poll::Pollable for $type {}

        impl $crate::rt::poll::sealed::Source for $type {
            fn owner(&self) -> &$crate::rt::handle::Stack {
                self.stack()
            }

            #[allow(private_interfaces)]
            fn target(&self) -> std::io::Result<Box<dyn $crate::rt::poll::Target>> {
                let pcb = sockeye_sync::facade::Arc::clone(&self.handle.open()?.pcb);
                Ok(Box::new($crate::udp::pcb::End(pcb)))
            }
        }
    };
}
pub(crate) use handle_methods;
