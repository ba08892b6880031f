//! The house rules, on this repository.
//!
//! Each test is one rule; the crate itself tests the content of a rule and that it can fail. Reads
//! files and cargo's metadata; builds nothing, so it takes a second or two.

use std::path::Path;
use std::sync::LazyLock;

use sockeye_tidy::metadata::{self, Package};
use sockeye_tidy::policy::{self, Policy};
use sockeye_tidy::{
    Tree, citations, dependencies, duplicates, facades, layers, licences, modules, publish, report, shape,
    unsafety, words,
};

static TREE: LazyLock<Tree> = LazyLock::new(|| Tree::of_this_repository().expect("the tree is readable"));
static PACKAGES: LazyLock<Vec<Package>> =
    LazyLock::new(|| metadata::packages(&TREE.root).expect("cargo reads our manifests"));

/// The folders of our workspaces. A peer of the bench has one of its own as well: others' code, to compare with.
const WORKSPACES: [&str; 4] = ["", "fuzz", "apps/bench-counted", "apps/glue"];
/// The command that README and continuous integration share.
const TEST_COMMAND: &str = "cargo test --workspace";
/// The page that has every counter.
const COUNTERS: &str = "docs/reference/counters.md";
/// The page that has every field of `Config`.
const SETTINGS: &str = "docs/reference/settings.md";

#[test]
fn the_tree_has_sources_to_check() {
    let rust = TREE.rust().count();
    assert!(rust > 50, "only {rust} Rust files were found: the other tests would mean nothing");
    assert!(PACKAGES.len() >= 5, "only {} packages were found", PACKAGES.len());
}

#[test]
fn crates_import_only_the_layers_below_them() {
    let mut found = layers::check_manifests(&PACKAGES);
    found.extend(TREE.rust().flat_map(layers::check_source));
    report(found);
}

#[test]
fn modules_of_the_stack_import_only_those_below_them() {
    report(modules::check(TREE.rust()));
}

#[test]
fn atomics_and_locks_are_imported_only_through_the_facade() {
    report(TREE.rust().flat_map(facades::check).collect());
}

#[test]
fn the_architecture_shows_the_layers_as_they_are() {
    let exists = |name: &str| PACKAGES.iter().any(|package| package.name == name);
    report(layers::check_document("ARCHITECTURE.md", TREE.text("ARCHITECTURE.md"), exists));
}

#[test]
fn unsafe_code_is_only_in_permitted_crates_and_has_safety_comments() {
    report(TREE.rust().flat_map(unsafety::check).collect());
}

#[test]
fn files_and_functions_stay_within_their_length_limits() {
    report(TREE.rust().flat_map(shape::check).collect());
}

#[test]
fn the_tree_has_no_unfinished_work_and_no_machine_paths() {
    report(TREE.files.iter().flat_map(words::check).collect());
}

#[test]
fn each_dependency_has_a_documented_reason() {
    let packages = WORKSPACES.iter().flat_map(|folder| {
        let mut packages = metadata::packages(&TREE.root.join(folder)).expect("cargo reads our manifests");
        for package in &mut packages {
            package.manifest = Path::new(folder).join(&package.manifest).display().to_string();
        }
        packages
    });
    report(dependencies::check(&packages.collect::<Vec<_>>(), TREE.text(dependencies::DOCUMENT)));
}

#[test]
fn each_dependency_has_a_permitted_licence_and_one_version() {
    let policy = Policy::read(TREE.text(policy::DOCUMENT));
    assert!(policy.licences.len() > 3, "{} has no list of licences: {policy:?}", policy::DOCUMENT);
    let mut all = Vec::new();
    for folder in WORKSPACES {
        let locked = metadata::locked(&TREE.root.join(folder))
            .expect("Cargo.lock fits the manifests: run cargo fetch there");
        assert!(locked.len() > PACKAGES.len(), "cargo named no dependency");
        report(licences::check(&locked, &policy.licences));
        let built = metadata::locked_for_host(&TREE.root.join(folder)).expect("as above");
        report(duplicates::check(&built, &policy.twice));
        all.extend(built);
    }
    report(duplicates::check_excuses(&all, &policy.twice));
}

#[test]
fn published_packages_have_registry_fields_and_include_only_their_own_files() {
    let cards = metadata::cards(&TREE.root).expect("cargo reads our manifests");
    assert!(cards.iter().filter(|card| card.is_published).count() > 5, "{cards:?}");
    report(publish::check(&cards));
    let is_there = |path: &str| TREE.root.join(path).exists();
    report(TREE.rust().flat_map(|source| publish::check_includes(source, &cards, is_there)).collect());
}

/// The readme of the crate is compiled; the repository's is not, and has the same program.
#[test]
fn the_first_program_of_the_readme_is_compiled() {
    let program = |path: &str| {
        let rest = TREE.text(path).split_once("```rust\n").map_or("", |(_, rest)| rest);
        rest.split_once("```").map_or("", |(program, _)| program)
    };
    assert!(program("README.md").contains("fn main"), "README.md begins with a program");
    assert_eq!(program("README.md"), program("crates/stack/README.md"));
}

