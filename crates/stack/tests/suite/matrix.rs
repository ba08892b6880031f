//! Every pair of settings of the switches works together: this whole binary, run again for a set of rows that covers
//! all pairs, each time with shorter loops.
//!
//! A row runs in a process of its own (the environment has its settings, see `common`), so that a hang or an abort names
//! its row. Alone: `SOCKEYE_TEST_SWITCHES="grain=per_core rcvd=sync …" cargo test -p sockeye --test suite`.

use std::process::{Command, Output};

use crate::common;
use crate::common::settings::{Entry, Grain, Input, Rcvd, RxFree, SWITCHES, Wake};

/// Percent of the usual loops: rows times this is about one more ordinary run.
const SCALE_PERCENT: usize = 6;
/// Tests of a row that run at a time: many of them mostly wait.
const THREADS: &str = "6";
/// Rows that run at a time.
const ROWS_AT_ONCE: usize = 2;

/// A switch: its key and its settings.
type Switch = (&'static str, Vec<String>);
/// The index of a setting for each switch.
type Row = Vec<usize>;

fn switches() -> Vec<Switch> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    vec![
        (Grain::KEY, names(Grain::NAMES)),
        (Rcvd::KEY, names(Rcvd::NAMES)),
        (Input::KEY, names(Input::NAMES)),
        (RxFree::KEY, names(RxFree::NAMES)),
        (Wake::KEY, names(Wake::NAMES)),
        (Entry::KEY, names(Entry::NAMES)),
    ]
}

/// One setting each of two different switches, the lower one first.
type Pair = ((usize, usize), (usize, usize));

fn pairs_of(row: &[usize]) -> impl Iterator<Item = Pair> + '_ {
    (0..row.len()).flat_map(move |a| (a + 1..row.len()).map(move |b| ((a, row[a]), (b, row[b]))))
}

/// Every row there is.
fn product(switches: &[Switch]) -> Vec<Row> {
    switches.iter().fold(vec![Vec::new()], |rows, (_, settings)| {
        let extend = |row: &Row| {
            let row = row.clone();
            (0..settings.len()).map(move |setting| [row.clone(), vec![setting]].concat()).collect::<Vec<_>>()
        };
        rows.iter().flat_map(extend).collect()
    })
}

/// Rows that contain every pair, chosen greedily: always the row with the most pairs that are still missing.
fn cover(switches: &[Switch]) -> Vec<Row> {
    let all = product(switches);
    let mut missing: std::collections::HashSet<Pair> = all.iter().flat_map(|row| pairs_of(row)).collect();
    let mut rows = Vec::new();
    while !missing.is_empty() {
        let gain = |row: &&Row| pairs_of(row).filter(|pair| missing.contains(pair)).count();
        let best = all.iter().max_by_key(gain).expect("a product of settings is not empty");
        for pair in pairs_of(best) {
            missing.remove(&pair);
        }
        rows.push(best.clone());
    }
    rows
}

