//! The checks that need a tool or a build of their own: format, lints, models, sanitizer.
//!
//! Each runs cargo as a child with a target folder under `target/checks`, so that the builds do not
//! evict each other from the cache; two at a time, as none keeps two cores busy. If the tool is missing, a check
//! prints that and passes, except in continuous integration (`CI=true`), where it fails.
//!
//! | check | runs |
//! |---|---|
//! | format | `cargo fmt --all --check`, in each workspace |
//! | lints | `cargo clippy --workspace --all-targets -- -D warnings` with all features but `count`; the libraries `sockeye` and `sockeye-mbuf` without `experiments` |
//! | documentation | `cargo doc --workspace --no-deps`, with the same features, warnings refused |
//! | shapes | the pages of that documentation have each method of tokio's sources, and of a list of `std`'s: `shapes.rs` |
//! | socket2's options | those pages have the methods that a table names for the options of `socket2`: `socket2.rs` |
//! | models | the loom models of `sockeye-sync` and `sockeye-mbuf`, with `experiments`; those of `sockeye-mbuf` without it, too; two processes at once |
//! | sanitizer, product | the tests of `sockeye-mbuf`, `sockeye-sync` and `sockeye` under AddressSanitizer, and without `experiments`, which the workspace's build has on, warnings refused; with `--ignored` those of `sockeye-mbuf` with it, too |
//! | the build that counts, with `--ignored` | `cargo test --manifest-path apps/bench-counted/Cargo.toml` |
//! | other libraries | `cargo test --workspace --manifest-path apps/glue/Cargo.toml`: the examples of axum, hyper, tonic, tower and hickory, those of the simulator with axum, tonic and openraft, tests, the bench's applications, the programs of the two simulators, and tokio's tests of its sockets, on ours: `tokio_suite.rs` |
//! | packages | `cargo package` of the published packages, without a build; their contents |
//! | oldest compiler | `cargo check` of the published packages, with the compiler of `rust-version`: with their default features |
//! | other machines | the tests of `sockeye` without devices on 64-bit ARM, under qemu's user emulation; clippy for Android, macOS and Windows; with `--ignored` more, and those of the portable files on this machine: `platforms.rs` |
//! | fuzzers | each target of `fuzz` under libFuzzer and AddressSanitizer, for some seconds from its corpus |
//!
//! Does not depend on the children's tests. The children never test this package, so there is no recursion.
//! `SOCKEYE_CHECKS=off` skips all of them, to run only the ordinary tests.

mod child;
mod differences;
mod platforms;
mod shapes;
mod socket2;
mod tokio_suite;

use std::path::Path;
use std::process::Command;

use child::{Child, Need};
use sockeye_tidy::metadata::{self, Card};

/// The packages that run under the sanitizer: the crates with unsafe code and the one that exercises them most.
const SANITIZED: [&str; 3] = ["sockeye-mbuf", "sockeye-sync", "sockeye"];
/// For checks of the library alone.
const FEATURES: &str = "sockeye/tokio";
/// All features but `count`: with that the crates are their instrumented twins. Lints and documentation have the same, so that
/// what both need of the dependencies is checked once.
const ALL_FEATURES: &str = "sockeye/axum,sockeye/hyper-util,sockeye/tonic,sockeye/hickory,sockeye/experiments,\
    sockeye/failpoints,sockeye-drivers/vhost-user,sockeye-sim/tokio,sockeye-sim/tracing";
/// The share of cases that the random tests of `sockeye` run under the sanitizer, percent.
const SANITIZED_SCALE: &str = "10";

#[test]
fn the_source_is_formatted() {
    let fmt = |args: &[&str]| {
        Child::cargo("fmt")
            .args(["--check"])
            .args(args.iter().copied())
            .needs(Need::Component("fmt"))
            .run("format");
    };
    fmt(&["--all"]);
    fmt(&["--manifest-path", "fuzz/Cargo.toml"]);
    fmt(&["--manifest-path", "apps/bench-counted/Cargo.toml"]);
    // By name: tokio's tests belong to this workspace, and have a format of their own.
    let own = ["sockeye-glue", "sockeye-bench-apps", "sockeye-bench-sim", "sockeye-tokio-suite-tokio"];
    fmt(&["--manifest-path", "apps/glue/Cargo.toml", "-p", own[0], "-p", own[1], "-p", own[2], "-p", own[3]]);
}

#[test]
fn clippy_has_no_warnings() {
    Child::cargo("clippy")
        .args(["--workspace", "--all-targets", "--features", ALL_FEATURES, "--", "-D", "warnings"])
        .needs(Need::Component("clippy"))
        .run("lints");
    Child::cargo("clippy")
        .args(["-p", "sockeye", "-p", "sockeye-mbuf", "--features", FEATURES])
        .args(["--", "-D", "warnings"])
        .needs(Need::Component("clippy"))
        .run("lints");
}

