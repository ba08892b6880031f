//! A rule: destinations, and whether they are permitted.
//!
//! ```text
//! RULE  = HOST [":" PORTS]        a part that is missing, or *, is any
//! HOST  = "*" | NETWORK | NAME    10.0.0.0/8, 192.0.2.1, [2001:db8::/32], example.org, *.example.org
//! PORTS = "*" | N | N "-" M
//! ```
//!
//! Does not depend on names' addresses: `super::Names` says which name an address was given out for. Tests: below.

use std::net::{IpAddr, SocketAddr};

use sockeye::netif::Prefix;

use super::reach;

/// See the module's head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Permits, or refuses.
    pub allows: bool,
    /// As it was written.
    pub text: String,
    hosts: Hosts,
    ports: (u16, u16),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Hosts {
    Any,
    Network(Prefix),
    /// In lower case, without a dot at the end.
    Name(String),
    /// The names below this one.
    Below(String),
}

/// Reads the rule of `--allow`.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn allow(text: &str) -> Result<Rule, String> {
    parse(text, true)
}

/// Reads the rule of `--deny`.
///
/// # Errors
/// As [`allow`].
pub fn deny(text: &str) -> Result<Rule, String> {
    parse(text, false)
}

fn parse(text: &str, allows: bool) -> Result<Rule, String> {
    let wrong = |what: &str| {
        format!(
            "{what}: write HOST, HOST:PORT or HOST:FIRST-LAST, with *, a network such as 10.0.0.0/8 or [fd00::]/8, or a name as HOST"
        )
    };
    let (host, ports) = split(text).ok_or_else(|| wrong("a bracket is not closed"))?;
    let ports = match ports {
        None | Some("*") => (0, u16::MAX),
        Some(ports) => {
            let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
            let number = |text: &str| text.parse::<u16>().map_err(|_| wrong(&format!("{text:?} is no port")));
            (number(first)?, number(last)?)
        }
    };
    if ports.0 > ports.1 {
        return Err(wrong("the first port is above the last"));
    }
    let hosts = if host == "*" {
        Hosts::Any
    } else if let Ok(addr) = host.parse::<IpAddr>() {
        let addr = addr.to_canonical();
        let len = if addr.is_ipv4() { 32 } else { 128 };
        Hosts::Network(Prefix::new(addr, len).map_err(|error| error.to_string())?)
    } else if let Ok(network) = host.parse::<Prefix>() {
        Hosts::Network(network.network())
    } else {
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        let (name, below) = name.strip_prefix("*.").map_or((name.as_str(), false), |name| (name, true));
        let is_label = |label: &str| {
            !label.is_empty()
                && label.len() <= 63
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        // A last label of digits is an address that is written wrongly.
        let last = name.rsplit('.').next().unwrap_or_default();
        if !name.split('.').all(is_label) || last.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong(&format!("{host:?} is neither an address, a network nor a name")));
        }
        if below { Hosts::Below(name.to_owned()) } else { Hosts::Name(name.to_owned()) }
    };
    Ok(Rule { allows, text: text.to_owned(), hosts, ports })
}

/// Host and ports. An IPv6 address with ports stands in brackets, its length of network in them or behind.
fn split(text: &str) -> Option<(String, Option<&str>)> {
    if let Some(inner) = text.strip_prefix('[') {
        let (host, rest) = inner.split_once(']')?;
        let (len, ports) = match rest.rsplit_once(':') {
            Some((len, ports)) => (len, Some(ports)),
            None => (rest, None),
        };
        return Some((format!("{host}{len}"), ports));
    }
    match text.rsplit_once(':') {
        // More than one colon: an IPv6 address without ports.
        Some((host, ports)) if !host.contains(':') => Some((host.to_owned(), Some(ports))),
        _ => Some((text.to_owned(), None)),
    }
}

impl Rule {
    /// Whether the rule speaks about `to` in its form `form`; `names` are those that its address was given out for.
    pub fn covers(&self, form: IpAddr, to: SocketAddr, names: &[String]) -> bool {
        let (first, last) = self.ports;
        if !(first..=last).contains(&to.port()) {
            return false;
        }
        let special = reach::special(form);
        match &self.hosts {
            // An address of the host or its link has to be named by whoever permits it; refusing may be careless.
            Hosts::Any => !self.allows || special.is_none(),
            Hosts::Network(network) => {
                let is_inside = special.is_none_or(|block| network.len() >= block.len());
                network.contains(form) && (!self.allows || is_inside)
            }
            Hosts::Name(name) => (!self.allows || special.is_none()) && names.iter().any(|it| it == name),
            Hosts::Below(parent) => {
                let is_below =
                    |name: &String| name.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
                (!self.allows || special.is_none()) && names.iter().any(is_below)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(rule: &str, to: &str, names: &[&str]) -> bool {
        let to: SocketAddr = to.parse().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        allow(rule).unwrap().covers(to.ip(), to, &names)
    }

    #[test]
    fn a_rule_covers_what_it_names() {
        for (rule, to, expected) in [
            ("*", "192.0.2.1:80", true),
            ("*:443", "192.0.2.1:80", false),
            ("*:80-90", "192.0.2.1:90", true),
            ("10.0.0.0/8", "10.1.2.3:1", true),
            ("10.0.0.0/8:22", "11.1.2.3:22", false),
            ("[2001:db8::]/32:80", "[2001:db8::1]:80", true),
            ("[2001:db8::/32]", "[2001:db8::1]:80", true),
            ("2001:db8::1", "[2001:db8::1]:80", true),
            ("::ffff:192.0.2.1", "192.0.2.1:80", true),
            // The host itself has to be named.
            ("*", "127.0.0.1:80", false),
            ("0.0.0.0/0", "127.0.0.1:80", false),
            ("127.0.0.0/8", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("*", "169.254.169.254:80", false),
        ] {
            assert_eq!(covers(rule, to, &[]), expected, "{rule} {to}");
        }
        assert!(covers("Example.ORG.", "192.0.2.1:80", &["example.org"]));
        assert!(covers("*.example.org", "192.0.2.1:80", &["a.b.example.org"]));
        assert!(!covers("*.example.org", "192.0.2.1:80", &["example.org", "badexample.org"]));
        assert!(!covers("example.org", "127.0.0.1:80", &["example.org"]), "a name does not name the host");
    }

    #[test]
    fn a_rule_that_is_wrong_says_why() {
        for text in ["", ":80", "10.0.0.0/33", "a b", "*:80-70", "*:x", "[::1", "1.2.3", "x:99999", "a..b"] {
            assert!(allow(text).is_err_and(|message| message.contains("write HOST")), "{text:?}");
        }
    }
}
