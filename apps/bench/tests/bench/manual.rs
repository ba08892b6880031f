//! Completions and the man page of the bench name its workloads and flags.

use std::fs;

use super::*;

#[test]
fn completions_name_workloads_and_flags() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(&run(bench(&format!("completions {shell}"))));
        for part in ["sockeye-bench", "connections", "quick", "against"] {
            assert!(script.contains(part), "{part} is not in those of {shell}");
        }
    }
    assert!(stdout(&run(bench("completions bash"))).contains("stream"));
}

#[test]
fn the_man_page_has_every_option_that_the_help_has() {
    let folder = std::env::temp_dir().join(format!("sockeye-bench-man-{}", std::process::id()));
    assert_eq!(run(bench(&format!("man {}", folder.display()))).status.code(), Some(0));
    let page = fs::read_to_string(folder.join("sockeye-bench.1")).unwrap();
    let help = stdout(&run(bench("--help")));
    let flags =
        help.lines().filter_map(|line| line.trim_start().strip_prefix("--")?.split([' ', '[', '=']).next());
    let flags: Vec<&str> = flags.collect();
    assert!(flags.len() > 20, "{flags:?}");
    for flag in flags {
        assert!(page.contains(&format!("\\-\\-{}", flag.replace('-', "\\-"))), "--{flag} is not in {page}");
    }
    let gateway = fs::read_to_string(folder.join("sockeye-bench-gateway.1")).unwrap();
    assert!(gateway.contains("\\-\\-rounds") && gateway.contains("keep\\-alive"), "{gateway}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    fs::remove_dir_all(&folder).unwrap();
}