fn as_text(switches: &[Switch], row: &[usize]) -> String {
    let word = |((key, settings), setting): (&Switch, &usize)| format!("{key}={}", settings[*setting]);
    switches.iter().zip(row).map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_cover_has_every_pair_of_settings_and_few_rows() {
    let switches = switches();
    let rows = cover(&switches);
    for (a, (one, ones)) in switches.iter().enumerate() {
        for (b, (other, others)) in switches.iter().enumerate().skip(a + 1) {
            for (x, y) in (0..ones.len()).flat_map(|x| (0..others.len()).map(move |y| (x, y))) {
                let is_covered = rows.iter().any(|row| row[a] == x && row[b] == y);
                assert!(is_covered, "{one}={} with {other}={}", ones[x], others[y]);
            }
        }
    }
    // The two largest switches have 4 settings each, so 16 rows are the least.
    assert!(rows.len() <= 24, "{} rows", rows.len());
}

/// Runs this binary's other tests with the settings of a row.
fn run(settings: &str) -> Output {
    Command::new(std::env::current_exe().expect("the path of the test binary is known"))
        .args(["--skip", "matrix::", "--test-threads", THREADS])
        .env(SWITCHES, settings)
        .env("SOCKEYE_TEST_SCALE", common::scaled(SCALE_PERCENT).to_string())
        .output()
        .expect("this binary can be run again")
}

/// The code of a test binary of which a test failed. One that aborted has none.
const CODE_FAILED: i32 = 101;
/// What tests say that have waited for long enough on most machines: `common::eventually`, and the comparison of `poll.rs`.
const WAITED: [&str; 2] = ["still not true after ", "where the kernel says "];

/// What the test's own thread says when another one has panicked: no reason of its own.
const REPEATED: [&str; 2] = ["a scoped thread panicked", "on an `Err` value: Any {"];

/// A row of which a test failed.
struct Failure {
    /// With all output.
    what: String,
    /// Nothing failed but waiting.
    is_late: bool,
}

/// The outcome of the tests with the settings of a row, if one failed.
fn failure(row: &str) -> Option<Failure> {
    let output = run(row);
    let stdout = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    (!output.status.success()).then(|| Failure {
        what: format!("{row}\n{stdout}\n{complained}"),
        is_late: output.status.code() == Some(CODE_FAILED) && has_only_waited(&stdout),
    })
}

/// Whether each panic of the tests that failed says that it waited. Its message is on the line after its place.
fn has_only_waited(stdout: &str) -> bool {
    let mut lines = stdout.lines();
    let mut waited = Vec::new();
    while lines.by_ref().any(|line| line.contains(" panicked at ")) {
        let message = lines.next().unwrap_or_default();
        if !REPEATED.iter().any(|said| message.contains(said)) {
            waited.push(WAITED.iter().any(|said| message.contains(said)));
        }
    }
    !waited.is_empty() && waited.into_iter().all(|waited| waited)
}

#[test]
fn a_row_that_failed_for_another_reason_than_time_is_not_given_a_second_chance() {
    let late =
        "thread 'a' (7) panicked at tests/common/mod.rs:1:2:\nstill not true after 60000 looks: it is\n";
    let wrong =
        "thread 'b' (8) panicked at tests/suite/abort.rs:3:4:\nassertion failed\nstill not true after that";
    let twice = [late, late].concat();
    let both = [late, wrong].concat();
    let joined = "thread 'c' (9) panicked at library/std/src/thread/scoped.rs:1:1:\na scoped thread panicked\n\
        thread 'c' (9) panicked at tests/suite/mod.rs:5:6:\n\
        called `Result::unwrap()` on an `Err` value: Any { .. }\n";
    let rows = [late, wrong, &twice, &both, "", joined, &[late, joined].concat(), &[wrong, joined].concat()];
    assert_eq!(rows.map(has_only_waited), [true, false, true, false, false, false, true, false]);
}

#[test]
fn every_pair_of_settings_passes_the_suite() {
    let switches = switches();
    let rows: Vec<String> = cover(&switches).iter().map(|row| as_text(&switches, row)).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let failures = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..ROWS_AT_ONCE {
            scope.spawn(|| {
                while let Some(row) = rows.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    let start = std::time::Instant::now();
                    let failure = failure(row);
                    eprintln!("{:6.1?} {row}", start.elapsed());
                    failures.lock().unwrap().extend(failure.map(|what| (row, what)));
                }
            });
        }
    });
    // Settings that leave work to threads are slow while other rows and a sanitizer use the cores: a row in which something was
    // late beside them must also fail alone. Not one that failed otherwise: races are rare, so a second run would hide them.
    let again = |(row, first): (&String, Failure)| {
        if !first.is_late {
            return Some(first);
        }
        eprintln!("again, by itself: {row}\n{}", first.what);
        failure(row)
    };
    let failures = failures.into_inner().unwrap().into_iter().filter_map(again);
    let failures: Vec<String> = failures.map(|failure| failure.what).collect();
    assert!(failures.is_empty(), "{} rows failed:\n{}", failures.len(), failures.join("\n\n"));
}
