//! `sockeye-gateway`: the gateway as a program of its own, for those who want nothing else. `sockeye gateway` is the same.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};
use sockeye_gateway::{EXAMPLES, GatewayArgs};
use sockeye_shared::end::exit_code;

/// Give a command, a namespace or a container a network, without root
#[derive(Parser)]
#[command(name = "sockeye-gateway", version, after_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    gateway: GatewayArgs,
}

fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli =
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut Cli::command()).exit());
    exit_code(Cli::command(), &matches, sockeye_gateway::run(&cli.gateway, &[]))
}
