//! Settings that are measured against each other: one switch for each of the five techniques, from its oldest setting to its best.
//!
//! Only with the feature `experiments`. Without it a stack has the defaults below, as constants. Every setting is correct, and every
//! combination of settings works; settings differ in the cost of one core to another. The names are those of `docs/experiments.md`,
//! so a setting can be given as text. The code of a setting is in the folder `experiments` of its layer; `docs/adr` says which
//! setting is the default, and why.
//!
//! Tests: below; the socket layer's tests run over the matrix of settings.

use std::fmt;
use std::str::FromStr;

/// Text that names no setting of a switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownSetting {
    switch: &'static str,
    given: String,
    known: &'static [&'static str],
}

impl fmt::Display for UnknownSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {:?}: give one of {}", self.switch, self.given, self.known.join(", "))
    }
}

impl std::error::Error for UnknownSetting {}

macro_rules! switch {
    ($(#[$doc:meta])* $name:ident = $key:literal { $($(#[$about:meta])* $setting:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub enum $name {
            $($(#[$about])* $setting,)+
        }

        impl $name {
            /// The key under which this switch is set as text.
            pub const KEY: &'static str = $key;
            /// Every setting, from the oldest to the best.
            pub const ALL: &'static [Self] = &[$(Self::$setting),+];
            /// Their names, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($text),+];

            /// The setting's name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$setting => $text,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $name {
            type Err = UnknownSetting;

            fn from_str(text: &str) -> Result<Self, UnknownSetting> {
                let found = Self::ALL.iter().find(|setting| setting.name() == text).copied();
                found.ok_or_else(|| UnknownSetting {
                    switch: Self::KEY,
                    given: text.to_owned(),
                    known: Self::NAMES,
                })
            }
        }
    };
}

switch! {
    /// How many connections share one squeue, which is the right to run protocol code. A squeue is in front of the
    /// locks of its connections.
    Grain = "grain" {
        /// One squeue for the whole stack: one big lock, as OpenBSD had.
        Global = "global",
        /// One squeue for each core; connections are spread by their hash, as on illumos.
        PerCore = "per_core",
        /// None: each connection has only its socket lock, as on Linux.
        #[default]
        PerSocket = "per_socket",
    }
}

switch! {
    /// How a reader reports to the protocol that `so_rcv` has space again (technique 1, `pru_rcvd`).
    Rcvd = "rcvd" {
        /// Every receive sends the owner a message and sleeps for the reply.
        Sync = "sync",
        /// One embedded message, sent if it is idle, and re-armed before output.
        Async = "async",
        /// As `async`, but only if a window update is due, decided under the socket lock.
        #[default]
        Precheck = "precheck",
    }
}

switch! {
    /// How other threads are excluded while segments from a wire are processed (technique 2). Loopback is the same in
    /// all of them: the sender's thread processes its segments, or the thread that is running the receiver's items.
    Input = "input" {
        /// One lock around all TCP input, and no lock per connection: connections over wires share one squeue,
        /// regardless of the grain.
        Exclusive = "exclusive",
        /// One lock around all TCP input, and each packet takes its connection's lock.
        ExclusiveLock = "exclusive+lock",
        /// Input threads run in parallel; each packet takes its connection's lock.
        PerPacket = "per_packet",
        /// Input threads run in parallel; a run of one connection's packets takes its lock once.
        #[default]
        Batched = "batched",
    }
}

switch! {
    /// Where a reader returns receive buffers that another core allocates (technique 3).
    RxFree = "rx_free" {
        /// To the pool, by the reader, at once.
        #[default]
        Inline = "inline",
        /// One buffer waits in the connection for the thread that receives its next packet.
        Slot = "slot",
        /// A list in the connection, taken by the thread that receives its next packet.
        SocketList = "socket_list",
        /// A lock-free list of the core that allocated the buffer.
        CoreList = "core_list",
    }
}

switch! {
    /// Where packet memory comes from (technique 3): the cost of freeing a buffer on another core depends on
    /// it.
    PoolSource = "pool" {
        /// From the system's allocator, at each allocation, and back to it at each free.
        System = "system",
        /// From caches of the threads and cores, which keep freed buffers.
        #[default]
        Cached = "cached",
    }
}

switch! {
    /// Behavior of a thread that leaves a squeue whose queue is not empty (technique 4).
    Wake = "wake" {
        /// The worker is not woken; it looks every 10 ms.
        Delayed = "delayed",
        /// The worker is woken at once.
        Immediate = "immediate",
        /// The thread runs the queue's head itself if it is its own connection's; otherwise as `immediate`.
        #[default]
        Elide = "elide",
    }
}

switch! {
    /// How the threads of an application enter a squeue (techniques 1 and 4). Workers always run everything. A stack
    /// without workers has no thread for remaining work: its calls always enter as with `process`.
    Entry = "entry" {
        /// They leave their item to a worker and never run protocol code themselves.
        Fill = "fill",
        /// They run their own item, leave, and leave the queue to a worker. A blocking connect sleeps until its turn
        /// inside (the synchronous entry).
        NoDrain = "no_drain",
        /// They run their own item and then the queue, up to a bound.
        #[default]
        Process = "process",
    }
}

switch! {
    /// The locks of UNIX-domain sockets (technique 5).
    UnixLocking = "unix_locking" {
        /// One lock around every send, connect and close.
        Global = "global",
        /// A mutex for each pcb, taken in pairs in address order.
        Pair = "pair",
        /// Data is appended under the receiver's buffer mutex only.
        #[default]
        Direct = "direct",
    }
}

/// One setting of each switch: [`Config::experiments`](crate::Config::experiments). The defaults are a stack's behavior without the
/// feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Experiments {
    /// How many connections share a squeue. Default `per_socket`.
    pub grain: Grain,
    /// How a reader reports new space to the protocol. Default `precheck`.
    pub rcvd: Rcvd,
    /// How other threads are excluded in input from a wire. Default `batched`.
    pub input: Input,
    /// Where buffers go that one core has consumed and another allocated. Default `inline`; see `docs/adr/0017`.
    pub rx_free: RxFree,
    /// Where packet memory comes from. Default `cached`.
    pub pool: PoolSource,
    /// Behavior of a thread that leaves work behind. Default `elide`.
    pub wake: Wake,
    /// How an application's threads enter a squeue. Default `process`.
    pub entry: Entry,
    /// The locks of UNIX-domain sockets. Default `direct`.
    pub unix_locking: UnixLocking,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_read_back_from_its_name_and_another_word_is_refused_with_the_names() {
        for setting in Input::ALL {
            assert_eq!(setting.to_string().parse::<Input>(), Ok(*setting));
        }
        let refusal = "bached".parse::<Input>().unwrap_err().to_string();
        assert!(refusal.contains("input is \"bached\"") && refusal.contains("exclusive+lock"), "{refusal}");
    }
}
