//! Tests that random scenarios cover enough: changes of policy are planted into a copy of the sources, and random scenarios alone have to find each
//! of them.
//!
//! Purpose: `plants.txt` lists them. A scenario finds a plant if it agrees with the kernel in the unchanged sources, and not in those with the plant. Only
//! scenarios whose trace on Sockeye the plant changes are run: a few of the others differ in one run and not in the next. The copy is built and run
//! in the folder that `SOCKEYE_PLANTS_DIR` names, outside of the checkout; `SOCKEYE_PLANTS` names those to try, by a part of their names, and
//! `SOCKEYE_PLANTS_COUNT` says how many scenarios. Not part of an ordinary run: each plant builds the stack once.
//!
//! ```sh
//! SOCKEYE_PLANTS_DIR=/tmp/plants cargo test -p sockeye-conform --test plants -- --ignored --nocapture
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A change.
struct Plant {
    name: String,
    file: String,
    from: String,
    to: String,
}

/// The list. A text continues in the following lines up to the next mark.
fn plants() -> Vec<Plant> {
    let mut plants: Vec<Plant> = Vec::new();
    let mut part = ' ';
    for line in include_str!("../plants.txt").lines().filter(|line| !line.starts_with('#')) {
        let is_marked = ["= ", "@ ", "- ", "+ "].iter().any(|mark| line.starts_with(mark));
        let text = if is_marked { &line[2..] } else { line };
        if is_marked {
            part = line.chars().next().unwrap_or(' ');
        }
        if part == '=' && is_marked {
            let empty = String::new;
            plants.push(Plant { name: text.to_owned(), file: empty(), from: empty(), to: empty() });
        }
        let Some(plant) = plants.last_mut() else { continue };
        let slot = match part {
            '@' => &mut plant.file,
            '-' => &mut plant.from,
            '+' => &mut plant.to,
            _ => continue,
        };
        if !is_marked && !text.is_empty() {
            slot.push('\n');
        }
        slot.push_str(text);
    }
    plants
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn each_plant_has_one_place() {
    let plants = plants();
    assert!(plants.len() >= 30, "{}", plants.len());
    for plant in plants {
        let text = std::fs::read_to_string(root().join(&plant.file)).unwrap();
        assert_eq!(text.matches(&plant.from).count(), 1, "{}: {:?}", plant.name, plant.from);
        assert_ne!(plant.from, plant.to, "{}", plant.name);
    }
}

/// Builds `conform` in the copy. `None` if the change does not compile.
fn build(copy: &Path) -> Option<PathBuf> {
    let target = copy.join("target");
    let built = Command::new(env!("CARGO"))
        .args(["build", "-q", "-p", "sockeye-conform", "--bin", "conform"])
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", &target)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        // Without it, the harness itself keeps the machine so busy that most scenarios are left out.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .env("RUSTFLAGS", "-Awarnings")
        .status()
        .expect("cargo runs");
    built.success().then(|| target.join("debug/conform"))
}

/// Copies what is in the repository, as it is now.
fn copy_sources(copy: &Path) {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().expect("git runs");
    for name in String::from_utf8(listed.stdout).unwrap().split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (root().join(name), copy.join(name));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        if from.is_file() {
            std::fs::copy(&from, &to).unwrap();
        }
    }
}

/// Sockeye's traces of the scenarios in a folder, by their files.
fn traces(conform: &Path, folder: &Path) -> BTreeMap<String, String> {
    let run = Command::new(conform).arg("--alone").arg(folder).output().expect("conform runs");
    let mut traces: BTreeMap<String, String> = BTreeMap::new();
    let mut file = String::new();
    for line in String::from_utf8_lossy(&run.stdout).lines() {
        match line.strip_suffix(".txt:") {
            Some(name) => file = format!("{name}.txt"),
            None => traces.entry(file.clone()).or_default().push_str(line),
        }
    }
    traces
}

/// Scenarios that are run beside the kernel at a time: if some of them find a plant, the others are not asked.
const ASKED: usize = 200;

/// How many traces a plant changes, how many of these scenarios were run beside the kernel, and how many of them no longer agree with it.
fn look_for(conform: &Path, folder: &Path, usual: &BTreeMap<String, String>) -> (usize, usize, usize) {
    let planted = traces(conform, folder);
    let changed: Vec<&String> = usual
        .iter()
        .filter(|(file, trace)| planted.get(*file) != Some(*trace))
        .map(|(file, _)| file)
        .collect();
    let (mut asked, mut found) = (0, 0);
    for part in changed.chunks(ASKED) {
        let run = Command::new(conform).args(part).output().expect("conform runs");
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        asked += part.len();
        found = text.lines().filter(|line| line.ends_with(": differs")).count();
        if found > 0 {
            break;
        }
    }
    (changed.len(), asked, found)
}

#[test]
#[ignore = "builds the stack once for each plant"]
fn random_scenarios_find_each_plant() {
    let folder = std::env::var_os("SOCKEYE_PLANTS_DIR")
        .expect("SOCKEYE_PLANTS_DIR names a folder outside of the checkout");
    let (copy, same) = (Path::new(&folder).join("sources"), Path::new(&folder).join("same"));
    let wanted = std::env::var("SOCKEYE_PLANTS").unwrap_or_default();
    let count = std::env::var("SOCKEYE_PLANTS_COUNT").unwrap_or_else(|_| "2000".to_owned());
    copy_sources(&copy);
    let conform = build(&copy).expect("the sources as they are");
    let made = Command::new(&conform)
        .args(["--random", &count, "--keep-going", "--no-shrink", "--save-same"])
        .arg(&same)
        .stdout(Stdio::null())
        .status()
        .expect("conform runs");
    assert!(made.code().is_some_and(|code| code <= 1), "{made:?}");
    let usual = traces(&conform, &same);
    let (agree, enough) =
        (usual.len(), count.parse::<usize>().expect("SOCKEYE_PLANTS_COUNT is a number") / 2);
    println!("{agree} of {count} scenarios go as on the kernel");
    assert!(
        agree >= enough,
        "only {agree} of {count} scenarios go as on the kernel: try again without other work on this machine"
    );
    let mut missed = Vec::new();
    for plant in plants().into_iter().filter(|plant| wanted.split(',').any(|part| plant.name.contains(part)))
    {
        let file = copy.join(&plant.file);
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replacen(&plant.from, &plant.to, 1)).unwrap();
        let found = build(&copy).map(|conform| look_for(&conform, &same, &usual));
        std::fs::write(&file, text).unwrap();
        match found {
            None => println!("{}: does not compile", plant.name),
            Some((changed, asked, found)) => {
                println!("{}: {found} of {asked} scenarios find it; it changes {changed}", plant.name);
            }
        }
        if found.is_none_or(|(_, _, found)| found == 0) {
            missed.push(plant.name);
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
