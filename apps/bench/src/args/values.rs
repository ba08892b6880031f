//! Values of options: what each may be. An error says what to write instead.
//!
//! Does not depend on the options. Tests: `tests.rs`.

use sockeye_shared::parse;

use crate::plan::bytes;

/// From 1 up.
pub fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n >= 1 => Ok(n),
        Ok(_) | Err(_) => Err("write a whole number from 1 up, such as 10".to_owned()),
    }
}

/// 1 or 2.
pub fn runtimes(text: &str) -> Result<usize, String> {
    match text {
        "1" => Ok(1),
        "2" => Ok(2),
        _ => Err("write 1, 2 or 1,2".to_owned()),
    }
}

/// Of each side.
pub fn samples(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=SAMPLES_MAX).contains(&n) => Ok(n),
        Ok(_) | Err(_) => Err(format!("write a whole number from 1 to {SAMPLES_MAX}, such as 10")),
    }
}

/// Of a sample.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (SECONDS_MIN..=SECONDS_MAX).contains(&s) => Ok(s),
        Ok(_) | Err(_) => Err(format!("write seconds from {SECONDS_MIN} to {SECONDS_MAX}, such as 0.5")),
    }
}

/// Bytes, such as 64K.
pub fn size(text: &str) -> Result<usize, String> {
    let size = parse::size(&text.to_uppercase()).ok();
    match size {
        Some(size) if (1..=SIZE_MAX).contains(&size) => Ok(size),
        Some(_) | None => Err(format!("write bytes from 1 to {}, such as 128 or 64K", bytes(SIZE_MAX))),
    }
}

const SAMPLES_MAX: usize = 1000;
const SECONDS_MIN: f64 = 0.01;
const SECONDS_MAX: f64 = 60.0;
/// Each thread has a buffer of a message's size.
const SIZE_MAX: usize = 16 * 1024 * 1024;
