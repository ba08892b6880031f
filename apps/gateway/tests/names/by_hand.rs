//! Called as their manuals say.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::{accept_all, unavailable};
use crate::{Folder, eventually, free_port, path, program, said_at, succeeds};

/// A process with namespaces of its own and no network.
struct Namespaces(Child);

impl Namespaces {
    fn new() -> Self {
        let child = Command::new("unshare").args(["-Urn", "sleep", "60"]).spawn().unwrap();
        let network = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
        let pid = child.id().to_string();
        eventually("namespaces", || (network(&pid) != network("self")).then_some(()));
        Self(child)
    }

    fn run(&self, script: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args([
            "-t",
            &self.0.id().to_string(),
            "-U",
            "-n",
            "--preserve-credentials",
            "sh",
            "-ec",
            script,
        ]);
        command
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// A request to slirp4netns' API socket, and its answer.
fn ask(socket: &Path, request: &str) -> serde_json::Value {
    let mut stream = eventually("the API socket", || UnixStream::connect(socket).ok());
    stream.write_all(request.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{answer:?}: {error}"))
}

#[test]
fn slirp4netns_configures_says_that_it_is_ready_takes_ports_and_ends_with_its_caller() {
    let (Some(_), Some(busybox)) = (program("nsenter"), program("busybox")) else { return };
    if unavailable() {
        return;
    }
    let (server, port) = accept_all(|mut stream| stream.write_all(b"from the host").unwrap());
    let folder = Folder::new("slirp");
    let (slirp, api) = (folder.named("slirp4netns"), folder.0.join("api"));
    let namespaces = Namespaces::new();
    let exit = folder.0.join("exit");
    succeeds(Command::new("mkfifo").arg(&exit));
    let line = format!(
        "exec {} -c --mtu=9000 --cidr=10.5.0.0/24 --enable-ipv6 --enable-sandbox --enable-seccomp -r 3 -e 4 --api-socket {} {} tap7 3>{} 4<{}",
        path(&slirp),
        path(&api),
        namespaces.0.id(),
        path(&folder.0.join("ready")),
        path(&exit)
    );
    let mut gateway = Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).spawn().unwrap();
    // The shell waits for the other side of the pipe.
    let caller = OpenOptions::new().write(true).open(&exit).unwrap();
    eventually("ready", || (fs::read(folder.0.join("ready")).ok()? == b"1").then_some(()));
    let out = succeeds(&mut namespaces.run(&format!(
        "ip addr; {0} nc 10.5.0.2 {port} </dev/null; ({0} nc -l -p 80 -e echo from inside </dev/null >/dev/null 2>&1 &) ",
        path(&busybox)
    )));
    for expected in ["tap7", "10.5.0.100/24", "fd00::100/64", "mtu 9000", "from the host", "127.0.0.1/8"] {
        assert!(out.contains(expected), "{expected}: {out}");
    }
    server.finish(1);

    let host_port = free_port();
    let request = format!(
        r#"{{"execute": "add_hostfwd", "arguments": {{"proto": "tcp", "host_addr": "127.0.0.1", "host_port": {host_port}, "guest_port": 80}}}}"#
    );
    let id = ask(&api, &request)["return"]["id"].clone();
    assert!(id.is_u64());
    assert_eq!(said_at(host_port), "from inside\n");
    let list = ask(&api, r#"{"execute": "list_hostfwd"}"#);
    assert_eq!(list["return"]["entries"][0]["host_port"], host_port);
    assert_eq!(list["return"]["entries"][0]["guest_addr"], "10.5.0.100");
    assert!(ask(&api, &request)["error"]["desc"].as_str().unwrap().contains("add_hostfwd"), "it is taken");
    let remove = format!(r#"{{"execute": "remove_hostfwd", "arguments": {{"id": {id}}}}}"#);
    assert_eq!(ask(&api, &remove)["return"], serde_json::json!({}));
    assert!(ask(&api, &remove)["error"]["desc"].is_string());
    assert!(ask(&api, "nonsense")["error"]["desc"].is_string());

    assert!(gateway.try_wait().unwrap().is_none(), "it serves");
    drop(caller);
    assert!(gateway.wait().unwrap().success(), "it ends with its caller");
    assert!(!api.exists());
}

#[test]
fn pasta_goes_behind_its_caller_and_runs_commands() {
    let (Some(_), Some(busybox)) = (program("nsenter"), program("busybox")) else { return };
    if unavailable() {
        return;
    }
    let (server, port) = accept_all(|mut stream| stream.write_all(b"from the host").unwrap());
    let folder = Folder::new("pasta");
    let (pasta, pid) = (folder.named("pasta"), folder.0.join("pid"));
    let ask = format!("{} nc 10.0.2.2 {port} </dev/null", path(&busybox));
    let out = succeeds(Command::new(&pasta).args([
        "--quiet",
        "-I",
        "eth0",
        "--",
        "sh",
        "-c",
        &format!("ip -br addr; {ask}"),
    ]));
    assert!(out.contains("eth0") && out.contains("from the host"), "{out}");
    let namespaces = Namespaces::new();
    let (netns, userns) =
        (format!("/proc/{}/ns/net", namespaces.0.id()), format!("/proc/{}/ns/user", namespaces.0.id()));
    // It returns, though its streams are read to their end.
    let options = ["--config-net", "-t", "none", "-u", "none", "-T", "none", "-U", "none", "--quiet"];
    succeeds(Command::new(&pasta).args(options).args([
        "--netns",
        &netns,
        "--userns",
        &userns,
        "-P",
        path(&pid),
    ]));
    let out = succeeds(&mut namespaces.run(&ask));
    assert!(out.contains("from the host"), "{out}");
    server.finish(2);
    let number = fs::read_to_string(&pid).unwrap();
    assert!(Path::new(&format!("/proc/{}", number.trim())).exists());
    succeeds(Command::new("kill").arg(number.trim()));
    let failed = Command::new(&pasta).args(["--config-net", "--netns", "/nowhere/at/all"]).output().unwrap();
    assert!(!failed.status.success());
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(said.contains("/nowhere/at/all"), "the caller is told why: {said}");
}
