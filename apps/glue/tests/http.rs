//! The HTTP example's server and client: `hyper` over this crate's sockets, hashes compared, and nothing
//! outside of the served directory to be had.

#[path = "../examples/http/client.rs"]
mod client;
#[path = "../examples/http/server.rs"]
mod server;

use std::path::{Path, PathBuf};

use hyper::StatusCode;
use sockeye::tokio::TcpListener;
use sockeye_glue::stack;

/// A directory that is deleted with the value.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("sockeye-test-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_of_files_arrives_unchanged_over_many_connections() {
    let dir = Dir::new("files");
    std::fs::create_dir_all(dir.0.join("deep er/ä")).unwrap();
    for number in 0..60 {
        let size = number * number * 557;
        let place = ["", "deep er", "deep er/ä"][number % 3];
        let bytes: Vec<u8> = (0..size).map(|at| ((at >> 9) ^ at.wrapping_mul(7) ^ number) as u8).collect();
        std::fs::write(dir.0.join(place).join(format!("file {number}%")), bytes).unwrap();
    }
    let stack = stack(&["server"]).unwrap();
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let root = dir.0.clone();
    let server = tokio::spawn(async move { server::serve(listener, &root).await });
    let files = client::files_below(&dir.0).unwrap();
    assert_eq!(files.len(), 60);
    let summary = client::download_all(&stack, addr, &dir.0, files, 12).await.unwrap();
    assert_eq!((summary.same, summary.different), (60, 0));
    server.abort();
    let _ = server.await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_outside_of_the_directory_is_served() {
    let dir = Dir::new("inside");
    let root = dir.0.join("root");
    std::fs::create_dir_all(&root).unwrap();
    std::fs::write(dir.0.join("secret"), "secret").unwrap();
    std::fs::write(root.join("public"), "public").unwrap();
    std::os::unix::fs::symlink(dir.0.join("secret"), root.join("link")).unwrap();
    let stack = stack(&["server"]).unwrap();
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { server::serve(listener, &root).await });
    let mut sender = client::open(&stack, addr).await.unwrap();
    let outside = [
        ("/public", StatusCode::OK),
        ("/absent", StatusCode::NOT_FOUND),
        ("/public/below", StatusCode::NOT_FOUND),
        ("/link", StatusCode::FORBIDDEN),
        ("/", StatusCode::BAD_REQUEST),
        ("/../secret", StatusCode::BAD_REQUEST),
        ("/%2e%2e/secret", StatusCode::BAD_REQUEST),
        ("/..%2fsecret", StatusCode::BAD_REQUEST),
        ("//etc/hostname", StatusCode::BAD_REQUEST),
        ("/%00", StatusCode::BAD_REQUEST),
        ("/%zz", StatusCode::BAD_REQUEST),
    ];
    for (path, expected) in outside {
        let (status, body) = client::get(&mut sender, path).await.unwrap();
        assert_eq!(status, expected, "{path}");
        assert!(!body.starts_with(b"secret"), "{path}");
    }
    drop(sender);
    server.abort();
}

#[test]
fn paths_are_encoded_and_decoded() {
    let path = server::encoded(Path::new("a b/100%/ä")).unwrap();
    assert_eq!(path, "/a%20b/100%25/%C3%A4");
    assert_eq!(server::plain(&path).unwrap(), ["a b", "100%", "ä"]);
    assert_eq!(server::plain("relative"), None);
    assert_eq!(server::plain("/%C3"), None, "half a character");
}
