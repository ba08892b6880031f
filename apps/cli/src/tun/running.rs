//! A stack on a device, with the kernel's address on it, a record if one is wanted, and the folder where it is seen.
//!
//! Does not depend on the use of the stack. Invariant: its report to others ends before the stack, and the stack
//! before the device, which is not persistent.
//!
//! Tests: `tests/cli/tun.rs`.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use sockeye::Stack;
use sockeye::netif::{AddressState, CaptureConfig, CaptureHandle, LinkOptions, capture};
use sockeye_diag::Published;
use sockeye_drivers::Tun;
use sockeye_shared::end::{CommandError, UsageError};
use sockeye_shared::file;
use tokio::time::{Instant, sleep};

use super::args::{DeviceArgs, Plan};

/// See the module's head. Dropped from the first field to the last.
pub struct Running {
    /// Shows the stack to other programs, if that could be had.
    _published: Option<Published>,
    pub stack: Stack,
    capture: Option<CaptureHandle>,
    pub tun: Tun,
    /// The settings of the kernel's side.
    pub peers: Vec<IpAddr>,
}

/// Between two looks whether the addresses may be used.
const LOOK: Duration = Duration::from_millis(20);
/// How long that may take: longer than RFC 5227 and RFC 4862 look for another host that has them.
const ADDRESSES_TIMEOUT: Duration = Duration::from_secs(15);

impl Running {
    /// Makes everything.
    ///
    /// # Errors
    /// A usage error for a contradiction; the system's, among them `PermissionDenied` with a remedy.
    pub fn of(args: &DeviceArgs) -> Result<Self, CommandError> {
        let plan = args.plan().map_err(|error| CommandError::Usage(UsageError(error)))?;
        Ok(Self::new(&plan)?)
    }

    fn new(plan: &Plan) -> io::Result<Self> {
        let addrs = plan.addrs.iter().chain(&plan.kernel).map(|prefix| prefix.addr());
        for addr in addrs {
            refuse_in_use(addr)?;
        }
        let tun = Tun::open(&plan.device)?;
        for peer in &plan.kernel {
            tun.link().add_addr(*peer)?;
        }
        for peer in &plan.left_out {
            let name = tun.link().name();
            eprintln!(
                "{name}: only one network of IPv4 is set up in the kernel; for another: ip addr add {peer} dev {name}"
            );
        }
        let stack = Stack::new(plan.stack.clone())?;
        let options = LinkOptions { rp_filter: plan.rp_filter, ..LinkOptions::default() };
        let capture = match &plan.capture {
            Some(config) => {
                let config = CaptureConfig { name: tun.link().name().to_owned(), ..config.clone() };
                let (captured, handle) =
                    capture(tun.clone(), &config).map_err(|error| file::at(&config.path, error))?;
                stack.attach_with(captured, &plan.addrs, &options)?;
                Some(handle)
            }
            None => {
                stack.attach_with(tun.clone(), &plan.addrs, &options)?;
                None
            }
        };
        // The stack runs as well without being seen.
        let published = sockeye_diag::publish(&stack, tun.link().name())
            .inspect_err(|error| eprintln!("sockeye ss will not find this stack: {error}"));
        let peers = plan.kernel.iter().map(|peer| peer.addr()).collect();
        Ok(Self { _published: published.ok(), stack, capture, tun, peers })
    }

    /// Waits until the stack knows of each of its addresses that no other host has it, or has waited long enough. On Ethernet
    /// that takes a moment, in which nothing can be connected from there.
    pub async fn usable(&self) {
        let deadline = Instant::now() + ADDRESSES_TIMEOUT;
        let is_tentative = || self.stack.addresses().iter().any(|addr| addr.state == AddressState::Tentative);
        while is_tentative() && Instant::now() < deadline {
            sleep(LOOK).await;
        }
    }

    /// The record's counts, if anything was to be recorded.
    pub fn recorded(&self) -> Option<String> {
        let capture = self.capture.as_ref()?;
        capture.flush();
        let counts = capture.counts();
        Some(format!("recorded {} frames, {} found no room", counts.recorded, counts.lost))
    }
}

/// Refuses an address that the kernel has already, on this device's side or as another's: of two devices with the same network, the
/// kernel would send to the first only.
fn refuse_in_use(addr: IpAddr) -> io::Result<()> {
    if !is_kernels(addr) {
        return Ok(());
    }
    let message = format!(
        "{addr} is in use: this machine has it on another device, perhaps that of another `sockeye tun` (`ip addr` shows all); \
         give another network with --addr, or another address of the kernel's side with --peer-addr"
    );
    Err(io::Error::new(io::ErrorKind::AddrInUse, message))
}

/// Whether an address is one of the kernel's own. A socket can be bound to no other, unless the kernel was told to allow it.
fn is_kernels(addr: IpAddr) -> bool {
    let setting = match addr {
        IpAddr::V4(_) => "/proc/sys/net/ipv4/ip_nonlocal_bind",
        IpAddr::V6(_) => "/proc/sys/net/ipv6/ip_nonlocal_bind",
    };
    let any_address = std::fs::read_to_string(setting).is_ok_and(|text| text.trim() != "0");
    !any_address && UdpSocket::bind((addr, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_the_kernel_has_is_refused_with_a_remedy_and_no_other_is() {
        let error = refuse_in_use(IpAddr::from([127, 0, 0, 1])).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(
            error.to_string().contains("127.0.0.1 is in use") && error.to_string().contains("--peer-addr")
        );
        // TEST-NET-1 (RFC 5737) belongs to nobody.
        assert!(refuse_in_use(IpAddr::from([192, 0, 2, 77])).is_ok());
    }
}
