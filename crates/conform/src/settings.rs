//! Settings of a tested side: what the comparison assumes, and what a scenario may change.
//!
//! Each has a name, which is that of the stack's setting, and the kernel's `sysctl` with the values of both. Neither side's defaults matter: the
//! kernel's are written into its namespace, the stack's into its configuration. Tests: below, and every scenario.

use std::collections::BTreeMap;

use sockeye::Config;

use crate::codec::COOKIE_KEY;

/// A setting that scenarios change: the stack's name of it, the kernel's, and pairs of values.
struct Setting {
    key: &'static str,
    sysctl: &'static str,
    /// The stack's value and the kernel's; none where both take the same number.
    values: &'static [(&'static str, &'static str)],
}

const CONGESTION_CONTROL: &str = "congestion_control";

const RETRIES: &str = "retries";

/// In seconds.
const TIMES: [&str; 3] = ["fin_timeout", "keepalive_time", "keepalive_intvl"];

/// How often a closed socket's timer expires at most: here, and by the kernel's default.
pub(crate) const ORPHAN_RETRIES: u8 = 8;

const ON_OFF: &[(&str, &str)] = &[("off", "0"), ("on", "1")];

impl Setting {
    /// The kernel's value for one of the stack's.
    fn of_kernel(&self, value: &str) -> String {
        self.values.iter().find(|(ours, _)| *ours == value).map_or(value, |(_, theirs)| theirs).to_owned()
    }
}

const SETTINGS: &[Setting] = &[
    Setting { key: "timestamps", sysctl: "tcp_timestamps", values: ON_OFF },
    Setting { key: "window_scaling", sysctl: "tcp_window_scaling", values: ON_OFF },
    Setting { key: "ecn", sysctl: "tcp_ecn", values: &[("off", "0"), ("on", "1"), ("accept", "2")] },
    Setting { key: "fastopen", sysctl: "tcp_fastopen", values: &[] },
    Setting { key: "syn_retries", sysctl: "tcp_syn_retries", values: &[] },
    Setting { key: "synack_retries", sysctl: "tcp_synack_retries", values: &[] },
    Setting { key: "slow_start_after_idle", sysctl: "tcp_slow_start_after_idle", values: ON_OFF },
    Setting { key: "fin_timeout", sysctl: "tcp_fin_timeout", values: &[] },
    Setting { key: "keepalive_time", sysctl: "tcp_keepalive_time", values: &[] },
    Setting { key: "keepalive_intvl", sysctl: "tcp_keepalive_intvl", values: &[] },
    Setting { key: "keepalive_probes", sysctl: "tcp_keepalive_probes", values: &[] },
    Setting { key: "notsent_lowat", sysctl: "tcp_notsent_lowat", values: &[] },
    Setting {
        key: "rto_min",
        sysctl: "tcp_rto_min_us",
        values: &[("100ms", "100000"), ("200ms", "200000"), ("500ms", "500000"), ("1s", "1000000")],
    },
    Setting {
        key: "rto_max",
        sysctl: "tcp_rto_max_ms",
        values: &[("1s", "1000"), ("1500ms", "1500"), ("2s", "2000"), ("5s", "5000"), ("120s", "120000")],
    },
    Setting { key: RETRIES, sysctl: "tcp_retries2", values: &[] },
    // Not a sysctl, since a namespace may only choose what the machine's default allows. It is set on each socket.
    Setting { key: CONGESTION_CONTROL, sysctl: "", values: &[("newreno", "reno"), ("cubic", "cubic")] },
    Setting {
        key: "mtu_probing",
        sysctl: "tcp_mtu_probing",
        values: &[("off", "0"), ("blackhole", "1"), ("always", "2")],
    },
    Setting {
        key: "syn_cookies",
        sysctl: "tcp_syncookies",
        values: &[("off", "0"), ("pressure", "1"), ("always", "2")],
    },
];

/// What every scenario has, unless it says otherwise: keys of [`SETTINGS`].
const USUAL: &[(&str, &str)] = &[
    ("timestamps", "on"),
    ("window_scaling", "on"),
    ("ecn", "accept"),
    ("fastopen", "1"),
    ("syn_retries", "6"),
    ("synack_retries", "5"),
    ("slow_start_after_idle", "on"),
    ("fin_timeout", "60"),
    ("keepalive_time", "7200"),
    ("keepalive_intvl", "75"),
    ("keepalive_probes", "9"),
    ("notsent_lowat", "4294967295"),
    ("rto_min", "200ms"),
    ("rto_max", "120s"),
    (RETRIES, "15"),
    (CONGESTION_CONTROL, "cubic"),
    ("mtu_probing", "off"),
    ("syn_cookies", "pressure"),
];

