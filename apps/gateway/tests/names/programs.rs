//! Programs that people use: curl, git, apt, ssh and Chromium, from inside; and ssh to a server inside of a network namespace that root has made, since it wants more users than a namespace of one has.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use sockeye_drivers::testing::say_skipped;

use crate::common::{HOST, accept_all, gateway_program, pattern, unavailable};
use crate::{Folder, eventually, free_port, path, program, succeeds};

/// The gateway with a command inside.
fn inside(options: &[&str], script: &str) -> Command {
    let mut gateway = Command::new(gateway_program());
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

#[test]
fn apt_gets_a_list_and_a_package() {
    let (Some(apt), Some(_), Some(busybox)) = (program("apt-get"), program("dpkg-deb"), program("busybox"))
    else {
        return;
    };
    if unavailable() {
        return;
    }
    let (folder, port) = (Folder::new("apt"), free_port());
    // A package, a list of it, and an apt that knows nothing else.
    let make = "mkdir -p package/DEBIAN package/opt served state/lists/partial cache/archives/partial etc
        head -c 9000000 /dev/urandom > package/opt/file
        printf 'Package: of-the-test\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@example.invalid>\nDescription: a file\n' > package/DEBIAN/control
        dpkg-deb -Znone -b package served/of-the-test.deb; touch state/status
        { cat package/DEBIAN/control; echo Filename: ./of-the-test.deb; stat -c 'Size: %s' served/of-the-test.deb
          sha256sum served/of-the-test.deb | sed 's/\\([0-9a-f]*\\).*/SHA256: \\1/'; } > served/Packages";
    succeeds(Command::new("sh").current_dir(&folder.0).args(["-ec", make]));
    fs::write(folder.0.join("etc/sources.list"), format!("deb [trusted=yes] http://{HOST}:{port} ./\n"))
        .unwrap();
    let addr = format!("127.0.0.1:{port}");
    let mut serve = Command::new(busybox);
    serve.args(["httpd", "-f", "-p", &addr, "-h", path(&folder.0.join("served"))]);
    let _server = Service(serve.spawn().unwrap());
    eventually("httpd", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    // The namespace has no user `_apt`.
    let script = format!(
        "cd {0}; apt() {{ {1} -o Dir::State={0}/state -o Dir::State::status={0}/state/status -o Dir::Cache={0}/cache -o Dir::Etc={0}/etc \
         -o APT::Sandbox::User=root -o Acquire::AllowInsecureRepositories=true \"$@\"; }}
         apt update; apt download of-the-test; cmp of-the-test_1_all.deb served/of-the-test.deb && echo the same",
        path(&folder.0),
        path(&apt)
    );
    let out = succeeds(&mut inside(&["--allow", "127.0.0.1"], &script));
    assert!(out.contains("the same"), "{out}");
}

/// What the page's script does with its parts, too.
fn sum_of(bytes: &[u8]) -> u32 {
    bytes.iter().fold(1, |sum, byte| (sum * 31 + u32::from(*byte)) % 1_000_003)
}

/// A page with a style, an image, and a script that gets parts at once, and a port that refuses.
const PAGE: &str = r#"<!doctype html><link rel="stylesheet" href="style.css"><img id="i" src="dot.svg"><p id="out">nothing</p><script>
const sum = bytes => bytes.reduce((sum, byte) => (sum * 31 + byte) % 1000003, 1);
const part = async n => sum(new Uint8Array(await (await fetch("part-" + n)).arrayBuffer()));
const refused = fetch("http://" + location.hostname + ":1/").then(() => "answered", error => error.name);
addEventListener("load", async () => {
    const sums = await Promise.all([...Array(PARTS).keys()].map(part));
    const style = getComputedStyle(document.getElementById("out")).display, width = document.getElementById("i").naturalWidth;
    document.getElementById("out").textContent = "page: " + [sums.join(" "), style, width, await refused].join(", ");
});
</script>"#;

#[test]
fn a_page_and_what_belongs_to_it_come_in_a_browser() {
    const PARTS: usize = 60;
    let (Some(chromium), Some(busybox)) = (program("chromium"), program("busybox")) else { return };
    if unavailable() {
        return;
    }
    let (folder, port) = (Folder::new("browser"), free_port());
    let served = folder.0.join("served");
    fs::create_dir(&served).unwrap();
    let file = |name: &str, bytes: &[u8]| fs::write(served.join(name), bytes).unwrap();
    file("index.html", PAGE.replace("PARTS", &PARTS.to_string()).as_bytes());
    file("style.css", b"#out { display: flex }");
    file("dot.svg", br#"<svg xmlns="http://www.w3.org/2000/svg" width="37" height="9"><rect width="37" height="9"/></svg>"#);
    let parts: Vec<_> = (0..PARTS).map(|n| pattern(1 << (n % 21))).collect();
    parts.iter().enumerate().for_each(|(n, bytes)| file(&format!("part-{n}"), bytes));
    let addr = format!("127.0.0.1:{port}");
    let mut serve = Command::new(busybox);
    serve.args(["httpd", "-f", "-p", &addr, "-h", path(&served)]);
    let _server = Service(serve.spawn().unwrap());
    eventually("httpd", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    let script = format!(
        "export HOME={0}; exec {1} --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir={0}/profile --virtual-time-budget=30000 \
         --dump-dom http://host.internal:{port}/ 2>{0}/err",
        path(&folder.0),
        path(&chromium)
    );
    let out = succeeds(&mut inside(&["--allow", "127.0.0.1"], &script));
    let sums: Vec<_> = parts.iter().map(|bytes| sum_of(bytes).to_string()).collect();
    let expected = format!("page: {}, flex, 37, TypeError", sums.join(" "));
    assert!(out.contains(&expected), "{expected}\n{out}");
}

/// Git's daemon itself, which some systems have in a package of its own: by `git daemon` it would outlive its starter.
fn git_daemon() -> Option<PathBuf> {
    let folder = Command::new("git").arg("--exec-path").output().ok()?.stdout;
    let daemon = PathBuf::from(String::from_utf8_lossy(&folder).trim()).join("git-daemon");
    if !daemon.exists() {
        say_skipped("git has no daemon");
    }
    daemon.exists().then_some(daemon)
}

/// Keys of a server and a client of SSH, and their command lines.
struct Ssh {
    sshd: PathBuf,
    folder: Folder,
}

impl Ssh {
    /// `None`, which is printed, where there can be none.
    fn new(name: &str) -> Option<Self> {
        let (sshd, _, _) = (program("sshd")?, program("ssh")?, program("ssh-keygen")?);
        if !rustix::process::geteuid().is_root() {
            say_skipped("a server of SSH for anybody needs root");
            return None;
        }
        let folder = Folder::new(name);
        fs::set_permissions(&folder.0, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        for key in ["host", "user"] {
            let key = folder.0.join(key);
            succeeds(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", path(&key)]));
        }
        fs::copy(folder.0.join("user.pub"), folder.0.join("authorized")).unwrap();
        fs::create_dir_all("/run/sshd").unwrap();
        Some(Self { sshd, folder })
    }

    fn server(&self, port: u16, addr: &str) -> String {
        format!(
            "exec {sshd} -D -e -f /dev/null -h {f}/host -o Port={port} -o ListenAddress={addr} -o AuthorizedKeysFile={f}/authorized -o StrictModes=no \
             -o PidFile=none -o UsePAM=no -o PermitRootLogin=yes",
            sshd = path(&self.sshd),
            f = path(&self.folder.0),
        )
    }

    /// A script that prints whom the server sees, and how many bytes came of it and a megabyte.
    fn client(&self, port: u16, addr: &str) -> String {
        format!(
            "ssh -F none -i {f}/user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes -p {port} root@{addr} \
             'echo $SSH_CONNECTION; head -c 1000000 /dev/zero' | tee /dev/stderr | wc -c",
            f = path(&self.folder.0),
        )
    }
}

#[test]
fn ssh_goes_out() {
    let Some(ssh) = Ssh::new("ssh") else { return };
    if unavailable() {
        return;
    }
    let outside = free_port();
    let server = ssh.server(outside, "127.0.0.1");
    let _server = Service(Command::new("sh").args(["-c", &server]).stderr(Stdio::null()).spawn().unwrap());
    eventually("sshd", || std::net::TcpStream::connect(("127.0.0.1", outside)).ok());
    let out = succeeds(&mut inside(&["--allow", "127.0.0.1"], &ssh.client(outside, HOST)));
    assert!(out.contains("127.0.0.1 "), "the host sees itself: {}", &out[..out.len().min(200)]);
}

#[test]
fn ssh_comes_in_by_a_published_port_to_a_network_that_has_nothing_but_the_gateway() {
    let Some(ssh) = Ssh::new("ssh-in") else { return };
    if unavailable() {
        return;
    }
    let network = Service(Command::new("unshare").args(["-n", "sleep", "120"]).spawn().unwrap());
    let pid = network.0.id().to_string();
    let net = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    eventually("a network", || (net(&pid) != net("self")).then_some(()));
    let outside = free_port();
    let published = format!("127.0.0.1:{outside}:22");
    let _gateway =
        Service(Command::new(gateway_program()).args(["--netns", &pid, "-p", &published]).spawn().unwrap());
    let server = ssh.server(22, "0.0.0.0");
    let _server = Service(
        Command::new("nsenter")
            .args(["-t", &pid, "-n", "sh", "-c", &server])
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    // Until it listens, connections are reset.
    let out = eventually("the server inside", || {
        let ran = Command::new("sh").args(["-c", &ssh.client(outside, "127.0.0.1")]).output().ok()?;
        let text = String::from_utf8_lossy(&[ran.stderr, ran.stdout].concat()).into_owned();
        text.contains("10000").then_some(text)
    });
    let seen = &out[..out.len().min(200)];
    assert!(out.contains("10.0.2.2 ") && out.contains(" 10.0.2.100 22"), "{seen}");
}
