//! slirp4netns(1), version 1.2, as RootlessKit and Podman's `--network slirp4netns` call it.
//!
//! Callers search the output of `--help` for supported options, so it omits those that cannot be honoured: outbound addresses, other targets than a namespace, a link address. The
//! sandbox and the seccomp filter are always on. Tests: below.

use std::path::PathBuf;

use clap::Parser;

use super::{Said, Words};

/// User-mode networking for unprivileged network namespaces, by sockeye-gateway
#[derive(Parser, Debug)]
#[command(name = "slirp4netns", disable_version_flag = true)]
pub struct Slirp {
    /// Give the interface its addresses and routes
    #[arg(short, long)]
    configure: bool,
    /// End when the other side of this open pipe is closed
    #[arg(short, long, value_name = "FD")]
    exit_fd: Option<i32>,
    /// Write to this open descriptor when the network is served
    #[arg(short, long, value_name = "FD")]
    ready_fd: Option<i32>,
    /// Bytes of the largest IP packet
    #[arg(short, long, default_value_t = 1500)]
    mtu: u32,
    /// IPv6, too
    #[arg(short = '6', long)]
    enable_ipv6: bool,
    /// A socket that takes requests for ports
    #[arg(short, long, value_name = "PATH")]
    api_socket: Option<PathBuf>,
    /// The addresses inside
    #[arg(long, default_value = "10.0.2.0/24")]
    cidr: String,
    /// Do not lead the gateway's address to the host's loopback
    #[arg(long)]
    disable_host_loopback: bool,
    /// Whether the target is a path or a process
    #[arg(long, value_name = "TYPE", default_value = "pid", value_parser = ["path", "pid"])]
    netns_type: String,
    /// The user namespace to enter first
    #[arg(long, value_name = "PATH")]
    userns_path: Option<PathBuf>,
    /// Always so
    #[arg(long)]
    enable_sandbox: bool,
    /// Always so
    #[arg(long)]
    enable_seccomp: bool,
    /// Print the version
    #[arg(short, long)]
    version: bool,
    /// The process, or the path of the namespace
    #[arg(value_name = "PID|PATH", required_unless_present = "version")]
    target: Option<String>,
    /// The interface's name
    #[arg(value_name = "TAPNAME", default_value = "tap0")]
    tap: String,
}

impl Slirp {
    pub(super) fn said(self) -> Said {
        let Some(target) = self.target.filter(|_| !self.version) else {
            return Said::Print(format!(
                "slirp4netns version 1.2.0\nby: sockeye-gateway {}\n",
                env!("CARGO_PKG_VERSION")
            ));
        };
        let mut words = Words::default();
        words.flag("--tap", true);
        words.option("--ifname", Some(self.tap));
        words.option("--netns", Some(target));
        words.option("--userns", self.userns_path);
        words.option("--mtu", Some(self.mtu.to_string()));
        words.option("--network", Some(self.cidr));
        words.flag("--no-config", !self.configure);
        words.flag("--ipv4-only", !self.enable_ipv6);
        words.option("--ready-fd", self.ready_fd.map(|fd| fd.to_string()));
        words.option("--exit-fd", self.exit_fd.map(|fd| fd.to_string()));
        words.option("--slirp-api", self.api_socket);
        if !self.disable_host_loopback {
            words.host_loopback();
        }
        Said::Run(words.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    fn said(line: &str) -> Result<Said, clap::Error> {
        let words: Vec<_> = line.split(' ').map(Into::into).collect();
        read(&words).unwrap()
    }

    fn run(line: &str) -> String {
        match said(line) {
            Ok(Said::Run(words)) => words.join(std::ffi::OsStr::new(" ")).into_string().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_lines_of_podman_and_rootlesskit_are_understood() {
        assert_eq!(
            run(
                "/usr/bin/slirp4netns --disable-host-loopback --mtu=65520 --enable-sandbox --enable-seccomp --enable-ipv6 -c -r 3 -e 4 \
                 --netns-type=path /run/user/1000/netns/netns-1 tap0"
            ),
            "--tap --ifname=tap0 --netns=/run/user/1000/netns/netns-1 --mtu=65520 --network=10.0.2.0/24 --ready-fd=3 --exit-fd=4"
        );
        assert_eq!(
            run(
                "slirp4netns --mtu 65520 -r 3 --disable-host-loopback --api-socket /tmp/api --cidr 10.9.0.0/24 4711 tap7"
            ),
            "--tap --ifname=tap7 --netns=4711 --mtu=65520 --network=10.9.0.0/24 --no-config --ipv4-only --ready-fd=3 --slirp-api=/tmp/api"
        );
        assert!(run("slirp4netns -c6 4711").ends_with("--allow=127.0.0.0/8 --allow=::1 --allow=*"));
    }

    #[test]
    fn versions_are_said_and_what_cannot_be_honoured_is_refused() {
        assert!(
            matches!(said("slirp4netns --version"), Ok(Said::Print(text)) if text.starts_with("slirp4netns version 1."))
        );
        for wrong in
            ["slirp4netns", "slirp4netns --target-type=bess /x", "slirp4netns --outbound-addr=10.1.1.1 1"]
        {
            assert!(said(wrong).is_err(), "{wrong}");
        }
        let help = said("slirp4netns --help").unwrap_err().to_string();
        for looked_for in [
            "--disable-host-loopback",
            "--mtu",
            "--enable-sandbox",
            "--enable-seccomp",
            "--cidr",
            "--netns-type",
        ] {
            assert!(help.contains(looked_for), "{looked_for}");
        }
        assert!(!help.contains("outbound-addr"));
    }
}
