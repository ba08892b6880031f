//! Command lines of other programs: translates the arguments of slirp4netns, pasta or passt into the gateway's own.
//!
//! A link to `sockeye-gateway` with one of these names accepts that program's arguments. The rest of the gateway does not know about them. An argument
//! that cannot be honoured is an error and is not ignored. Arguments that only make the other program safer always apply here.
//!
//! Does not depend on how the gateway is implemented. Tests: at the ends of the files; `tests/names` with the programs that call them.

pub mod api;
mod pasta;
mod ports;
mod slirp4netns;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::Parser;

/// What another program's command line asks for.
#[derive(PartialEq, Eq, Debug)]
pub enum Said {
    /// To run with these arguments of the gateway.
    Run(Vec<OsString>),
    /// The same, and to return when the network is served.
    RunBehind(Vec<OsString>),
    /// To print this.
    Print(String),
}

/// Reads the command line of a program that is known by its name. `None` if it is no such name.
pub fn read(arguments: &[OsString]) -> Option<Result<Said, clap::Error>> {
    let name = Path::new(arguments.first()?).file_name()?.to_str()?;
    Some(match name {
        "slirp4netns" => slirp4netns::Slirp::try_parse_from(arguments).map(slirp4netns::Slirp::said),
        "pasta" => pasta::Pasta::try_parse_from(arguments).and_then(pasta::Pasta::said),
        "passt" => pasta::Passt::try_parse_from(arguments).and_then(pasta::Passt::said),
        _ => return None,
    })
}

/// Arguments of the gateway that are being written.
#[derive(Default)]
struct Words(Vec<OsString>);

impl Words {
    fn flag(&mut self, flag: &str, given: bool) {
        if given {
            self.0.push(flag.into());
        }
    }

    fn option(&mut self, option: &str, value: Option<impl AsRef<OsStr>>) {
        if let Some(value) = value {
            // One word, so that a value that begins with a dash is none of ours.
            let mut word = OsString::from(option);
            word.push("=");
            word.push(value);
            self.0.push(word);
        }
    }

    /// The host's loopback by the gateway's address, and everything else that is permitted without rules.
    fn host_loopback(&mut self) {
        for rule in ["127.0.0.0/8", "::1", "*"] {
            self.option("--allow", Some(rule));
        }
    }
}
