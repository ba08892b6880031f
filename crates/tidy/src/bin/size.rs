//! How large Sockeye is: lines of code by package, and the functions and files that one message passes through.
//!
//! ```text
//! cargo run -p sockeye-tidy --bin size -- lines [FOLDER]
//! cargo run -p sockeye-tidy --bin size -- path [FOLDER]
//! ```
//!
//! FOLDER is a checkout, also of an older revision; this one if left out. `lines` counts the code that each package is built from, without tests,
//! comments and blank lines, and for the package `sockeye` the sum with its dependencies. Code that only a feature for measuring or testing adds is
//! counted apart, and so are the experiments. `path` builds a copy of the checkout without optimisation, in which nothing is inlined, and lists the
//! functions that a write of 64 bytes over loopback and its read execute, by valgrind's callgrind: by file, each function after the number of its
//! lines that were executed.
//!
//! Exit codes: 0 done, or skipped with the reason; 1 it failed; 2 wrong command line.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs, io};

use sockeye_tidy::{code, metadata, path};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let done = match words.as_slice() {
        ["lines"] => lines(here),
        ["lines", folder] => lines(folder),
        ["path"] => message_path(here),
        ["path", folder] => message_path(folder),
        _ => {
            eprintln!("error: write `lines [FOLDER]` or `path [FOLDER]`");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A table of the packages, and the sum for `sockeye`.
fn lines(folder: &str) -> Result<String, String> {
    let root = absolute(folder)?;
    let packages = metadata::packages(&root)?;
    let mut text = format!(
        "{:<24}{:>8}{:>13}{:>13}{:>8}\n",
        "package", "product", "instruments", "experiments", "bench"
    );
    let mut sums = BTreeMap::new();
    for package in &packages {
        // The twins that count hand-offs are built from the same files.
        if package.manifest.starts_with("crates/counted/") {
            continue;
        }
        let folder = root.join(&package.manifest).with_file_name("");
        let counts = Counts::of(&root, &folder).map_err(|error| error.to_string())?;
        text += &format!(
            "{:<24}{:>8}{:>13}{:>13}{:>8}\n",
            package.name, counts.product, counts.instruments, counts.experiments, counts.bench
        );
        sums.insert(package.name.as_str(), counts);
    }
    let (mut of_sockeye, mut waiting) = (BTreeSet::new(), vec!["sockeye"]);
    while let Some(name) = waiting.pop() {
        let Some(package) = packages.iter().find(|package| package.name == name) else { continue };
        if sums.contains_key(name) && of_sockeye.insert(name) {
            let normal = package.dependencies.iter().filter(|on| on.kind == metadata::Kind::Normal);
            waiting.extend(normal.map(|on| on.name.as_str()));
        }
    }
    let sum = |of: &mut dyn Iterator<Item = &Counts>| of.map(|counts| counts.product).sum::<usize>();
    let default = sum(&mut of_sockeye.iter().map(|name| &sums[name]));
    let names: Vec<&str> = of_sockeye.into_iter().collect();
    text += &format!("\nsockeye and what it depends on ({}): {default} lines of code\n", names.join(", "));
    text +=
        &format!("all packages without bench and experiments: {} lines of code\n", sum(&mut sums.values()));
    Ok(text)
}

/// Lines of code by purpose.
#[derive(Default)]
struct Counts {
    product: usize,
    /// With the features [`INSTRUMENTS`].
    instruments: usize,
    experiments: usize,
    bench: usize,
}

impl Counts {
    /// Of a package's folder in the checkout `root`.
    fn of(root: &Path, folder: &Path) -> io::Result<Self> {
        let mut counts = Self::default();
        let source = folder.join("src");
        let programs =
            fs::read_dir(source.join("bin")).into_iter().flatten().flatten().map(|entry| entry.path());
        let roots = [source.join("lib.rs"), source.join("main.rs")].into_iter().chain(programs);
        let roots: Vec<PathBuf> = roots.filter(|found| found.is_file()).collect();
        let files = |off: &[&str]| {
            let mut files = BTreeMap::new();
            for found in &roots {
                files.append(&mut code::count(found, off)?);
            }
            io::Result::Ok(files)
        };
        let (with_all, of_users) = (files(&[])?, files(&[&INSTRUMENTS[..], &[EXPERIMENTS]].concat())?);
        let with_experiments = files(&INSTRUMENTS)?;
        for (file, lines) in &with_all {
            let inside = file.strip_prefix(root).unwrap_or(file);
            let has =
                |name: &str| inside.iter().any(|part| Path::new(part).with_extension("").as_os_str() == name);
            let of = |files: &BTreeMap<PathBuf, usize>| files.get(file).copied().unwrap_or(0);
            // The bench was a module of the command once, and is a package now.
            if ["bench", "bench-apps", "bench-counted", "bench-sim"].into_iter().any(has) {
                counts.bench += lines;
                continue;
            }
            counts.product += of(&of_users);
            counts.experiments += of(&with_experiments).saturating_sub(of(&of_users));
            counts.instruments += lines.saturating_sub(of(&with_experiments));
        }
        Ok(counts)
    }
}

/// The path of a message: its files and functions.
fn message_path(folder: &str) -> Result<String, String> {
    let root = absolute(folder)?;
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Ok("skipped: valgrind is not installed (apt-get install valgrind)\n".to_owned());
    }
    let work = absolute(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))?.join("target/size");
    let found = profile(&root, &work).map_err(|error| format!("{}: {error}", root.display()))?;
    let files: BTreeSet<&str> = found.keys().map(|(file, _)| file.as_str()).collect();
    if files.is_empty() {
        return Err("callgrind saw no function of ours, so the profile was not understood".to_owned());
    }
    let mut text = String::new();
    for file in &files {
        text += &format!("{file}\n");
        for ((_, function), lines) in found.iter().filter(|((of, _), _)| of == file) {
            text += &format!("{:>6} {function}\n", lines.len());
        }
    }
    let long = found.iter().filter(|(_, lines)| lines.len() > SHORT_LINES).map(|(function, _)| function);
    let long_files: BTreeSet<&str> = long.clone().map(|(file, _)| file.as_str()).collect();
    text += &format!(
        "\na write of 64 bytes over loopback and its read: {} files, {} functions\nof these with more than {SHORT_LINES} lines that \
         were executed, first and last included: {} files, {} functions\n",
        files.len(),
        found.len(),
        long_files.len(),
        long.count()
    );
    Ok(text)
}

