//! pasta(1) and passt(1): their common arguments.
//!
//! Unlike theirs, the inside here has addresses of its own (`--network`), not copies of the host's, and sends DNS queries to the gateway's name server. The arguments that configure this
//! (`-a`, `-n`, `-g`, `-i`, `-o`, `--dns-forward`) are rejected. Tests: below.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser};

use super::{Said, Words, ports};

/// What both have.
#[derive(Args, Debug)]
struct Common {
    /// Say what is served
    #[arg(short, long)]
    debug: bool,
    /// Say nothing, as always
    #[arg(short, long)]
    quiet: bool,
    /// Log to standard error, as always
    #[arg(short = 'e', long)]
    stderr: bool,
    /// Stay in the foreground
    #[arg(short, long)]
    foreground: bool,
    /// Record packets in a file
    #[arg(short, long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Write the process's number to a file
    #[arg(short = 'P', long, value_name = "FILE")]
    pid: Option<PathBuf>,
    /// Bytes of the largest IP packet; 0 for the default
    #[arg(short, long, default_value_t = 0)]
    mtu: u32,
    /// A resolver that names are forwarded to; repeatable
    #[arg(short = 'D', long, value_name = "ADDR")]
    dns: Vec<String>,
    /// Domains to search, separated by spaces
    #[arg(short = 'S', long, value_name = "LIST")]
    search: Vec<String>,
    /// Do not lead the gateway's address to the host's loopback
    #[arg(long)]
    no_map_gw: bool,
    /// IPv4 only
    #[arg(short = '4', long)]
    ipv4_only: bool,
    /// Ports of TCP that lead inside; repeatable
    #[arg(short, long, value_name = "SPEC")]
    tcp_ports: Vec<String>,
    /// Ports of UDP that lead inside; repeatable
    #[arg(short, long, value_name = "SPEC")]
    udp_ports: Vec<String>,
}

impl Common {
    fn words(&self, words: &mut Words) -> Result<(), String> {
        words.flag("--verbose", self.debug);
        words.option("--pcap", self.pcap.as_ref());
        words.option("--pid-file", self.pid.as_ref());
        words.option("--mtu", Some(self.mtu).filter(|mtu| *mtu > 0).map(|mtu| mtu.to_string()));
        self.dns.iter().for_each(|addr| words.option("--dns", Some(addr)));
        let domains = self.search.iter().flat_map(|list| list.split(' ')).filter(|domain| !domain.is_empty());
        domains.for_each(|domain| words.option("--search", Some(domain)));
        words.flag("--ipv4-only", self.ipv4_only);
        for (specs, suffix) in [(&self.tcp_ports, ""), (&self.udp_ports, "/udp")] {
            for spec in specs {
                ports::read(spec, suffix)?.iter().for_each(|ports| words.option("--publish", Some(ports)));
            }
        }
        if !self.no_map_gw {
            words.host_loopback();
        }
        Ok(())
    }
}

fn invalid(command: &mut clap::Command, message: String) -> clap::Error {
    command.error(ErrorKind::InvalidValue, message)
}

/// Network of a namespace, by sockeye-gateway
#[derive(Parser, Debug)]
#[command(name = "pasta", version, disable_version_flag = true)]
pub struct Pasta {
    #[command(flatten)]
    common: Common,
    /// The interface's name
    #[arg(short = 'I', long, value_name = "NAME", default_value = "tap0")]
    ns_ifname: String,
    /// Ports of TCP of the host that lead there from inside: none, which is always so
    #[arg(short = 'T', long, value_name = "SPEC", value_parser = ["none"])]
    tcp_ns: Option<String>,
    /// Ports of UDP, likewise
    #[arg(short = 'U', long, value_name = "SPEC", value_parser = ["none"])]
    udp_ns: Option<String>,
    /// The user namespace to enter
    #[arg(long, value_name = "PATH", requires = "netns")]
    userns: Option<PathBuf>,
    /// The network namespace to serve, by path or by name in /run/netns
    #[arg(long, value_name = "PATH|NAME", conflicts_with = "command")]
    netns: Option<String>,
    /// Enter no user namespace, as without --userns
    #[arg(long)]
    netns_only: bool,
    /// Go on when the process has ended, or the path has gone
    #[arg(long)]
    no_netns_quit: bool,
    /// Give the interface its addresses and routes
    #[arg(long)]
    config_net: bool,
    /// Print the version
    #[arg(long)]
    version: bool,
    /// A process whose namespaces are served, or a command with arguments; a shell without
    #[arg(value_name = "PID|COMMAND", trailing_var_arg = true)]
    command: Vec<OsString>,
}

