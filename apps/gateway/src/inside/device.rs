//! The device inside: its addresses, and its default routes. An existing device of the same kind is reused.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use sockeye::netif::Prefix;
use sockeye_drivers::link::KernelLink;
use sockeye_drivers::{Layer, Tun, TunConfig};

use crate::args::GatewayArgs;

/// Makes the device in the namespace of the calling thread. Returns its queues.
pub fn make(args: &GatewayArgs) -> io::Result<Vec<OwnedFd>> {
    let config = TunConfig {
        name: args.frames.device_name().to_owned(),
        layer: if args.frames.tap { Layer::Ethernet } else { Layer::Ip },
        queues: args.queues(),
        mtu: Some(args.mtu),
        ..TunConfig::default()
    };
    let opened = match Tun::open(&config) {
        // There is one that was made with one queue.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput && args.loops_join() => {
            Tun::open(&TunConfig { queues: 1, ..config })
        }
        opened => opened,
    };
    let tun = opened.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("cannot make the device inside: {error} (is /dev/net/tun there, and may you open it?)"),
        )
    })?;
    if !args.frames.no_config {
        configure(args, &tun)?;
    }
    tun.descriptors().map(|fd| fd.try_clone_to_owned()).collect()
}

fn configure(args: &GatewayArgs, tun: &Tun) -> io::Result<()> {
    let everywhere: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let families = if args.ipv4_only { 1 } else { 2 };
    let (plan, link) = (args.plan(), tun.link());
    // As callers of slirp4netns expect. New namespaces of ours have it already.
    KernelLink::new("lo").set_up(true)?;
    if args.frames.tap {
        // It has its address and its route from here. Where there is no such setting there is no IPv6.
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{}/accept_ra", link.name()), "0");
    }
    let addrs = plan.with_networks(plan.inside).zip(plan.host).zip(everywhere).take(families);
    for ((addr, gateway), everywhere) in addrs {
        link.add_addr(addr)?;
        let everywhere = Prefix::new(everywhere, 0).map_err(io::Error::other)?;
        if args.frames.tap { link.add_route_via(everywhere, gateway)? } else { link.add_route(everywhere)? }
    }
    Ok(())
}