#[test]
fn the_documentation_builds_without_warnings() {
    Child::cargo("doc")
        .args(["--workspace", "--features", ALL_FEATURES, "--no-deps", "--document-private-items"])
        .env("RUSTDOCFLAGS", "-D warnings")
        .run("lints");
}

/// Two processes with one thread each: loom maps and unmaps memory all the time, and two threads of a process wait for each other there.
#[test]
fn the_models_of_the_locks_of_the_queues_and_of_packet_memory_hold() {
    let models = |args: &[&str], features| {
        Child::cargo("test")
            .args(args.iter().copied())
            .args(["--release", "--features", features, "--", "--test-threads=1"])
            .env("RUSTFLAGS", "--cfg loom")
    };
    let memory = ["", "experiments"].map(|features| models(&["-p", "sockeye-mbuf", "--lib"], features));
    let locks = models(&["-p", "sockeye-sync", "--test", "loom"], "");
    Child::run_tests_at_once([vec![locks], memory.into()], "loom");
}

/// Tests of the library that are there only without the feature `experiments`.
const OF_PRODUCT: [&str; 2] = [
    "without_the_feature_there_are_no_older_settings ... ok",
    "without_the_feature_a_pool_has_no_remote_free_lists ... ok",
];

/// One build for both: `--workspace` turns `experiments` on, as the bench asks for it, and these packages alone do not.
#[test]
fn the_library_passes_without_the_feature_experiments_and_under_the_address_sanitizer() {
    let packages = SANITIZED.iter().flat_map(|name| ["-p", *name]);
    let Some(output) = sanitized().args(packages).args(["--features", FEATURES]).output("asan") else {
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    for test in OF_PRODUCT {
        assert!(text.contains(test), "the library was not built without the feature: {test}");
    }
}

/// Those of the squeue run above: `sockeye-sync` tests itself with the feature.
#[test]
#[ignore = "a build for an older design; a command of its own"]
fn the_remote_free_lists_pass_under_the_address_sanitizer() {
    sanitized().args(["-p", "sockeye-mbuf", "--features", "experiments"]).run_tests("asan");
}

/// Tests under the sanitizer, of the packages that the caller names.
fn sanitized() -> Child {
    Child::cargo("test")
        .args(["--lib", "--tests", "--target", child::host()])
        // All their tests are built without `experiments` here. Clippy's run without it leaves them out.
        .env("RUSTFLAGS", "-Zsanitizer=address -Dwarnings")
        // The sanitizer is an unstable flag of the stable compiler, which has its runtime all the same.
        .env("RUSTC_BOOTSTRAP", "1")
        // The process-wide stack and the threads' caches live until the end on purpose; they are
        // reachable, which the leak check accepts, so it stays on.
        .env("ASAN_OPTIONS", "detect_leaks=1:detect_stack_use_after_return=1")
        .env("SOCKEYE_TEST_SCALE", SANITIZED_SCALE)
        .needs(Need::Sanitizer)
}

/// A workspace of its own: its library has the feature `count`.
#[test]
#[ignore = "a build for the counts of the experiments; a command of its own"]
fn the_counting_build_counts_each_hand_off() {
    Child::cargo("test")
        .args(["--manifest-path", "apps/bench-counted/Cargo.toml", "--locked"])
        .run_tests("bench-counted");
}

/// A workspace of its own, so that a first build of the command compiles no HTTP library. The programs that the bench takes from it are tested, too.
#[test]
fn other_libraries_and_tokios_own_tests_work_on_our_sockets_and_the_bench_has_programs_of_them() {
    let Some(names) = tokio_suite::prepare() else { return };
    let child = Child::cargo("test")
        .args(["--manifest-path", "apps/glue/Cargo.toml", "--workspace", "--locked"])
        // With it, tokio's `select!` follows from the seed of a simulation.
        .env("RUSTFLAGS", "--cfg tokio_unstable");
    let Some(output) = child.output("glue") else { return };
    tokio_suite::all_passed(&names, &String::from_utf8_lossy(&output.stdout));
}

/// The oldest compiler, by rustup's name.
const OLDEST: &str = concat!(env!("CARGO_PKG_RUST_VERSION"), ".0");
/// Files that each package has to have.
const PACKED: [&str; 4] = ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE"];
/// Cargo's warning for each package: the publisher sets the pages with a host (ADR 60).
const NO_PAGES: &str = "manifest has no documentation, homepage or repository";

fn published() -> Vec<Card> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cards =
        metadata::cards(&root.canonicalize().expect("the repository")).expect("cargo reads our manifests");
    cards.into_iter().filter(|card| card.is_published).collect()
}

