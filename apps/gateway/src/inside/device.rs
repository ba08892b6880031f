//! The device inside: its addresses, and routes to everywhere.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use sockeye::netif::Prefix;
use sockeye_drivers::{Tun, TunConfig};

use crate::args::{GatewayArgs, PLAN};

/// The device's name.
const NAME: &str = "tun0";

/// Makes the device in the namespace of the calling thread. Returns its queues.
pub fn make(args: &GatewayArgs) -> io::Result<Vec<OwnedFd>> {
    let config = TunConfig {
        name: NAME.to_owned(),
        queues: usize::from(args.loops),
        mtu: Some(args.mtu),
        ..TunConfig::default()
    };
    let tun = Tun::open(&config).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("cannot make a TUN device inside: {error} (is /dev/net/tun there, and may you open it?)"),
        )
    })?;
    let [v4, v6] = PLAN.inside;
    let everywhere: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let families = if args.ipv4_only { 1 } else { 2 };
    for ((addr, len), everywhere) in [(v4, 24), (v6, 64)].into_iter().zip(everywhere).take(families) {
        let prefix = |addr, len| Prefix::new(addr, len).map_err(io::Error::other);
        tun.link().add_addr(prefix(addr, len)?)?;
        tun.link().add_route(prefix(everywhere, 0)?)?;
    }
    tun.descriptors().map(|fd| fd.try_clone_to_owned()).collect()
}
