//! Settings as text: `key=value`, for command lines and configuration files.
//!
//! Purpose: one table from the name of each field of [`Config`] to the reader of its value. A value is written
//! as one would say it: `256K`, `100us`, `on`, `32768-60999`, `per_core`.
//!
//! Does not depend on where the text comes from, and does not check whether a value is within its field's
//! bounds, which is [`Config::validate`]'s to say, since some bounds concern several fields.
//!
//! Invariants: a refused text leaves the configuration as it was. Every field has its row: a test takes
//! the fields' names from the type itself.
//!
//! Tests: below.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use sockeye_proto::tcp::cc::Algorithm;
use sockeye_proto::tcp::ecn::EcnMode;
use sockeye_proto::tcp::settings::MtuProbing;
use sockeye_proto::tcp::settings::PacingMode;

use crate::config::fastopen::{BadKeys, Keys};
use crate::config::{Config, SynCookies};
#[cfg(feature = "experiments")]
use crate::experiments::{Entry, Grain, Input, PoolSource, Rcvd, RxFree, UnixLocking, Wake};

/// Text that [`Config::set`] does not accept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SetError {
    /// No field has this name.
    UnknownKey {
        /// The given key.
        key: String,
    },
    /// The field cannot be set to this.
    BadValue {
        /// The field.
        key: &'static str,
        /// The given value.
        value: String,
        /// Permitted values.
        expected: String,
    },
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetError::UnknownKey { key } => {
                let known: Vec<&str> = Config::keys().collect();
                write!(f, "no setting is called {key:?}: give one of {}", known.join(", "))
            }
            SetError::BadValue { key, value, expected } => {
                write!(f, "{key} cannot be {value:?}: give {expected}")
            }
        }
    }
}

impl std::error::Error for SetError {}

impl Config {
    /// Sets the field `key` to `value`. Numbers may end in K, M or G (powers of 1024), times in ns, us, ms or s;
    /// switches are `on` or `off`; a range of ports is `FIRST-LAST`.
    ///
    /// # Errors
    /// [`SetError`] names the key, the value and the known ones. Bounds are checked by [`Config::validate`].
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SetError> {
        let Some(field) = FIELDS.iter().find(|field| field.key == key) else {
            return Err(SetError::UnknownKey { key: key.to_owned() });
        };
        (field.set)(self, value).map_err(|expected| SetError::BadValue {
            key: field.key,
            value: value.to_owned(),
            expected,
        })
    }

    /// The names of all fields, for [`Config::set`].
    pub fn keys() -> impl Iterator<Item = &'static str> {
        FIELDS.iter().map(|field| field.key)
    }
}

struct Field {
    key: &'static str,
    /// Sets it, or returns the permitted values.
    set: fn(&mut Config, &str) -> Result<(), String>,
}

/// A row: the field's name and place, and the reader of its values.
macro_rules! field {
    ($($place:ident).+, $name:ident, $read:expr) => {
        Field { key: stringify!($name), set: |config, text| $read(text).map(|value| config.$($place).+ = value) }
    };
}

