//! Pages that `--report` writes: their frame, their look, text in them.
//!
//! A page is self-contained: no script, and nothing from elsewhere, so it can be kept beside the figures. It is well-formed XML, too.
//! Does not depend on the contents of a page. Tests: those of the pages.

use std::path::Path;

use crate::machine::Machine;

pub mod style;

/// Whether `--report` names a picture and not a page.
pub fn is_picture(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "svg")
}

/// A page's beginning: its title, the machine, the command.
pub fn begin(title: &str, machine: &Machine, command: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{title}</title>\n<style>{}</style>\n</head>\n<body>\n\
         <h1>{title}</h1>\n<pre>{}</pre>\n<p>Command:</p>\n<pre>{}</pre>\n",
        style::CSS,
        escape(&machine.to_string()),
        escape(command),
        title = escape(title)
    )
}

/// A page's end.
pub const END: &str = "</body>\n</html>\n";

/// Text as it may stand in an element or an attribute.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() && c != '\n' => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
