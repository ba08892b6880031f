//! The rows of an application's library, with a script in the place of the program that makes the calls.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sockeye_shared::testing::{copy_program, script};

use super::*;

/// A folder with a copy of the bench, so that its neighbour can be chosen; it is deleted with the value.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sockeye-apps-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        copy_program(Path::new(env!("CARGO_BIN_EXE_sockeye-bench")), &path.join("sockeye-bench"));
        Self(path)
    }

    /// The bench of this folder, not under cargo.
    pub fn bench(&self, line: &str) -> Command {
        let mut command = Command::new(self.0.join("sockeye-bench"));
        command.args(line.split_whitespace()).stdin(Stdio::null()).env_remove("CARGO");
        command
    }

    /// Adds a program that records its arguments and then runs the script `answer`.
    pub fn program(&self, answer: &str) {
        let log = self.0.join("log");
        script(&self.0.join("sockeye-bench-apps"), &format!("echo \"$@\" >> {}\n{answer}", log.display()));
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn a_row_asks_the_program_for_a_sample_of_each_side() {
    let folder = Folder::new("row");
    folder.program("case \"$*\" in *kernel*) value=50;; *) value=200;; esac; echo \"{\\\"value\\\":$value,\\\"cpu\\\":1.5}\"");
    let output = run(folder.bench("http1 --connections 64 --runtimes 2 --samples 3 --seconds 0.25 --json"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [ours, theirs, compared] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!(
        (&ours["on"], &ours["samples"], &ours["cpu"]),
        (&json!("sockeye"), &json!([200.0, 200.0, 200.0]), &json!(1.5))
    );
    assert_eq!(
        (&theirs["on"], &theirs["median"], &compared["ratio"]),
        (&json!("kernel"), &json!(50.0), &json!(4.0))
    );
    assert_eq!((&ours["unit"], &ours["workload"]), (&json!("calls/s"), &json!("http1")));
    assert_eq!((&ours["params"]["connections"], &ours["params"]["runtimes"]), (&json!(64), &json!(2)));
    let log = fs::read_to_string(folder.0.join("log")).unwrap();
    assert_eq!(log.lines().count(), 6);
    let first = "http1 --on sockeye --connections 64 --runtimes 2 --warm-up 0.05 --seconds 0.25";
    assert_eq!(log.lines().next(), Some(first));
}

#[test]
fn two_builds_are_compared_by_their_own_programs() {
    let (this, other) = (Folder::new("this"), Folder::new("other"));
    this.program("echo '{\"value\":90,\"cpu\":1}'");
    other.program("echo '{\"value\":60,\"cpu\":1}'");
    let mut command = this.bench("http2 --connections 1 --runtimes 1 --seconds 0.01 --json --against");
    command.arg(other.0.join("sockeye-bench"));
    let output = run(command);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let row: Value = serde_json::from_str(stdout(&output).lines().next().unwrap()).unwrap();
    assert_eq!((&row["workload"], &row["ratio"]), (&json!("http2"), &json!(1.5)));
    for folder in [this, other] {
        assert_eq!(fs::read_to_string(folder.0.join("log")).unwrap().lines().count(), 20);
    }
}

#[test]
fn a_build_without_the_program_is_excluded_and_the_reason_names_a_remedy() {
    let (this, other) = (Folder::new("with"), Folder::new("without"));
    this.program("echo '{\"value\":90,\"cpu\":1}'");
    let mut command = this.bench("http1 --connections 1 --runtimes 1 --seconds 0.01 --against");
    command.arg(other.0.join("sockeye-bench"));
    let output = run(command);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let message = stdout(&output);
    assert!(
        message.contains("not compared: http1") && message.contains("there is no sockeye-bench-apps beside"),
        "{message}"
    );
}

#[test]
fn a_sample_that_fails_fails_its_side_with_the_programs_message() {
    let folder = Folder::new("fails");
    folder.program("case \"$*\" in *kernel*) echo '{\"value\":50,\"cpu\":1}';; *) echo 'error: connection 3: reset' >&2; exit 1;; esac");
    let output = run(folder.bench("http2 --runtimes 1 --samples 1 --seconds 0.05"));
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("sockeye failed: connection 3: reset"), "{}", stdout(&output));
    assert!(stdout(&output).contains("50 calls/s"), "{}", stdout(&output));
}

#[test]
fn without_the_program_the_message_has_the_command_that_builds_it() {
    let folder = Folder::new("missing");
    for line in ["http1", "--quick --apps", "--quick --apps --against /nonexistent/other"] {
        let output = run(folder.bench(line));
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""), "{line}");
        let message = stderr(&output);
        assert!(
            message.contains("cargo build --release --manifest-path apps/bench-apps/Cargo.toml"),
            "{line}: {message}"
        );
    }
}

#[test]
fn flags_without_effect_are_refused() {
    for (line, part) in [
        ("rr --apps", "http1 or http2"),
        ("rr --runtimes 2", "only to: http1, http2"),
        ("http1 --runtimes 3", "1, 2 or 1,2"),
        ("http1 --connections 1001", "at most 1000"),
        ("http2 --size 3", "--size does not belong to http2"),
    ] {
        let output = run(bench(line));
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(stderr(&output).contains(part), "{line}: {}", stderr(&output));
    }
}
