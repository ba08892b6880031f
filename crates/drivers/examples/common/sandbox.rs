//! A network namespace whose only way out is a TUN device, and the device.
//!
//! It does not depend on the handling of the packets. Needs CAP_NET_ADMIN and CAP_SYS_ADMIN. Tests:
//! `tests/examples.rs`.

use std::ffi::OsString;
use std::io;
use std::process::{Command, ExitCode};

use sockeye::Stack;
use sockeye::netif::Prefix;
use sockeye_drivers::{Namespace, Tun, TunConfig};

/// The sandbox's addresses on the device.
const INSIDE: [&str; 2] = ["10.64.0.1/24", "fd64::1/64"];
/// The stack's.
const STACK: [&str; 2] = ["10.64.0.2/24", "fd64::2/64"];
/// Where the sandbox's packets go that are not for itself: everywhere.
const EVERYWHERE: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// A namespace in which every packet to elsewhere goes into the device.
pub fn sandbox() -> io::Result<(Namespace, Tun)> {
    let namespace = Namespace::new().map_err(needs)?;
    let tun = namespace.run(|| -> io::Result<Tun> {
        let tun = Tun::open(&TunConfig::default())?;
        for prefix in prefixes(INSIDE)? {
            tun.link().add_addr(prefix)?;
        }
        for network in prefixes(EVERYWHERE)? {
            tun.link().add_route(network)?;
        }
        Ok(tun)
    })??;
    Ok((namespace, tun))
}

/// A refusal with what would help; any other error as it is.
pub fn needs(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return error;
    }
    let message = "a network namespace and a TUN device need root, or CAP_SYS_ADMIN and CAP_NET_ADMIN: start this program with sudo";
    io::Error::new(error.kind(), message)
}

/// Gives the stack the device, and has it take in packets to every host.
pub fn attach(stack: &Stack, tun: Tun) -> io::Result<()> {
    let netif = stack.attach(tun, &prefixes(STACK)?)?;
    stack.set_any_address(netif, true)
}

/// Runs a command in the namespace, and ends as it does.
pub fn run(namespace: &Namespace, command: &[OsString]) -> io::Result<ExitCode> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no command"));
    };
    // A child is in the namespace of the thread that made it.
    let status = namespace.run(|| Command::new(program).args(arguments).status())??;
    // None: a signal ended it.
    Ok(status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(u8::try_from(code).unwrap_or(1))))
}

fn prefixes(texts: [&str; 2]) -> io::Result<[Prefix; 2]> {
    let parse = |text: &str| text.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error));
    let [a, b] = texts;
    Ok([parse(a)?, parse(b)?])
}
