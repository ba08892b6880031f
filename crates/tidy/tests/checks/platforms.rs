//! Other machines: the tests on 64-bit ARM under qemu's user emulation, the tests of the portable files on this machine, and
//! lints for systems on which nothing of ours runs.
//!
//! The emulator cannot show a missing barrier: the loom models are for that. On the contrary, qemu 7.2 on x86-64 lets a load pass an
//! earlier store though both are sequentially consistent (ARM's `stlr` and `ldar`), as no ARM machine does, and threads that meet can miss
//! each other. So each test binary has one core, on which every thread sees the stores in order. `docs/reference/platforms.md` says what is
//! absent where.
//!
//! An ordinary run has the tests on ARM that depend on the machine, and the lints of the systems that people ask for. The rest would make it some
//! minutes longer: `cargo test -p sockeye-tidy --test checks platforms -- --ignored --nocapture` runs that.
//!
//! Does not depend on the content of the tests. All builds are in one folder without incremental compilation, as a target has some gigabytes with it.

use crate::child::{Child, Need, tests_left_out, tests_passed};

/// The target folder of these builds.
const FOLDER: &str = "platforms";

/// 64-bit ARM, whose tests run here.
const ARM: &str = "aarch64-unknown-linux-gnu";
/// Debian's linker for it, the emulator, and Debian's folder of its C library.
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64-static";
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
const LOADER: &str = "/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1";

/// Targets that are linted in each run; nothing of ours runs on them.
const LINTED: [&str; 4] =
    ["aarch64-linux-android", "aarch64-apple-darwin", "x86_64-apple-darwin", "x86_64-pc-windows-gnu"];
/// The same on demand.
const LINTED_ON_DEMAND: [&str; 2] = ["i686-unknown-linux-gnu", "armv7-unknown-linux-gnueabihf"];

/// The packages that run on the emulator in each run: the library without devices, and the crates with unsafe code below it.
const ON_ARM: [&str; 4] = ["sockeye-sync", "sockeye-mbuf", "sockeye-netif", "sockeye"];
/// Their test binaries that run there, besides those of the sources: those whose threads meet, and those on both the kernel and
/// Sockeye, whose system calls have other layouts there. `waiting` is not among them: on two cores it hung in some of its runs there,
/// and what the emulator reorders is the likely reason, but not a proven one. Nor is `no_membarrier`: the emulator has no seccomp(2).
const TESTS_ON_ARM: [&str; 10] =
    ["stress", "fork", "accounting", "cap", "chain_model", "threads", "suite", "tokio", "udp", "unix"];
/// Those that run there on demand: no unsafe code and no threads, and packets rather than the machine.
const ON_ARM_ON_DEMAND: [&str; 1] = ["sockeye-proto"];
const TESTS_ON_ARM_ON_DEMAND: [&str; 1] = ["wire"];
/// The share of cases of the random tests there, percent.
const ARM_SCALE: &str = "10";
/// Tests that pass there at least in each run, and on demand: fewer are a sign that binaries are missing.
const ARM_TESTS_MIN: usize = 600;
const ARM_TESTS_ON_DEMAND_MIN: usize = 600;
/// The emulator's limits in socket options and control messages of the kernel's side of a comparison.
const NO_MULTICAST: &str = "the emulator does not pass on IP_MULTICAST_IF and IP_MULTICAST_ALL";
/// Tests that are left out there, by their full names, and why.
const LEFT_OUT_ON_ARM: [(&str, &str); 5] = [
    ("multicast::on_both::a_group_without_members_is_silent", NO_MULTICAST),
    ("multicast::on_both::bound_to_the_group", NO_MULTICAST),
    ("multicast::on_both::members_receive_and_so_do_sockets_that_take_all_groups", NO_MULTICAST),
    ("multicast::on_both::nothing_is_looped_back_without_multicast_loop", NO_MULTICAST),
    (
        "cases::rights::on_both::rights_without_room_are_closed",
        "the emulator does not show the kernel's MSG_CTRUNC",
    ),
];

/// The packages that have portable files, and the test binaries that use them.
const PORTABLE: [&str; 2] = ["sockeye-sync", "sockeye"];
const TESTS_OF_PORTABLE: [&str; 3] = ["stress", "fork", "suite"];
/// The share of cases of the random tests with them, percent: the ordinary build runs all.
const PORTABLE_SCALE: &str = "20";

