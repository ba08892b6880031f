//! The shape of source files: a head comment, and lengths that a reader can hold.
//!
//! Does not depend on the meaning of the code. Tests: at the end, and `tests/house.rs`.

use proc_macro2::Span;
use syn::visit::{self, Visit};

use crate::finding::Finding;
use crate::tree::Source;

/// Longest source file, lines.
pub const FILE_LINES_MAX: usize = 600;
/// Longest function, lines, from `fn` to its closing brace.
pub const FUNCTION_LINES_MAX: usize = 70;

/// Checks one file.
pub fn check(source: &Source) -> Vec<Finding> {
    if !source.is_rust() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    if !source.text.starts_with("//!") {
        let message = "does not begin with a `//!` head comment: say its purpose, what it does not depend on, \
            its invariants and where its tests are";
        findings.push(Finding::new(&source.path, 1, "head-comment", message));
    }
    let lines = source.text.lines().count();
    if lines > FILE_LINES_MAX {
        let message = format!("{lines} lines, at most {FILE_LINES_MAX}: find the part that has a name");
        findings.push(Finding::new(&source.path, FILE_LINES_MAX + 1, "file-length", message));
    }
    match syn::parse_file(&source.text) {
        Ok(file) => {
            let mut functions = Functions { path: &source.path, findings: &mut findings };
            functions.visit_file(&file);
        }
        Err(error) => {
            let line = error.span().start().line;
            findings.push(Finding::new(&source.path, line, "parses", format!("is not Rust: {error}")));
        }
    }
    findings
}

struct Functions<'a> {
    path: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl Functions<'_> {
    fn measure(&mut self, signature: &syn::Signature, end: Span) {
        let start = signature.fn_token.span.start().line;
        let lines = end.end().line + 1 - start;
        if lines > FUNCTION_LINES_MAX {
            let message = format!(
                "fn {} has {lines} lines, at most {FUNCTION_LINES_MAX}: keep the branches in one \
                 parent and let helpers compute",
                signature.ident
            );
            self.findings.push(Finding::new(self.path, start, "function-length", message));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.measure(&item.sig, item.block.brace_token.span.close());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.measure(&item.sig, item.block.brace_token.span.close());
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.measure(&item.sig, block.brace_token.span.close());
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(&'static str, usize)> {
        check(&Source::new("a.rs", text)).into_iter().map(|f| (f.rule, f.line)).collect()
    }

    fn function(lines: usize) -> String {
        format!("//! Head.\nfn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_may_have_its_longest_length_and_not_a_line_more() {
        assert_eq!(found(&function(FUNCTION_LINES_MAX)), []);
        assert_eq!(found(&function(FUNCTION_LINES_MAX + 1)), [("function-length", 2)]);
        let method = function(FUNCTION_LINES_MAX + 1).replacen("fn f", "impl A {\nfn f", 1) + "}\n";
        assert_eq!(found(&method), [("function-length", 3)]);
    }

    #[test]
    fn a_file_may_have_its_longest_length_and_not_a_line_more() {
        let text = |lines| "//! Head.\n".repeat(lines);
        assert_eq!(found(&text(FILE_LINES_MAX)), []);
        assert_eq!(found(&text(FILE_LINES_MAX + 1)), [("file-length", FILE_LINES_MAX + 1)]);
    }

    #[test]
    fn a_file_without_a_head_comment_is_found() {
        assert_eq!(found("// A comment, but not the head.\nfn f() {}\n"), [("head-comment", 1)]);
        assert_eq!(found("//! Head.\nfn f( {}\n"), [("parses", 2)]);
    }
}
