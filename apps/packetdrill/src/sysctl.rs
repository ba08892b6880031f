//! Kernel settings that scripts make with `sysctl`, as settings of a stack.
//!
//! The scripts' commands would change this host. The runner puts programs of the same names first on their path, which write
//! `name=value` lines to the file that [`FILE`] names; it is read again at each `socket()`. A later line counts. A name that the table does not
//! have is looked for among the settings of [`Config`], whose names are the kernel's without `tcp_`; others are passed over. Tests: below.

use std::path::Path;

use sockeye::{Config, fastopen};

/// The environment's name of the file.
pub const FILE: &str = "SOCKEYE_SYSCTL_LOG";

/// The configuration that follows from `base` and the file's lines, or why it cannot be.
pub(crate) fn apply(base: &Config, text: &str) -> Result<Config, String> {
    let mut config = base.clone();
    for line in text.lines() {
        if let Some((name, value)) = line.split_once('=') {
            set(&mut config, &plain(name), value.trim().trim_matches('"'))?;
        }
    }
    config.validate().map_err(|error| error.to_string())?;
    Ok(config)
}

/// Reads the file; no file is an empty one.
pub(crate) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// How often what was learned of peers was to be forgotten (`ip tcp_metrics flush`).
pub(crate) fn flush_count(text: &str) -> usize {
    text.lines().filter(|line| FLUSHES.contains(line)).count()
}

/// Whether the device drops what is sent (`tc qdisc replace dev tun0 root pfifo limit 0`), by the last line that says so or otherwise.
pub(crate) fn drops(text: &str) -> bool {
    let last = text.lines().rev().find_map(|line| line.strip_prefix(QDISC));
    last.is_some_and(|qdisc| qdisc.ends_with("limit 0"))
}

/// Lines of it. The second is a setting of kernels that have it for that purpose.
const FLUSHES: [&str; 2] = ["tcp_metrics flush", "net.ipv4.tcp_fastopen_cookies=0"];
/// Before a queueing discipline.
const QDISC: &str = "qdisc ";

/// `net/ipv4/tcp_x` and `/proc/sys/net/ipv4/tcp_x` are `net.ipv4.tcp_x`.
fn plain(name: &str) -> String {
    let name = name.trim().trim_matches('"');
    name.strip_prefix("/proc/sys/").unwrap_or(name).replace('/', ".")
}

fn set(config: &mut Config, name: &str, value: &str) -> Result<(), String> {
    let Some(name) = name.strip_prefix("net.ipv4.").or_else(|| name.strip_prefix("net.core.")) else {
        return Ok(());
    };
    let bad = || format!("sysctl {name} cannot be {value:?}");
    match name {
        "tcp_rmem" => {
            let [_, default, max] = three(value).ok_or_else(bad)?;
            // Linux counts the packets' memory and offers half of it as window (`tcp_adv_win_scale`); the scale comes from all of it.
            config.rcvbuf = clamp(default / 2);
            config.rcvbuf_max = clamp(max);
        }
        "tcp_wmem" => {
            let [_, default, max] = three(value).ok_or_else(bad)?;
            config.sndbuf = clamp(default);
            config.sndbuf_max = clamp(max);
        }
        "tcp_fastopen" => {
            let known = fastopen::CLIENT
                | fastopen::SERVER
                | fastopen::CLIENT_WITHOUT_COOKIE
                | fastopen::SERVER_WITHOUT_COOKIE
                | fastopen::SERVER_ALL;
            config.tcp.fastopen = u32::try_from(number(value).ok_or_else(bad)?).unwrap_or(0) & known;
        }
        name => {
            let (key, value) = translate(name, value);
            // A value that a setting of the same name does not take is another unit.
            let _ = config.set(&key, &value);
        }
    }
    Ok(())
}