#[test]
fn the_tests_pass_on_64_bit_arm_under_emulation() {
    let left_out = LEFT_OUT_ON_ARM.iter().flat_map(|(test, _)| ["--skip", *test]);
    let child = arm().args(["--lib"]).args(named("-p", &ON_ARM)).args(named("--test", &TESTS_ON_ARM));
    let Some(output) = child.args(["--", "--exact"]).args(left_out).output(FOLDER) else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    for (test, reason) in LEFT_OUT_ON_ARM {
        println!("left out: {test}: {reason}");
    }
    assert_eq!(tests_left_out(&text), LEFT_OUT_ON_ARM.len(), "a name of `LEFT_OUT_ON_ARM` is of no test");
    at_least(ARM_TESTS_MIN, &text);
}

#[test]
#[ignore = "minutes of builds; a command of its own"]
fn the_other_tests_pass_on_64_bit_arm_under_emulation() {
    let lib = arm().args(["--lib"]).args(named("-p", &ON_ARM_ON_DEMAND));
    let tests = arm().args(["-p", "sockeye"]).args(named("--test", &TESTS_ON_ARM_ON_DEMAND));
    let outputs = [lib, tests].map(|child| child.output(FOLDER));
    let texts = outputs.iter().flatten().map(|output| String::from_utf8_lossy(&output.stdout));
    let text: String = texts.collect();
    if outputs.iter().all(Option::is_some) {
        at_least(ARM_TESTS_ON_DEMAND_MIN, &text);
    }
}

/// `cargo test` for ARM, whose programs the emulator runs on one core.
fn arm() -> Child {
    let runner = format!("taskset -c {} {EMULATOR} -L {LIBRARIES}", first_core());
    small("test")
        .args(["--target", ARM])
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", runner)
        .env("SOCKEYE_TEST_SCALE", ARM_SCALE)
        .needs(Need::Emulator { target: ARM, programs: [LINKER, EMULATOR], library: LOADER })
}

fn at_least(least: usize, text: &str) {
    let passed = tests_passed(text);
    assert!(passed >= least, "only {passed} tests ran");
    println!("{passed} tests passed");
}

/// These build on Linux with `--cfg sockeye_portable`: no `membarrier`, no futex, no eventfd.
#[test]
#[ignore = "minutes of builds; a command of its own"]
fn the_tests_of_the_files_for_other_systems_pass_here() {
    small("test")
        .args(["--lib"])
        .args(named("-p", &PORTABLE))
        .args(named("--test", &TESTS_OF_PORTABLE))
        .env("RUSTFLAGS", "--cfg sockeye_portable")
        .env("SOCKEYE_TEST_SCALE", PORTABLE_SCALE)
        .run_tests(FOLDER);
}

/// With the feature `tokio`, which has all that the library without it has and more.
#[test]
fn clippy_has_no_warnings_for_other_systems() {
    lint("tokio", &LINTED);
}

#[test]
#[ignore = "minutes of builds; a command of its own"]
fn clippy_has_no_warnings_for_32_bits_and_without_tokio() {
    lint("", &LINTED);
    for features in ["", "tokio"] {
        lint(features, &LINTED_ON_DEMAND);
    }
}

fn lint(features: &str, targets: &'static [&'static str]) {
    small("clippy")
        .args(["-p", "sockeye", "--features", features])
        .args(targets.iter().flat_map(|target| ["--target", *target]))
        .args(["--", "-D", "warnings"])
        .needs(Need::Targets(targets))
        .run(FOLDER);
}

/// A cargo whose build is small.
fn small(subcommand: &str) -> Child {
    Child::cargo(subcommand).env("CARGO_INCREMENTAL", "0")
}

/// The flag before each name.
fn named<'a>(flag: &'a str, names: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    names.iter().flat_map(move |name| [flag, *name])
}

/// The first core that this process may use.
fn first_core() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = |list: &str| list.trim().split(['-', ',']).next().map(str::to_owned);
    list.and_then(first).unwrap_or_else(|| "0".to_owned())
}
