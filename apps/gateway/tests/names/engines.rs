//! Podman as root, and RootlessKit as another user, with the gateway as their slirp4netns.

use std::io::Write;
use std::process::Command;

use sockeye_drivers::testing::say_skipped;

use crate::common::{accept_all, unavailable};
use crate::{Folder, eventually, free_port, path, program, said_at, succeeds};

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        say_skipped("it needs root");
    }
    is_root
}

#[test]
fn podmans_containers_have_a_network_and_published_ports() {
    let (Some(podman), Some(_), Some(busybox)) = (program("podman"), program("runc"), program("busybox"))
    else {
        return;
    };
    if !is_root() || unavailable() {
        return;
    }
    let (_server, port) = accept_all(|mut stream| stream.write_all(b"from the host").unwrap());
    let folder = Folder::new("podman");
    let slirp = folder.named("slirp4netns");
    let run = |words: &[&str]| {
        let mut command = Command::new(&podman);
        command
            .args(["--root", path(&folder.0.join("root")), "--runroot", path(&folder.0.join("run"))])
            .args(["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "file"])
            .args(["--runtime", "runc", "--network-cmd-path", path(&slirp)])
            .args(words);
        command
    };
    let rootfs = folder.0.join("image/bin");
    std::fs::create_dir_all(&rootfs).unwrap();
    std::fs::copy(&busybox, rootfs.join("busybox")).unwrap();
    let archive = folder.0.join("image.tar");
    succeeds(Command::new("tar").args(["-C", path(&folder.0.join("image")), "-cf", path(&archive), "."]));
    succeeds(&mut run(&["import", path(&archive), "busybox-alone"]));
    // Limits as they are: the engine's own are more than a container's root may have in some places.
    let limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"];
    let nothing = ["busybox-alone", "/bin/busybox", "true"];
    let without = run(&["run", "--rm", "--network", "none"]).args(limits).args(nothing).output().unwrap();
    if !without.status.success() {
        say_skipped(&format!("podman runs no container: {}", String::from_utf8_lossy(&without.stderr)));
        return;
    }
    let script = format!(
        "busybox ip addr; busybox ip route; busybox nc 10.0.2.2 {port} </dev/null; busybox cat /etc/resolv.conf"
    );
    let words = ["run", "--rm", "--network", "slirp4netns:allow_host_loopback=true,enable_ipv6=true"];
    let out = succeeds(run(&words).args(limits).args(["busybox-alone", "/bin/busybox", "sh", "-c", &script]));
    for expected in [
        "mtu 65520",
        "10.0.2.100/24",
        "fd00::100/64",
        "default via 10.0.2.2 dev tap0",
        "from the host",
        "10.0.2.3",
    ] {
        assert!(out.contains(expected), "{expected}: {out}");
    }
    let host_port = free_port();
    let published = format!("127.0.0.1:{host_port}:80");
    let words = [
        "run",
        "--rm",
        "-d",
        "--name",
        "web",
        "--network",
        "slirp4netns:port_handler=slirp4netns",
        "-p",
        &published,
    ];
    let serve = "while true; do echo from the container | busybox nc -l -p 80; done";
    succeeds(run(&words).args(limits).args(["busybox-alone", "/bin/busybox", "sh", "-c", serve]));
    assert_eq!(said_at(host_port), "from the container\n");
    succeeds(&mut run(&["rm", "-f", "-t", "0", "web"]));
    // The gateway has ended with the container.
    eventually("the port is closed", || std::net::TcpStream::connect(("127.0.0.1", host_port)).err());
}

#[test]
fn rootlesskits_commands_have_a_network_and_published_ports() {
    let (Some(rootlesskit), Some(busybox)) = (program("rootlesskit"), program("busybox")) else { return };
    let (Some(_), Some(_)) = (program("newuidmap"), program("setpriv")) else { return };
    if !is_root() || unavailable() {
        return;
    }
    let (_server, port) = accept_all(|mut stream| stream.write_all(b"from the host").unwrap());
    let folder = Folder::new("rootlesskit");
    let (slirp, host_port) = (folder.named("slirp4netns"), free_port());
    folder.file("subid", "nobody:100000:65536\n");
    // In a mount namespace of its own: a user who may have more users, and a device that he may open.
    let script = folder.file(
        "script",
        &format!(
            "set -e; cd {folder}; export HOME=$PWD XDG_RUNTIME_DIR=$PWD TMPDIR=$PWD
             for id in subuid subgid; do mount --bind subid /etc/$id; done
             mknod tun c 10 200; chmod 666 tun; mount --bind tun /dev/net/tun
             unprivileged='setpriv --reuid 65534 --regid 65534 --clear-groups {rootlesskit}'
             $unprivileged true || {{ echo skipped: rootlesskit runs no command; exit 0; }}
             exec $unprivileged --net=slirp4netns --slirp4netns-binary={slirp} \
             --mtu=65520 --copy-up=/etc --port-driver=slirp4netns -p 127.0.0.1:{host_port}:80/tcp sh -ec \
             'ip addr; ip route; {busybox} nc 10.0.2.2 {port} </dev/null; echo; cat /etc/resolv.conf; echo from inside | timeout 20 {busybox} nc -l -p 80'",
            folder = path(&folder.0),
            rootlesskit = path(&rootlesskit),
            slirp = path(&slirp),
            busybox = path(&busybox),
        ),
    );
    let asked = std::thread::spawn(move || said_at(host_port));
    let out = succeeds(Command::new("unshare").args(["-m", "sh", path(&script)]));
    if out.contains("skipped: ") {
        eprintln!("{out}");
        return;
    }
    for expected in [
        "mtu 65520",
        "10.0.2.100/24",
        "default via 10.0.2.2 dev tap0",
        "from the host",
        "nameserver 10.0.2.3",
    ] {
        assert!(out.contains(expected), "{expected}: {out}");
    }
    assert_eq!(asked.join().unwrap(), "from inside\n");
}
