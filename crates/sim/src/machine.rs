//! The clock and the random numbers that `std` and libc have in a run: those of `sockeye_entropy`, with the feature `entropy`.
//!
//! Without the feature there are the same names and nothing behind them. Tests: `tests/hosts/entropy.rs`.

#[cfg(feature = "entropy")]
mod replaced {
    use std::sync::Arc;
    use std::time::Duration;

    use sockeye_entropy::{IS_SUPPORTED, Scope};

    /// The machine of a run. Clones are the same machine.
    #[derive(Clone)]
    pub(crate) struct Machine(Arc<sockeye_entropy::Machine>);

    impl Machine {
        pub fn new(seed: u64) -> Self {
            Self(Arc::new(sockeye_entropy::Machine::new(seed)))
        }

        pub fn set_elapsed(&self, elapsed: Duration) {
            self.0.set_elapsed(elapsed);
        }

        pub fn set_offsets(&self, monotonic: i64, real: i64) {
            self.0.set_offsets(monotonic, real);
        }

        /// Calls `f` while the monotonic clock shows a nanosecond more.
        #[cfg(feature = "tokio")]
        pub fn a_nanosecond_later<R>(&self, f: impl FnOnce() -> R) -> R {
            self.0.a_nanosecond_later(f)
        }

        /// Has `call` called when a program reads a clock for ever that does not move.
        #[cfg(feature = "tokio")]
        pub fn on_restless(&self, call: fn()) {
            self.0.on_restless(call);
        }

        /// What the monotonic clock shows, as time since the start.
        #[cfg(feature = "tokio")]
        pub fn shown(&self) -> Duration {
            self.0.shown()
        }

        /// Random words that were drawn so far.
        pub fn drawn(&self) -> u64 {
            self.0.drawn()
        }

        /// Has this thread's hash maps follow from the seed, if none was made yet.
        pub fn draw_keys(&self) {
            let _scope = self.enter();
        }

        /// This thread is one of the run until the scope is dropped. On systems where nothing can be replaced, as without the feature.
        ///
        /// # Panics
        /// If the program cannot have it.
        pub fn enter(&self) -> Option<Scope> {
            let scope = IS_SUPPORTED.then(|| self.0.enter())?;
            Some(scope.unwrap_or_else(|error| panic!("feature entropy of sockeye-sim: {error}")))
        }
    }
}

#[cfg(feature = "entropy")]
pub(crate) use replaced::Machine;

#[cfg(not(feature = "entropy"))]
mod absent {
    use std::time::Duration;

    /// Nothing is replaced.
    #[derive(Clone)]
    pub(crate) struct Machine;

    impl Machine {
        pub fn new(_: u64) -> Self {
            Self
        }

        #[expect(clippy::unused_self, reason = "as with the feature")]
        pub fn set_elapsed(&self, _: Duration) {}

        #[expect(clippy::unused_self, reason = "as with the feature")]
        pub fn set_offsets(&self, _: i64, _: i64) {}

        #[expect(clippy::unused_self, reason = "as with the feature")]
        pub fn drawn(&self) -> u64 {
            0
        }

        #[expect(clippy::unused_self, reason = "as with the feature")]
        pub fn draw_keys(&self) {}

        #[expect(clippy::unused_self, reason = "as with the feature")]
        pub fn enter(&self) -> Option<()> {
            None
        }
    }
}

#[cfg(not(feature = "entropy"))]
pub(crate) use absent::Machine;
