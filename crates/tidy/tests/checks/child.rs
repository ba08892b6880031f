//! A child cargo: its surroundings, whether it can run at all, and how its failure is shown.
//!
//! Does not depend on the checks. Invariants: a child sees none of the variables by which the cargo that runs
//! this test talks to its own children; at most [`AT_ONCE_MAX`] checks have children at a time. Tests: at the end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};

/// A tool that a check needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// A subcommand of cargo that is installed on its own.
    Component(&'static str),
    /// A compiler whose target libraries have the AddressSanitizer's runtime.
    Sanitizer,
    /// The same, and a C++ compiler, which builds libFuzzer.
    Libfuzzer,
    /// A compiler of this version, by rustup's name.
    Toolchain(&'static str),
    /// The compiler's libraries for each of these targets.
    Targets(&'static [&'static str]),
    /// The same for one target, and programs that build and run its tests: linker, emulator, and a file of its C library.
    Emulator { target: &'static str, programs: [&'static str; 2], library: &'static str },
}

/// A cargo to be run.
pub struct Child {
    args: Vec<OsString>,
    env: Vec<(&'static str, String)>,
    need: Option<Need>,
}

/// Checks that have children at a time. A child alone leaves a core idle for a third of its time: while it compiles a crate that others wait for, and while its tests sleep.
const AT_ONCE_MAX: usize = 2;
/// How many have some now.
static TURNS: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// The right to run children. It ends when this is dropped, also by a failed check's panic.
struct Turn;

impl Turn {
    /// Blocks until fewer than [`AT_ONCE_MAX`] checks have one.
    fn wait() -> Self {
        let (taken, ended) = &TURNS;
        let taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken =
            ended.wait_while(taken, |taken| *taken == AT_ONCE_MAX).unwrap_or_else(PoisonError::into_inner);
        *taken += 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let (taken, ended) = &TURNS;
        *taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ended.notify_one();
    }
}

/// Debug information costs a child a tenth of its build, and a panic tells its place without it.
const NO_DEBUG: [&str; 3] =
    ["CARGO_PROFILE_DEV_DEBUG", "CARGO_PROFILE_TEST_DEBUG", "CARGO_PROFILE_RELEASE_DEBUG"];
/// Set to `off` to skip the checks.
const SWITCH: &str = "SOCKEYE_CHECKS";
/// Longest time that a child may take, seconds: several times that of the slowest on two busy cores.
const CHILD_SECONDS_MAX: u32 = 1500;
/// The exit code of timeout(1) when the time is over.
const TIMED_OUT: i32 = 124;
/// Lines of a failed child's output that are shown: its end, where the reason is.
const SHOWN_LINES_MAX: usize = 200;

impl Child {
    /// `cargo SUBCOMMAND`, whose builds have no debug information.
    pub fn cargo(subcommand: &str) -> Self {
        let env = NO_DEBUG.iter().map(|name| (*name, "0".to_owned())).collect();
        Self { args: vec![subcommand.into()], env, need: None }
    }

    pub fn args<'a>(mut self, args: impl IntoIterator<Item = &'a str>) -> Self {
        self.args.extend(args.into_iter().map(OsString::from));
        self
    }

    pub fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    pub fn needs(mut self, need: Need) -> Self {
        self.need = Some(need);
        self
    }

    /// Runs it with a target folder of this name, and fails the test if it fails.
    pub fn run(self, folder: &str) {
        self.output(folder);
    }

    /// The same for a child that runs tests: it must have run some.
    pub fn run_tests(self, folder: &str) {
        some_passed(self.output(folder));
    }

    /// The same for lists of children, each list in its order and the lists at once, for tests that have one thread.
    pub fn run_tests_at_once(lists: impl IntoIterator<Item = Vec<Self>>, folder: &str) {
        Self::at_once(lists, folder, some_passed);
    }

    /// The same for programs that are not tests.
    pub fn run_at_once(lists: impl IntoIterator<Item = Vec<Self>>, folder: &str) {
        Self::at_once(lists, folder, drop);
    }

    fn at_once(lists: impl IntoIterator<Item = Vec<Self>>, folder: &str, check: fn(Option<Output>)) {
        let _turn = Turn::wait();
        std::thread::scope(|scope| {
            for list in lists {
                scope.spawn(move || list.into_iter().for_each(|child| check(child.output_now(folder))));
            }
        });
    }

