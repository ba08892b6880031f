//! `bench --against`: the whole way, with a script that prints lines of JSON as the other build, and a small repository whose
//! program is such a build.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use sockeye_shared::testing::script;

use super::*;

/// A folder that is deleted with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sockeye-against-{name}-{}", std::process::id()));
        // Of a process that was killed.
        drop(fs::remove_dir_all(&path));
        fs::create_dir(&path).unwrap();
        Self(path.canonicalize().unwrap())
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A build that calls itself `called`, records its arguments, and then runs the script `answer`.
    fn build(&self, called: &str, answer: &str) -> PathBuf {
        let log = self.0.join("log");
        let path = self.0.join("other");
        let text = format!(
            "[ \"$1\" = --version ] && {{ echo {called} 0.1.0; exit; }}\n\
             echo \"$@\" >> {}\n{answer}\n",
            log.display()
        );
        script(&path, &text);
        path
    }

    /// A build whose program of the applications records its arguments and then runs the script `answer`.
    fn build_with_apps(&self, answer: &str) -> PathBuf {
        let log = self.0.join("log");
        script(&self.0.join("sockeye-bench-apps"), &format!("echo \"$@\" >> {}\n{answer}\n", log.display()));
        self.build("sockeye", "exit 2")
    }

    /// The arguments of each turn.
    fn turns(&self) -> Vec<String> {
        let log = fs::read_to_string(self.0.join("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A line as a build prints it.
fn line(workload: &str, on: &str, params: &Value, median: f64) -> String {
    json!({"workload": workload, "params": params, "on": on, "variant": null, "unit": "calls/s",
        "higher_is_better": true, "samples": [median], "median": median, "min": median, "max": median, "cpu": null,
        "counters": {}})
    .to_string()
}

/// A line in another unit.
fn rated(workload: &str, unit: &str, median: f64) -> String {
    line(workload, "sockeye", &json!({}), median).replace("calls/s", unit)
}

/// A script that prints this line.
fn prints(line: &str) -> String {
    format!("cat <<'END'\n{line}\nEND")
}

/// A script that answers as the program of the applications does.
fn calls(value: f64) -> String {
    format!("echo '{{\"value\":{value},\"cpu\":1}}'")
}

/// A row for which a script also gives this build's values: 90 in each round.
const ROW: &str = "http1 --connections 1 --runtimes 1 --json";

/// This build with such a script.
fn this(name: &str) -> apps::Folder {
    let folder = apps::Folder::new(name);
    folder.program("echo '{\"value\":90,\"cpu\":1}'");
    folder
}

fn against(name: &str, other: &Path, line: &str) -> Output {
    let this = this(name);
    let mut command = this.bench(line);
    command.arg("--against").arg(other);
    run(command)
}

fn objects(output: &Output) -> Vec<Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_row_is_measured_by_both_builds_in_twenty_rounds_and_marked_if_it_is_slower() {
    for (name, theirs, ratio, below) in [("level", 100.0, 0.9, false), ("below", 120.0, 0.75, true)] {
        let folder = Folder::new(name);
        let other = folder.build_with_apps(&calls(theirs));
        let output = against(name, &other, &format!("{ROW} --seconds 0.25"));
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let turns = folder.turns();
        assert_eq!(turns.len(), 20);
        for turn in &turns {
            assert!(turn.starts_with("http1 "), "{turn}");
            for part in ["--connections 1", "--runtimes 1", "--on sockeye", "--warm-up", "--seconds 0.25"] {
                assert!(turn.contains(part), "{part} is not in {turn}");
            }
        }
        let found = objects(&output);
        let [row, mean] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((&row["workload"], &row["other"]["median"]), (&json!("http1"), &json!(theirs)));
        assert_eq!(row["this"]["samples"].as_array().unwrap().len(), 20);
        assert_eq!(row["this"]["median"], json!(90.0));
        for key in ["ratio", "ratio_lo", "ratio_hi"] {
            assert_eq!(row[key], json!(ratio), "{row}");
        }
        assert_eq!((&row["below"], &mean["rows"]), (&json!(below), &json!(1)));
        let names = if below { json!(["http1 (1 conn, 1 runtime)"]) } else { json!([]) };
        assert_eq!(mean["below"], names);
        let progress = stderr(&output);
        for part in ["[1/20] round", "[20/20] round", "about", "row(s), planned for", "machine:"] {
            assert!(progress.contains(part), "{part} is not in {progress}");
        }
    }
}

#[test]
fn the_table_names_the_method_the_rows_and_those_below_the_mark() {
    let folder = Folder::new("table");
    let other = folder.build_with_apps(&calls(45.0));
    let output = against("table", &other, &format!("{} --rounds 21", ROW.trim_end_matches("--json")));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(folder.turns().len(), 21);
    let table = stdout(&output);
    for part in [
        "order ABBA",
        "21 rounds",
        "2.000 [2.000-2.000]",
        "geometric mean of 1 row(s): 2.000",
        "with the whole interval: none",
    ] {
        assert!(table.contains(part), "{part} is not in {table}");
    }
}

#[test]
fn a_row_of_sockets_is_measured_by_both_builds() {
    for (called, before) in [("sockeye", "bench rr "), ("sockeye-bench", "rr ")] {
        let folder = Folder::new(&format!("rr-{called}"));
        let other = folder.build(called, &prints(&rated("rr", "transactions/s", 1.0)));
        let mut command = bench("rr --pin same --seconds 0.01 --json --against");
        command.arg(other);
        let output = run(command);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        for turn in folder.turns() {
            assert!(turn.starts_with(before), "{turn}");
            for part in ["--on sockeye", "--samples 1", "--seconds 0.01", "--json"] {
                assert!(turn.contains(part), "{part} is not in {turn}");
            }
        }
        let row = &objects(&output)[0];
        assert_eq!(row["this"]["samples"].as_array().unwrap().len(), 20, "{row}");
        assert_eq!((&row["unit"], &row["other"]["median"]), (&json!("transactions/s"), &json!(1.0)));
    }
}

#[test]
fn a_row_unknown_to_the_other_build_is_listed_and_requested_once() {
    let folder = Folder::new("unknown");
    let other = folder.build("sockeye", "echo \"error: invalid value 'rr' for '[WORKLOAD]'\" >&2; exit 2");
    let mut command = bench("rr --pin same --seconds 0.01 --against");
    command.arg(other);
    let output = run(command);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(folder.turns().len(), 1);
    let table = stdout(&output);
    let part = "not compared: rr (1 conn, same core): the other build does not know it: invalid value 'rr'";
    assert!(table.contains(part), "{table}");
    assert!(!table.contains("geometric mean"), "{table}");
}

#[test]
fn a_build_that_measures_something_else_is_not_compared() {
    let folder = Folder::new("else");
    let answer = line("rr", "sockeye", &json!({"connections": 64}), 1.0).replace("calls/s", "transactions/s");
    let mut command = bench("rr --pin same --seconds 0.01 --json --against");
    command.arg(folder.build("sockeye-bench", &prints(&answer)));
    let output = run(command);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let found = objects(&output);
    assert_eq!((&found[0]["out"], &found[0]["build"]), (&json!("unknown"), &json!("other")));
    assert!(found[0]["why"].as_str().unwrap().contains("connections 64 instead of 1"), "{found:?}");
}

#[test]
fn a_failed_build_sets_the_exit_code() {
    for (name, script, why) in
        [("fails", "echo 'error: no ports' >&2; exit 1", "no ports"), ("killed", "kill -9 $$", "signal: 9")]
    {
        let folder = Folder::new(name);
        let other = folder.build_with_apps(script);
        let output = against(name, &other, ROW);
        assert_eq!(output.status.code(), Some(1));
        let found = objects(&output);
        assert_eq!((&found[0]["out"], &found[1]["rows"]), (&json!("failed"), &json!(0)));
        assert!(found[0]["why"].as_str().unwrap().contains(why), "{found:?}");
    }
}

#[test]
fn the_kernel_can_be_compared_with_itself_and_lines_are_also_written_to_a_file() {
    let folder = Folder::new("kernel");
    let other = folder.build_with_apps(&calls(90.0));
    let file = folder.0.join("lines.jsonl");
    let output = against("kernel", &other, &format!("{ROW} --on kernel --out {}", file.display()));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(folder.turns().iter().all(|turn| turn.contains("--on kernel")));
    assert_eq!(fs::read_to_string(&file).unwrap(), stdout(&output));
    assert_eq!(objects(&output)[0]["ratio"], json!(1.0));
}

#[test]
fn a_wrong_command_line_is_answered_with_the_correct_form() {
    for (line, parts) in [
        ("rr --against x --rounds 19", &["--rounds", "20 to 1000"][..]),
        ("rr --rounds 30", &["--against"]),
        ("rcvd --against x", &["--against compares stream, rr"]),
        ("udp --against x", &["--against compares stream, rr", "bench udp --json --out FILE"]),
        ("tun --far trivial --against x", &["--far", "leave them out"]),
        ("--touch --against x", &["--touch", "sockeye bench mem"]),
    ] {
        let output = run(bench(line));
        assert_eq!(output.status.code(), Some(2), "{line}: {}", stderr(&output));
        for part in parts {
            assert!(stderr(&output).contains(part), "{line}: {part} is not in {}", stderr(&output));
        }
    }
}

#[test]
fn a_path_that_is_no_build_is_refused_with_a_remedy() {
    let folder = Folder::new("none");
    let other = folder.build("iperf", "");
    let output = against("none", &other, ROW);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
    assert!(stderr(&output).contains("does not call itself sockeye"), "{}", stderr(&output));
    let mut outside = bench("rr --against no-such-revision");
    outside.current_dir(&folder.0).env("PATH", "/nonexistent");
    let message = stderr(&run(outside));
    assert!(message.contains("`git` is not installed") && message.contains("give the path"), "{message}");
}

/// A repository with a program that answers as the bench of an early revision does; `answer` is a line of its.
fn repository(name: &str, program: &str) -> Option<Folder> {
    let folder = Folder::new(name);
    folder.write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"apps/cli\"]\n");
    folder.write(
        "apps/cli/Cargo.toml",
        "[package]\nname = \"sockeye-cli\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
         [[bin]]\nname = \"sockeye\"\npath = \"src/main.rs\"\n",
    );
    folder.write(".gitignore", "/target\n");
    folder.write("Cargo.lock", "version = 4\n\n[[package]]\nname = \"sockeye-cli\"\nversion = \"0.1.0\"\n");
    folder.write("apps/cli/src/main.rs", program);
    for line in ["init --quiet", "add --all", "commit --quiet --message first"] {
        match git(&folder.0, line) {
            Some(true) => {}
            Some(false) => panic!("git {line}"),
            None => {
                assert!(std::env::var_os("CI").is_none(), "git is not installed");
                eprintln!("skipped: git is not installed");
                return None;
            }
        }
    }
    Some(folder)
}

/// Whether git did it; `None` without git.
fn git(folder: &Path, line: &str) -> Option<bool> {
    let settings = ["-c", "user.name=test", "-c", "user.email=test@example.org"];
    let output =
        Command::new("git").arg("-C").arg(folder).args(settings).args(line.split(' ')).output().ok()?;
    Some(output.status.success())
}

/// In the repository, not under the target folder of these tests.
fn against_revision(folder: &Folder, revision: &str) -> Output {
    let name = folder.0.file_name().unwrap().to_str().unwrap();
    let this = this(&format!("of-{name}"));
    let mut command = this.bench(&format!("rr --pin same --seconds 0.01 --json --against {revision}"));
    run({
        command.current_dir(&folder.0).env_remove("CARGO_TARGET_DIR");
        command
    })
}

/// Worktrees of a repository, itself included.
fn worktrees(folder: &Folder) -> usize {
    let output = Command::new("git").arg("-C").arg(&folder.0).args(["worktree", "list"]).output().unwrap();
    stdout(&output).lines().count()
}

#[test]
fn a_revision_is_built_once_and_leaves_no_worktree() {
    let answer = rated("rr", "transactions/s", 1e12);
    let program = format!(
        "fn main() {{\n    let version = std::env::args().nth(1).as_deref() == Some(\"--version\");\n    \
         println!(\"{{}}\", if version {{ \"sockeye 0.1.0\" }} else {{ r#\"{answer}\"# }});\n}}\n"
    );
    let Some(folder) = repository("revision", &program) else { return };
    let output = against_revision(&folder, "HEAD");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("building HEAD ("), "{}", stderr(&output));
    let found = objects(&output);
    assert_eq!((&found[0]["other"]["median"], &found[0]["below"]), (&json!(1e12), &json!(true)));
    assert!(found[0]["against"].as_str().unwrap().starts_with("HEAD ("), "{}", found[0]);
    assert!(!folder.0.join("target/against/source").exists() && worktrees(&folder) == 1);
    let again = against_revision(&folder, "HEAD");
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    assert!(stderr(&again).contains("was built before") && !stderr(&again).contains("building"));
}

#[test]
fn a_revision_that_does_not_build_shows_cargos_last_lines_and_leaves_no_worktree() {
    let Some(folder) = repository("broken", "fn main() { a_word_that_means_nothing }\n") else { return };
    // As left behind by a run that was killed.
    assert_eq!(git(&folder.0, "worktree add --detach target/against/source HEAD"), Some(true));
    let output = against_revision(&folder, "HEAD");
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
    let message = stderr(&output);
    assert!(message.contains("does not build") && message.contains("a_word_that_means_nothing"), "{message}");
    assert!(!folder.0.join("target/against/source").exists() && worktrees(&folder) == 1);
}

#[test]
fn an_unknown_revision_and_one_of_another_project_have_different_errors() {
    let Some(folder) = repository("other", "fn main() {}\n") else { return };
    let message = stderr(&against_revision(&folder, "no-such-revision"));
    assert!(message.contains("neither a file nor a revision") && message.contains("git fetch"), "{message}");
    assert_eq!(git(&folder.0, "mv apps/cli elsewhere"), Some(true));
    assert_eq!(git(&folder.0, "commit --quiet --all --message moved"), Some(true));
    let message = stderr(&against_revision(&folder, "HEAD"));
    assert!(message.contains("has no bench") && message.contains("checkout of Sockeye"), "{message}");
}