/// The setting and its value, where these are the kernel's but for the spelling.
fn translate(name: &str, value: &str) -> (String, String) {
    let is = |text: &str| text.to_owned();
    let one_of = |names: &[&str]| {
        let index = number(value).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| names.get(index)).map_or_else(|| is(value), |name| is(name))
    };
    match name {
        "tcp_ecn" => {
            (is("ecn"), one_of(&["off", "on", "accept", "accurate", "accept-accurate-on", "accept-accurate"]))
        }
        "tcp_mtu_probing" => (is("mtu_probing"), one_of(&["off", "blackhole", "always"])),
        "tcp_syncookies" => (is("syn_cookies"), one_of(&["off", "pressure", "always"])),
        "tcp_congestion_control" if value == "reno" => (is("congestion_control"), is("newreno")),
        "tcp_retries2" => (is("retries"), is(value)),
        "tcp_max_tw_buckets" => (is("time_wait_max"), is(value)),
        "tcp_max_syn_backlog" => (is("syn_backlog"), is(value)),
        "tcp_keepalive_time" | "tcp_keepalive_intvl" | "tcp_fin_timeout" => {
            (is(short(name)), format!("{value}s"))
        }
        "tcp_rto_max_ms" => (is("rto_max"), format!("{value}ms")),
        "tcp_rto_min_us" => (is("rto_min"), format!("{value}us")),
        "tcp_fastopen_blackhole_timeout_sec" => (is("fastopen_blackhole_timeout"), format!("{value}s")),
        "ip_local_port_range" => (is("port_range"), value.split_whitespace().collect::<Vec<_>>().join("-")),
        name => (is(short(name)), is(value)),
    }
}

fn short(name: &str) -> &str {
    name.strip_prefix("tcp_").unwrap_or(name)
}

/// A number, also in hexadecimal.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn three(text: &str) -> Option<[u64; 3]> {
    let numbers: Option<Vec<u64>> = text.split_whitespace().map(number).collect();
    numbers?.try_into().ok()
}

/// Within the bounds of a buffer's size.
fn clamp(bytes: u64) -> u32 {
    u32::try_from(bytes.clamp(2 << 10, 64 << 20)).unwrap_or(64 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockeye::{CongestionControl, EcnMode, MtuProbing};
    use std::time::Duration;

    fn applied(text: &str) -> Config {
        apply(&Config::default(), text).unwrap()
    }

    #[test]
    fn names_of_the_kernel_set_what_they_name() {
        let config = applied(
            "net.ipv4.tcp_rmem=4096 540000 15728640\nnet.ipv4.tcp_wmem=\"4096 50000 4194304\"\nnet.ipv4.tcp_timestamps=0\n\
             /proc/sys/net/ipv4/tcp_ecn=2\nnet/ipv4/tcp_congestion_control=reno\nnet.ipv4.tcp_mtu_probing=2\n\
             net.ipv4.tcp_fastopen=0x70403\nnet.ipv4.tcp_syn_retries=5\nnet.ipv4.tcp_keepalive_time=300\nnet.ipv4.tcp_notsent_lowat=4000",
        );
        assert_eq!((config.rcvbuf, config.rcvbuf_max), (270_000, 15 << 20));
        assert_eq!((config.sndbuf, config.sndbuf_max), (50_000, 4 << 20));
        assert!(!config.tcp.timestamps);
        assert_eq!((config.tcp.ecn, config.tcp.mtu_probing), (EcnMode::Accept, MtuProbing::Always));
        assert_eq!(config.tcp.congestion_control, CongestionControl::NewReno);
        assert_eq!(config.tcp.fastopen, fastopen::CLIENT | fastopen::SERVER | fastopen::SERVER_ALL);
        assert_eq!((config.tcp.syn_retries, config.tcp.notsent_lowat), (5, 4000));
        assert_eq!(config.tcp.keepalive_time, Duration::from_secs(300));
    }

    #[test]
    fn what_is_no_setting_is_found_by_its_line() {
        assert_eq!(
            flush_count("tcp_metrics flush\nnet.ipv4.tcp_ecn=0\nnet.ipv4.tcp_fastopen_cookies=0\n"),
            2
        );
        assert!(drops("qdisc replace dev tun0 root pfifo limit 0\n"));
        assert!(!drops("qdisc replace dev tun0 root pfifo limit 0\nqdisc replace dev tun0 root pfifo\n"));
        assert!(!drops(""));
    }

    #[test]
    fn the_last_line_counts_and_unknown_names_are_passed_over() {
        let config =
            applied("net.ipv4.tcp_ecn=1\nnet.ipv4.tcp_frto=2\nkernel.x=1\nnonsense\nnet.ipv4.tcp_ecn=0\n");
        assert_eq!(config.tcp.ecn, EcnMode::Off);
        assert!(apply(&Config::default(), "net.ipv4.tcp_rmem=1").is_err());
    }
}