    /// Runs it with a target folder of this name, and fails the test if it fails; its output, or `None` if it was skipped.
    pub fn output(self, folder: &str) -> Option<Output> {
        let _turn = Turn::wait();
        self.output_now(folder)
    }

    /// The same for a caller that has the turn.
    fn output_now(self, folder: &str) -> Option<Output> {
        if std::env::var_os(SWITCH).is_some_and(|value| value == "off") {
            println!("skipped: {SWITCH}=off");
            return None;
        }
        if let Some(reason) = self.need.and_then(missing) {
            assert!(!in_ci(), "{reason}; in continuous integration that is a failure");
            println!("skipped: {reason}");
            return None;
        }
        let mut command = bounded_cargo();
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        command.env("CARGO_TARGET_DIR", checks_folder().join(folder)).current_dir(root());
        let output = command.output().expect("cargo starts, as it has started this test");
        assert!(output.status.success(), "{}", failure(&self, &output));
        Some(output)
    }
}

/// Fails the test if a child that ran tests passed none.
fn some_passed(output: Option<Output>) {
    let Some(output) = output else { return };
    let ran = tests_passed(&String::from_utf8_lossy(&output.stdout));
    assert!(ran > 0, "the child ran no test at all");
    println!("{ran} tests passed");
}

fn clean_cargo() -> Command {
    clean(Command::new(cargo_path()))
}

/// The same under timeout(1), which also ends the tests that the cargo has started: a test that hangs in
/// a child becomes a failure with a message.
fn bounded_cargo() -> Command {
    let mut command = clean(Command::new("timeout"));
    command.arg("--kill-after=10").arg(CHILD_SECONDS_MAX.to_string()).arg(cargo_path());
    command
}

fn cargo_path() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// A command without the variables that the cargo around us sets for its children.
fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        let removed = ["CARGO_PKG_", "CARGO_BIN_EXE_", "CARGO_CFG_", "DEP_", "RUST_TEST_"];
        let exact = [
            "CARGO",
            "CARGO_MANIFEST_DIR",
            "CARGO_MANIFEST_PATH",
            "CARGO_TARGET_TMPDIR",
            "RUSTFLAGS",
            "CARGO_ENCODED_RUSTFLAGS",
            "RUSTDOCFLAGS",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "CARGO_BUILD_TARGET",
            "CARGO_PRIMARY_PACKAGE",
            "CARGO_CRATE_NAME",
            "LD_LIBRARY_PATH",
        ];
        if removed.iter().any(|prefix| name_text.starts_with(prefix)) || exact.contains(&&*name_text) {
            command.env_remove(&name);
        }
    }
    command
}

/// Why a need is not met, if it is not.
fn missing(need: Need) -> Option<String> {
    match need {
        Need::Component(name) => {
            let answer = clean_cargo().args([name, "--version"]).output();
            let is_there = answer.is_ok_and(|output| output.status.success());
            (!is_there).then(|| format!("cargo {name} is not installed (rustup component add)"))
        }
        Need::Libfuzzer => {
            let is_there =
                Command::new("c++").arg("--version").output().is_ok_and(|output| output.status.success());
            if is_there { missing(Need::Sanitizer) } else { Some("there is no C++ compiler".to_owned()) }
        }
        Need::Toolchain(name) => {
            // Without the second one rustup would fetch missing components.
            let env = [("RUSTUP_TOOLCHAIN", name), ("RUSTUP_AUTO_INSTALL", "0")];
            let answer = Command::new("rustc").arg("-V").envs(env).output();
            let is_there = answer.is_ok_and(|output| output.status.success());
            (!is_there).then(|| format!("Rust {name} is not installed (rustup toolchain install {name})"))
        }
        Need::Targets(names) => libraries_missing(names),
        Need::Emulator { target, programs, library } => {
            let starts = |program: &str| Command::new(program).arg("--version").output().is_ok();
            let program = programs.into_iter().find(|program| !starts(program));
            let file = (!Path::new(library).exists()).then_some(library);
            let absent = program
                .or(file)
                .map(|what| format!("there is no {what} (docs/reference/platforms.md names the packages)"));
            absent.or_else(|| libraries_missing(&[target]))
        }
        Need::Sanitizer => {
            let libraries = rustc(&["--print", "target-libdir"]);
            let has = std::fs::read_dir(libraries.trim()).is_ok_and(|folder| {
                folder.flatten().any(|file| file.file_name().to_string_lossy().contains("_rt.asan"))
            });
            (!has).then(|| "this compiler has no AddressSanitizer runtime".to_owned())
        }
    }
}