/// A build from the packed files takes minutes: `.ci/publish package`.
#[test]
fn published_packages_are_packed_with_their_readme_and_licences() {
    let cards = published();
    let packages = cards.iter().flat_map(|card| ["-p", card.name.as_str()]);
    let child = Child::cargo("package").args(["--no-verify", "--allow-dirty", "--offline"]).args(packages);
    let Some(output) = child.output("package") else { return };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let warnings = text.lines().filter(|line| line.starts_with("warning: ") && !line.ends_with(NO_PAGES));
    assert_eq!(warnings.count(), 0, "{text}");
    for card in cards {
        let name = format!("{}-{}", card.name, card.version);
        let file = child::checks_folder().join(format!("package/package/{name}.crate"));
        let list = Command::new("tar").arg("-tzf").arg(&file).output().expect("tar starts");
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        for packed in PACKED {
            let path = format!("{name}/{packed}");
            assert!(list.lines().any(|line| line == path), "{packed} is not in {}:\n{list}", file.display());
        }
    }
}

/// With the features that a package has by default, which no other test builds: in the workspace, one turns on features of another.
/// Here `sockeye-sim` still turns on the stack's `tokio`, so the stack is checked without it, too.
#[test]
fn the_oldest_compiler_builds_the_published_packages() {
    let cards = published();
    let check = |args: &[&str]| {
        let child = Child::cargo("check").args(args.iter().copied());
        // Where it is the one around us, there may be no rustup.
        if child::compiler() == OLDEST {
            return child;
        }
        child.env("RUSTUP_TOOLCHAIN", OLDEST).needs(Need::Toolchain(OLDEST))
    };
    if child::compiler() != OLDEST {
        // With the compiler around us, the tests build them.
        check(&["-p", "sockeye", "--features", FEATURES]).run("oldest");
    }
    let packages: Vec<&str> = cards.iter().flat_map(|card| ["-p", card.name.as_str()]).collect();
    check(&packages).run("oldest");
    check(&["-p", "sockeye", "-p", "sockeye-diag"]).run("oldest");
}

/// Fewer are a sign that their manifest was not understood. `fuzz/lib/tests/corpus.rs` holds it against the list of targets.
const FUZZ_TARGETS_MIN: usize = 12;
/// Seconds of each target: enough to run its corpus and some ten thousand inputs more.
const FUZZ_SECONDS: &str = "-max_total_time=4";
/// The compiler flags that libFuzzer needs; the sanitizer as above.
const FUZZ_FLAGS: &str = "--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// `cargo SUBCOMMAND` in the workspace of the targets. Some seconds of work need no better build than the tests have.
fn fuzzer(subcommand: &str) -> Child {
    Child::cargo(subcommand)
        .args(["--manifest-path", "fuzz/Cargo.toml", "--locked", "--release", "--target", child::host()])
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("RUSTFLAGS", FUZZ_FLAGS)
        .env("RUSTC_BOOTSTRAP", "1")
        .needs(Need::Libfuzzer)
}

#[test]
fn the_fuzz_targets_build_with_libfuzzer_and_find_nothing_in_some_seconds() {
    fuzzer("build").args(["--bins"]).run("fuzz");
    let manifest =
        std::fs::read_to_string(differences::root().join("fuzz/Cargo.toml")).expect("the fuzzers' manifest");
    let targets: Vec<&str> =
        manifest.split("[[bin]]\nname = \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(targets.len() >= FUZZ_TARGETS_MIN, "the manifest was read wrongly: {targets:?}");
    // Each has one thread.
    let (some, others) = targets.split_at(targets.len() / 2);
    Child::run_at_once([some, others].map(|targets| targets.iter().copied().map(fuzzed).collect()), "fuzz");
}

/// A target, from its corpus on.
fn fuzzed(target: &str) -> Child {
    // LibFuzzer writes new inputs to the first folder it is given, so not to the committed corpus.
    let folder = child::checks_folder().join("fuzz-found").join(target);
    std::fs::create_dir_all(&folder).expect("a folder for new inputs");
    let (folder, corpus) = (folder.to_string_lossy(), format!("fuzz/corpus/{target}"));
    let artifacts = format!("-artifact_prefix={folder}-");
    fuzzer("run")
        .args(["--bin", target, "--", FUZZ_SECONDS, "-max_len=1000", "-timeout=30", "-seed=1"])
        .args([&*artifacts, &*folder, &*corpus])
}
