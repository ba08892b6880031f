//! Command-line options that choose where frames come from.
//!
//! Does not depend on how the gateway is implemented. Tests: `tests/gateway.rs`.

use std::path::PathBuf;

use clap::Args;

/// Options about the device, and about machines.
#[derive(Args, Clone, Debug, Default)]
pub struct FramesArgs {
    /// Serve an open TUN or TAP device by its descriptor; several are the queues of a TUN device
    #[arg(long, value_name = "N", conflicts_with_all = ["command", "machine"])]
    pub fd: Vec<i32>,
    /// Serve a machine over QEMU's stream protocol: connect to the socket at this path, or listen there if nobody does
    #[arg(long, value_name = "PATH", group = "machine", conflicts_with_all = ["command", "netns"])]
    pub qemu: Option<PathBuf>,
    /// Serve a machine's network card by vhost-user, through the machine's memory: connect to the socket at this path, or listen there if nobody does
    #[arg(long, value_name = "PATH", group = "machine", conflicts_with_all = ["command", "netns"])]
    pub vhost_user: Option<PathBuf>,
    /// End when the first machine has gone, instead of waiting for the next
    #[arg(long, requires = "machine")]
    pub once: bool,
    /// Make an Ethernet device inside, with the gateway as a host on it that answers DHCP and router solicitations
    #[arg(long)]
    pub tap: bool,
    /// The device's name inside, instead of tun0, or tap0 with --tap
    #[arg(long, value_name = "NAME")]
    pub ifname: Option<String>,
    /// Leave the device inside without addresses and routes: others configure it
    #[arg(long)]
    pub no_config: bool,
    /// The user namespace to enter before that of --netns, by a path such as /proc/PID/ns/user
    #[arg(long, value_name = "PATH", requires = "netns")]
    pub userns: Option<PathBuf>,
    /// End when the process of --netns has ended, or the path has gone
    #[arg(long, hide = true, requires = "netns")]
    pub until_gone: bool,
    /// Write a byte to this open descriptor when the network is served
    #[arg(long, value_name = "N")]
    pub ready_fd: Option<i32>,
    /// Write the process's number to a file
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,
    /// Take slirp4netns' requests for ports at a new socket
    #[arg(long, hide = true, value_name = "PATH")]
    pub slirp_api: Option<PathBuf>,
    /// Go on behind the caller, who reads from this pipe (the program starts itself)
    #[arg(long, hide = true, value_name = "N")]
    pub behind: Option<i32>,
    /// End when the other side of this open pipe is closed
    #[arg(long, value_name = "N", conflicts_with = "command")]
    pub exit_fd: Option<i32>,
}

impl FramesArgs {
    /// The device's name inside.
    pub fn device_name(&self) -> &str {
        self.ifname.as_deref().unwrap_or(if self.tap { "tap0" } else { "tun0" })
    }

    /// Whether there is anything to serve.
    pub fn is_some(&self) -> bool {
        !self.fd.is_empty() || self.qemu.is_some() || self.vhost_user.is_some()
    }

    /// Whether the device inside gets its addresses from us.
    pub fn configures(&self) -> bool {
        !self.is_some() && !self.no_config
    }
}
