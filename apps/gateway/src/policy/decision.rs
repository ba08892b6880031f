//! Decides whether rules permit an address, in all of its forms.
//!
//! Does not depend on where the rules come from. Tests: `mod.rs`; the fuzz target `reach`, which also compiles this file, `reach.rs` and `rule.rs`.

use std::net::{IpAddr, SocketAddr};

use super::reach;
use super::rule::Rule;

/// Whether the host may connect to `onward`, whose address was given out for `names`: each of its forms is permitted by the first rule that covers it. What no rule covers is
/// permitted if it is an ordinary host's and nothing has to be permitted by a rule.
pub fn permits(rules: &[Rule], onward: SocketAddr, names: &[String]) -> bool {
    reach::forms(onward.ip()).all(|form| permits_form(rules, form, onward, names))
}

fn permits_form(rules: &[Rule], form: IpAddr, onward: SocketAddr, names: &[String]) -> bool {
    match rules.iter().find(|rule| rule.covers(form, onward, names)) {
        Some(rule) => rule.allows,
        None => reach::special(form).is_none() && !rules.iter().any(|rule| rule.allows),
    }
}
