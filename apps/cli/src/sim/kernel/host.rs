//! A network namespace for one host: its settings, its device, its counters.
//!
//! The namespace ends with the value and the threads in it. Settings are those that Linux has by default, written
//! down because a machine may have others; only the bounds of the buffers are ours. Does not depend on the data.
//! Tests: below, `apps/cli/tests/cli/sim_kernel.rs`.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::{fs, path};

use sockeye::netif::Prefix;
use sockeye_drivers::{Namespace, Tun, TunConfig};

/// Settings in each namespace: Linux's defaults, as of version 6.
const SETTINGS: [(&str, &str); 15] = [
    // Router solicitations would take their share of the link.
    ("ipv6/conf/default/disable_ipv6", "1"),
    ("ipv4/tcp_sack", "1"),
    ("ipv4/tcp_dsack", "1"),
    ("ipv4/tcp_timestamps", "1"),
    ("ipv4/tcp_window_scaling", "1"),
    ("ipv4/tcp_recovery", "1"),
    ("ipv4/tcp_early_retrans", "3"),
    ("ipv4/tcp_frto", "2"),
    ("ipv4/tcp_reordering", "3"),
    ("ipv4/tcp_max_reordering", "300"),
    ("ipv4/tcp_fastopen", "1"),
    ("ipv4/tcp_moderate_rcvbuf", "1"),
    ("ipv4/tcp_slow_start_after_idle", "1"),
    ("ipv4/tcp_mtu_probing", "0"),
    ("ipv4/tcp_notsent_lowat", "4294967295"),
];
/// Least and first size of the buffers, Linux's defaults.
const RMEM: &str = "4096 131072";
const WMEM: &str = "4096 16384";
/// The kernel counts a packet's memory, of which payload is a half or less: so many times the size of Sockeye's
/// buffers.
const OVERHEAD: u64 = 4;
/// Packets that wait in a device for the emulator, whose own queue must be the one that fills.
const DEVICE_QUEUE: u32 = 100_000;
/// Bits of the network part of the addresses.
const PREFIX: u8 = 24;
/// The longest IP packet, bytes.
const MTU_MAX: u32 = 65_535;
const DEVICE: &str = "sim0";

/// A new one, with buffers that hold `buffer` bytes. Its connections ask for ECN if `ecn` says so, and accept it otherwise.
///
/// # Errors
/// The system's, with a hint if rights are missing.
pub fn new(buffer: u32, ecn: bool) -> io::Result<Namespace> {
    let namespace = Namespace::new().map_err(|error| hint(error, "make a network namespace"))?;
    namespace.run(|| configure(buffer, ecn))??;
    Ok(namespace)
}

/// Writes down the settings of the calling thread's namespace.
fn configure(buffer: u32, ecn: bool) -> io::Result<()> {
    let most = u64::from(buffer).saturating_mul(OVERHEAD).min(i32::MAX.unsigned_abs().into());
    let asked = [
        ("ipv4/tcp_ecn", if ecn { "1" } else { "2" }.to_owned()),
        ("ipv4/tcp_rmem", format!("{RMEM} {most}")),
        ("ipv4/tcp_wmem", format!("{WMEM} {most}")),
    ];
    for (name, value) in SETTINGS.map(|(name, value)| (name, value.to_owned())).into_iter().chain(asked) {
        let file = path::Path::new("/proc/sys/net").join(name);
        match fs::write(&file, value) {
            Ok(()) => {}
            // A kernel without it has nothing to set.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(hint(error, &format!("set {}", file.display()))),
        }
    }
    Ok(())
}

/// A device in the calling thread's namespace, which goes with its descriptor. No offloads: packets come out as they would
/// go on a wire. Reading and writing do not block.
///
/// # Errors
/// The system's, with a hint if rights are missing.
pub fn device(addr: Ipv4Addr, mtu: u32) -> io::Result<OwnedFd> {
    let config = TunConfig { name: DEVICE.to_owned(), offload: false, ..TunConfig::default() };
    let tun = Tun::open(&config).map_err(|error| hint(error, "make a TUN device"))?;
    let prefix = Prefix::new(addr.into(), PREFIX).map_err(io::Error::other)?;
    // Not by the device's configuration, which keeps to the MTUs of our stacks.
    tun.link().set_mtu(mtu.min(MTU_MAX))?;
    tun.link().add_addr(prefix)?;
    tun.link().set_queue_len(DEVICE_QUEUE)?;
    let mut queues = tun.descriptors();
    queues.next().ok_or(ErrorKind::NotFound)?.try_clone_to_owned()
}

fn hint(error: io::Error, what: &str) -> io::Error {
    let needs =
        "--on kernel needs root (CAP_NET_ADMIN and CAP_SYS_ADMIN), /dev/net/tun and a writable /proc/sys/net";
    io::Error::new(error.kind(), format!("cannot {what}: {error}; {needs}"))
}

/// The counters of the thread's namespace, zeros left out.
///
/// # Errors
/// The system's.
pub fn counters() -> io::Result<BTreeMap<String, u64>> {
    let mut all = BTreeMap::new();
    for file in ["snmp", "netstat"] {
        let text = fs::read_to_string(path::Path::new("/proc/thread-self/net").join(file))?;
        all.extend(parse(&text).into_iter().filter(|(name, count)| *count > 0 && name.starts_with("Tcp")));
    }
    Ok(all)
}

/// Pairs of lines, one of names and one of values, both behind the same word.
fn parse(text: &str) -> BTreeMap<String, u64> {
    let lines: Vec<&str> = text.lines().collect();
    let mut all = BTreeMap::new();
    for pair in lines.chunks_exact(2) {
        let (Some((group, names)), Some((_, values))) = (pair[0].split_once(':'), pair[1].split_once(':'))
        else {
            continue;
        };
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            // -1 stands for "no limit", which is no count.
            if let Ok(value) = value.parse() {
                all.insert(format!("{group}.{name}"), value);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_their_names() {
        let text = "Tcp: MaxConn RetransSegs\nTcp: -1 7\nTcpExt: TCPTimeouts\nTcpExt: 2\n";
        let expected = [("Tcp.RetransSegs".to_owned(), 7), ("TcpExt.TCPTimeouts".to_owned(), 2)];
        assert_eq!(parse(text), expected.into());
    }
}