/// The targets for which the compiler has no libraries, if there are any.
fn libraries_missing(targets: &[&str]) -> Option<String> {
    let has = |target: &str| {
        let folder = rustc(&["--print", "target-libdir", "--target", target]);
        std::fs::read_dir(folder.trim()).is_ok_and(|mut files| files.next().is_some())
    };
    let names: Vec<&str> = targets.iter().copied().filter(|target| !has(target)).collect();
    let names = names.join(" ");
    (!names.is_empty())
        .then(|| format!("the compiler has no libraries for {names} (rustup target add {names})"))
}

/// The compiler around us, as 1.95.0.
pub fn compiler() -> String {
    let text = rustc(&["-vV"]);
    text.lines().find_map(|line| line.strip_prefix("release: ")).unwrap_or_default().to_owned()
}

/// The machine that this runs on, as cargo names it.
pub fn host() -> &'static str {
    static HOST: LazyLock<String> = LazyLock::new(|| {
        let text = rustc(&["-vV"]);
        text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default().to_owned()
    });
    &HOST
}

fn rustc(args: &[&str]) -> String {
    // Cargo sets the toolchain for us; the same one answers here.
    let output = Command::new("rustc").args(args).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

pub fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true" || value == "1")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Beside the build output around us, wherever that is.
pub fn checks_folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .map_or_else(|| root().join("target"), Path::to_owned)
        .join("checks")
}

fn failure(child: &Child, output: &Output) -> String {
    let env: Vec<String> = child.env.iter().map(|(name, value)| format!("{name}={value:?} ")).collect();
    let args: Vec<_> = child.args.iter().map(|arg| arg.to_string_lossy()).collect();
    let text = [&output.stderr[..], &output.stdout[..]].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let end = &lines[lines.len().saturating_sub(SHOWN_LINES_MAX)..];
    let how = match output.status.code() {
        Some(TIMED_OUT) => format!("was ended after {CHILD_SECONDS_MAX} s"),
        _ => format!("failed ({})", output.status),
    };
    format!("{}cargo {} {how}:\n{}", env.concat(), args.join(" "), end.join("\n"))
}

/// Tests that passed, of all the result lines of a `cargo test`.
pub fn tests_passed(stdout: &str) -> usize {
    results(stdout, " passed")
}

/// Tests that were there and not run because of `--skip`, likewise.
pub fn tests_left_out(stdout: &str) -> usize {
    results(stdout, " filtered out")
}

/// The sum of the numbers before `what`.
fn results(stdout: &str, what: &str) -> usize {
    let count = |line: &str| {
        let before = line.strip_prefix("test result: ok. ")?.split_once(what)?.0;
        before.rsplit(' ').next()?.parse::<usize>().ok()
    };
    stdout.lines().filter_map(count).sum()
}

#[test]
fn results_of_all_binaries_are_added_up() {
    let line = |n| {
        format!(
            "test result: ok. {n} passed; 0 failed; 0 ignored; 0 measured; 1{n} filtered out; finished in 0.00s\n"
        )
    };
    assert_eq!(tests_passed(&(line(3) + "running 0 tests\n" + &line(4))), 7);
    assert_eq!(tests_left_out(&(line(3) + "running 0 tests\n" + &line(4))), 27);
    assert_eq!(tests_passed("test result: FAILED. 3 passed; 1 failed\n"), 0);
}

#[test]
#[should_panic(expected = "cargo metadata --no-such-flag failed")]
fn a_child_that_fails_fails_its_test() {
    if std::env::var_os(SWITCH).is_some_and(|value| value == "off") {
        panic!("cargo metadata --no-such-flag failed: not run, {SWITCH}=off");
    }
    Child::cargo("metadata").args(["--no-such-flag"]).run("none");
}

#[test]
fn an_unknown_component_is_missing() {
    assert!(missing(Need::Component("no-such-component")).is_some());
    assert!(missing(Need::Toolchain("0.0.1")).is_some());
    let reason = missing(Need::Targets(&["no-such-target"])).expect("it is missing");
    assert!(reason.contains("rustup target add no-such-target"), "{reason}");
    assert_eq!(libraries_missing(&[host()]), None);
    let there = |library| missing(Need::Emulator { target: host(), programs: ["rustc"; 2], library });
    assert_eq!(there("/"), None);
    assert!(there("/no/such/file").is_some_and(|reason| reason.contains("there is no /no/such/file")));
    assert_eq!(compiler().split('.').count(), 3);
    assert!(!host().is_empty());
}
