//! Licences that Sockeye's dependencies may have.
//!
//! Sockeye is under MIT or Apache-2.0, as the user chooses, so its dependencies must ask for no more than notices.
//! `deny.toml` has the list. Does not depend on where the packages come from. Tests: at the end, and `tests/house.rs`.

use crate::finding::Finding;
use crate::metadata::Locked;
use crate::policy;

/// Deepest nesting of brackets that is read.
const DEPTH_MAX: usize = 16;

/// Checks the lock file's packages against the licences that are allowed.
pub fn check(packages: &[Locked], allowed: &[String]) -> Vec<Finding> {
    let refuse = |package: &Locked, why: &str| {
        let message = format!(
            "{} {}: {why}: find a package under another licence, or add this one to \
            the list `allow` in {}, with a reason",
            package.name,
            package.version,
            policy::DOCUMENT
        );
        Finding::new("Cargo.lock", 0, "licence", message)
    };
    let verdict = |package: &Locked| match &package.licence {
        None => Some(refuse(package, "names no licence")),
        Some(licence) if allows(licence, allowed) => None,
        Some(licence) => Some(refuse(package, &format!("the licence {licence} is not on our list"))),
    };
    packages.iter().filter_map(verdict).collect()
}

/// Whether an SPDX expression leaves a choice that is allowed. `/` is the old way to write OR.
pub fn allows(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, allowed, at: 0 };
    // A licence that cannot be read is not allowed.
    parser.any(0).unwrap_or(false) && parser.at == words.len()
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
    at: usize,
}

impl Parser<'_> {
    fn accept(&mut self, word: &str) -> bool {
        let is = self.words.get(self.at) == Some(&word);
        self.at += usize::from(is);
        is
    }

    fn any(&mut self, depth: usize) -> Option<bool> {
        let mut allowed = self.all(depth)?;
        while self.accept("OR") {
            allowed |= self.all(depth)?;
        }
        Some(allowed)
    }

    fn all(&mut self, depth: usize) -> Option<bool> {
        let mut allowed = self.one(depth)?;
        while self.accept("AND") {
            allowed &= self.one(depth)?;
        }
        Some(allowed)
    }

    fn one(&mut self, depth: usize) -> Option<bool> {
        if depth > DEPTH_MAX {
            return None;
        }
        if self.accept("(") {
            let allowed = self.any(depth + 1)?;
            return self.accept(")").then_some(allowed);
        }
        let mut name = (*self.words.get(self.at)?).to_owned();
        self.at += 1;
        if self.accept("WITH") {
            name = format!("{name} WITH {}", self.words.get(self.at)?);
            self.at += 1;
        }
        Some(self.allowed.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> Vec<String> {
        ["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception", "Apache-2.0"].map(str::to_owned).into()
    }

    #[test]
    fn one_permitted_licence_of_a_choice_is_enough_and_all_are_needed_otherwise() {
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "MIT/Apache-2.0",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR MIT",
        ] {
            assert!(allows(good, &allowed()), "{good}");
        }
        for bad in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "",
            "MIT OR",
            "(MIT",
            "MIT)",
            "MPL-2.0",
            "GPL-2.0 WITH Classpath-exception-2.0",
            "MIT Apache-2.0",
        ] {
            assert!(!allows(bad, &allowed()), "{bad}");
        }
        assert!(!allows(&"(".repeat(100_000), &allowed()));
    }

    #[test]
    fn a_package_without_or_with_a_wrong_licence_is_found() {
        let locked = |licence: Option<&str>| Locked {
            name: "a".into(),
            version: "1.0.0".into(),
            licence: licence.map(str::to_owned),
        };
        let found = check(&[locked(None), locked(Some("AGPL-3.0")), locked(Some("MIT"))], &allowed());
        assert_eq!(found.len(), 2);
        assert!(found[0].message.contains("a 1.0.0: names no licence"));
    }
}
