//! Cargo's metadata of our packages and their dependencies.
//!
//! Read from `cargo metadata`, so that inheritance, renames and targets are cargo's affair. Does not depend
//! on any rule. Tests: at the end.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Kind of a dependency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The product.
    Normal,
    /// Tests, examples and benches.
    Dev,
    /// A build script.
    Build,
}

/// A line of a manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dependency {
    /// The package that is depended on.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// The manifest's line, from 1; 0 if it was not found.
    pub line: usize,
}

/// One of our packages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its manifest, from the repository's root.
    pub manifest: String,
    /// Its own dependencies.
    pub dependencies: Vec<Dependency>,
}

/// The data that a registry would get about one of our packages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Card {
    /// Its name.
    pub name: String,
    /// Its manifest, from the repository's root.
    pub manifest: String,
    /// Its version.
    pub version: String,
    /// Whether it may be published: not where the manifest says `publish = false`.
    pub is_published: bool,
    /// Whether the manifest, with inherited fields, has each of these.
    pub has_description: bool,
    /// An expression, not a file.
    pub has_licence: bool,
    /// A page that the registry shows.
    pub has_readme: bool,
    /// The oldest compiler that builds it, as 1.95.
    pub rust_version: Option<String>,
    /// How many words it may be found by.
    pub keyword_count: usize,
    /// How many categories it is in.
    pub category_count: usize,
    /// Whether it says how its documentation is to be built.
    pub has_docs_settings: bool,
    /// Its dependencies in this repository.
    pub own: Vec<Own>,
}

/// A dependency on a package of ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Own {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// The versions that will do, `*` for all.
    pub requirement: String,
}

/// A package of the lock file, ours or not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Locked {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The licence expression of its manifest, if it has one.
    pub licence: Option<String>,
}

/// Our packages, from their manifests alone.
///
/// # Errors
/// Cargo's output, if it failed or is not as documented.
pub fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let json = cargo(root, &["--no-deps", "--offline"])?;
    let root = root.to_string_lossy();
    each(&json, "packages", |package| {
        let path = text(package, "manifest_path")?;
        let manifest = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let relative = path.strip_prefix(&*root).unwrap_or(&path).trim_start_matches('/');
        let dependencies = each(package, "dependencies", |d| dependency(d, &manifest))?;
        Ok(Package { name: text(package, "name")?, manifest: relative.to_owned(), dependencies })
    })
}

/// The data that a registry would get about our packages, from their manifests alone.
///
/// # Errors
/// As for [`packages`].
pub fn cards(root: &Path) -> Result<Vec<Card>, String> {
    let json = cargo(root, &["--no-deps", "--offline"])?;
    let root = root.to_string_lossy();
    each(&json, "packages", |package| {
        let count = |key: &str| package.get(key).and_then(Value::as_array).map_or(0, Vec::len);
        let has = |key: &str| package.get(key).is_some_and(Value::is_string);
        let path = text(package, "manifest_path")?;
        let own = each(package, "dependencies", |d| {
            let is_own = d.get("path").is_some_and(Value::is_string);
            Ok(if is_own { Some(own(d)?) } else { None })
        })?;
        Ok(Card {
            name: text(package, "name")?,
            manifest: path.strip_prefix(&*root).unwrap_or(&path).trim_start_matches('/').to_owned(),
            version: text(package, "version")?,
            is_published: package.get("publish").is_none_or(Value::is_null),
            has_description: has("description"),
            has_licence: has("license"),
            has_readme: has("readme"),
            rust_version: text(package, "rust_version").ok(),
            keyword_count: count("keywords"),
            category_count: count("categories"),
            has_docs_settings: package.pointer("/metadata/docs/rs").is_some_and(Value::is_object),
            own: own.into_iter().flatten().collect(),
        })
    })
}

fn own(json: &Value) -> Result<Own, String> {
    Ok(Own { name: text(json, "name")?, kind: kind(json)?, requirement: text(json, "req")? })
}

