//! A peer that may have thrown away what it had reported (RFC 2018 section 8).
//!
//! The script's round trip is 10 ms. Places are in segments from the first byte.

use super::super::settings::Settings;
use super::script::{MSS, Script, ms, plain};

/// Ten segments in flight, of which the peer has reported four from the sixth on, and acknowledges what lies before.
fn reported_and_not_acknowledged() -> Script {
    let mut t = Script::established(&Settings { sack: true, ..plain() });
    assert_eq!(t.write(10 * MSS), [MSS; 10]);
    t.now = t.now + ms(10);
    t.report(0, &[(6, 10)]);
    let _ = t.places();
    t.report(6, &[]);
    t
}

#[test]
fn what_it_had_reported_is_sent_again_soon_and_not_at_once() {
    let mut t = reported_and_not_acknowledged();
    assert_eq!(t.places(), [], "it may still acknowledge it");
    let again = t.wait(ms(30));
    let (at, first) = again.first().expect("a repetition");
    assert_eq!((at.as_millis(), t.place_of(first)), (10, 6));
    assert_eq!(t.pcb.loss_stats().renege_count, 1);
}

#[test]
fn nothing_is_sent_again_if_it_acknowledges_the_rest_in_time() {
    let mut t = reported_and_not_acknowledged();
    t.now = t.now + ms(5);
    t.report(10, &[]);
    assert_eq!(t.places_within(ms(500)), []);
    assert_eq!(t.pcb.loss_stats().renege_count, 0);
}
