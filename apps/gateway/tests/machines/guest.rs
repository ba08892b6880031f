//! A guest of QEMU: a kernel of Debian's with BusyBox, which gets its addresses by DHCP and from the router, and asks the host.
//!
//! The kernel is `linux-image-cloud-amd64`, installed, or unpacked in the folder that `SOCKEYE_GATEWAY_KERNEL` names (`dpkg -x`). It has to have no other packages.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Gateway, accept_all, temporary};
use crate::{busybox, program};

/// Modules for a card of virtio. Which of the first two needs the other depends on the kernel, so all are loaded twice.
const MODULES: [&str; 8] = [
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci",
    "net/core/failover",
    "drivers/net/net_failover",
    "drivers/net/virtio_net",
];
/// For the guest to come up and do all: emulated, it takes most of a minute on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// A kernel's file, and its folder of modules.
fn kernel() -> Option<(PathBuf, PathBuf)> {
    let root = std::env::var_os("SOCKEYE_GATEWAY_KERNEL").map_or_else(|| "/".into(), PathBuf::from);
    let files = fs::read_dir(root.join("boot")).ok().into_iter().flatten().flatten();
    let found = files.filter_map(|file| {
        let version = file.file_name().to_str()?.strip_prefix("vmlinuz-")?.to_owned();
        let modules = root.join("lib/modules").join(version).join("kernel");
        modules.join("drivers/net/virtio_net.ko").is_file().then(|| (file.path(), modules))
    });
    let found = found.max();
    if found.is_none() {
        eprintln!(
            "skipped: no kernel: install linux-image-cloud-amd64, or unpack it and set SOCKEYE_GATEWAY_KERNEL"
        );
    }
    found
}

/// An archive of files for the kernel's first file system, as cpio(5) "newc" has it.
#[derive(Default)]
struct Archive(Vec<u8>);

impl Archive {
    fn add(&mut self, name: &str, mode: u32, bytes: &[u8]) {
        let number = self.0.len();
        let fields = [number, mode as usize, 0, 0, 1, 0, bytes.len(), 0, 0, 0, 0, name.len() + 1, 0];
        self.0.extend(b"070701");
        fields.iter().for_each(|field| self.0.extend(format!("{field:08x}").bytes()));
        self.0.extend(name.bytes());
        self.0.push(0);
        self.pad();
        self.0.extend(bytes);
        self.pad();
    }

    fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn end(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, b"");
        self.0
    }
}

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// The first file system: BusyBox, the modules, and the guest's script.
fn first_file_system(busybox: &Path, modules: &Path, script: &str) -> Vec<u8> {
    let mut archive = Archive::default();
    for folder in ["bin", "dev", "proc", "sys", "modules"] {
        archive.add(folder, FOLDER, b"");
    }
    archive.add("bin/busybox", PROGRAM, &fs::read(busybox).unwrap());
    let mut load = String::new();
    for module in MODULES {
        let bytes = fs::read(modules.join(format!("{module}.ko"))).unwrap();
        let name = format!("modules/{}.ko", module.rsplit('/').next().unwrap());
        archive.add(&name, PROGRAM, &bytes);
        load += &format!("insmod /{name}\n");
    }
    let client = "#!/bin/sh\n[ $1 = bound ] || exit 0\necho told $ip $router $dns $mtu\n\
                  ip addr add $ip/24 dev $interface; ip link set mtu $mtu dev $interface\nip route add default via $router\n";
    archive.add("client", PROGRAM, client.as_bytes());
    let init = format!(
        "#!/bin/busybox sh\n/bin/busybox --install -s /bin\nexport PATH=/bin\nmount -t devtmpfs d /dev; mount -t proc p /proc; mount -t sysfs s /sys\n\
         exec 2>&1\n{load}{load}ip link set lo up; ip link set eth0 up || poweroff -f\nudhcpc -i eth0 -n -q -f -O mtu -s /client\n{script}\necho guest ends\npoweroff -f\n"
    );
    archive.add("init", PROGRAM, init.as_bytes());
    archive.end()
}

