//! The filter of `sockeye ss`, in the words of ss(8): states, then an expression over addresses and ports.
//!
//! ```text
//! filter     := [ state STATE | exclude STATE ]... [ expression ]
//! expression := term { or term };  term := factor { [and] factor };  factor := not factor | ( expression ) | test
//! test       := dport OP PORT | sport OP PORT | dst [OP] HOST | src [OP] HOST
//! ```
//!
//! Does not depend on how sockets are shown. Tests: below.

use std::net::{IpAddr, SocketAddr};

use sockeye::netif::Prefix;
use sockeye_diag::Socket;

/// States as ss shows them.
const ALL: [&str; 11] = [
    "ESTAB",
    "SYN-SENT",
    "SYN-RECV",
    "FIN-WAIT-1",
    "FIN-WAIT-2",
    "TIME-WAIT",
    "UNCONN",
    "CLOSE-WAIT",
    "LAST-ACK",
    "LISTEN",
    "CLOSING",
];
/// States of connections that an application does not hold.
pub const BUCKET: [&str; 2] = ["SYN-RECV", "TIME-WAIT"];
/// States as a filter names them.
const NAMES: &str = "established, syn-sent, syn-recv, fin-wait-1, fin-wait-2, time-wait, closed, close-wait, last-ack, \
                     listening, closing, all, connected, synchronized, bucket, big";

/// The states that a filter's word names.
fn states_of(word: &str) -> Option<Vec<&'static str>> {
    let without = |left_out: &[&str]| ALL.into_iter().filter(|state| !left_out.contains(state)).collect();
    Some(match word {
        "all" => ALL.to_vec(),
        "connected" => without(&["LISTEN", "UNCONN"]),
        "synchronized" => without(&["LISTEN", "UNCONN", "SYN-SENT"]),
        "bucket" => BUCKET.to_vec(),
        "big" => without(&BUCKET),
        "established" => vec!["ESTAB"],
        "closed" => vec!["UNCONN"],
        "listening" | "listen" => vec!["LISTEN"],
        "syn-sent" | "syn-recv" | "fin-wait-1" | "fin-wait-2" | "time-wait" | "close-wait" | "last-ack"
        | "closing" => ALL.into_iter().filter(|state| state.eq_ignore_ascii_case(word)).collect(),
        _ => return None,
    })
}

/// Expressions within one another, at most.
const DEPTH_MAX: usize = 64;

/// A filter that was read.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// States to be shown, as ss shows them; `None` if the filter names none.
    states: Option<Vec<&'static str>>,
    test: Option<Test>,
}

#[derive(Clone, Debug)]
enum Test {
    All(Vec<Test>),
    Any(Vec<Test>),
    Not(Box<Test>),
    Port { is_remote: bool, op: Op, port: u16 },
    Host { is_remote: bool, is_equal: bool, host: Host },
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// An address or network, and a port; `None` matches any.
#[derive(Clone, Copy, Debug)]
struct Host {
    net: Option<Prefix>,
    port: Option<u16>,
}

impl Filter {
    /// Reads the words of a command line.
    ///
    /// # Errors
    /// A message that names the word and a correct form.
    pub fn read(words: &[String]) -> Result<Self, String> {
        let mut words = Words { words: split(&words.join(" ").to_lowercase()), next: 0 };
        let states = words.states()?;
        let test = if words.peek().is_some() { Some(words.expression(0)?) } else { None };
        match words.peek() {
            Some(word) => Err(format!("{word:?} is too much: an expression has ended before it")),
            None => Ok(Self { states, test }),
        }
    }

    /// Whether it names states, so that no state is hidden for another reason.
    pub fn names_states(&self) -> bool {
        self.states.is_some()
    }

    /// Whether a socket in this state is shown.
    pub fn has_state(&self, state: &str) -> bool {
        self.states.as_ref().is_none_or(|states| states.contains(&state))
    }

    /// Whether it says anything of addresses or ports.
    pub fn has_expression(&self) -> bool {
        self.test.is_some()
    }

