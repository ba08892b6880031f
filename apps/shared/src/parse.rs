//! Quantities on the command line: times, rates, sizes, percentages.
//!
//! Each reader's error names the expected form. Does not depend on the use of the quantities. Tests: below.

use std::time::Duration;

/// `100ms`, `2s`, `50us`, `1.5s`.
pub fn time(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("us", 1e-6), ("s", 1.0)];
    let seconds = with_unit(text, &units).ok_or("give a time such as 100ms, 2s or 50us")?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "that is too long a time".to_owned())
}

/// `1gbit`, `100mbit`, `64kbit`, `9600bit`: bits per second, at least 1,000.
pub fn rate(text: &str) -> Result<u64, String> {
    let units = [("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];
    let bits =
        with_unit(&text.to_lowercase(), &units).ok_or("give a rate such as 1gbit, 100mbit or 64kbit")?;
    if !(1e3..=1e12).contains(&bits) {
        return Err("a rate is 1kbit to 1000gbit".to_owned());
    }
    Ok(bits as u64)
}

/// `1G`, `100M`, `64K`, `9600`: bits per second as iperf3 has them, at most 1T.
pub fn bitrate(text: &str) -> Result<u64, String> {
    let units = [("G", 1e9), ("M", 1e6), ("K", 1e3), ("", 1.0)];
    let bits = with_unit(&text.to_uppercase(), &units).filter(|bits| *bits <= 1e12);
    bits.map(|bits| bits as u64).ok_or_else(|| "give bits per second, as 1G, 100M or 64K".to_owned())
}

/// `64K`, `4M`, `1G`, `1500`: an amount of bytes to be moved.
pub fn amount(text: &str) -> Result<u64, String> {
    let units = [("K", 1024.0), ("M", 1_048_576.0), ("G", 1_073_741_824.0), ("", 1.0)];
    let bytes = with_unit(text, &units).filter(|bytes| (1.0..=1e15).contains(bytes));
    bytes.map(|bytes| bytes as u64).ok_or_else(|| "give an amount of bytes such as 100M or 4G".to_owned())
}

/// `64K`, `4M`, `1500`: bytes, a whole number of them.
pub fn size(text: &str) -> Result<usize, String> {
    let units = [("K", 1024.0), ("M", 1_048_576.0), ("", 1.0)];
    let bytes = with_unit(text, &units).ok_or("give a size such as 64K, 4M or 1500")?;
    if bytes > 1e12 {
        return Err("that is too large a size".to_owned());
    }
    if bytes.fract() != 0.0 {
        return Err("that is no whole number of bytes".to_owned());
    }
    Ok(bytes as usize)
}

/// `0.1%` or `0.1`, in percent; 0 to 100. Returns the probability.
pub fn percent(text: &str) -> Result<f64, String> {
    let percent = with_unit(text, &[("%", 1.0), ("", 1.0)]).filter(|percent| *percent <= 100.0);
    percent.map(|percent| percent / 100.0).ok_or_else(|| "give a percentage such as 0.1%".to_owned())
}

/// Reads `KEY=VALUE`.
pub fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err("write KEY=VALUE, such as sndbuf=64K".to_owned()),
    }
}

/// A number, not negative, with one of `units` behind it; times the unit's factor.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    units.iter().find_map(|(unit, factor)| {
        let number: f64 = text.trim().strip_suffix(unit)?.trim().parse().ok()?;
        (number.is_finite() && number >= 0.0).then_some(number * factor)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_with_their_units_and_refused_without() {
        assert_eq!(time("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(time("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(rate("1gbit"), Ok(1_000_000_000));
        assert_eq!(rate("2.5Mbit"), Ok(2_500_000));
        assert_eq!((bitrate("1.5g"), bitrate("9600")), (Ok(1_500_000_000), Ok(9600)));
        assert_eq!((size("4M"), size("1500")), (Ok(4 << 20), Ok(1500)));
        assert_eq!((percent("0.1%"), percent("100")), (Ok(0.001), Ok(1.0)));
        for bad in ["", "10", "ms", "-1s", "1e400s", "NaNs"] {
            assert!(time(bad).is_err(), "{bad}");
        }
        assert!(rate("1").is_err() && rate("1bit").is_err() && percent("101%").is_err());
        assert_eq!((size("1.5K"), size("1.3").is_err()), (Ok(1536), true));
        assert!(size("4G").is_err() && amount("0").is_err() && amount("1e99").is_err());
        assert_eq!((amount("4G"), amount("1")), (Ok(4 << 30), Ok(1)));
    }
}
