//! Runs a command whose whole network is a stack in this process: `tun2proxy COMMAND [ARGUMENT...]`.
//!
//! The command lives in a network namespace of its own, whose packets all go into a TUN device. A stack takes them in,
//! whatever their destination, and forwards each connection and each datagram through an ordinary socket of the kernel to
//! its destination. A SOCKS server or a tunnel would take the place of that socket: see `common/tcp.rs`, `common/udp.rs`.
//!
//! Needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN). Names are resolved as `/etc/resolv.conf` says; a server on 127.0.0.0/8 is not to be
//! reached from inside. Tests: `tests/examples.rs`.

mod common;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use common::{sandbox, tcp, udp};
use sockeye::{Config, Stack};

fn main() -> ExitCode {
    let command: Vec<OsString> = std::env::args_os().skip(1).collect();
    if command.is_empty() {
        eprintln!("usage: tun2proxy COMMAND [ARGUMENT...]");
        return ExitCode::from(2);
    }
    run(&command).unwrap_or_else(|error| {
        eprintln!("tun2proxy: {error}");
        ExitCode::FAILURE
    })
}

fn run(command: &[OsString]) -> io::Result<ExitCode> {
    let (namespace, tun) = sandbox::sandbox()?;
    let stack = Stack::new(Config::default())?;
    sandbox::attach(&stack, tun)?;
    tcp::serve(&stack, Arc::new(|_, _| true))?;
    udp::serve(&stack, Arc::new(|_, _| true))?;
    sandbox::run(&namespace, command)
}
