//! That no dependency is there in two versions, but for those that `deny.toml` excuses.
//!
//! Two versions are compiled twice, and types of one are not those of the other. Does not depend on where packages come from.
//! Tests: at the end, and `tests/house.rs`.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::metadata::Locked;
use crate::policy;

/// Checks the packages of one lock file. `excused` are packages as `name@version`.
pub fn check(packages: &[Locked], excused: &[String]) -> Vec<Finding> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages.iter().filter(|package| !excused.contains(&id(package))) {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    let several = versions.into_iter().filter(|(_, versions)| versions.len() > 1);
    let finding = |(name, versions): (&str, Vec<&str>)| {
        let message = format!(
            "{name} is there as {}: bring its users to one version (cargo tree -d), or excuse one in {} with a reason",
            versions.join(" and "),
            policy::DOCUMENT
        );
        Finding::new("Cargo.lock", 0, "duplicate", message)
    };
    several.map(finding).collect()
}

/// Checks that each excused duplicate is still there, in one lock file or another.
pub fn check_excuses(packages: &[Locked], excused: &[String]) -> Vec<Finding> {
    let gone = excused.iter().filter(|excused| !packages.iter().any(|package| id(package) == **excused));
    let message = |excused: &String| format!("{excused} is in no lock file any more: take it out of `skip`");
    gone.map(|excused| Finding::new(policy::DOCUMENT, 0, "duplicate", message(excused))).collect()
}

fn id(package: &Locked) -> String {
    format!("{}@{}", package.name, package.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_version_is_found_unless_it_is_excused_and_a_stale_excuse_is() {
        let locked =
            |name: &str, version: &str| Locked { name: name.into(), version: version.into(), licence: None };
        let packages = [locked("a", "1.0.0"), locked("b", "1.0.0"), locked("a", "2.0.0")];
        let found = check(&packages, &[]);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("a is there as 1.0.0 and 2.0.0"), "{found:?}");
        let excused = ["a@1.0.0".to_owned(), "c@1.0.0".to_owned()];
        assert!(check(&packages, &excused).is_empty());
        let stale = check_excuses(&packages, &excused);
        assert_eq!(stale.len(), 1);
        assert!(stale[0].message.contains("c@1.0.0"), "{stale:?}");
    }
}