impl Pasta {
    pub(super) fn said(self) -> Result<Said, clap::Error> {
        if self.version {
            return Ok(version("pasta"));
        }
        let mut words = Words::default();
        words.flag("--tap", true);
        words.option("--ifname", Some(&self.ns_ifname));
        self.common.words(&mut words).map_err(|message| invalid(&mut Self::command(), message))?;
        let named =
            |name: &String| if name.contains('/') { name.clone() } else { format!("/run/netns/{name}") };
        let process =
            self.command.first().filter(|word| word.to_str().is_some_and(|word| word.parse::<u32>().is_ok()));
        let target = self.netns.as_ref().map(|name| named(name).into()).or_else(|| process.cloned());
        let Some(target) = target else {
            // Theirs leaves it without addresses, too, but for a command that is of no use without a client of DHCP.
            words.0.push("--".into());
            let shell = || vec![std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())];
            words.0.extend(if self.command.is_empty() { shell() } else { self.command });
            return Ok(Said::Run(words.0));
        };
        words.option("--netns", Some(target));
        words.flag("--until-gone", !self.no_netns_quit);
        words.option("--userns", self.userns);
        words.flag("--no-config", !self.config_net);
        Ok(if self.common.foreground { Said::Run(words.0) } else { Said::RunBehind(words.0) })
    }
}

/// Network of a virtual machine, by sockeye-gateway
#[derive(Parser, Debug)]
#[command(name = "passt", disable_version_flag = true)]
pub struct Passt {
    #[command(flatten)]
    common: Common,
    /// The socket that QEMU connects to
    #[arg(short, long, value_name = "PATH", default_value = "/tmp/passt_1.socket")]
    socket: PathBuf,
    /// End when the first machine has gone
    #[arg(short = '1', long)]
    one_off: bool,
    /// Speak vhost-user at the socket
    #[arg(long)]
    vhost_user: bool,
    /// Print the version
    #[arg(long)]
    version: bool,
}

impl Passt {
    pub(super) fn said(self) -> Result<Said, clap::Error> {
        if self.version {
            return Ok(version("passt"));
        }
        let mut words = Words::default();
        words.option(if self.vhost_user { "--vhost-user" } else { "--qemu" }, Some(&self.socket));
        words.flag("--once", self.one_off);
        self.common.words(&mut words).map_err(|message| invalid(&mut Self::command(), message))?;
        Ok(if self.common.foreground { Said::Run(words.0) } else { Said::RunBehind(words.0) })
    }
}

fn version(name: &str) -> Said {
    Said::Print(format!("{name} by sockeye-gateway {}\n", env!("CARGO_PKG_VERSION")))
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    fn run(line: &str) -> (bool, String) {
        let words: Vec<_> = line.split(' ').map(Into::into).collect();
        let join = |words: Vec<OsString>| words.join(std::ffi::OsStr::new(" ")).into_string().unwrap();
        match read(&words).unwrap() {
            Ok(Said::Run(words)) => (false, join(words)),
            Ok(Said::RunBehind(words)) => (true, join(words)),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_container_engines_line_goes_behind_and_a_command_does_not() {
        assert_eq!(
            run("pasta --config-net -t 127.0.0.1/8080:80,443 -u none -T none -U none --no-map-gw --quiet --netns /run/netns/x"),
            (true, "--tap --ifname=tap0 --publish=127.0.0.1:8080:80 --publish=127.0.0.1:443 --netns=/run/netns/x --until-gone".to_owned())
        );
        assert_eq!(
            run("pasta -f --no-map-gw -I eth0 -m 9000 -S a.example 4711"),
            (
                false,
                "--tap --ifname=eth0 --mtu=9000 --search=a.example --netns=4711 --until-gone --no-config"
                    .to_owned()
            )
        );
        assert_eq!(
            run("pasta --no-map-gw --no-netns-quit --netns name"),
            (true, "--tap --ifname=tap0 --netns=/run/netns/name --no-config".to_owned())
        );
        let (behind, words) = run("pasta -4 -- curl -sI http://example.org/");
        assert!(
            !behind
                && words.ends_with(
                    "--ipv4-only --allow=127.0.0.0/8 --allow=::1 --allow=* -- curl -sI http://example.org/"
                ),
            "{words}"
        );
        assert_eq!(
            run("passt -f -1 -s /tmp/s --no-map-gw -t 2222:22"),
            (false, "--qemu=/tmp/s --once --publish=2222:22".to_owned())
        );
        assert_eq!(run("passt --vhost-user -s /tmp/s --no-map-gw"), (true, "--vhost-user=/tmp/s".to_owned()));
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        for wrong in [
            "pasta -a 10.0.0.1 1",
            "pasta -T 22 1",
            "pasta -t ~22 1",
            "passt --runas nobody",
            "pasta --vhost-user 1",
        ] {
            let words: Vec<OsString> = wrong.split(' ').map(Into::into).collect();
            assert!(read(&words).unwrap().is_err(), "{wrong}");
        }
        assert!(read(&["sockeye-gateway".into()]).is_none());
        assert!(read(&[]).is_none());
    }
}
