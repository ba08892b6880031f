//! Runs a command that may reach only allowed addresses: `gateway [--allow HOST:PORT]... -- COMMAND [ARGUMENT...]`.
//!
//! The command lives in a network namespace of its own, whose packets all go into a TUN device. A stack asks the list
//! about each SYN *before* it is answered: a SYN to any other is reset, and the command's connect fails with
//! "connection refused". Datagrams that are not on it are dropped. Refused addresses are printed on standard error,
//! once each. Allowed traffic goes through ordinary sockets of the kernel.
//!
//! `HOST` is an address, a network (`10.0.0.0/8`), a name (resolved once, now) or `*`; IPv6 stands in brackets. `PORT` is a
//! number or `*`. So `--allow '*:53' --allow example.org:443` permits one site and the names. The host itself, its loopback, its link
//! and groups are reached only if they are named (`allow.rs`): neither `*` nor a larger network names them, and no address that
//! carries theirs leads there.
//!
//! Needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN). Tests: in `reach.rs`, `tests/examples.rs`.

mod allow;
#[path = "../common/mod.rs"]
mod common;
mod reach;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use allow::AllowList;
use common::{sandbox, tcp, udp};
use sockeye::{Config, Stack};

const USAGE: &str = "usage: gateway [--allow HOST:PORT]... -- COMMAND [ARGUMENT...]";

fn main() -> ExitCode {
    let Some((patterns, command)) = arguments(std::env::args_os().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    run(&patterns, &command).unwrap_or_else(|error| {
        eprintln!("gateway: {error}");
        ExitCode::FAILURE
    })
}

fn arguments(mut args: impl Iterator<Item = OsString>) -> Option<(Vec<String>, Vec<OsString>)> {
    let mut patterns = Vec::new();
    loop {
        let arg = args.next()?;
        if arg == "--" {
            break;
        }
        patterns.push((arg == "--allow").then(|| args.next())??.into_string().ok()?);
    }
    let command: Vec<OsString> = args.collect();
    (!command.is_empty()).then_some((patterns, command))
}

fn run(patterns: &[String], command: &[OsString]) -> io::Result<ExitCode> {
    let list = Arc::new(AllowList::new(patterns, |line| eprintln!("gateway: {line}"))?);
    let (namespace, tun) = sandbox::sandbox()?;
    let stack = Stack::new(Config::default())?;
    sandbox::attach(&stack, tun)?;
    let for_tcp = Arc::clone(&list);
    tcp::serve(&stack, Arc::new(move |protocol, to| for_tcp.permits(protocol, to)))?;
    udp::serve(&stack, Arc::new(move |protocol, to| list.permits(protocol, to)))?;
    sandbox::run(&namespace, command)
}
