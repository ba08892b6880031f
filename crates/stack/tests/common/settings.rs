//! The settings that are measured against each other, as tests try them: all with the feature `experiments`, else the product's alone.
//!
//! Does not depend on any single test. A test over the settings of a switch is written once: `for input in Input::ALL {
//! …input.set(config)… }`.

use sockeye::Config;

/// A setting of a switch.
pub trait Setting: Copy {
    /// Changes the switch of `config` to it.
    fn set(self, config: &mut Config);
}

#[cfg(feature = "experiments")]
pub use sockeye::experiments::{Entry, Grain, Input, Rcvd, RxFree, UnixLocking, Wake};

#[cfg(feature = "experiments")]
macro_rules! setting {
    ($($switch:ident = $field:ident)+) => {$(
        impl Setting for $switch {
            fn set(self, config: &mut Config) {
                config.experiments.$field = self;
            }
        }
    )+};
}

#[cfg(feature = "experiments")]
setting! {
    Grain = grain
    Rcvd = rcvd
    Input = input
    RxFree = rx_free
    Wake = wake
    Entry = entry
    UnixLocking = unix_locking
}

#[cfg(not(feature = "experiments"))]
macro_rules! product {
    ($($switch:ident = $setting:ident)+) => {$(
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub enum $switch {
            #[default]
            $setting,
        }

        impl $switch {
            pub const ALL: &'static [Self] = &[Self::$setting];
        }

        impl std::fmt::Display for $switch {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(stringify!($setting))
            }
        }

        impl Setting for $switch {
            fn set(self, _: &mut Config) {}
        }
    )+};
}

#[cfg(not(feature = "experiments"))]
product! {
    Grain = PerSocket
    Rcvd = Precheck
    Input = Batched
    RxFree = Inline
    Wake = Elide
    Entry = Process
    UnixLocking = Direct
}

/// Every grain, from the oldest to the product's.
pub const GRAINS: &[Grain] = Grain::ALL;

/// Where the environment gives settings that all stacks of a test are made with.
pub const SWITCHES: &str = "SOCKEYE_TEST_SWITCHES";

/// Key and setting of each switch that the environment gives.
pub fn given() -> Vec<(String, String)> {
    let given = std::env::var(SWITCHES).unwrap_or_default();
    let pair = |word: &str| {
        let (key, value) = word.split_once('=').expect("a switch is given as key=setting");
        (key.to_owned(), value.to_owned())
    };
    given.split_whitespace().map(pair).collect()
}

/// The defaults, but for the switches that the environment gives.
pub fn base() -> Config {
    let mut config = Config::default();
    for (key, value) in given() {
        config.set(&key, &value).unwrap_or_else(|error| panic!("{SWITCHES}: {error}"));
    }
    config
}

/// The grains to try: all, or the one that the environment gives.
pub fn grains() -> Vec<Grain> {
    #[cfg(feature = "experiments")]
    if given().iter().any(|(key, _)| key == Grain::KEY) {
        return vec![base().experiments.grain];
    }
    Grain::ALL.to_vec()
}

/// Whether an application's threads run the items that they find queued.
pub fn callers_run_queues(config: &Config) -> bool {
    let _ = config;
    #[cfg(feature = "experiments")]
    return config.experiments.entry == Entry::Process;
    #[cfg(not(feature = "experiments"))]
    true
}
