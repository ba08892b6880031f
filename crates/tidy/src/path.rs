//! Which functions and files of ours a run went through.
//!
//! Reads a profile of `valgrind --tool=callgrind`: every function that was executed while it collected is in there, with the file that it is
//! written in. All that the compiler makes of one function counts as one: instances for several types are one function, and a closure
//! belongs to the function that it stands in.
//!
//! Does not depend on the program. Tests: at the end.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The functions whose file is in the folder `ours`, by file (from that folder) and name, with the lines that were executed. The profile
/// is one with plain positions (`--compress-pos=no`).
pub fn functions(profile: &str, ours: &str) -> BTreeMap<(String, String), BTreeSet<usize>> {
    let mut names = Names::default();
    let (mut file, mut function) = (String::new(), String::new());
    // A call is followed by a line with its cost.
    let mut is_cost_of_call = false;
    let mut found: BTreeMap<(String, String), BTreeSet<usize>> = BTreeMap::new();
    for line in profile.lines() {
        if let Some(given) = line.strip_prefix("fl=") {
            file = names.files.resolve(given);
        } else if let Some(given) = line.strip_prefix("fn=") {
            function = names.functions.resolve(given);
        } else if let Some(given) = line.strip_prefix("fi=").or_else(|| line.strip_prefix("fe=")) {
            // Code that was compiled into this function from another file. Where nothing is inlined that is a macro's.
            names.files.resolve(given);
        } else if let Some(given) = line.strip_prefix("cfi=").or_else(|| line.strip_prefix("cfl=")) {
            names.files.resolve(given);
        } else if let Some(given) = line.strip_prefix("cfn=") {
            names.functions.resolve(given);
        } else if line.starts_with("calls=") {
            is_cost_of_call = true;
        } else if let Some(Ok(number)) = line.split(' ').next().map(str::parse)
            && !std::mem::take(&mut is_cost_of_call)
            && let Some(path) = file.strip_prefix(ours)
        {
            let function = (path.trim_start_matches('/').to_owned(), plain(&function));
            found.entry(function).or_default().insert(number);
        }
    }
    found
}

/// A profile names each thing once, as `(7) name`, and says `(7)` afterwards.
#[derive(Default)]
struct Names {
    files: Table,
    functions: Table,
}

#[derive(Default)]
struct Table(HashMap<String, String>);

impl Table {
    fn resolve(&mut self, given: &str) -> String {
        match given.split_once(' ') {
            Some((id, name)) if id.starts_with('(') => {
                self.0.insert(id.to_owned(), name.to_owned());
                name.to_owned()
            }
            Some(_) | None => self.0.get(given).cloned().unwrap_or_else(|| given.to_owned()),
        }
    }
}

/// The function as it is written: without types, hash, closures and suffixes of instances.
fn plain(name: &str) -> String {
    let name = name.split("'").next().unwrap_or(name);
    let mut parts = Vec::new();
    let (mut depth, mut part) = (0_u32, String::new());
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            ':' if depth == 0 && chars.peek() == Some(&':') => {
                chars.next();
                parts.push(std::mem::take(&mut part));
            }
            c if depth == 0 => part.push(c),
            _ => {}
        }
    }
    parts.push(part);
    // `<T as Trait>::f` has lost its type above; keep that, since two types' functions are two.
    let of = name.strip_prefix('<').and_then(|rest| rest.split([' ', '>', '<']).next()).unwrap_or("");
    let is_made = |part: &String| part.is_empty() || part.starts_with('{') || is_hash(part);
    parts.retain(|part| !is_made(part));
    if of.is_empty() { parts.join("::") } else { format!("{of}::{}", parts.join("::")) }
}

/// `h` and sixteen digits, by which the compiler distinguishes instances.
fn is_hash(part: &str) -> bool {
    part.len() == 17 && part.starts_with('h') && part[1..].chars().all(|c| c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_and_closures_count_as_their_source_function() {
        for (given, want) in [
            ("a::b::Queue<T>::push", "a::b::Queue::push"),
            ("a::b::Queue<u8>::push::h0123456789abcdef", "a::b::Queue::push"),
            ("a::f::{{closure}}::h0123456789abcdef", "a::f"),
            ("<a::Stream as std::io::Read>::read", "a::Stream::read"),
            ("<a::Stream<T> as std::io::Read>::read::{{closure}}", "a::Stream::read"),
            ("a::f'2", "a::f"),
        ] {
            assert_eq!(plain(given), want, "{given}");
        }
    }

    #[test]
    fn only_our_executed_functions_count() {
        let profile = "events: Ir\n\nfl=(1) /x/crates/a.rs\nfn=(1) a::f::{{closure}}\n10 4\ncfi=(2) /x/crates/b.rs\ncfn=(2) b::g\n\
            calls=1 3\n11 9\n\nfl=(2)\nfn=(2)\n3 9\nfl=(3) /rustc/std.rs\nfn=(3) std::h\n5 1\n\nfl=(4) /x/crates/c.rs\nfn=(4) c::never\n";
        let found = functions(profile, "/x");
        let want = [("crates/a.rs", "a::f", 10), ("crates/b.rs", "b::g", 3)];
        let want =
            want.map(|(file, name, line)| ((file.to_owned(), name.to_owned()), BTreeSet::from([line])));
        assert_eq!(found, BTreeMap::from(want));
    }
}
