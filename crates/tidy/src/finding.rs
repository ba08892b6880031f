//! Result of a check, in words that say how to mend it.
//!
//! Does not depend on any check. Tests: at the end.

use std::fmt;

/// One breach of a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// The file, from the repository's root.
    pub file: String,
    /// The line, from 1; 0 if the file as a whole is meant.
    pub line: usize,
    /// The rule's name.
    pub rule: &'static str,
    /// The fault, and how to mend it.
    pub message: String,
}

impl Finding {
    /// A finding at a line, or at 0 for the whole file.
    pub fn new(file: &str, line: usize, rule: &'static str, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, rule, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: [{}] {}", self.file, self.line, self.rule, self.message)
    }
}

/// Fails the calling test with every finding on a line of its own.
///
/// # Panics
/// If there is one.
pub fn report(mut findings: Vec<Finding>) {
    findings.sort();
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(lines.is_empty(), "{} found:\n{}\n", lines.len(), lines.join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_file_line_rule_and_remedy() {
        let finding = Finding::new("a.rs", 7, "no-such-thing", "is there: take it away");
        assert_eq!(finding.to_string(), "a.rs:7: [no-such-thing] is there: take it away");
    }

    #[test]
    #[should_panic(expected = "1 found:\na.rs:7:")]
    fn a_report_with_findings_fails() {
        report(vec![Finding::new("a.rs", 7, "rule", "message")]);
    }
}
