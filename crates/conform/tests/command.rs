//! The program `conform`, where it needs no device.

use std::process::{Command, Output, Stdio};

fn conform(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_conform")).args(args).output().unwrap()
}

#[test]
fn help_shows_the_commands_and_a_wrong_line_is_refused_with_them() {
    let help = conform(&["--help"]);
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(
        help.status.success()
            && text.contains("--random COUNT")
            && text.contains("docs/reference/conformance.md")
    );
    for wrong in [&["--random"][..], &["--random", "x"], &["--no-such"], &[], &["--random", "1", "file"]] {
        let refused = conform(wrong);
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}");
        assert!(String::from_utf8(refused.stderr).unwrap().contains("usage: conform"));
    }
}

#[test]
fn the_scenario_of_a_seed_is_printed() {
    let printed = String::from_utf8(conform(&["--print", "7"]).stdout).unwrap();
    let scenario: sockeye_conform::scenario::Scenario = printed.parse().unwrap();
    assert_eq!(scenario, sockeye_conform::generate::generate(7));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let refused = conform(&["no-such-file"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("no-such-file"));
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut child = Command::new(env!("CARGO_BIN_EXE_conform"))
        .args(["--alone".as_ref(), folder.as_os_str()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), String::from_utf8(ended.stderr).unwrap()), (Some(0), String::new()));
}
