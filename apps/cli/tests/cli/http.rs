//! Files of a directory over HTTP on a device, asked for by curl and ab; every file is hashed at both ends.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use sha2::{Digest, Sha256};

use super::device::Tun;
use super::*;

/// Sizes of the files, bytes: around the borders of buffers and segments, and large.
const SIZES: [usize; 12] =
    [0, 1, 100, 1459, 1460, 4096, 65_483, 65_536, 262_144, 262_145, 1_000_000, 20_000_000];
/// Requests of ab, and how many at once.
const REQUESTS: usize = 2000;
const AT_ONCE: usize = 50;

/// A directory that is served, beside one for downloads and a secret; they are deleted with the value.
struct Files(PathBuf);

impl Files {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let place = std::env::temp_dir().join(format!("sockeye-http-test-{}-{number}", std::process::id()));
        fs::create_dir_all(place.join("served/a directory")).unwrap();
        fs::create_dir_all(place.join("got")).unwrap();
        fs::write(place.join("secret"), "secret").unwrap();
        symlink("../secret", place.join("served/way-out")).unwrap();
        for size in SIZES {
            let bytes: Vec<u8> = (0..size).map(|at| ((at >> 9) ^ at.wrapping_mul(7) ^ size) as u8).collect();
            fs::write(place.join(format!("served/a directory/{size} bytes")), bytes).unwrap();
        }
        Self(place)
    }

    fn hash(&self, path: &str) -> [u8; 32] {
        Sha256::digest(fs::read(self.0.join(path)).unwrap()).into()
    }

    /// A device with a server of the directory; `more` are further arguments of the command.
    fn serve(&self, more: &str) -> Option<Tun> {
        let dir = self.0.join("served");
        Tun::start(&format!("--addr 10.9.0.2/24 --addr fd09::2/64 --serve http:80={} {more}", dir.display()))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// The output of curl for one request: status, and lengths as announced and received.
const STATUS: &str = "-w %{http_code}:%header{content-length}:%{size_download}";

#[test]
fn curl_gets_every_file_unchanged_over_both_versions_of_ip_one_by_one_and_at_once() {
    let files = Files::new();
    for device in ["", "--tap --queues 2"] {
        let Some(tun) = files.serve(device) else { return };
        for (host, how) in [("10.9.0.2", ""), ("[fd09::2]", "-Z --parallel-max 6")] {
            let got = files.0.join("got");
            let asked = SIZES.map(|size| {
                format!("-o {}/{size} http://{host}/a%20directory/{size}%20bytes", got.display())
            });
            let line = format!("curl -sS --fail --max-time 50 {how} {}", asked.join(" "));
            if tun.client(&line).is_none() {
                return;
            }
            for size in SIZES {
                let ends = [format!("got/{size}"), format!("served/a directory/{size} bytes")];
                let [came, is] = ends.each_ref().map(|path| files.hash(path));
                assert!(came == is, "{device} {host}: {size} bytes came as others");
                fs::remove_file(files.0.join(&ends[0])).unwrap();
            }
        }
    }
}

#[test]
fn heads_ranges_lists_and_refusals_are_those_of_http() {
    let files = Files::new();
    let Some(tun) = files.serve("") else { return };
    let base = "http://10.9.0.2/a%20directory";
    for (asked, expected) in [
        (format!("--head {base}/1000000%20bytes"), "200:1000000:0"),
        (format!("-r 10-19 {base}/1000000%20bytes"), "206:10:10"),
        (format!("-r -7 {base}/1000000%20bytes"), "206:7:7"),
        (format!("-r 1000000- {base}/1000000%20bytes"), "416:26:26"),
        (format!("{base}/0%20bytes"), "200:0:0"),
        (format!("{base}/none"), "404:14:14"),
        ("http://10.9.0.2/way-out".to_owned(), "403:14:14"),
        ("--path-as-is http://10.9.0.2/../secret".to_owned(), "403:14:14"),
        ("--path-as-is http://10.9.0.2/%2e%2e/secret".to_owned(), "403:14:14"),
        (format!("-X POST -d x=1 {base}/1%20bytes"), "405:23:23"),
    ] {
        let Some(text) = tun.client(&format!("curl -sS --max-time 50 -o /dev/null {STATUS} {asked}")) else {
            return;
        };
        assert_eq!(stdout(&text), expected, "{asked}");
    }
    let part = tun.client(&format!("curl -sS -r 999990- {base}/1000000%20bytes")).unwrap();
    let whole = fs::read(files.0.join("served/a directory/1000000 bytes")).unwrap();
    assert_eq!(part.stdout, whole[999_990..]);
    let list = stdout(&tun.client("curl -sS http://10.9.0.2/").unwrap());
    assert_eq!(list, "a directory/\nway-out\n");
    let page = stdout(&tun.client("curl -sS -H Accept:text/html http://10.9.0.2/a%20directory/").unwrap());
    assert!(page.contains("<a href=\"/a%20directory/100%20bytes\">100 bytes</a>"), "{page}");
    let allowed = stdout(&tun.client(&format!("curl -sSi -X DELETE {base}/1%20bytes")).unwrap());
    assert!(allowed.to_lowercase().contains("allow: get, head"), "{allowed}");
}

#[test]
fn ab_reports_no_failed_request_with_and_without_keep_alive() {
    let files = Files::new();
    let Some(tun) = files.serve("") else { return };
    for (host, keep_alive) in [("10.9.0.2", ""), ("10.9.0.2", "-k"), ("[fd09::2]", "-k")] {
        let line = format!(
            "ab -q -s 20 -n {REQUESTS} -c {AT_ONCE} {keep_alive} http://{host}:80/a%20directory/4096%20bytes"
        );
        let Some(text) = tun.client(&line) else { return };
        let text = stdout(&text);
        for expected in [
            format!("Complete requests:      {REQUESTS}"),
            "Failed requests:        0".to_owned(),
            "Document Length:        4096 bytes".to_owned(),
        ] {
            assert!(text.contains(&expected), "{expected}: {text}");
        }
        assert!(!text.contains("Non-2xx"), "{text}");
    }
}
