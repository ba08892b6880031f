//! Requests to a running gateway: `--ctl SOCK`, and `gateway ctl` as the client.
//!
//! ```text
//! gateway ctl SOCK … ─ a request, a line of JSON ─► server.rs ─► forwards, flows, policy
//!                    ◄─ an answer, a line of JSON ─┘
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the command line; requests and answers |
//! | `server.rs` | the gateway's side |
//! | `client.rs` | `gateway ctl` |
//! | `auto.rs` | `-p auto` |
//!
//! A process that can open the socket and is in the gateway's network namespace can do all of this (`sockets.rs`). The file is accessible to its user only.

pub mod auto;
pub mod client;
pub mod server;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use crate::engine::inward::Publish;
use crate::policy::{Rule, Rules};

/// Bytes of a line, at most.
pub const LINE_MAX: usize = 1 << 20;
/// Flows of one answer, at most.
pub const FLOWS_MAX: usize = 1024;

/// `--ctl`.
#[derive(Args, Clone, Debug, Default)]
pub struct ControlArgs {
    /// Take questions and changes while it runs at this UNIX socket: `sockeye gateway ctl SOCK --help`
    #[arg(long, value_name = "SOCK")]
    pub ctl: Option<PathBuf>,
}

/// A sub-command of the gateway.
#[derive(Subcommand, Clone, Debug)]
pub enum Action {
    /// Ask a gateway that runs with --ctl, or change what it does
    Ctl(CtlArgs),
}

/// `gateway ctl`.
#[derive(Args, Clone, Debug)]
pub struct CtlArgs {
    /// The socket that --ctl of the gateway names
    pub socket: PathBuf,
    /// What to do.
    #[command(subcommand)]
    pub what: What,
}

/// What `gateway ctl` does. Each prints the gateway's answer, a JSON object.
#[derive(Subcommand, Clone, Debug)]
pub enum What {
    /// List the ports of the host that lead inside
    List,
    /// Open a port of the host that leads inside
    Add {
        /// As for -p
        #[arg(value_name = "[ADDR:]HOSTPORT[-LAST][:PORT[-LAST]][/udp]")]
        publish: Publish,
    },
    /// Close a port of the host; connections that came by it go on
    Remove {
        /// Its number, as `list` has it
        forward: u64,
    },
    /// List flows that go on, those that began first at first, at most 1,024
    Flows {
        /// Begin with the flow of this number
        #[arg(long, value_name = "N", default_value_t = 0)]
        from: u64,
    },
    /// Count flows and bytes since the start
    Stats,
    /// List the rules
    Rules,
    /// Replace all rules, for flows that begin from now on
    SetRules {
        /// The new ones, in order.
        #[command(flatten)]
        rules: Rules,
    },
}

/// A request.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// `{"do":"list"}`
    List,
    /// `{"do":"add","publish":"8080:80"}`
    Add {
        /// As for `-p`.
        publish: String,
    },
    /// `{"do":"remove","forward":1}`
    Remove {
        /// Its number.
        forward: u64,
    },
    /// `{"do":"flows","from":0}`
    Flows {
        /// The least number.
        #[serde(default)]
        from: u64,
    },
    /// `{"do":"stats"}`
    Stats,
    /// `{"do":"rules"}`
    Rules,
    /// `{"do":"set-rules","rules":[{"deny":"10.0.0.0/8"},{"allow":"*:443"}]}`
    SetRules {
        /// In order.
        rules: Vec<RuleText>,
    },
}

/// A rule, as a person writes it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum RuleText {
    /// Of `--allow`.
    Allow(String),
    /// Of `--deny`.
    Deny(String),
}

impl From<&Rule> for RuleText {
    fn from(rule: &Rule) -> Self {
        let text = rule.text.clone();
        if rule.allows { Self::Allow(text) } else { Self::Deny(text) }
    }
}

impl From<&What> for Request {
    fn from(what: &What) -> Self {
        match what {
            What::List => Self::List,
            What::Add { publish } => Self::Add { publish: publish.text() },
            What::Remove { forward } => Self::Remove { forward: *forward },
            What::Flows { from } => Self::Flows { from: *from },
            What::Stats => Self::Stats,
            What::Rules => Self::Rules,
            What::SetRules { rules } => {
                Self::SetRules { rules: rules.0.iter().map(RuleText::from).collect() }
            }
        }
    }
}
