//! Rust source as a flat run of identifiers and punctuation, with line numbers.
//!
//! Comments and string contents are not in it, so a rule about code is not fooled by prose; the tokens of a
//! macro call are in it, which a syntax tree would hide. Does not depend on any rule. Tests: at the end, and
//! through the checks.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// One token that rules look at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    /// An identifier or keyword, or one character of punctuation, or an opening or closing bracket.
    pub text: String,
    /// From 1.
    pub line: usize,
}

/// The tokens of a source file; `None` if it is not Rust (the compiler says so better).
pub fn tokens(text: &str) -> Option<Vec<Token>> {
    let stream: TokenStream = text.parse().ok()?;
    let mut out = Vec::new();
    flatten(stream, &mut out);
    Some(out)
}

fn flatten(stream: TokenStream, out: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Ident(ident) => out.push(Token { text: ident.to_string(), line }),
            TokenTree::Punct(punct) => out.push(Token { text: punct.as_char().to_string(), line }),
            TokenTree::Literal(_) => {}
            TokenTree::Group(group) => {
                let (open, close) = brackets(group.delimiter());
                let end = group.span_close().start().line;
                out.push(Token { text: open.to_owned(), line });
                flatten(group.stream(), out);
                out.push(Token { text: close.to_owned(), line: end });
            }
        }
    }
}

fn brackets(delimiter: Delimiter) -> (&'static str, &'static str) {
    match delimiter {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::None => ("", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_not_code_and_macro_arguments_are() {
        let found = tokens("// hidden\nfn f() {\n    m!(seen, \"hidden\");\n}\n").unwrap();
        assert!(found.contains(&Token { text: "seen".into(), line: 3 }));
        assert!(found.contains(&Token { text: "}".into(), line: 4 }));
        assert!(!found.iter().any(|t| t.text.contains("hidden")));
    }
}
