//! Dependencies in `deny.toml`: the lists that these tests and cargo-deny share.
//!
//! Reads two lists out of the text: the quoted strings of `allow = [...]`, and each `crate = "NAME@VERSION"` of `skip = [...]`. Does not
//! depend on the checks. Tests: at the end.

/// The file.
pub const DOCUMENT: &str = "deny.toml";

/// The lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Licences that a dependency may have, in the words of SPDX.
    pub licences: Vec<String>,
    /// Packages as `name@version` that may be there beside another version.
    pub twice: Vec<String>,
}

impl Policy {
    /// The lists of a text; empty where it has none.
    pub fn read(text: &str) -> Self {
        let text: String = text.lines().map(without_comment).collect::<Vec<_>>().join("\n");
        let skip = list(&text, "skip");
        let twice = skip.split("crate = \"").skip(1).filter_map(|rest| rest.split('"').next());
        Self {
            licences: list(&text, "allow").split('"').skip(1).step_by(2).map(str::to_owned).collect(),
            twice: twice.map(str::to_owned).collect(),
        }
    }
}

/// A line that is no comment. The lists have none behind their items.
fn without_comment(line: &str) -> &str {
    if line.trim_start().starts_with('#') { "" } else { line }
}

/// The text between the brackets of the list `name`.
fn list<'t>(text: &'t str, name: &str) -> &'t str {
    let start = format!("\n{name} = [");
    text.split_once(&start).and_then(|(_, rest)| rest.split_once(']')).map_or("", |(list, _)| list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lists_are_read_and_comments_are_not() {
        let text = "[licenses]\nallow = [\n  \"MIT\",\n  # \"GPL-3.0\",\n  \"ISC\",\n]\n[bans]\n\
            skip = [\n  { crate = \"a@1.0.0\", reason = \"so\" },\n  { crate = \"b@2.0.0\", reason = \"so\" },\n]\nother = [\"x\"]\n";
        let policy = Policy::read(text);
        assert_eq!(policy.licences, ["MIT", "ISC"]);
        assert_eq!(policy.twice, ["a@1.0.0", "b@2.0.0"]);
        assert_eq!(Policy::read(""), Policy { licences: Vec::new(), twice: Vec::new() });
    }
}
