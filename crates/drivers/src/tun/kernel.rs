//! Features that the running kernel's version has for a device, where the kernel cannot be asked.
//!
//! Does not depend on devices. Tests: below.

use sockeye_sync::fork::PerProcess;

/// The first version whose IPv4 takes packets of more than 65,535 bytes that are to be cut, with a total length of 0.
const BIG_TCP: (u32, u32) = (6, 3);

/// Whether the kernel takes such packets. Another implementation of it says a version of its own, and is believed.
pub(super) fn takes_big_tcp() -> bool {
    static TAKES: PerProcess<bool> = PerProcess::new();
    *TAKES.get_or_init(|| version(&rustix::system::uname().release().to_string_lossy()) >= Some(BIG_TCP))
}

/// The first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_their_numbers() {
        let cases = [
            ("6.3.0", true),
            ("6.18.44-custom", true),
            ("10.0", true),
            ("6.2.16-1", false),
            ("5.15.0", false),
        ];
        for (release, takes) in cases {
            assert_eq!(version(release) >= Some(BIG_TCP), takes, "{release}");
        }
        for nothing in ["", "6", "x.y", ".", "99999999999.1"] {
            assert_eq!(version(nothing), None, "{nothing:?}");
        }
    }
}
