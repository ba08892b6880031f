//! Creates namespaces, or enters those of a process.
//!
//! The calling process has one thread and does nothing else. Creating namespaces needs no rights where the system lets users do it (user_namespaces(7));
//! entering those of a process needs the right to trace it.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sockeye_drivers::unshare_user;

/// Makes user, network and mount namespaces and enters them. The user is root there, and nobody else is there.
pub fn make() -> io::Result<()> {
    unshare_user().map_err(|error| {
        let message = format!(
            "cannot make a user namespace: {error}. The system may not let users do so: see sysctl kernel.unprivileged_userns_clone, \
             user.max_user_namespaces, and AppArmor's kernel.apparmor_restrict_unprivileged_userns"
        );
        io::Error::new(error.kind(), message)
    })
}

/// Enters the user and network namespaces of a process, or the network namespace at a path; `userns` is another user namespace to enter first.
pub fn enter(netns: &str, userns: Option<&Path>) -> io::Result<()> {
    let (user, network) = match netns.parse::<u32>() {
        Ok(pid) => (Some(format!("/proc/{pid}/ns/user")), format!("/proc/{pid}/ns/net")),
        Err(_) => (None, netns.to_owned()),
    };
    let said =
        |path: &str, error: io::Error| io::Error::new(error.kind(), format!("cannot enter {path}: {error}"));
    let user = userns.map(|path| path.display().to_string()).or(user);
    let open = |path: &str| File::open(path).map_err(|error| said(path, error));
    let network_file = open(&network)?;
    // Its routes would lead everything of this host into the gateway, and the gateway's own sockets back into it.
    let (given, own) = (network_file.metadata()?, fs::metadata("/proc/self/ns/net")?);
    if (given.dev(), given.ino()) == (own.dev(), own.ino()) {
        let message = format!(
            "{network} is the network that this program is in: give the process or path of another one"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    if let Some(user) = user {
        let file = open(&user)?;
        // The own one cannot be entered, and need not be.
        let is_own = fs::read_link(&user).ok() == fs::read_link("/proc/self/ns/user").ok();
        if !is_own {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::User))
                .map_err(|error| said(&user, error.into()))?;
        }
    }
    move_into_link_name_space(network_file.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|error| said(&network, error.into()))
}