#[test]
fn continuous_integration_runs_the_commands_of_the_readme() {
    let last = TREE.text(".ci/run").lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("");
    assert_eq!(last, TEST_COMMAND, ".ci/run must end with the README's test command");
    let readme = TREE.text("README.md");
    assert!(
        readme.lines().any(|line| line == TEST_COMMAND),
        "README.md must name `{TEST_COMMAND}` on a line"
    );
}

#[test]
fn the_table_of_rfcs_cites_existing_code() {
    report(citations::check(&TREE, "docs/rfc.md"));
}

#[test]
fn the_pages_about_hostile_senders_name_existing_code() {
    report(
        ["docs/bounds.md", "docs/blind.md"]
            .into_iter()
            .flat_map(|page| citations::check_names(&TREE, page))
            .collect(),
    );
}

#[test]
fn documents_and_comments_name_existing_files() {
    report(citations::check_paths(&TREE));
}

#[test]
fn the_first_pages_are_short() {
    for (page, bytes_max) in [("README.md", 8192), ("ARCHITECTURE.md", 10_240)] {
        let bytes = TREE.text(page).len();
        assert!(
            bytes <= bytes_max,
            "{page} is {bytes} bytes long, at most {bytes_max}: move details to docs"
        );
    }
}

#[test]
fn each_counter_has_its_row() {
    let page = TREE.text(COUNTERS);
    let mut names = Vec::new();
    let is_table = |path: &str| path.starts_with("crates/stack/src/") && path.ends_with("/count.rs");
    let tables =
        TREE.rust().filter(|source| is_table(&source.path) || source.path.ends_with("src/rt/counter.rs"));
    for source in tables {
        let found = counter_names(&source.text);
        assert!(found.len() > 3, "{} has no table of counters", source.path);
        names.extend(found);
    }
    assert!(names.len() > 10, "the tables were not found: {names:?}");
    assert_eq!(without_row(page, &names), [""; 0], "{COUNTERS} must have a row for each");
}

#[test]
fn each_setting_has_its_row() {
    let groups = [
        ("crates/stack/src/config.rs", "pub struct Config {"),
        ("crates/stack/src/config/tcp.rs", "pub struct TcpConfig {"),
        ("crates/stack/src/experiments.rs", "pub struct Experiments {"),
    ];
    let mut fields = Vec::new();
    for (path, start) in groups {
        let found = public_fields(TREE.text(path), start);
        assert!(found.len() > 5, "the fields were not found: {found:?}");
        fields.extend(found);
    }
    fields.retain(|name| !["tcp", "experiments"].contains(&name.as_str()));
    assert_eq!(without_row(TREE.text(SETTINGS), &fields), [""; 0], "{SETTINGS} must have a row for each");
}

/// The names that are not in the first column of a table of `page`.
fn without_row<'n>(page: &str, names: &'n [String]) -> Vec<&'n str> {
    let first_column = |row: &str| row.strip_prefix('|')?.split('|').next().map(str::to_owned);
    let rows: Vec<String> = page.lines().filter_map(first_column).collect();
    let has_row = |name: &str| rows.iter().any(|column| column.contains(&format!("`{name}`")));
    names.iter().map(String::as_str).filter(|name| !has_row(name)).collect()
}

/// The names of a table of counters: alone, or each with the name that the kernel's MIB has for it, or none.
fn counter_names(text: &str) -> Vec<String> {
    let alone = quoted_after(text, "NAMES: [&str; COUNT] = [");
    let pairs = quoted_after(text, "NAMES: [(&str, &str); COUNT] = [");
    alone.into_iter().chain(pairs.into_iter().step_by(2)).collect()
}

/// The strings of a list that begins after `start`.
fn quoted_after(text: &str, start: &str) -> Vec<String> {
    let list = text.split_once(start).map_or("", |(_, rest)| rest.split_once(']').map_or("", |(l, _)| l));
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The public fields of the structure that begins with `start`.
fn public_fields(text: &str, start: &str) -> Vec<String> {
    let body = text.split_once(start).map_or("", |(_, rest)| rest.split_once("\n}").map_or("", |(b, _)| b));
    let name = |line: &str| line.trim().strip_prefix("pub ")?.split_once(':').map(|(n, _)| n.to_owned());
    body.lines().filter_map(name).collect()
}

#[test]
fn the_readers_of_lists_and_fields_read_them() {
    assert_eq!(quoted_after("N: [&str; 2] = [\n \"a\",\n \"b\",\n];\n\"c\"", "= ["), ["a", "b"]);
    assert_eq!(
        public_fields("struct S {\n /// X: y.\n pub a: u8,\n b: u8,\n}\npub c: u8", "struct S {"),
        ["a"]
    );
    let names = ["a".to_owned(), "b".to_owned()];
    assert_eq!(without_row("| `a`, `c` | `b` |\n`b`", &names), ["b"]);
    assert_eq!(
        counter_names("NAMES: [(&str, &str); COUNT] = [\n (\"a\", \"A\"),\n (\"b\", \"\"),\n];"),
        ["a", "b"]
    );
}
