//! `sockeye-gateway`: the gateway as a program of its own. `sockeye gateway` is the same. If it is called as slirp4netns, pasta or passt, it accepts the arguments of that
//! program.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};
use sockeye_gateway::{EXAMPLES, GatewayArgs};
use sockeye_shared::end::{CommandError, exit_code};
use sockeye_shared::manual::{ManArgs, man};

/// Give a command, a namespace, a container or a machine a network, without root
#[derive(Parser)]
#[command(name = "sockeye-gateway", version, after_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Write the man pages to this directory, and nothing else
    #[arg(long, value_name = "DIR", exclusive = true)]
    man: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let parse = |words: &[OsString]| {
        let words = std::iter::once("sockeye-gateway".into()).chain(words.iter().cloned());
        Cli::try_parse_from(words).map(|cli| cli.gateway)
    };
    sockeye_gateway::main_of(&arguments, parse, usual)
}

fn usual() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli =
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut Cli::command()).exit());
    let ended = match cli.man {
        Some(dir) => man(&ManArgs { dir: Some(dir) }, Cli::command())
            .map(|()| ExitCode::SUCCESS)
            .map_err(CommandError::Io),
        None => sockeye_gateway::run(&cli.gateway, &[]),
    };
    exit_code(Cli::command(), &matches, ended)
}
