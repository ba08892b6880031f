//! What no predicate may excuse: each row spoils what Sockeye did in a scenario of a known difference, and the comparison has to find that.
//!
//! The other side is Sockeye's own trace, or one that differs only as the row says. So the rows need no kernel, and nothing else differs.

use std::path::Path;
use std::time::Duration;

use crate::codec::Packet;
use crate::compare::compare;
use crate::driven;
use crate::scenario::Scenario;
use crate::segment::{Echo, Flags, Opt, Segment};
use crate::trace::{Info, Ready, Record, State, What};

type Records = Vec<Record>;

fn written(name: &str) -> Scenario {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(name).with_extension("txt");
    std::fs::read_to_string(file).unwrap().parse().unwrap()
}

/// Sockeye's trace with this change counts as a difference beside the trace without it.
#[track_caller]
fn differs(scenario: &Scenario, spoil: impl Fn(&mut Records)) {
    differs_beside(scenario, |_| (), spoil);
}

/// The same, and the other side's trace has a change of its own.
#[track_caller]
fn differs_beside(scenario: &Scenario, kernel: impl Fn(&mut Records), spoil: impl Fn(&mut Records)) {
    let (mut theirs, mut ours) = (driven::run(scenario), driven::run(scenario));
    kernel(&mut theirs.records);
    spoil(&mut ours.records);
    assert!(theirs.records != ours.records, "the change changes nothing");
    let found = compare(scenario, &theirs, &ours);
    assert!(found.difference.is_some(), "excused: {:?}", found.known);
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn is_sent(record: &Record) -> bool {
    record.segment().is_some()
}

fn is_text(record: &Record) -> bool {
    record.segment().is_some_and(|segment| segment.len > 0)
}

/// Changes the segments that were sent at this time or later, if they are such ones.
fn sent(from: u64, is: fn(&Record) -> bool, change: impl Fn(&mut Segment)) -> impl Fn(&mut Records) {
    move |records| {
        for record in records.iter_mut().filter(|record| record.at >= ms(from) && is(record)) {
            if let What::Sent(Packet::Tcp(segment)) = &mut record.what {
                change(segment);
            }
        }
    }
}

/// Leaves out the segments from this time on that are such ones.
fn silent(from: u64, is: fn(&Record) -> bool) -> impl Fn(&mut Records) {
    move |records| records.retain(|record| record.at < ms(from) || !is(record))
}

/// Sends those later by so many milliseconds that were sent behind this time.
fn delayed(behind: u64, is: fn(&Record) -> bool, by: u64) -> impl Fn(&mut Records) {
    move |records| {
        for record in records.iter_mut().filter(|record| record.at > ms(behind) && is(record)) {
            record.at += ms(by);
        }
    }
}

/// Changes TCP_INFO from this time on.
fn told(from: u64, change: impl Fn(&mut Info)) -> impl Fn(&mut Records) {
    move |records| {
        for record in records.iter_mut().filter(|record| record.at >= ms(from)) {
            if let What::State(_, state) = &mut record.what {
                state.info.iter_mut().for_each(&change);
            }
        }
    }
}

fn figure(from: u64, name: &'static str, change: fn(u64) -> u64) -> impl Fn(&mut Records) {
    told(from, move |info| {
        let found = info.figures.iter_mut().filter(|(known, _)| *known == name);
        found.for_each(|(_, value)| *value = change(*value));
    })
}

/// Changes the state, where the application has a connection, from this time on.
fn states(from: u64, change: fn(&mut State)) -> impl Fn(&mut Records) {
    move |records| {
        for record in records.iter_mut().filter(|record| record.at >= ms(from)) {
            if let What::State(_, state) = &mut record.what {
                change(state);
            }
        }
    }
}

#[test]
fn a_stack_that_swallows_text_behind_its_own_close() {
    let scenario: Scenario = "0 listen 5
        0 peer S 0 win 65535 mss 1460 sackok
        30 peer A 1 ack 1 win 500
        40 accept
        50 close
        100 peer A 1:101 ack 2 win 500
        200 wait"
        .parse()
        .unwrap();
    let acknowledged = |segment: &mut Segment| {
        if segment.flags.has(Flags::RST) {
            (segment.flags, segment.ack) = (Flags::ACK, 101);
        }
    };
    differs(&scenario, sent(100, is_sent, acknowledged));
}

#[test]
fn a_wrong_timestamp_or_option_of_a_syn_ack() {
    fn is_syn_ack(record: &Record) -> bool {
        record.segment().is_some_and(Segment::is_syn_ack)
    }
    fn echo(value: u32) -> impl Fn(&mut Segment) {
        move |segment| {
            for option in &mut segment.options {
                if let Opt::Ts(_, echo) = option {
                    *echo = Echo::Is(value);
                }
            }
        }
    }
    let once = "0 listen 5
        0 peer S 0 win 65535 mss 1460 ts 1000 0
        50 wait";
    let once: Scenario = once.parse().unwrap();
    differs(&once, sent(0, is_syn_ack, echo(0)));
    let again = written("syn-comes-again");
    let first = sent(0, is_syn_ack, echo(1000));
    differs_beside(&again, &first, sent(0, is_syn_ack, echo(0)));
    differs_beside(&again, &first, sent(100, is_syn_ack, |segment| segment.options.truncate(3)));
    let later = |segment: &mut Segment| {
        for option in &mut segment.options {
            if let Opt::Ts(value, _) = option {
                *value += 5_000;
            }
        }
    };
    differs_beside(&again, &first, sent(0, is_syn_ack, later));
}

#[test]
fn anything_but_the_window_behind_a_mark() {
    let marked = written("answer-to-a-mark");
    differs(&marked, sent(150, is_text, |text| text.is_corrupt = true));
    differs(&marked, sent(150, is_text, |text| text.ack += 1));
    differs(&marked, sent(150, is_text, |text| text.ip.dscp = 8));
    differs(&marked, sent(150, is_text, |text| text.ip.ttl = 1));
    differs(&marked, silent(150, is_text));
    // It is not reduced at all.
    let not_reduced = told(150, |info| {
        for (name, value) in &mut info.figures {
            match *name {
                "ca_state" => *value = 0,
                "snd_ssthresh" => *value = i32::MAX as u64,
                _ => {}
            }
        }
    });
    differs_beside(&marked, figure(150, "ca_state", |_| 2), not_reduced);
    let with_timestamps = written("mark-in-a-repair");
    differs(&with_timestamps, sent(700, is_text, |text| text.options.clear()));
    // Nobody has agreed on ECN.
    let unmarked: Scenario = marked.to_string().replace("peer SEC", "peer S").parse().unwrap();
    differs(&unmarked, figure(150, "snd_cwnd", |_| 8));
}

#[test]
fn slow_start_that_grows_by_more_or_by_nothing() {
    let scenario = written("end-of-slow-start");
    differs(&scenario, figure(90, "snd_cwnd", |cwnd| cwnd + 4));
    differs(&scenario, figure(90, "snd_cwnd", |cwnd| cwnd - 4));
    differs(&scenario, silent(90, is_text));
}

#[test]
fn timeouts_that_no_round_trip_explains() {
    let cookie = written("cookie-and-a-timeout");
    let rto = |from, by| told(from, move |info| info.rto += ms(by));
    differs(&cookie, rto(50, 400));
    differs(&cookie, delayed(80, is_text, 3_000));
    let deferred = written("defer-accept-and-a-timeout");
    differs(&deferred, rto(2_100, 12_000));
    differs(&deferred, delayed(2_100, is_text, 500));
    let closed = written("round-trip-of-a-closed-handshake");
    differs(&closed, delayed(300, is_text, 500));
    // It does not wait at all.
    let (kernel, stack) = (delayed(300, is_text, 2_000), silent(300, is_text));
    differs_beside(&closed, kernel, stack);
}

#[test]
fn options_that_were_dropped_explain_nothing_later() {
    for option in [
        "raw 19 00000000000000000000000000000000",
        "bytes 1e00 nop nop nop nop nop nop nop nop nop nop nop nop nop nop nop nop",
    ] {
        let text = format!(
            "0 listen 5
            0 peer S 0 win 65535 mss 1460
            50 peer A 1 ack 1 win 60000
            60 accept
            100 peer A 1 ack 1 win 60000 {option}
            150 peer A 1 ack 1 win 60000
            200 write 100
            300 wait"
        );
        differs(&text.parse().unwrap(), sent(200, is_text, |text| text.ip.dscp = 8));
    }
}

#[test]
fn flow_labels_change_only_behind_fast_open() {
    let text = "ipv6
        0 listen 5
        0 peer S 0 win 65535 mss 1440 sackok
        1200 peer A 1 ack 1 win 500
        1210 accept
        1300 write 100
        1400 wait";
    differs(&text.parse().unwrap(), sent(1_300, is_text, |text| text.ip.is_relabelled ^= true));
}

#[test]
fn updates_of_the_window_at_each_byte() {
    let text = "0 listen 5
        0 peer S 0 win 65535 mss 1460 sackok
        30 peer A 1 ack 1 win 500
        40 accept
        50 peer AP 1:101 ack 1 win 500
        100 read 1
        200 wait";
    let scenario: Scenario = text.parse().unwrap();
    differs(&scenario, |records| {
        let mut update = records.iter().rfind(|record| is_sent(record)).unwrap().clone();
        let at = records.iter().rposition(|record| matches!(record.what, What::Returned(..))).unwrap();
        update.at = records[at].at;
        records.insert(at + 1, update);
    });
}

#[test]
fn window_probes_without_back_off_beside_text() {
    fn is_probe(record: &Record) -> bool {
        record.segment().is_some_and(|probe| probe.is_bare_ack() && probe.seq == 0)
    }
    let text = written("probe-beside-text").to_string().replace("900    wait", "3000   wait");
    differs(&text.parse().unwrap(), |records| {
        let probes: Vec<usize> = (0..records.len()).filter(|at| is_probe(&records[*at])).collect();
        records[probes[2]].at = records[probes[1]].at + ms(20);
    });
}

#[test]
fn a_user_timeout_that_is_ignored_beside_probes() {
    let text = written("user-timeout-set-beside-probes").to_string().replace("1800   wait", "20000  wait");
    let goes_on = |state: &mut State| {
        state.ready = Ready { writable: true, ..Ready::default() };
        state.info.iter_mut().for_each(|info| info.state = "ESTABLISHED");
    };
    differs(&text.parse().unwrap(), states(20_000, goes_on));
}

#[test]
fn timeouts_that_no_larger_bound_explains() {
    let scenario = written("timeout-behind-a-larger-rto-max");
    differs(&scenario, told(4_600, |info| info.rto += ms(700)));
    let later = scenario.to_string().replace("9000   wait", "8000   wait\n9000   wait");
    differs(&later.parse().unwrap(), told(4_600, |info| info.rto -= ms(700)));
}

#[test]
fn a_reset_of_a_connection_is_an_error_whatever_a_router_has_reported() {
    let text = "0 listen 5
        0 peer S 0 win 65535 mss 1460
        30 peer A 1 ack 1 win 60000
        40 accept
        50 write 100
        60 unreachable 1 about 1
        80 peer R 1 win 0
        100 wait";
    differs(&text.parse().unwrap(), states(100, |state| state.ready.error = false));
}

#[test]
fn an_option_that_enlarges_no_window_is_no_reason_to_announce_it() {
    let scenario = written("window-behind-an-option");
    let window = |record: &Record| record.segment().map(|segment| segment.win);
    let kernel = |records: &mut Records| {
        records.retain(|record| !is_sent(record) || !(ms(300)..ms(310)).contains(&record.at));
    };
    differs_beside(&scenario, kernel, |records| {
        let before = records.iter().rfind(|record| record.at < ms(300) && is_sent(record)).and_then(window);
        for record in records.iter_mut().filter(|record| record.at >= ms(300)) {
            if let What::Sent(Packet::Tcp(segment)) = &mut record.what {
                segment.win = before.unwrap();
            }
        }
    });
}
