//! Hostile frames in large numbers: no socket bound to the loopback alone is reached, and nothing is sent to an address of no host.
//!
//! 100,000 frames on each kind of link in an ordinary run; `SOCKEYE_HOSTILE_FRAMES=10000000` for more, `SOCKEYE_TEST_SCALE`
//! (percent) as for other random tests. A seed decides the frames, so a failure is reproducible.

use sockeye_fuzz_targets::{Hostile, Line};

/// Frames of a line in an ordinary run.
const FRAMES: u64 = 100_000;
/// Frames that one stack is given, after which it has to have let go of everything.
const FRAMES_OF_ONE: u64 = 25_000;
/// Bytes from which frames are drawn at a time.
const DRAWN: usize = 64 << 10;

/// SplitMix64: the same inputs on every machine.
fn draw(state: &mut u64, into: &mut [u8]) {
    for bytes in into.chunks_exact_mut(8) {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn frames() -> u64 {
    let scaled = FRAMES * number("SOCKEYE_TEST_SCALE").unwrap_or(100) / 100;
    number("SOCKEYE_HOSTILE_FRAMES").unwrap_or(scaled)
}

fn run(line: Line) {
    let (all, mut given, mut seed) = (frames(), 0, line as u64);
    let mut bytes = vec![0; DRAWN];
    for any in [false, true].into_iter().cycle() {
        let mut bed = Hostile::new(line, any);
        let of_one = FRAMES_OF_ONE.min(all - given);
        let mut left = of_one;
        while left > 0 {
            draw(&mut seed, &mut bytes);
            left -= bed.frames(&mut arbitrary::Unstructured::new(&bytes), left as usize) as u64;
        }
        if of_one >= 1000 {
            // Some are refused, and some are not: a stack that takes in nothing would pass as well.
            for name in [
                "frames_martian",
                "frames_martian_dst",
                "frames_out",
                "udp_in_datagrams",
                "icmp_in_elsewhere",
            ] {
                assert!(bed.count(name) > of_one / 1000, "{line:?}: {name} is {}", bed.count(name));
            }
        }
        bed.end();
        given += of_one;
        if given >= all {
            break;
        }
    }
}

#[test]
fn no_packet_of_a_tun_device_reaches_the_loopback() {
    run(Line::Tun);
}

#[test]
fn no_frame_of_a_tap_device_reaches_the_loopback() {
    run(Line::Tap);
}

#[test]
fn no_packet_of_a_channel_reaches_the_loopback() {
    run(Line::Channel);
}