const FIELDS: &[Field] = &[
    field!(workers, workers, number),
    field!(spin_max, spin_max, time),
    field!(writer_admission, writer_admission, on_off),
    field!(memory_max, memory_max, number),
    field!(connections_max, connections_max, number),
    field!(sndbuf, sndbuf, number),
    field!(rcvbuf, rcvbuf, number),
    field!(udp_rcvbuf, udp_rcvbuf, number),
    field!(sndbuf_max, sndbuf_max, number),
    field!(rcvbuf_max, rcvbuf_max, number),
    field!(loopback_mtu, loopback_mtu, number),
    field!(loopback_encode, loopback_encode, on_off),
    field!(port_range, port_range, ports),
    field!(auto_flowlabels, auto_flowlabels, on_off),
    field!(tcp.gro, gro, on_off),
    field!(tcp.notsent_lowat, notsent_lowat, number),
    field!(tcp.timestamps, timestamps, on_off),
    field!(tcp.window_scaling, window_scaling, on_off),
    field!(tcp.delack, delack, time),
    field!(tcp.rto_min, rto_min, time),
    field!(tcp.rto_max, rto_max, time),
    field!(tcp.congestion_control, congestion_control, |text| one_of(text, Algorithm::ALL, Algorithm::NAMES)),
    field!(tcp.ecn, ecn, |text| one_of(text, EcnMode::ALL, EcnMode::NAMES)),
    field!(tcp.slow_start_after_idle, slow_start_after_idle, on_off),
    field!(tcp.min_tso_segs, min_tso_segs, number),
    field!(tcp.pacing, pacing, |text| one_of(text, PacingMode::ALL, PacingMode::NAMES)),
    field!(tcp.mtu_probing, mtu_probing, |text| one_of(text, MtuProbing::ALL, MtuProbing::NAMES)),
    field!(tcp.base_mss, base_mss, number),
    field!(tcp.syn_retries, syn_retries, number),
    field!(tcp.synack_retries, synack_retries, number),
    field!(tcp.txrehash, txrehash, on_off),
    field!(tcp.abort_on_overflow, abort_on_overflow, on_off),
    field!(tcp.fin_timeout, fin_timeout, time),
    field!(tcp.retries, retries, number),
    field!(tcp.keepalive_time, keepalive_time, time),
    field!(tcp.keepalive_intvl, keepalive_intvl, time),
    field!(tcp.keepalive_probes, keepalive_probes, number),
    field!(tcp.user_timeout_option, user_timeout_option, on_off),
    field!(tcp.fastopen, fastopen, number),
    field!(tcp.fastopen_key, fastopen_key, keys),
    field!(tcp.fastopen_blackhole_timeout, fastopen_blackhole_timeout, time),
    field!(tcp.time_wait, time_wait, time),
    field!(tcp.time_wait_max, time_wait_max, number),
    field!(tcp.syn_backlog, syn_backlog, number),
    field!(tcp.syn_cookies, syn_cookies, |text| one_of(text, SynCookies::ALL, SynCookies::NAMES)),
    #[cfg(feature = "experiments")]
    field!(experiments.grain, grain, |text| one_of(text, Grain::ALL, Grain::NAMES)),
    #[cfg(feature = "experiments")]
    field!(experiments.rcvd, rcvd, |text| one_of(text, Rcvd::ALL, Rcvd::NAMES)),
    #[cfg(feature = "experiments")]
    field!(experiments.input, input, |text| one_of(text, Input::ALL, Input::NAMES)),
    #[cfg(feature = "experiments")]
    field!(experiments.rx_free, rx_free, |text| one_of(text, RxFree::ALL, RxFree::NAMES)),
    #[cfg(feature = "experiments")]
    field!(experiments.pool, pool, |text| one_of(text, PoolSource::ALL, PoolSource::NAMES)),
    #[cfg(feature = "experiments")]
    field!(experiments.wake, wake, |text| one_of(text, Wake::ALL, Wake::NAMES)),
    #[cfg(feature = "experiments")]
    field!(experiments.entry, entry, |text| one_of(text, Entry::ALL, Entry::NAMES)),
    #[cfg(feature = "experiments")]
    field!(experiments.unix_locking, unix_locking, |text| one_of(text, UnixLocking::ALL, UnixLocking::NAMES)),
];

/// The setting whose name `text` is; `names` are those of `all`, in the same order.
fn one_of<T: Copy>(text: &str, all: &[T], names: &[&str]) -> Result<T, String> {
    let found = all.iter().zip(names).find(|(_, name)| **name == text);
    found.map(|(setting, _)| *setting).ok_or_else(|| format!("one of {}", names.join(", ")))
}

fn number<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1_u64 << 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 1 << 30),
        Some(_) | None => (text, 1),
    };
    let value = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    value
        .and_then(|n| T::try_from(n).ok())
        .ok_or_else(|| "a whole number that fits, such as 4096 or 256K".to_owned())
}

fn time(text: &str) -> Result<Duration, String> {
    let expected = || "a time such as 100us, 40ms or 2s".to_owned();
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(unit_at);
    let count = digits.parse::<u64>().map_err(|_| expected())?;
    match unit {
        "ns" => Ok(Duration::from_nanos(count)),
        "us" | "µs" => Ok(Duration::from_micros(count)),
        "ms" => Ok(Duration::from_millis(count)),
        "s" => Ok(Duration::from_secs(count)),
        "" if count == 0 => Ok(Duration::ZERO),
        _ => Err(expected()),
    }
}

fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" | "true" | "1" => Ok(true),
        "off" | "false" | "0" => Ok(false),
        _ => Err("on or off".to_owned()),
    }
}

fn keys(text: &str) -> Result<Option<Keys>, String> {
    match text {
        "random" => Ok(None),
        text => text.parse().map(Some).map_err(|bad: BadKeys| format!("random, or {bad}")),
    }
}

fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let ends = text.split_once("..=").or_else(|| text.split_once('-'));
    let read = |(first, last): (&str, &str)| Some(first.parse().ok()?..=last.parse().ok()?);
    ends.and_then(read).ok_or_else(|| "two ports, such as 32768-60999".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the fields and of the groups' fields, from the types' own `Debug`.
    fn fields() -> Vec<String> {
        let text = format!("{:#?}", Config::default());
        let fields = text.lines().filter_map(|line| line.trim_start().split_once(": "));
        fields.filter(|(_, value)| !value.ends_with('{')).map(|(name, _)| name.to_owned()).collect()
    }

    #[test]
    fn every_field_can_be_set_and_no_other() {
        assert!(fields().len() > 20, "{:?}", fields());
        assert_eq!(Config::keys().collect::<Vec<_>>(), fields());
    }

    #[test]
    fn values_are_parsed_as_documented() {
        let mut config = Config::default();
        for (key, value) in [
            ("sndbuf", "57344"),
            ("rcvbuf", "256K"),
            ("memory_max", "2G"),
            ("spin_max", "250us"),
            ("delack", "0"),
            ("time_wait", "2s"),
            ("loopback_encode", "on"),
            ("timestamps", "off"),
            ("congestion_control", "newreno"),
            ("ecn", "on"),
            ("pacing", "on"),
            ("slow_start_after_idle", "off"),
            ("mtu_probing", "always"),
            ("fastopen_key", "1-2-3-4,5-6-7-8"),
            ("fastopen_blackhole_timeout", "0"),
            ("port_range", "1024-2047"),
        ] {
            config.set(key, value).unwrap_or_else(|error| panic!("{error}"));
        }
        assert_eq!((config.sndbuf, config.rcvbuf, config.memory_max), (57_344, 256 << 10, 2 << 30));
        assert_eq!((config.spin_max, config.tcp.delack), (Duration::from_micros(250), Duration::ZERO));
        assert_eq!(config.tcp.time_wait, Duration::from_secs(2));
        assert!(config.loopback_encode && !config.tcp.timestamps);
        assert_eq!(config.tcp.congestion_control, Algorithm::NewReno);
        assert_eq!((config.tcp.ecn, config.tcp.pacing), (EcnMode::On, PacingMode::On));
        assert_eq!(config.tcp.mtu_probing, MtuProbing::Always);
        assert_eq!(config.tcp.fastopen_key.and_then(|keys| keys.backup).map(|key| key[0]), Some(5));
        assert!(!config.tcp.slow_start_after_idle);
        assert_eq!(config.port_range, 1024..=2047);
    }

    #[cfg(feature = "experiments")]
    #[test]
    fn settings_of_experiments_are_set_in_the_same_way() {
        let mut config = Config::default();
        for (key, value) in
            [("grain", "per_core"), ("rcvd", "sync"), ("entry", "no_drain"), ("input", "exclusive+lock")]
        {
            config.set(key, value).unwrap_or_else(|error| panic!("{error}"));
        }
        let set = config.experiments;
        assert_eq!((set.grain, set.rcvd), (Grain::PerCore, Rcvd::Sync));
        assert_eq!((set.input, set.entry), (Input::ExclusiveLock, Entry::NoDrain));
    }

    /// `sockeye-tidy` looks for this test's name where it has the library built and tested without the feature.
    #[cfg(not(feature = "experiments"))]
    #[test]
    fn without_the_feature_there_are_no_older_settings() {
        for key in ["grain", "rcvd", "input", "rx_free", "pool", "wake", "entry", "unix_locking"] {
            assert!(!Config::keys().any(|known| known == key), "{key}");
            assert!(Config::default().set(key, "").is_err());
        }
    }

    #[test]
    fn a_refusal_names_key_value_and_remedy_and_changes_nothing() {
        let mut config = Config::default();
        let before = format!("{config:?}");
        for (key, value, remedy) in [
            ("sndbfu", "4096", "sndbuf"),
            #[cfg(feature = "experiments")]
            ("rcvd", "asynch", "sync, async, precheck"),
            #[cfg(feature = "experiments")]
            ("grain", "cpu", "per_core"),
            ("sndbuf", "5G", "256K"),
            ("sndbuf", "-1", "256K"),
            ("sndbuf", "99999999999999999999", "256K"),
            ("workers", "", "whole number"),
            ("syn_retries", "256", "whole number"),
            ("delack", "40", "40ms"),
            ("delack", "ms", "40ms"),
            ("timestamps", "yes", "on or off"),
            ("congestion_control", "reno", "newreno, cubic, bbr"),
            ("ecn", "yes", "off, accept, on"),
            ("fastopen_key", "1-2-3", "a0bf63f7-ed803d81-cd641d30-cebc4a90"),
            ("port_range", "1024", "32768-60999"),
            ("port_range", "1-70000", "32768-60999"),
        ] {
            let message = config.set(key, value).unwrap_err().to_string();
            let names_value = key == "sndbfu" || message.contains(&format!("{value:?}"));
            assert!(message.contains(key) && names_value && message.contains(remedy), "{message}");
        }
        assert_eq!(format!("{config:?}"), before);
    }
}
