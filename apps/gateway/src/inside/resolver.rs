//! `/etc/resolv.conf` inside: the gateway's name server and the search domains.
//!
//! The mount namespace is new, so a file mounted over the system's is visible only inside.

use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};

use crate::args::GatewayArgs;

/// The system's file.
pub const PATH: &str = "/etc/resolv.conf";

/// Has the inside ask the gateway. Where the system has no such file there is nothing to mount over, and nothing is done.
pub fn point(args: &GatewayArgs) -> io::Result<()> {
    // Through links: the file that programs read in the end.
    let Ok(target) = fs::canonicalize(PATH) else { return Ok(()) };
    let text = text(args, &fs::read_to_string(&target).unwrap_or_default());
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let file = std::env::temp_dir().join(format!("sockeye-gateway-{}-resolv.conf", std::process::id()));
    fs::write(&file, text)?;
    let mounted = mount_bind(&file, &target);
    // The mount keeps the file.
    let removed = remove(&file);
    mounted.map_err(io::Error::from).and(removed)
}

fn remove(file: &Path) -> io::Result<()> {
    fs::remove_file(file)
}

/// The domains in which names are looked for: those that were given, or those of the system's file.
pub fn search(args: &GatewayArgs, system: &str) -> Vec<String> {
    if !args.search.is_empty() {
        return args.search.clone();
    }
    let config = resolv_conf::Config::parse(system).unwrap_or_default();
    config.get_last_search_or_domain().cloned().collect()
}

fn text(args: &GatewayArgs, system: &str) -> String {
    let search = search(args, system);
    let mut text = format!("nameserver {}\n", args.plan().names[0]);
    if !search.is_empty() {
        text += &format!("search {}\n", search.join(" "));
    }
    text
}
