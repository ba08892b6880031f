//! What the process outside keeps: looked at in /proc, as root and as an ordinary user.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sockeye_drivers::testing::say_skipped;

use crate::common::{eventually, gateway_program, temporary, unavailable};

/// The threads' rights, from status files.
fn rights(pid: u32) -> Vec<(String, String, String)> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |text: &str, field: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
        line.trim_start_matches(':').trim().to_owned()
    };
    threads
        .filter_map(|thread| fs::read_to_string(thread.unwrap().path().join("status")).ok())
        .map(|text| (of(&text, "CapEff"), of(&text, "NoNewPrivs"), of(&text, "Seccomp")))
        .collect()
}

fn assert_sandboxed(pid: u32) {
    let said = rights(pid);
    assert!(said.len() >= 2, "a loop runs: {said:?}");
    for (capabilities, no_new, filter) in said {
        assert_eq!(u64::from_str_radix(&capabilities, 16), Ok(0));
        assert_eq!((no_new.as_str(), filter.as_str()), ("1", "2"));
    }
    let root = PathBuf::from(format!("/proc/{pid}/root/"));
    // Root without capabilities may not even look (mode 0), nor may an ordinary user; root who runs this test may.
    match fs::read_dir(&root) {
        Ok(files) => assert_eq!(files.count(), 0, "its root has files"),
        Err(error) if !is_root() => assert_eq!(error.kind(), ErrorKind::PermissionDenied),
        Err(error) => panic!("{}: {error}", root.display()),
    }
    assert!(fs::write(root.join("x"), "x").is_err(), "its root cannot be written");
}

/// How many folders the process has open; from none of them a path leads out.
fn folders_without_parent(pid: u32) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
        let Some(folder) = fs::metadata(entry.path()).ok().filter(fs::Metadata::is_dir) else { continue };
        let parent = fs::metadata(entry.path().join("..")).unwrap();
        assert_eq!(
            (parent.dev(), parent.ino()),
            (folder.dev(), folder.ino()),
            "{:?}",
            fs::read_link(entry.path())
        );
        count += 1;
    }
    count
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A program, run as a user.
fn command(program: &Path, as_user: Option<&str>) -> Command {
    let Some(user) = as_user else { return Command::new(program) };
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", user, "--clear-groups"]).arg(program);
    command
}

/// Whether the system lets a user make namespaces and devices, by other programs than ours.
fn may_make_namespaces(as_user: Option<&str>) -> bool {
    let mut shell = command(Path::new("sh"), as_user);
    shell.args(["-c", "unshare --user --map-root-user --net true && test -w /dev/net/tun"]);
    shell.status().unwrap().success()
}

/// Runs the gateway with a command that says when it runs, and then waits to be ended.
fn start(program: &Path, as_user: Option<&str>, options: &[&str]) -> Child {
    let mut command = command(program, as_user);
    command
        .args(options)
        .args(["--", "sh", "-c", "echo runs; read line"])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits until the command runs.
fn assert_runs(child: &mut Child) {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    if line != "runs\n" {
        let mut said = String::new();
        let _ = child.stderr.as_mut().unwrap().read_to_string(&mut said);
        let _ = child.wait();
        panic!("the gateway did not start: {said}");
    }
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    let status = child.wait().unwrap();
    // `read` has found the end of its input.
    assert_eq!(status.code(), Some(1), "the command's own end");
}

#[test]
fn the_process_outside_has_no_rights_no_files_and_a_filter() {
    if unavailable() {
        return;
    }
    let program = &gateway_program();
    let socket = temporary("sandbox.ctl");
    let options = ["-p", "127.0.0.1:auto", "--loops", "2", "--ctl", socket.to_str().unwrap()];
    let mut child = start(program, None, &options);
    assert_runs(&mut child);
    assert_sandboxed(child.id());
    assert_eq!(folders_without_parent(child.id()), 2, "the tables', and the socket's");
    end(child);
    assert!(!socket.exists(), "it is removed through its folder");
    let mut child = start(program, None, &["--no-sandbox"]);
    assert_runs(&mut child);
    assert!(rights(child.id()).iter().all(|(_, no_new, filter)| no_new == "1" && filter == "0"));
    end(child);
}

#[test]
fn the_command_gets_no_socket_of_the_hosts_network_and_does_not_type() {
    if unavailable() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let program = gateway_program();
    let runs = |input: Stdio| {
        let mut command = Command::new(&program);
        command.args(["--", "grep", "-E", "^(NoNewPrivs:.1|Seccomp:.2)$", "/proc/self/status"]);
        command.stdin(input).output().unwrap()
    };
    for socket in [
        OwnedFd::from(listener.try_clone().unwrap()),
        UdpSocket::bind("[::1]:0").map_or_else(|_| listener.into(), OwnedFd::from),
    ] {
        let said = runs(socket.into());
        assert!(!said.status.success());
        let said = String::from_utf8_lossy(&said.stderr);
        assert!(said.contains("descriptor 0 is a socket of the host's network"), "{said}");
    }
    let named = temporary("inherited");
    let listening = OwnedFd::from(UnixListener::bind(&named).unwrap());
    for socket in [UnixDatagram::pair().unwrap().0.into(), UnixDatagram::unbound().unwrap().into(), listening]
    {
        let said = runs(OwnedFd::into(socket));
        assert!(!said.status.success());
        let said = String::from_utf8_lossy(&said.stderr);
        assert!(said.contains("descriptor 0 is a UNIX socket that is no connected stream"), "{said}");
    }
    fs::remove_file(named).unwrap();
    let ran = runs(OwnedFd::from(UnixStream::pair().unwrap().0).into());
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(ran.stdout.split(|byte| *byte == b'\n').count(), 3, "both lines");
}

#[test]
fn an_ordinary_user_gets_the_same() {
    if unavailable() {
        return;
    }
    let user = is_root().then_some("65534");
    if !may_make_namespaces(user) {
        return say_skipped("this system lets only root make namespaces and devices");
    }
    // A place that every user may read, as the folder of this build may not be.
    let program = temporary("gateway-of-nobody");
    fs::copy(gateway_program(), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut child = start(&program, user, &["-p", "127.0.0.1:auto"]);
    assert_runs(&mut child);
    // `setpriv` has become the gateway.
    assert_sandboxed(child.id());
    end(child);
    eventually("the program can be removed", || fs::remove_file(&program).is_ok());
}
