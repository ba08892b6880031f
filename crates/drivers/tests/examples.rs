//! The examples, with the kernel on the other side.
//!
//! Needs the right to create network namespaces and devices; without it the tests print that and pass.

#[path = "../examples/byo_loop.rs"]
mod byo_loop;
#[path = "common/mod.rs"]
mod lab;
#[path = "../examples/tun_http.rs"]
mod tun_http;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use lab::{bytes, client, hash, skipped};
use sockeye_drivers::Namespace;

/// The longest wait of a read, so that a failing test ends.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn the_kernel_reads_files_from_a_server_behind_a_device() {
    if skipped("HTTP through a TUN") {
        return;
    }
    let root = std::env::temp_dir().join(format!("sockeye-tun-http-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    let data = bytes(9, 5_000_000);
    std::fs::write(root.join("data"), &data).unwrap();
    let namespace = Namespace::new().unwrap();
    let (_tun, listener) = namespace.run(|| tun_http::start(&root, "").unwrap()).unwrap();
    let to = listener.local_addr().unwrap();
    let served = root.clone();
    std::thread::spawn(move || tun_http::serve(&listener, &served));
    let get = |path: &str| {
        let mut stream = namespace.run(|| TcpStream::connect(to).unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let body = answer.split_off(end);
        (String::from_utf8(answer).unwrap(), body)
    };
    let (head, body) = get("/data");
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("Content-Length: 5000000\r\n"),
        "{head}"
    );
    assert_eq!(hash(&body), hash(&data));
    assert_eq!(get("/").1, b"data\n");
    for outside in ["/../data", "/none", "data", "//etc/passwd"] {
        assert!(get(outside).0.starts_with("HTTP/1.1 404 "), "{outside}");
    }
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn one_thread_serves_the_kernel_from_a_loop_of_its_own() {
    if skipped("a loop of one's own") {
        return;
    }
    let namespace = Namespace::new().unwrap();
    let mut looped = namespace.run(|| byo_loop::Looped::new("").unwrap()).unwrap();
    // In the pause of the clients the loop has to sleep, and to be woken by the next frame.
    let clients: Vec<_> = (0..4).map(|seed| namespace.spawn(move || client(seed)).unwrap()).collect();
    let mut turns = 0;
    while clients.iter().any(|client| !client.is_finished()) {
        let next = looped.turn().unwrap();
        // So that the loop notices the end of the test: otherwise it would sleep until its deadline.
        let soon = looped.now() + Duration::from_millis(50);
        looped.sleep(Some(next.map_or(soon, |next| next.min(soon)))).unwrap();
        turns += 1;
    }
    clients.into_iter().for_each(|client| client.join().unwrap().unwrap());
    assert!(turns < 200_000, "{turns} iterations: it does not sleep");
}