/// Builds and runs the probe on a copy of the checkout.
fn profile(root: &Path, work: &Path) -> io::Result<Functions> {
    let (copy, probe) = (work.join("checkout"), work.join("probe"));
    let _ = fs::remove_dir_all(&copy);
    copy_sources(root, &copy, 0)?;
    fs::create_dir_all(probe.join("src"))?;
    fs::write(probe.join("Cargo.toml"), MANIFEST)?;
    fs::write(probe.join("src/main.rs"), include_str!("../../probe/write_and_read.rs"))?;
    fs::copy(root.join("Cargo.lock"), probe.join("Cargo.lock"))?;
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.arg("build").current_dir(&probe).env("CARGO_TARGET_DIR", work.join("target"));
    // These would decide instead of the manifest.
    for name in ["CARGO_PROFILE_DEV_DEBUG", "CARGO_PROFILE_DEV_OPT_LEVEL", "RUSTFLAGS"] {
        cargo.env_remove(name);
    }
    run(&mut cargo)?;
    // A timer that ends or a thread that comes in between adds functions of its own.
    let ours = copy.join("crates");
    let runs = (0..RUNS).map(|_| one_run(work, &ours)).collect::<io::Result<Vec<_>>>()?;
    let least = runs.into_iter().min_by_key(BTreeMap::len).unwrap_or_default();
    Ok(least.into_iter().map(|((file, name), lines)| ((format!("crates/{file}"), name), lines)).collect())
}

fn one_run(work: &Path, ours: &Path) -> io::Result<Functions> {
    let out = work.join("callgrind.out");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--collect-atstart=no", "--compress-pos=no"]);
    valgrind.arg("--toggle-collect=*write_and_read::write_and_read*");
    valgrind.arg(format!("--callgrind-out-file={}", out.display()));
    run(valgrind.arg(work.join("target/debug/write_and_read")))?;
    Ok(path::functions(&fs::read_to_string(out)?, &ours.to_string_lossy()))
}

/// Copies the sources of a build, without attributes that would make the compiler inline where it does not
/// optimise.
fn copy_sources(from: &Path, to: &Path, depth: usize) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (entry, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        let is_outside =
            depth == 0 && OUTSIDE.iter().any(|outside| name.to_string_lossy().starts_with(outside));
        let goes_to = to.join(&name);
        if is_outside || depth > DEPTH_MAX {
            continue;
        }
        if entry.is_dir() {
            copy_sources(&entry, &goes_to, depth + 1)?;
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            fs::write(goes_to, fs::read_to_string(&entry)?.replace("#[inline(always)]", "#[inline(never)]"))?;
        } else if entry.is_file() {
            fs::copy(entry, goes_to)?;
        }
    }
    Ok(())
}

/// Runs a tool; its output is in the error.
fn run(command: &mut Command) -> io::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| io::Error::other(format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(io::Error::other(format!("{name} failed:\n{stderr}")))
}

fn absolute(folder: &str) -> Result<PathBuf, String> {
    Path::new(folder).canonicalize().map_err(|error| format!("{folder}: {error}"))
}

/// Features that only measure or test the stack: no user's build has them.
const INSTRUMENTS: [&str; 2] = ["count", "failpoints"];
/// The feature of the older settings.
const EXPERIMENTS: &str = "experiments";
/// The one with the fewest functions counts.
const RUNS: usize = 5;
/// Functions by file and name, and their lines.
type Functions = BTreeMap<(String, String), BTreeSet<usize>>;
/// A function of one expression has no more: its header, the expression, the end.
const SHORT_LINES: usize = 3;
/// Of the probe: a workspace of its own beside the copy.
const MANIFEST: &str = "\
[package]
name = \"write_and_read\"
version = \"0.0.0\"
edition = \"2024\"

[dependencies]
sockeye = { path = \"../checkout/crates/stack\" }

[workspace]

[profile.dev]
opt-level = 0
debug = true
";
/// Files that are no part of a checkout, by the beginnings of names.
const OUTSIDE: [&str; 2] = [".git", "target"];
/// Deepest nesting of folders that is followed.
const DEPTH_MAX: usize = 16;