    /// Whether a socket has the addresses and ports asked for.
    pub fn matches(&self, socket: &Socket) -> bool {
        self.test.as_ref().is_none_or(|test| test.is_met(socket))
    }
}

impl Test {
    fn is_met(&self, socket: &Socket) -> bool {
        let end = |is_remote: bool| if is_remote { socket.remote } else { Some(socket.local) };
        match self {
            Self::All(tests) => tests.iter().all(|test| test.is_met(socket)),
            Self::Any(tests) => tests.iter().any(|test| test.is_met(socket)),
            Self::Not(test) => !test.is_met(socket),
            // A socket without a peer has the port 0 there, as with ss.
            Self::Port { is_remote, op, port } => {
                op.holds(end(*is_remote).map_or(0, |end| end.port()), *port)
            }
            Self::Host { is_remote, is_equal, host } => {
                end(*is_remote).is_some_and(|end| host.has(end)) == *is_equal
            }
        }
    }
}

impl Op {
    fn read(word: &str) -> Option<Self> {
        Some(match word {
            "=" | "==" | "eq" => Self::Equal,
            "!=" | "ne" | "neq" => Self::NotEqual,
            "<" | "lt" => Self::Less,
            "<=" | "le" | "leq" => Self::LessOrEqual,
            ">" | "gt" => Self::Greater,
            ">=" | "ge" | "geq" => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    fn holds(self, found: u16, wanted: u16) -> bool {
        match self {
            Self::Equal => found == wanted,
            Self::NotEqual => found != wanted,
            Self::Less => found < wanted,
            Self::LessOrEqual => found <= wanted,
            Self::Greater => found > wanted,
            Self::GreaterOrEqual => found >= wanted,
        }
    }
}

impl Host {
    fn read(word: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "{word:?} is no address: write one like 10.0.0.1, 10.0.0.0/8, 10.0.0.1:80, [::1]:80 or *:80"
            )
        };
        let whole = |net: Prefix| Self { net: Some(net), port: None };
        let one =
            |addr: IpAddr| Prefix::new(addr, if addr.is_ipv4() { 32 } else { 128 }).map_err(|_| refused());
        if let Ok(addr) = word.trim_matches(['[', ']']).parse() {
            return one(addr).map(whole);
        }
        if let Ok(net) = word.replace(['[', ']'], "").parse() {
            return Ok(whole(net));
        }
        let (host, port) = word.rsplit_once(':').ok_or_else(refused)?;
        let port = if port == "*" { None } else { Some(port.parse().map_err(|_| refused())?) };
        let net = match host.replace(['[', ']'], "").as_str() {
            "" | "*" => None,
            host if host.contains('/') => Some(host.parse().map_err(|_| refused())?),
            host => Some(one(host.parse().map_err(|_| refused())?)?),
        };
        Ok(Self { net, port })
    }

    fn has(&self, end: SocketAddr) -> bool {
        let addr = end.ip().to_canonical();
        self.net.is_none_or(|net| net.contains(addr)) && self.port.is_none_or(|port| port == end.port())
    }
}

/// The words of an expression. Operators and parentheses need no space around them.
fn split(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut last = ' ';
    for c in text.chars() {
        let is_operator = |c: char| "=!<>&|".contains(c);
        let joins = match c {
            ' ' | '\t' | '(' | ')' => false,
            '=' => "=!<>".contains(last),
            '&' | '|' => c == last,
            '!' | '<' | '>' => false,
            _ => !is_operator(last) && !" ()\t".contains(last),
        };
        match words.last_mut().filter(|_| joins) {
            Some(word) => word.push(c),
            None if c.is_whitespace() => {}
            None => words.push(c.to_string()),
        }
        last = c;
    }
    words
}

/// The number of a port, or of the service that services(5) gives it.
fn port_of(word: &str) -> Option<u16> {
    let name = word.strip_prefix(':').unwrap_or(word);
    name.parse().ok().or_else(|| named_port(&std::fs::read_to_string(SERVICES).ok()?, name))
}

fn named_port(services: &str, name: &str) -> Option<u16> {
    services.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let (first, port) = (words.next()?, words.next()?.split('/').next()?);
        (first == name || words.any(|alias| alias == name)).then(|| port.parse().ok())?
    })
}

