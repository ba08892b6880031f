//! Checks that every call tests whether it runs in a child of fork(2). The behaviour in a child is tested where
//! fork(2) may be called: `crates/drivers/tests/fork`.

use std::path::Path;

/// Files whose types an application reaches only through a `Held`, which has made the check.
const BEHIND_A_HELD: [&str; 3] = ["rt/handle.rs", "udp/naming.rs", "unix/sock.rs"];

/// Files under `folder` whose product code contains `text`, relative to `root`.
fn with(root: &Path, folder: &Path, text: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            with(root, &path, text, found);
        } else {
            let source = std::fs::read_to_string(&path).unwrap();
            let product = source.split("#[cfg(test)]").next().unwrap_or_default();
            let code = product.lines().filter(|line| !line.trim_start().starts_with("//"));
            if code.into_iter().any(|line| line.contains(text)) {
                found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
}

#[test]
fn the_core_is_reached_without_a_fork_check_only_through_held() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    with(&root, &root, "core_in_use", &mut found);
    found.sort();
    assert_eq!(found, BEHIND_A_HELD, "only types that stand in a `Held` may do without `Stack::core`");
    // The other way to it, for threads of the stack.
    let mut shared = Vec::new();
    with(&root, &root, "share_core", &mut shared);
    shared.sort();
    assert_eq!(shared, ["stack.rs"]);
}
