//! `sockeye bench tun` and `bench input --dev tun`: their output, if devices may be created; the other stacks only on
//! request.
//!
//! `SOCKEYE_PEERS=1` builds gVisor's netstack and smoltcp, for which it needs go and modules from outside.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;
use sockeye_drivers::testing::unavailable;

use super::helpers::{alive, children_of, wait_for};
use super::*;

/// Set to run the test that builds the peers.
const PEERS_SWITCH: &str = "SOCKEYE_PEERS";

/// The JSON objects of the output; `None`, with a message, if devices cannot be created here.
fn rows(arguments: &str) -> Option<Vec<Value>> {
    if let Some(reason) = unavailable() {
        println!("skipped: {reason}");
        return None;
    }
    let output = run(bench(&format!("{arguments} --json")));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    Some(stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// That each kind of work has a sample of each of these ends, and a ratio for each but the first.
fn check(rows: &[Value], names: &[&str]) {
    let works: Vec<&str> = rows.iter().map(|row| row["work"].as_str().unwrap()).collect();
    assert_eq!(works, ["receive", "send", "lent", "rr"]);
    for row in rows {
        let ends = row["ends"].as_array().unwrap();
        let found: Vec<&str> = ends.iter().map(|end| end["name"].as_str().unwrap()).collect();
        assert_eq!(found, names);
        for (index, end) in ends.iter().enumerate() {
            assert!(end["median"].as_f64().unwrap() > 0.0, "{end}");
            assert_eq!(end["sockeye_over_it"].is_null(), index == 0, "{end}");
        }
    }
}

#[test]
fn each_workload_is_measured_with_each_far_end() {
    let Some(rows) = rows("tun --samples 1 --seconds 0.03") else { return };
    check(&rows, &["sockeye", "trivial", "kernel"]);
    assert_eq!(rows[0]["ends"][1]["goal"], 0.85);
}

#[test]
fn one_mtu_may_be_requested_of_every_end() {
    for mtu in [1280, 65_535] {
        let Some(rows) = rows(&format!("tun --samples 1 --seconds 0.03 --mtu {mtu}")) else { return };
        check(&rows, &["sockeye", "trivial", "kernel"]);
        for end in rows.iter().flat_map(|row| row["ends"].as_array().unwrap()) {
            assert_eq!(end["mtu"], mtu, "{end}");
        }
    }
}

#[test]
fn no_end_needs_to_be_busy() {
    let Some(rows) = rows("tun --samples 1 --seconds 0.03 --spin-us 0") else { return };
    check(&rows, &["sockeye", "trivial", "kernel"]);
}

#[test]
fn other_stacks_are_built_and_measured_on_request() {
    if std::env::var_os(PEERS_SWITCH).is_none_or(|value| value != "1") {
        println!("skipped: {PEERS_SWITCH}=1 would build them");
        return;
    }
    let Some(rows) = rows("tun --samples 1 --seconds 0.1 --peers") else { return };
    check(&rows, &["sockeye", "trivial", "kernel", "gvisor", "smoltcp"]);
    for row in &rows {
        assert_eq!((row["ends"][3]["goal"].as_f64(), row["ends"][3]["aim"].as_f64()), (Some(2.0), Some(4.0)));
        assert!(row["ends"][4]["about"].as_str().unwrap().starts_with("smoltcp 0."), "{row}");
    }
}

/// A folder of programs that say they are stacks and then do `script`.
struct Pretenders(PathBuf);

impl Pretenders {
    fn new(name: &str, script: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("sockeye-peers-{}-{name}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        for name in ["gvisor", "smoltcp"] {
            let program = folder.join(name);
            fs::write(&program, format!("#!/bin/sh\necho ready a pretender\n{script}\n")).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        }
        Self(folder)
    }
}

impl Drop for Pretenders {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_stack_that_fails_is_excluded_and_the_others_continue() {
    if unavailable().is_some() {
        return;
    }
    let folder = Pretenders::new("fails", "exit 0");
    let line = format!("tun --samples 2 --seconds 0.03 --json --peers={}", folder.0.display());
    let output = run(bench(&line));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("a sample of rr with smoltcp"), "{}", stderr(&output));
    let text = stdout(&output);
    assert_eq!(text.lines().count(), 4, "{text}");
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let counts =
            row["ends"].as_array().unwrap().iter().map(|end| end["samples"].as_array().unwrap().len());
        assert_eq!(counts.collect::<Vec<_>>(), [2, 2, 2, 0, 0]);
        assert!(row["ends"][4]["sockeye_over_it"].is_null());
    }
}

#[test]
fn other_stacks_end_when_the_command_is_killed() {
    if unavailable().is_some() {
        return;
    }
    // It answers nothing, and runs until its socket is closed.
    let folder = Pretenders::new("killed", "exec cat <&1 >&2");
    let line = format!("tun --seconds 20 --peers={}", folder.0.display());
    let mut parent = bench(&line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let peers = wait_for(|| Some(children_of(parent.id())).filter(|peers| peers.len() == 2));
    parent.kill().unwrap();
    parent.wait().unwrap();
    for peer in peers.expect("no peers were started") {
        assert!(wait_for(|| (!alive(peer)).then_some(())).is_some(), "{peer} outlived its parent");
    }
}

#[test]
fn input_is_compared_over_a_device_in_each_setting() {
    let line = "input --dev tun --connections 2 --threads 2 --on sockeye --samples 2 --seconds 0.05";
    let Some(lines) = rows(line) else { return };
    let (results, compared): (Vec<&Value>, Vec<&Value>) =
        lines.iter().partition(|line| line["compare"].is_null());
    let shown: Vec<(&str, bool)> = results
        .iter()
        .map(|line| (line["variant"].as_str().unwrap(), line["params"]["offload"].as_bool().unwrap()))
        .collect();
    let settings = ["input=exclusive", "input=exclusive+lock", "input=per_packet", "input=batched"];
    let both = |offload| settings.map(|setting| (setting, offload));
    assert_eq!(shown, [both(true), both(false)].concat());
    for result in results {
        assert!(result["median"].as_f64().unwrap() > 0.0, "{result}");
        assert_eq!(result["params"]["dev"], "tun");
        let counters = &result["counters"];
        for name in ["input_acquisitions", "input_packets", "queue_1_frames_in"] {
            assert!(counters[name].is_u64(), "{name} is not in {result}");
        }
    }
    assert_eq!(compared.len(), 2 * (settings.len() - 1));
}

#[test]
fn invalid_choices_are_refused_with_the_valid_ones() {
    for (line, parts) in [
        ("stream --peers", &["--peers", "sockeye bench tun --peers"][..]),
        ("tun --connections 3", &["--connections", "tun"]),
        ("stream --mtu 1500", &["--mtu", "sockeye bench tun --mtu 65535"]),
        ("tun --mtu 1279", &["--mtu", "1279", "1280 to 65535", "--mtu 1500"]),
        ("tun --mtu 65536", &["--mtu", "65536", "1280 to 65535"]),
        ("tun --mtu jumbo", &["--mtu", "jumbo", "1280 to 65535"]),
        ("rr --spin-us 0", &["--spin-us", "sockeye bench tun --spin-us 0"]),
        ("tun --spin-us 10001", &["--spin-us", "10001", "0 to 10000", "leave it out"]),
        ("rcvd --dev tun", &["--dev", "sockeye bench input --dev tun"]),
        ("all --dev tun", &["--dev", "sockeye bench input --dev tun"]),
        ("input --dev tap", &["--dev", "tun"]),
    ] {
        let output = run(bench(line));
        assert_eq!(output.status.code(), Some(2), "{line}");
        let text = stderr(&output);
        assert!(parts.iter().all(|part| text.contains(part)), "{line}: {text}");
    }
    if unavailable().is_none() {
        let output = run(bench("tun --peers=/nonexistent/peers"));
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("/nonexistent/peers/gvisor"), "{}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
}
