//! How long an end is busy before it sleeps.
//!
//! Does not depend on which end that is.
//!
//! Invariant: a time that stacks take.
//!
//! Tests: below.

use std::str::FromStr;
use std::time::Duration;

/// Microseconds, at most [`MAX_US`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpinTime(u16);

/// The most that Sockeye's own setting takes.
const MAX_US: u16 = 10_000;

impl SpinTime {
    /// Its value.
    pub fn duration(self) -> Duration {
        Duration::from_micros(self.0.into())
    }
}

impl FromStr for SpinTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(micros) if micros <= MAX_US => Ok(Self(micros)),
            Ok(_) | Err(_) => {
                Err(format!("{text} is not 0 to {MAX_US} microseconds; write --spin-us 0, or leave it out"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spin_times_range_from_zero_to_the_bound_of_the_stack() {
        for micros in [0, 50, 10_000] {
            let parsed = micros.to_string().parse().map(SpinTime::duration);
            assert_eq!(parsed, Ok(Duration::from_micros(micros)));
            let config = sockeye::Config { spin_max: Duration::from_micros(micros), ..Default::default() };
            assert!(config.validate().is_ok());
        }
        for text in ["10001", "-1", "", "1ms", "100000"] {
            let refused = text.parse::<SpinTime>().unwrap_err();
            assert!(refused.starts_with(text) && refused.contains("0 to 10000"), "{refused}");
        }
    }
}
