//! `sockeye bench sim`, with a script in the place of the program that runs the worlds.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sockeye_shared::testing::{copy_program, script};

use super::*;

/// A folder with a copy of the bench and its neighbour; it is deleted with the value.
struct Folder(PathBuf);

impl Folder {
    /// With a program that records its arguments and then runs the script `answer`.
    fn new(name: &str, answer: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sockeye-bench-sim-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        copy_program(Path::new(env!("CARGO_BIN_EXE_sockeye-bench")), &path.join("sockeye-bench"));
        let log = path.join("log");
        script(&path.join("sockeye-bench-sim"), &format!("echo \"$@\" >> {}\n{answer}", log.display()));
        Self(path)
    }

    fn bench(&self, line: &str) -> Output {
        let mut command = Command::new(self.0.join("sockeye-bench"));
        command.args(line.split_whitespace()).stdin(Stdio::null()).env_remove("CARGO");
        run(command)
    }

    fn log(&self) -> Vec<String> {
        fs::read_to_string(self.0.join("log")).unwrap().lines().map(str::to_owned).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// turmoil makes 100 calls in a second of CPU time, tokio 700, the native executor 1,600; in real time half of that.
const RATES: &str = "case \"$*\" in *turmoil*) cpu=1;; *tokio*) cpu=0.1428571428;; *) cpu=0.0625;; esac
wall=$(awk \"BEGIN { print 2 * $cpu }\")
echo \"{\\\"work\\\":100,\\\"wall\\\":$wall,\\\"cpu\\\":$cpu,\\\"simulated\\\":4}\"";

#[test]
fn lanes_take_turns_and_are_compared_with_the_first() {
    let folder = Folder::new("rates", RATES);
    let output = folder.bench("sim --rows many --calls 50 --samples 3 --json");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 9, "three kinds of links, three lanes");
    let [turmoil, tokio, native] = &lines[..3] else { panic!("{lines:?}") };
    assert_eq!((&turmoil["lane"], &turmoil["per_cpu_second"]["median"]), (&json!("turmoil"), &json!(100.0)));
    assert_eq!((&turmoil["cpu"]["ratio"], &turmoil["goal"]), (&Value::Null, &Value::Null));
    let ratio = |line: &Value, kind: &str| line[kind]["ratio"].as_f64().unwrap();
    assert!((ratio(tokio, "cpu") - 7.0).abs() < 1e-6 && (ratio(native, "wall") - 16.0).abs() < 1e-6);
    // At least 5 and 20 are wanted.
    assert_eq!((&tokio["reached"], &native["reached"]), (&json!(true), &json!(false)));
    assert!(
        tokio["cpu"]["interval"].is_array() && tokio["per_second"]["samples"].as_array().unwrap().len() == 3
    );
    let log = folder.log();
    assert_eq!(log.len(), 27);
    let on = |line: &String| line.split(' ').nth(3).unwrap().to_owned();
    let order: Vec<String> = log[..9].iter().map(on).collect();
    assert_eq!(order.join(" "), "turmoil native tokio tokio turmoil native native tokio turmoil");
    assert_eq!(log[0], "calls kv --on turmoil --hosts 100 --calls 50 --latency 1");
}

#[test]
fn the_table_has_rates_ratios_and_goals_and_progress_is_apart() {
    let folder = Folder::new("table", RATES);
    let output = folder.bench("sim --rows idle,seeds --quick --samples 1 --goals");
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(text.contains("turmoil steps every host once in each simulated millisecond"), "{text}");
    // A sample took 0.29 s; two at a time are no faster than one here.
    assert!(text.contains("<= 1 s: reached") && text.contains(">= 1.7 by time: missed"), "{text}");
    assert!(stderr(&output).contains("[1/2] sim: two idle hosts"), "{}", stderr(&output));
    assert!(!text.contains("[1/2]"), "{text}");
}

#[test]
fn worlds_at_a_time_go_to_the_program_by_its_variable() {
    let answer = "echo $SOCKEYE_SIM_THREADS >> \"$0.threads\"; echo '{\"work\":1,\"wall\":1,\"cpu\":1,\"simulated\":1}'";
    let folder = Folder::new("threads", answer);
    let output = folder.bench("sim --rows seeds --samples 2 --json");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(folder.0.join("sockeye-bench-sim.threads")).unwrap(), "1\n2\n2\n1\n");
}

#[test]
fn a_lane_that_fails_fails_the_run_and_the_other_rows_go_on() {
    let folder = Folder::new(
        "fails",
        "case \"$*\" in *native*) echo 'error: call 3: reset' >&2; exit 1;; esac
        echo '{\"work\":1,\"wall\":1,\"cpu\":1,\"simulated\":1}'",
    );
    let output = folder.bench("sim --rows two,axum --samples 1 --calls 9");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("in native: call 3: reset"), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("native   failed") && stdout(&output).contains("axum, 2 hosts x 9 calls")
    );
}

#[test]
fn without_the_first_lane_no_goal_of_a_ratio_is_called_missed() {
    let folder = Folder::new(
        "base-fails",
        "case \"$*\" in *turmoil*) exit 1;; esac
        echo '{\"work\":1,\"wall\":1,\"cpu\":1,\"simulated\":1}'",
    );
    let output = folder.bench("sim --rows two --samples 1 --calls 9 --goals");
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains(">= 1 by CPU: nothing to compare with") && !text.contains("missed"), "{text}");
}

#[test]
fn flags_without_effect_are_refused() {
    for (line, part) in [
        ("rr --rows two", "sockeye bench sim --rows two,idle"),
        ("udp --calls 5", "--calls belongs to sim"),
        ("sim --seconds 1", "write --calls"),
        ("sim --connections 3", "--connections does not belong to sim"),
        ("sim --rows three", "possible values"),
        ("sim --against main", "--against compares"),
    ] {
        let output = run(bench(line));
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(stderr(&output).contains(part), "{line}: {}", stderr(&output));
    }
}

#[test]
fn without_the_program_the_message_has_the_command_that_builds_it() {
    let folder = Folder::new("missing", "");
    fs::remove_file(folder.0.join("sockeye-bench-sim")).unwrap();
    let output = folder.bench("sim");
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(message.contains("cargo build --release --manifest-path apps/bench-sim/Cargo.toml"), "{message}");
}