/// Runs a guest to its end. Returns its console. `name` is that of its files.
fn run(
    (qemu, kernel): (&Path, &Path),
    (name, file_system): (&str, &[u8]),
    net: &[String],
    say: &mut dyn FnMut(),
) -> String {
    let initrd = temporary(&format!("{name}.initrd"));
    fs::File::create(&initrd).unwrap().write_all(file_system).unwrap();
    let console = temporary(&format!("{name}.console"));
    let mut guest = Command::new(qemu)
        .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-m", "256"])
        .args(["-accel", "tcg", "-append", "console=ttyS0 quiet panic=-1"])
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(&initrd)
        .args(net)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + PATIENCE;
    let ended = loop {
        if let Some(status) = guest.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > until {
            guest.kill().unwrap();
            guest.wait().unwrap();
            break None;
        }
        say();
        std::thread::sleep(Duration::from_millis(50));
    };
    let said = String::from_utf8_lossy(&fs::read(&console).unwrap_or_default()).into_owned();
    let _ = (fs::remove_file(&initrd), fs::remove_file(&console));
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}\n{said}");
    said
}

#[test]
#[ignore = "takes most of a minute where the processor is emulated: CONTRIBUTING has its command"]
fn a_guest_of_qemu_gets_its_addresses_and_reaches_the_host() {
    reaches_the_host("--qemu", "", |path| {
        vec!["-netdev".to_owned(), format!("stream,id=n,server=off,addr.type=unix,addr.path={path}")]
    });
}

#[test]
#[ignore = "takes most of a minute where the processor is emulated: CONTRIBUTING has its command"]
fn a_guest_of_qemu_does_the_same_through_its_memory() {
    // QEMU 7.2 without KVM follows a null pointer when a guest of vhost-user takes an interrupt of its own for each ring.
    for (pairs, card) in [(1, ",vectors=0"), (2, ",vectors=0,mq=on")] {
        let console = reaches_the_host("--vhost-user", card, |path| {
            let words = [
                "-smp 2 -object memory-backend-memfd,id=m,size=256M,share=on -machine memory-backend=m"
                    .to_owned(),
                format!("-chardev socket,id=c,path={path} -netdev vhost-user,id=n,chardev=c,queues={pairs}"),
            ];
            words.join(" ").split(' ').map(str::to_owned).collect()
        });
        assert!(console.is_empty() || console.contains("rx-1") == (pairs == 2), "{console}");
    }
}

/// Runs a guest that does so. Returns its console, empty if there is no guest.
fn reaches_the_host(option: &str, card: &str, netdev: impl Fn(&str) -> Vec<String>) -> String {
    let (Some(qemu), Some(busybox)) = (program("qemu-system-x86_64"), busybox("udhcpc")) else {
        return String::new();
    };
    let Some((kernel, modules)) = kernel() else { return String::new() };
    let (server, port) = accept_all(|mut stream| {
        let mut bytes = [0; 1000];
        let len = std::io::Read::read(&mut stream, &mut bytes).unwrap();
        stream.write_all(&bytes[..len]).unwrap();
    });
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let path = temporary(&format!("guest{option}.socket"));
    let published = format!("127.0.0.1:{free}:7000");
    let mut gateway = Gateway::start(
        &[option, path.to_str().unwrap(), "--once", "--allow", "127.0.0.1", "-p", &published],
        &[],
    );
    while !path.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let script = format!(
        "echo hello | nc 10.0.2.2 {port}\n\
         for i in $(seq 100); do ip -6 route | grep -q 'default via fe80::2' && break; sleep 0.1; done\n\
         ls /sys/class/net/eth0/queues; ip -6 route; ip link show eth0; ping -c 1 -W 5 fd00::2 | grep received\n\
         echo from the guest | timeout 60 nc -l -p 7000; "
    );
    let mut net = netdev(path.to_str().unwrap());
    let card = format!("virtio-net-pci,netdev=n,mac=52:54:00:12:34:56,romfile={card}");
    net.extend(["-device".to_owned(), card]);
    let mut text = String::new();
    let (name, files) = (format!("guest{option}"), first_file_system(&busybox, &modules, &script));
    let console = run((&qemu, &kernel), (&name, &files), &net, &mut || {
        // Until the guest listens, connections are reset.
        if text.is_empty()
            && let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", free))
        {
            let _ = std::io::Read::read_to_string(&mut stream, &mut text);
        }
    });
    assert_eq!(gateway.wait(), Some(0));
    let _ = fs::remove_file(&path);
    assert!(console.contains("told 10.0.2.100 10.0.2.2 10.0.2.3 65520"), "{console}");
    assert!(console.contains("hello"), "{console}");
    assert!(console.contains("default via fe80::2"), "{console}");
    assert!(console.contains("1 packets received"), "{console}");
    assert!(console.contains("mtu 65520"), "{console}");
    assert_eq!(text, "from the guest\n", "{console}");
    server.finish(1);
    console
}
