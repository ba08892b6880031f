//! A stack on a device, with the kernel's address on it, a record if one is wanted, and the folder where it is seen.
//!
//! Does not depend on the use of the stack. Invariant: its report to others ends before the stack, and the stack
//! before the device, which is not persistent.
//!
//! Tests: `tests/cli/tun.rs`.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use sockeye::Stack;
use sockeye::netif::{AddressState, CaptureConfig, CaptureHandle, LinkOptions, capture};
use sockeye_diag::Published;
use sockeye_drivers::Tun;
use sockeye_shared::end::{CommandError, UsageError};
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
        let tun = Tun::open(&plan.device)?;
        for peer in &plan.kernel {
            tun.link().add_addr(*peer)?;
        }
        let stack = Stack::new(plan.stack.clone())?;
        let options = LinkOptions { rp_filter: plan.rp_filter, ..LinkOptions::default() };
        let capture = match &plan.capture {
            Some(config) => {
                let config = CaptureConfig { name: tun.link().name().to_owned(), ..config.clone() };
                let (captured, handle) = capture(tun.clone(), &config)?;
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