/// Names of services, a line for each: name, port/protocol, aliases.
const SERVICES: &str = "/etc/services";

/// Words that are read one after the other.
struct Words {
    words: Vec<String>,
    next: usize,
}

impl Words {
    fn peek(&self) -> Option<&str> {
        self.words.get(self.next).map(String::as_str)
    }

    fn take(&mut self, what: &str) -> Result<String, String> {
        let word = self.peek().map(str::to_owned);
        self.next += 1;
        word.ok_or_else(|| format!("the filter ends where {what} is missing"))
    }

    /// Skips the next word if it is one of these.
    fn skips(&mut self, words: &[&str]) -> bool {
        let is_one = self.peek().is_some_and(|word| words.contains(&word));
        self.next += usize::from(is_one);
        is_one
    }

    fn states(&mut self) -> Result<Option<Vec<&'static str>>, String> {
        let mut shown: Option<Vec<&'static str>> = None;
        loop {
            let is_excluded = match self.peek() {
                Some("state") => false,
                Some("exclude") => true,
                _ => return Ok(shown),
            };
            self.next += 1;
            let word = self.take("the name of a state")?;
            let found =
                states_of(&word).ok_or_else(|| format!("{word:?} is no state: write one of {NAMES}"))?;
            if is_excluded {
                shown.get_or_insert_with(|| ALL.to_vec()).retain(|state| !found.contains(state));
            } else {
                shown.get_or_insert_default().extend(found);
            }
        }
    }

    fn expression(&mut self, depth: usize) -> Result<Test, String> {
        if depth > DEPTH_MAX {
            return Err(format!("the filter has more than {DEPTH_MAX} expressions within one another"));
        }
        let mut tests = vec![self.term(depth)?];
        while self.skips(&["or", "|", "||"]) {
            tests.push(self.term(depth)?);
        }
        Ok(Test::Any(tests))
    }

    fn term(&mut self, depth: usize) -> Result<Test, String> {
        let mut tests = vec![self.factor(depth)?];
        loop {
            // Two tests that follow each other must both be met.
            let is_named = self.skips(&["and", "&", "&&"]);
            if !is_named && matches!(self.peek(), None | Some("or" | "|" | "||" | ")")) {
                return Ok(Test::All(tests));
            }
            tests.push(self.factor(depth)?);
        }
    }

    fn factor(&mut self, depth: usize) -> Result<Test, String> {
        if self.skips(&["not", "!"]) {
            return Ok(Test::Not(Box::new(self.nested(depth)?)));
        }
        if self.skips(&["("]) {
            let test = self.expression(depth + 1)?;
            return match self.take("a closing parenthesis")?.as_str() {
                ")" => Ok(test),
                other => Err(format!("{other:?} stands where a closing parenthesis is missing")),
            };
        }
        self.test()
    }

    fn nested(&mut self, depth: usize) -> Result<Test, String> {
        if depth > DEPTH_MAX {
            return Err(format!("the filter has more than {DEPTH_MAX} expressions within one another"));
        }
        self.factor(depth + 1)
    }

    fn test(&mut self) -> Result<Test, String> {
        let word = self.take("dport, sport, dst or src")?;
        let is_remote = word.starts_with('d');
        match word.as_str() {
            "dport" | "sport" => {
                let op = self.take("an operator such as =")?;
                let op = Op::read(&op)
                    .ok_or_else(|| format!("{op:?} is no operator: write =, !=, <, <=, > or >="))?;
                let port = self.take("a port")?;
                let port = port_of(&port).ok_or_else(|| {
                    format!("{port:?} is no port: write a number, as in :80, or a service of {SERVICES}")
                })?;
                Ok(Test::Port { is_remote, op, port })
            }
            "dst" | "src" => {
                let is_equal = if self.skips(&["!=", "ne", "neq"]) {
                    false
                } else {
                    self.skips(&["=", "==", "eq"]);
                    true
                };
                Ok(Test::Host { is_remote, is_equal, host: Host::read(&self.take("an address")?)? })
            }
            other => Err(format!("{other:?} is no test: write dport, sport, dst or src")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Filter, String> {
        Filter::read(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    fn socket(local: &str, remote: Option<&str>) -> Socket {
        serde_json::from_value(serde_json::json!({
            "protocol": "tcp", "state": "ESTAB", "local": local, "remote": remote, "recv_queue": 0,
            "send_queue": 0, "serial": 1, "is_held": true,
        }))
        .unwrap()
    }

    #[test]
    fn expressions_select_by_ports_and_addresses() {
        let conn = socket("10.9.0.2:80", Some("10.9.0.1:40000"));
        let other = socket("[fd00::2]:443", Some("[fd00::1]:50000"));
        let listener = socket("0.0.0.0:80", None);
        for (text, wanted) in [
            ("sport = :80", [true, false, true]),
            ("sport != 80", [false, true, false]),
            ("dport = :40000", [true, false, false]),
            ("dport > :40000", [false, true, false]),
            ("dport >= 40000 and dport lt 50000", [true, false, false]),
            ("dst 10.9.0.1", [true, false, false]),
            ("dst 10.9.0.0/24", [true, false, false]),
            ("dst = 10.9.0.1:40000", [true, false, false]),
            ("dst != 10.9.0.1", [false, true, true]),
            ("dst [fd00::1]:50000", [false, true, false]),
            ("dst fd00::/16", [false, true, false]),
            ("src *:80", [true, false, true]),
            ("sport = :80 or sport = :443", [true, true, true]),
            ("(sport = :80 or sport = :443) dport != :0", [true, true, false]),
            ("not ( sport = :80 )", [false, true, false]),
            ("! sport = :80 and dport = :50000", [false, true, false]),
            ("state established sport = :443", [false, true, false]),
            ("(sport=:80||sport==443)&&dport!=:0", [true, true, false]),
            ("!(sport>=:443)", [true, false, true]),
        ] {
            let filter = read(text).unwrap();
            assert_eq!([&conn, &other, &listener].map(|socket| filter.matches(socket)), wanted, "{text}");
        }
    }

    #[test]
    fn ports_have_the_names_of_services() {
        let services = "# a comment\nhttp\t80/tcp\twww  # WorldWideWeb\nssh 22/tcp\n";
        let ports = ["http", "www", "ssh", "worldwideweb", "#"].map(|name| named_port(services, name));
        assert_eq!(ports, [Some(80), Some(80), Some(22), None, None]);
    }

    #[test]
    fn states_are_added_and_excluded() {
        let shown = |text: &str| {
            let filter = read(text).unwrap();
            ["ESTAB", "TIME-WAIT", "LISTEN"].map(|state| filter.has_state(state))
        };
        assert_eq!(shown("state time-wait"), [false, true, false]);
        assert_eq!(shown("state established state listening"), [true, false, true]);
        assert_eq!(shown("state connected exclude time-wait"), [true, false, false]);
        assert_eq!(shown("exclude listening"), [true, true, false]);
        assert!(!read("sport = :80").unwrap().names_states());
        let count = |word: &str| states_of(word).unwrap().len();
        assert_eq!(["all", "connected", "synchronized", "bucket", "big"].map(count), [11, 9, 8, 2, 9]);
        // Each name of the message names at least one state.
        assert!(NAMES.split(", ").all(|name| count(name) > 0));
    }

    #[test]
    fn a_wrong_word_is_named_with_the_permitted_ones() {
        for (text, part) in [
            ("state open", "\"open\" is no state: write one of established"),
            ("state", "the name of a state is missing"),
            ("dport :80", "\":80\" is no operator"),
            ("dport = :nosuch", "\":nosuch\" is no port: write a number"),
            ("dport = :65536", "is no port"),
            ("dst here", "\"here\" is no address"),
            ("dst 10.0.0.0/33", "is no address"),
            ("port = 80", "\"port\" is no test"),
            ("( sport = :80", "a closing parenthesis is missing"),
            ("sport = :80 )", "\")\" is too much"),
            ("sport = :80 or", "dport, sport, dst or src is missing"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(read(&"( ".repeat(1000)).unwrap_err().contains("within one another"));
        assert!(read(&"not ".repeat(100_000)).unwrap_err().contains("within one another"));
    }
}
