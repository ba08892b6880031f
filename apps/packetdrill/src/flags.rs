//! The text of `--so_flags`, the only thing that packetdrill tells the library.
//!
//! `KEY=VALUE`, separated by commas: `local=192.168.0.1/16,mtu=1500,delack=40ms`. Any setting of [`Config`] is a key, and
//!
//! | key | value |
//! |---|---|
//! | `local` | an address of the interface with its network; may come more than once. Default `192.168.0.1/16` and `fd3d:0a0b:17d6::1/48` |
//! | `mtu` | bytes of the interface's MTU, 1280 to 65535. Default 1500 |
//! | `receive_max` | longest virtual time that packetdrill waits for a packet, such as `600s`, which is the default |
//! | `seed` | a number, from which sequence numbers, ports and keys follow. Default 1 |
//!
//! Tests: below.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use sockeye::netif::Prefix;
use sockeye::{Config, fastopen};

/// What the flags say.
#[derive(Clone, Debug)]
pub(crate) struct Flags {
    /// The interface's addresses.
    pub local: Vec<Prefix>,
    /// Its MTU.
    pub mtu: u32,
    /// Longest virtual time that a wait for a packet takes.
    pub receive_max: Duration,
    /// The stack's seed.
    pub seed: u64,
    /// The stack's settings, before any `sysctl`.
    pub config: Config,
}

/// Text that is not understood.
#[derive(Debug)]
pub(crate) struct BadFlag(String);

impl fmt::Display for BadFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Flags {
    /// Reads the text; an empty one gives the defaults.
    ///
    /// # Errors
    /// [`BadFlag`] names the key, the value and what is permitted.
    pub fn read(text: &str) -> Result<Self, BadFlag> {
        let mut flags = Self {
            local: Vec::new(),
            mtu: 1500,
            receive_max: Duration::from_secs(600),
            seed: 1,
            config: linux_like(),
        };
        for flag in text.split(',').map(str::trim).filter(|flag| !flag.is_empty()) {
            let Some((key, value)) = flag.split_once('=') else {
                return Err(BadFlag(format!("{flag:?} is no KEY=VALUE")));
            };
            flags.set(key.trim(), value.trim())?;
        }
        if flags.local.is_empty() {
            flags.local = LOCAL_DEFAULT.iter().filter_map(|text| text.parse().ok()).collect();
        }
        flags.config.validate().map_err(|error| BadFlag(error.to_string()))?;
        Ok(flags)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), BadFlag> {
        let bad = |expected: &str| BadFlag(format!("{key} cannot be {value:?}: give {expected}"));
        match key {
            "local" => {
                self.local.push(prefix(value).ok_or_else(|| bad("an address such as 192.168.0.1/16"))?)
            }
            "mtu" => {
                let mtu = value.parse().ok().filter(|mtu| MTU.contains(mtu));
                self.mtu = mtu.ok_or_else(|| bad("1280 to 65535"))?;
            }
            "receive_max" => {
                let seconds = value.strip_suffix('s').and_then(|digits| digits.parse().ok());
                self.receive_max = Duration::from_secs(seconds.ok_or_else(|| bad("seconds such as 600s"))?);
            }
            "seed" => self.seed = value.parse().map_err(|_| bad("a number"))?,
            // It has no other: threads would not follow the script's time.
            "workers" => return Err(bad("nothing: the stack has no threads here")),
            key => self
                .config
                .set(key, value)
                .map_err(|error| BadFlag(format!("{error} (or local, mtu, receive_max, seed)")))?,
        }
        Ok(())
    }
}

/// An address with a network, or alone.
fn prefix(text: &str) -> Option<Prefix> {
    let alone = || {
        let addr: IpAddr = text.parse().ok()?;
        Prefix::new(addr, if addr.is_ipv4() { 32 } else { 128 }).ok()
    };
    text.parse().ok().or_else(alone)
}

/// The settings of a Linux host after `sysctl` has set nothing, as far as they differ from the defaults here.
fn linux_like() -> Config {
    let mut config = Config { workers: 0, rcvbuf: 65_536, rcvbuf_max: 6 << 20, ..Config::default() };
    // One bulk flow, whose segments come one at a time.
    config.writer_admission = false;
    config.tcp.fastopen = fastopen::CLIENT;
    config.tcp.fastopen_blackhole_timeout = Duration::ZERO;
    config
}

/// What an interface can have.
const MTU: std::ops::RangeInclusive<u32> = 1280..=65_535;
/// The addresses of the usual scripts' local end.
const LOCAL_DEFAULT: [&str; 2] = ["192.168.0.1/16", "fd3d:0a0b:17d6::1/48"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_the_interface_are_set_and_the_rest_is_default() {
        let flags = Flags::read("local=10.0.0.1/8, mtu=1520,delack=10ms,local=fd00::1,seed=7,receive_max=5s")
            .unwrap();
        assert_eq!(flags.local.len(), 2);
        assert_eq!((flags.local[1].len(), flags.mtu, flags.seed), (128, 1520, 7));
        assert_eq!(flags.config.tcp.delack, Duration::from_millis(10));
        assert_eq!(flags.receive_max, Duration::from_secs(5));
        let flags = Flags::read("").unwrap();
        assert_eq!((flags.local.len(), flags.mtu, flags.config.workers), (2, 1500, 0));
    }

    #[test]
    fn a_flag_that_is_not_understood_is_named_with_what_is_permitted() {
        for (text, part) in [
            ("mtu", "KEY=VALUE"),
            ("mtu=5", "1280"),
            ("local=here", "192.168.0.1/16"),
            ("receive_max=5", "600s"),
            ("seed=x", "number"),
            ("workers=2", "threads"),
            ("sndbfu=1", "sndbuf"),
            ("sndbuf=1", "2048"),
        ] {
            let message = Flags::read(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