/// Every package that a build for this machine takes from the lock file; for all machines if the
/// registry's copies of them are here.
///
/// # Errors
/// As for [`packages`]; also if the lock file does not fit the manifests.
pub fn locked(root: &Path) -> Result<Vec<Locked>, String> {
    cargo(root, &LOCKED).and_then(|json| resolved(&json)).or_else(|_| locked_for_host(root))
}

/// Every package that a build for this machine takes from the lock file.
///
/// # Errors
/// As for [`locked`].
pub fn locked_for_host(root: &Path) -> Result<Vec<Locked>, String> {
    resolved(&cargo(root, &[LOCKED[0], LOCKED[1], "--filter-platform", &host()?])?)
}

/// The lock file as it is, and no network.
const LOCKED: [&str; 2] = ["--locked", "--offline"];

/// All packages that were resolved, with a filter or without one.
fn resolved(json: &Value) -> Result<Vec<Locked>, String> {
    each(json, "packages", |package| {
        let licence = package.get("license").and_then(Value::as_str).map(str::to_owned);
        Ok(Locked { name: text(package, "name")?, version: text(package, "version")?, licence })
    })
}

fn dependency(json: &Value, manifest: &str) -> Result<Dependency, String> {
    let (name, kind) = (text(json, "name")?, kind(json)?);
    let is_line = |line: &str| line.strip_prefix(&name).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
    let line = manifest.lines().position(is_line).map_or(0, |index| index + 1);
    Ok(Dependency { name, kind, line })
}

fn kind(json: &Value) -> Result<Kind, String> {
    match json.get("kind").and_then(Value::as_str) {
        None => Ok(Kind::Normal),
        Some("dev") => Ok(Kind::Dev),
        Some("build") => Ok(Kind::Build),
        Some(other) => Err(format!("cargo knows a kind of dependency that we do not: {other}")),
    }
}

fn cargo(root: &Path, args: &[&str]) -> Result<Value, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1"])
        .args(args)
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata could not be started: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

/// The machine that this runs on, as cargo names it.
fn host() -> Result<String, String> {
    let output = Command::new("rustc").arg("-vV").output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| format!("rustc -vV named no host: {text}"))
}

fn each<T>(json: &Value, key: &str, f: impl Fn(&Value) -> Result<T, String>) -> Result<Vec<T>, String> {
    let list = json.get(key).and_then(Value::as_array);
    list.ok_or_else(|| format!("cargo metadata has no list {key}"))?.iter().map(f).collect()
}

fn text(json: &Value, key: &str) -> Result<String, String> {
    let value = json.get(key).and_then(Value::as_str);
    value.map(str::to_owned).ok_or_else(|| format!("cargo metadata has no {key}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_dependency_has_its_kind_and_its_line() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\nloom-x = \"1\"\nloom.workspace = true\n";
        let found = dependency(&json!({"name": "loom", "kind": "dev"}), manifest).unwrap();
        assert_eq!(found, Dependency { name: "loom".into(), kind: Kind::Dev, line: 5 });
        assert_eq!(dependency(&json!({"name": "none", "kind": null}), manifest).unwrap().line, 0);
        assert!(dependency(&json!({"name": "loom", "kind": "odd"}), manifest).is_err());
    }

    #[test]
    fn this_package_is_not_published_and_the_stack_is() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let cards = cards(&root).unwrap();
        let of = |name: &str| cards.iter().find(|card| card.name == name).unwrap();
        assert!(!of("sockeye-tidy").is_published);
        let stack = of("sockeye");
        assert!(stack.is_published && stack.has_readme && stack.keyword_count > 0, "{stack:?}");
        let itself = stack.own.iter().find(|own| own.name == "sockeye").unwrap();
        assert_eq!((itself.kind, itself.requirement.as_str()), (Kind::Dev, "*"));
    }

    #[test]
    fn this_package_is_among_ours() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let ours = packages(&root).unwrap();
        let tidy = ours.iter().find(|p| p.name == "sockeye-tidy").unwrap();
        assert_eq!(tidy.manifest, "crates/tidy/Cargo.toml");
        assert!(tidy.dependencies.iter().any(|d| d.name == "syn" && d.kind == Kind::Normal && d.line > 0));
    }
}
