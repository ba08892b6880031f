//! What cargo knows of our packages and of those they stand on.
//!
//! Read from `cargo metadata`, so that inheritance, renames and targets are cargo's affair. Must not know
//! any rule. Tests: at the end.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What a dependency is for.
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
    /// What it is for.
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
    /// What it depends on itself.
    pub dependencies: Vec<Dependency>,
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
/// What cargo said, if it failed or said something else than it promises.
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

/// Every package that a build for this machine takes from the lock file; for all machines if the
/// registry's copies of them are here.
///
/// # Errors
/// As for [`packages`]; also if the lock file does not fit the manifests.
pub fn locked(root: &Path) -> Result<Vec<Locked>, String> {
    let all = ["--locked", "--offline"];
    let json = cargo(root, &all).or_else(|_| {
        let host = host()?;
        cargo(root, &[all[0], all[1], "--filter-platform", &host])
    })?;
    // Without a filter or with one, `packages` has all that were resolved.
    each(&json, "packages", |package| {
        let licence = package.get("license").and_then(Value::as_str).map(str::to_owned);
        Ok(Locked { name: text(package, "name")?, version: text(package, "version")?, licence })
    })
}

fn dependency(json: &Value, manifest: &str) -> Result<Dependency, String> {
    let name = text(json, "name")?;
    let kind = match json.get("kind").and_then(Value::as_str) {
        None => Kind::Normal,
        Some("dev") => Kind::Dev,
        Some("build") => Kind::Build,
        Some(other) => {
            return Err(format!("cargo knows a kind of dependency that we do not: {other}"));
        }
    };
    let is_line = |line: &str| line.strip_prefix(&name).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
    let line = manifest.lines().position(is_line).map_or(0, |index| index + 1);
    Ok(Dependency { name, kind, line })
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
    fn this_package_is_among_ours() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let ours = packages(&root).unwrap();
        let tidy = ours.iter().find(|p| p.name == "sockeye-tidy").unwrap();
        assert_eq!(tidy.manifest, "crates/tidy/Cargo.toml");
        assert!(tidy.dependencies.iter().any(|d| d.name == "syn" && d.kind == Kind::Normal && d.line > 0));
    }
}
