//! `/etc/resolv.conf` inside, while the host's changes. The host is a mount namespace of this test's with an `/etc` of its own.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::{gateway_program, temporary, unavailable};

/// Runs the gateway where `etc` is the host's folder, with a command that says that it runs, reads a line and shows files.
fn start(etc: &Path) -> Child {
    let outer = r#"mount --bind "$1" /etc && exec "$2" -- sh -c "$3""#;
    let inner =
        "echo runs; read line; cd /etc; cat resolv.conf hosts folder/deep link; echo inside > own; ls";
    let program = gateway_program();
    let words = ["-Urm", "sh", "-c", outer, "sh", etc.to_str().unwrap(), program.to_str().unwrap(), inner];
    let mut command = Command::new("unshare");
    // There is no such folder: nothing is to be written to one that every user may write.
    command.args(words).env("TMPDIR", etc.join("nowhere"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn the_inside_keeps_its_name_server_when_the_host_replaces_its_file() {
    if unavailable() {
        return;
    }
    for is_link in [false, true] {
        let etc = temporary(&format!("etc-{is_link}"));
        fs::create_dir_all(etc.join("folder")).unwrap();
        fs::create_dir(etc.join("run")).unwrap();
        let system = "nameserver 192.0.2.1\nsearch a.example\noptions ndots:5 timeout:1\n";
        let file = if is_link { "run/stub-resolv.conf" } else { "resolv.conf" };
        fs::write(etc.join(file), system).unwrap();
        if is_link {
            symlink(file, etc.join("resolv.conf")).unwrap();
        }
        fs::write(etc.join("hosts"), "the host's\n").unwrap();
        fs::write(etc.join("folder/deep"), "before\n").unwrap();
        symlink("folder/deep", etc.join("link")).unwrap();

        let mut child = start(&etc);
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        out.read_line(&mut said).unwrap();
        assert_eq!(said, "runs\n");
        // As NetworkManager and systemd-resolved do.
        for (name, text) in [(file, "nameserver 192.0.2.2\n"), ("folder/deep", "after\n")] {
            fs::write(etc.join("new"), text).unwrap();
            fs::rename(etc.join("new"), etc.join(name)).unwrap();
        }
        child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
        said.clear();
        out.read_to_string(&mut said).unwrap();
        let expected = "nameserver 10.0.2.3\nsearch a.example\noptions ndots:5 timeout:1\n\
                        the host's\nafter\nafter\nfolder\nhosts\nlink\nown\nresolv.conf\nrun\n";
        assert_eq!(said, expected, "a link: {is_link}");
        assert!(child.wait().unwrap().success());
        assert!(!etc.join("own").exists(), "what is written to the folder inside stays there");
        fs::remove_dir_all(&etc).unwrap();
    }
}
