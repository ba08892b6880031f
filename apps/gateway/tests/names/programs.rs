//! Programs that people use: curl, git and ssh, from inside. A server of ssh cannot run inside: it wants more users than a namespace of one has.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::common::{HOST, accept_all, pattern, unavailable};
use crate::{Folder, eventually, free_port, path, program, succeeds};

/// The gateway with a command inside.
fn inside(options: &[&str], script: &str) -> Command {
    let mut gateway = Command::new(env!("CARGO_BIN_EXE_sockeye-gateway"));
    gateway.args(options).args(["--", "sh", "-ec", script]);
    gateway
}

/// A process that ends with this.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

#[test]
fn curl_downloads_and_uploads_the_same_bytes() {
    let Some(_) = program("curl") else { return };
    if unavailable() {
        return;
    }
    let body = pattern(8 << 20);
    let sent = body.clone();
    let (server, port) = accept_all(move |mut stream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let answer =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", sent.len());
        if head.starts_with("put") {
            let mut got = vec![0; sent.len()];
            stream.read_exact(&mut got).unwrap();
            assert!(got == sent);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").unwrap();
        } else {
            stream.write_all(answer.as_bytes()).unwrap();
            stream.write_all(&sent).unwrap();
        }
    });
    let folder = Folder::new("curl");
    let file = folder.0.join("file");
    let script = format!(
        "curl -sf -o {0} http://{HOST}:{port}/; curl -sf -H Expect: -T {0} http://{HOST}:{port}/up; ! curl -s -m 5 http://{HOST}:1/",
        path(&file)
    );
    let out = succeeds(&mut inside(&["--allow", "127.0.0.1"], &script));
    assert!(out.contains("ok") && fs::read(&file).unwrap() == body);
    server.finish(2);
}

#[test]
fn git_clones_and_pushes() {
    let (Some(git), Some(daemon)) = (program("git"), git_daemon()) else { return };
    if unavailable() {
        return;
    }
    let folder = Folder::new("git");
    let run = |words: &[&str]| succeeds(Command::new(&git).current_dir(&folder.0).args(words));
    run(&["init", "-q", "--bare", "served/repo.git"]);
    let port = free_port();
    let serve = folder.0.join("served");
    let daemon = Command::new(daemon)
        .args(["--reuseaddr", "--export-all", "--enable=receive-pack", "--listen=127.0.0.1"])
        .args([&format!("--port={port}"), &format!("--base-path={}", path(&serve)), path(&serve)])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _daemon = Service(daemon.unwrap());
    eventually("git daemon", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    let script = format!(
        "cd {}; export HOME=$PWD GIT_CONFIG_NOSYSTEM=1; git config --global safe.directory '*'
         git config --global user.name inside; git config --global user.email inside@example.org
         git clone -q git://{HOST}:{port}/repo.git work 2>/dev/null; cd work; head -c 3000000 /dev/urandom > file; sha256sum file > sum
         git add .; git commit -qm first; git push -q origin HEAD:main
         git clone -q -b main git://{HOST}:{port}/repo.git ../again; cd ../again; sha256sum -c sum",
        path(&folder.0)
    );
    let out = succeeds(&mut inside(&["--allow", "127.0.0.1"], &script));
    assert!(out.contains("file: OK"), "{out}");
}

/// Git's daemon itself, which some systems have in a package of its own: by `git daemon` it would outlive its starter.
fn git_daemon() -> Option<PathBuf> {
    let folder = Command::new("git").arg("--exec-path").output().ok()?.stdout;
    let daemon = PathBuf::from(String::from_utf8_lossy(&folder).trim()).join("git-daemon");
    if !daemon.exists() {
        eprintln!("skipped: git has no daemon");
    }
    daemon.exists().then_some(daemon)
}

#[test]
fn ssh_goes_out() {
    let (Some(sshd), Some(_), Some(_)) = (program("sshd"), program("ssh"), program("ssh-keygen")) else {
        return;
    };
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: a server of SSH for anybody needs root");
    }
    if unavailable() {
        return;
    }
    let folder = Folder::new("ssh");
    fs::set_permissions(&folder.0, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    for key in ["host", "user"] {
        succeeds(Command::new("ssh-keygen").args([
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-f",
            path(&folder.0.join(key)),
        ]));
    }
    fs::copy(folder.0.join("user.pub"), folder.0.join("authorized")).unwrap();
    fs::create_dir_all("/run/sshd").unwrap();
    let server = |port: u16, addr: &str| {
        format!(
            "{sshd} -D -e -f /dev/null -h {f}/host -o Port={port} -o ListenAddress={addr} -o AuthorizedKeysFile={f}/authorized -o StrictModes=no \
             -o PidFile=none -o UsePAM=no -o PermitRootLogin=yes",
            sshd = path(&sshd),
            f = path(&folder.0),
        )
    };
    let client = |port: u16, addr: &str, command: &str| {
        format!(
            "ssh -F none -i {f}/user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes -p {port} root@{addr} '{command}'",
            f = path(&folder.0),
        )
    };
    let outside = free_port();
    let _server = Service(
        Command::new("sh")
            .args(["-c", &format!("exec {}", server(outside, "127.0.0.1"))])
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    eventually("sshd", || std::net::TcpStream::connect(("127.0.0.1", outside)).ok());
    // Out: and a megabyte back, by its sum.
    let script = client(outside, HOST, "echo $SSH_CONNECTION; head -c 1000000 /dev/zero");
    let out =
        succeeds(&mut inside(&["--allow", "127.0.0.1"], &format!("{script} | tee /dev/stderr | wc -c")));
    assert!(out.contains("127.0.0.1 "), "the host sees itself: {}", &out[..out.len().min(200)]);
}
