//! Real clients of DHCP on a device that the gateway has not configured.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{accept_all, gateway_program, temporary, unavailable};
use crate::{busybox, program};

/// Runs a script inside, on an Ethernet device without addresses. Returns what it has printed.
fn on_the_segment(options: &[&str], script: &str) -> String {
    let ran = Command::new(gateway_program())
        .args(["--tap", "--no-config"])
        .args(options)
        .args(["--", "sh", "-ec", script])
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{:?}\n{out}\n{err}", ran.status);
    out.into_owned()
}

/// A script of a client, which says what it is told.
fn script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn busyboxs_client_gets_address_router_names_domains_and_mtu() {
    let Some(busybox) = busybox("udhcpc") else { return };
    if unavailable() {
        return;
    }
    let (server, port) =
        accept_all(|mut stream| drop(std::io::Write::write_all(&mut stream, b"from the host")));
    let told = temporary("udhcpc.sh");
    let busybox = busybox.display();
    script(
        &told,
        &format!(
            "#!/bin/sh\n[ $1 = bound ] || exit 0\necho told $ip $subnet $router $dns $mtu $domain / $search\n\
             {busybox} ip addr add $ip/24 dev $interface\n{busybox} ip link set mtu $mtu dev $interface\n\
             {busybox} ip route add default via $router\n"
        ),
    );
    let out = on_the_segment(
        &["--allow", "127.0.0.1", "--network", "10.7.0.0/24", "--search", "example.org", "--search", "lan"],
        &format!(
            "{busybox} udhcpc -i tap0 -n -q -f -O search -O mtu -s {}; exec {busybox} nc 10.7.0.2 {port} </dev/null",
            told.display()
        ),
    );
    fs::remove_file(&told).unwrap();
    assert!(
        out.contains("told 10.7.0.100 255.255.255.0 10.7.0.2 10.7.0.3 65520 example.org / example.org lan"),
        "{out}"
    );
    assert!(out.contains("from the host"), "{out}");
    server.finish(1);
}

#[test]
fn iscs_client_gets_an_ipv6_address_and_the_kernel_hears_the_router() {
    let (Some(client), Some(_)) = (program("dhclient"), program("ip")) else { return };
    if unavailable() {
        return;
    }
    let told = temporary("dhclient.sh");
    script(
        &told,
        "#!/bin/sh\necho \"told $reason $new_ip6_address $new_dhcp6_name_servers $new_dhcp6_domain_search\" >&3\n\
         [ -z \"$new_ip6_address\" ] || ip -6 addr add $new_ip6_address/64 dev $interface nodad\n",
    );
    let leases = temporary("dhclient6.leases");
    // By the kernel: an address that it has made itself, a default route, the MTU.
    let out = on_the_segment(
        &["--search", "example.org"],
        &format!(
            "exec 3>&1
             wait_for() {{ i=0; until eval \"$1\"; do sleep 0.1; i=$((i + 1)); [ $i -lt 150 ]; done; }}
             wait_for \"ip -6 route | grep -q 'default via fe80::2'\"
             wait_for '! ip -6 addr show dev tap0 | grep -q tentative'
             ip -6 route; ip -6 addr show dev tap0
             {} -6 -1 -d -lf {leases} -pf /dev/null -sf {} tap0 >&2 &
             wait_for 'ip -6 addr show dev tap0 | grep fd00::100/'
             kill $! || true; wait",
            client.display(),
            told.display(),
            leases = leases.display(),
        ),
    );
    let _ = (fs::remove_file(&told), fs::remove_file(&leases));
    assert!(out.contains("default via fe80::2 dev tap0 proto ra"), "{out}");
    assert!(out.contains("mtu 65520"), "{out}");
    assert!(out.contains("inet6 fd00::100/64"), "{out}");
    assert!(out.contains("fd00::100 fd00::3 example.org"), "{out}");
}
