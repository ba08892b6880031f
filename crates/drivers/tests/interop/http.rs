//! Other people's HTTP clients, curl and ab, and a server on the stack.

use std::io::{Read, Write};

use sockeye::TcpListener;

use crate::common::{bytes, hash, skipped};
use crate::testbed::{LAYERS, Testbed, content};

/// Bytes of the page.
const PAGE_LEN: usize = 1_000_000;
/// Requests of ab, and how many at once.
const REQUESTS: usize = 2000;
const AT_ONCE: usize = 50;

/// Answers each request of a connection by the page, or a short word for `/short`.
fn serve(mut stream: impl Read + Write, page: &[u8]) {
    let mut asked = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        asked.extend_from_slice(&buffer[..read]);
        while let Some(end) = asked.windows(4).position(|four| four == b"\r\n\r\n") {
            let request: Vec<u8> = asked.drain(..end + 4).collect();
            let body = if request.starts_with(b"GET /short") { b"short".as_slice() } else { page };
            let keep = request.windows(10).any(|word| word.eq_ignore_ascii_case(b"keep-alive"));
            let connection = if keep || request.ends_with(b"HTTP/1.1") { "keep-alive" } else { "close" };
            let head = format!(
                "HTTP/1.0 200 OK\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n",
                body.len()
            );
            if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).is_err() || !keep {
                return;
            }
        }
    }
}

#[test]
fn curl_and_ab_receive_the_files_of_a_server_on_the_stack() {
    if skipped("curl and ab") {
        return;
    }
    for layer in LAYERS {
        let testbed = Testbed::new(layer);
        let page = bytes(7, PAGE_LEN);
        for v6 in [false, true] {
            let listener = TcpListener::bind_on(&testbed.lab.stack, testbed.lab.stack_addr(v6, 0)).unwrap();
            let at = listener.local_addr().unwrap();
            let served = page.clone();
            std::thread::spawn(move || {
                while let Ok((stream, _)) = listener.accept() {
                    let page = served.clone();
                    std::thread::spawn(move || serve(stream, &page));
                }
            });
            let got = crate::testbed::program(
                &testbed.lab.namespace,
                &format!("curl -sS --max-time 20 http://{at}/page"),
            );
            if let Some(got) = got {
                assert!(got.status.success(), "{got:?}");
                assert_eq!(hash(&got.stdout), hash(&page));
            }
            for keep_alive in ["", "-k"] {
                let words = format!("ab -q -s 20 -n {REQUESTS} -c {AT_ONCE} {keep_alive} http://{at}/short");
                let Some(text) = content(&testbed.lab.namespace, &words) else { continue };
                for line in ["Complete requests:      2000", "Failed requests:        0"] {
                    assert!(text.contains(line), "{text}");
                }
            }
        }
        testbed.assert_all_understood();
    }
}
