//! Help, and the result of a wrong command line: a message on standard error and status 2.

use super::*;

#[test]
fn a_wrong_command_line_is_explained_on_stderr_and_exits_with_2() {
    let output = run(sockeye("bnch"));
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let text = stderr(&output);
    assert!(text.contains("bnch") && text.contains("bench"), "{text}");
}

#[test]
fn help_names_every_subcommand() {
    let text = stdout(&run(sockeye("--help")));
    for name in ["bench", "sim", "tun", "iperf3", "ss", "nstat", "why", "completions", "man"] {
        let start = format!("  {name} ");
        assert!(text.lines().any(|line| line.starts_with(&start)), "{name} is not in {text}");
    }
    assert!(!text.contains("__"), "{text}");
}