/// Also set in the kernel's namespace. Buffers are so large that no scenario fills one: the kernel counts memory with all that goes with a packet,
/// the stack bytes of text.
const KERNEL: &[(&str, &str)] = &[
    ("ipv4/tcp_rmem", "4096 131072 6291456"),
    ("ipv4/tcp_wmem", "4096 4194304 4194304"),
    ("ipv4/tcp_sack", "1"),
    ("ipv4/tcp_dsack", "1"),
    ("ipv4/tcp_early_retrans", "3"),
    ("ipv4/tcp_recovery", "1"),
    ("ipv4/tcp_reordering", "3"),
    ("ipv4/tcp_max_reordering", "300"),
    ("ipv4/tcp_no_metrics_save", "1"),
    ("ipv4/tcp_moderate_rcvbuf", "1"),
    ("ipv4/tcp_invalid_ratelimit", "500"),
    // The back-off of RFC 6298 from the first SYN on.
    ("ipv4/tcp_syn_linear_timeouts", "0"),
    ("ipv4/tcp_retries1", "3"),
    ("ipv4/tcp_frto", "2"),
    ("ipv4/tcp_rfc1337", "0"),
    ("ipv4/tcp_stdurg", "0"),
    ("ipv4/tcp_abort_on_overflow", "0"),
    ("ipv4/tcp_autocorking", "1"),
    ("ipv4/tcp_max_syn_backlog", "16384"),
    ("ipv4/tcp_thin_linear_timeouts", "0"),
    ("ipv4/tcp_ecn_fallback", "1"),
    ("ipv4/tcp_base_mss", "1024"),
    // A segment at a time, as the device has it: the kernel sets PSH on what it lets a device cut, and plans recovery by it.
    ("ipv4/tcp_min_tso_segs", "1"),
    ("ipv4/tcp_tso_win_divisor", "3"),
    ("ipv4/tcp_limit_output_bytes", "4194304"),
    ("ipv4/tcp_comp_sack_nr", "44"),
    ("ipv4/tcp_challenge_ack_limit", "2147483647"),
    ("ipv4/ip_local_port_range", "32768 60999"),
    ("ipv4/tcp_fastopen_key", COOKIE_KEY),
    ("ipv4/tcp_fastopen_blackhole_timeout_sec", "0"),
    ("ipv4/icmp_ratelimit", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv6/icmp/ratelimit", "0"),
    // No packets but those of scenarios.
    ("ipv6/conf/default/router_solicitations", "0"),
    ("ipv6/conf/default/addr_gen_mode", "1"),
];

fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

/// Whether a scenario may have this setting.
pub fn check(key: &str, value: &str) -> Result<(), String> {
    let known = || SETTINGS.iter().map(|setting| setting.key).collect::<Vec<_>>().join(", ");
    let setting = find(key).ok_or_else(|| format!("no setting is called {key}: there are {}", known()))?;
    if setting.values.is_empty() {
        return value.parse::<u32>().map(drop).map_err(|_| format!("{key} is a number"));
    }
    let is_known = setting.values.iter().any(|(ours, _)| *ours == value);
    is_known.then_some(()).ok_or_else(|| format!("{key} cannot be {value}"))
}

/// The usual settings with a scenario's.
fn merged(changed: &BTreeMap<String, String>) -> impl Iterator<Item = (&'static Setting, &str)> {
    USUAL
        .iter()
        .filter_map(|(key, usual)| Some((find(key)?, changed.get(*key).map_or(*usual, String::as_str))))
}

/// The stack's configuration.
///
/// # Panics
/// If the stack does not know one of the settings any more.
pub fn stack(changed: &BTreeMap<String, String>) -> Config {
    let mut config = Config { workers: 0, ..Config::default() };
    // The kernel's first window is half of `tcp_rmem`'s middle, which counts overhead too.
    for (key, value) in [("rcvbuf", "65160"), ("rcvbuf_max", "6M"), ("sndbuf", "4M"), ("sndbuf_max", "4M")] {
        config.set(key, value).expect("a setting of buffers");
    }
    for (key, value) in [("fastopen_key", COOKIE_KEY), ("fastopen_blackhole_timeout", "0")] {
        config.set(key, value).expect("a setting of Fast Open");
    }
    for (setting, value) in merged(changed) {
        let text = if TIMES.contains(&setting.key) { format!("{value}s") } else { value.to_owned() };
        config.set(setting.key, &text).expect("a known setting");
    }
    config
}

/// The kernel's settings: paths below `/proc/sys/net`, and values.
pub fn kernel(changed: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let own = KERNEL.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned()));
    let shared = merged(changed).filter(|(setting, _)| !setting.sysctl.is_empty());
    let retries = merged(changed).find_map(|(setting, value)| (setting.key == RETRIES).then_some(value));
    let of_orphans = retries
        .and_then(|retries| retries.parse().ok())
        .map_or(ORPHAN_RETRIES, |retries: u8| retries.min(ORPHAN_RETRIES));
    own.chain(shared.map(|(setting, value)| (format!("ipv4/{}", setting.sysctl), setting.of_kernel(value))))
        .chain([("ipv4/tcp_orphan_retries".to_owned(), of_orphans.to_string())])
        .collect()
}

/// The kernel's congestion control.
pub fn kernel_congestion_control(changed: &BTreeMap<String, String>) -> String {
    let found = merged(changed).find(|(setting, _)| setting.key == CONGESTION_CONTROL);
    found.map_or(String::new(), |(setting, value)| setting.of_kernel(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_has_a_usual_value_and_the_stack_takes_all() {
        for setting in SETTINGS {
            let usual = USUAL.iter().find(|(key, _)| *key == setting.key).unwrap();
            check(usual.0, usual.1).unwrap();
            for (value, _) in setting.values {
                stack(&[(setting.key.to_owned(), (*value).to_owned())].into());
            }
        }
        assert!(check("ecn", "maybe").is_err() && check("retries", "x").is_err());
    }
}
