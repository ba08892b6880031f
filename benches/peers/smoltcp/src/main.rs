//! smoltcp at the far end of a TUN device, for `sockeye bench tun --peers`.
//!
//! Purpose: smoltcp with the settings with which it is fastest on such a device, and the three services that the bench
//! requires of every far end: receive, send, answer byte by byte. One thread does everything, as smoltcp is designed.
//!
//! Its standard input is the device, opened by the bench. Its standard output is a socket to the bench (`control.rs`).
//!
//! Does not depend on what is measured.
//!
//! Tests: the bench's own, when the peers are built.
#![forbid(unsafe_code)]

mod args;
mod control;
mod device;
mod serve;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, PollResult, SocketSet};
use smoltcp::wire::{HardwareAddress, IpCidr};

use args::Args;
use device::Device;
use serve::Services;

fn main() -> ExitCode {
    let done = Args::parse(std::env::args().skip(1)).and_then(|args| run(&args));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("smoltcp: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    let mut device = Device::new(args.mtu).map_err(|error| format!("the device: {error}"))?;
    let began = Instant::now();
    let clock = || smoltcp::time::Instant::from_micros(began.elapsed().as_micros() as i64);
    let config = Config::new(HardwareAddress::Ip);
    let mut interface = Interface::new(config, &mut device, clock());
    let mut full = Ok(());
    interface.update_ip_addrs(|addrs| full = addrs.push(IpCidr::Ipv4(args.addr)));
    full.map_err(|_| "no room for an address".to_owned())?;
    let mut sockets = SocketSet::new(Vec::new());
    let mut services = Services::new(&mut sockets, args);
    control::start(&format!(
        "ready smoltcp {}, MTU {}, checksums and segmentation by the device",
        control::version(),
        args.mtu
    ))
    .map_err(|error| format!("the bench: {error}"))?;
    let mut idle_since = None;
    loop {
        let now = clock();
        let mut moved = false;
        for _ in 0..FRAMES_MAX {
            match interface.poll_ingress_single(now, &mut device, &mut sockets) {
                PollIngressSingleResult::None => break,
                PollIngressSingleResult::PacketProcessed | PollIngressSingleResult::SocketStateChanged => {
                    moved = true;
                }
            }
        }
        moved |= services.serve(&mut sockets);
        while interface.poll_egress(now, &mut device, &mut sockets) == PollResult::SocketStateChanged {
            moved = true;
        }
        if device.is_gone() {
            return Ok(());
        }
        if moved {
            idle_since = None;
        } else if idle_since.get_or_insert_with(Instant::now).elapsed() >= args.spin {
            sleep(interface.poll_delay(clock(), &sockets).map(Duration::from))?;
            idle_since = None;
        }
    }
}

/// Waits until a packet arrives, or for so long.
fn sleep(most: Option<Duration>) -> Result<(), String> {
    let timeout = most.and_then(|most| Timespec::try_from(most).ok());
    let stdin = rustix::stdio::stdin();
    match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(format!("poll: {error}")),
    }
}

/// Frames taken before the services have their turn.
const FRAMES_MAX: usize = 8;
