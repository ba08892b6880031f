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
fn a_message_about_a_sub_command_shows_the_usage_of_that() {
    for (line, usage) in [
        ("ss dport = :nosuch", "Usage: sockeye ss "),
        ("tun --addr 10.9.0.2/24 --set sndbuff=1", "Usage: sockeye tun "),
        ("sim --rtt 100", "--rtt"),
        ("iperf3 -c 10.9.0.1 --addr 10.9.0.2/24 --peer-addr 10.9.0.2/24", "Usage: sockeye iperf3 "),
    ] {
        let output = run(sockeye(line));
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{line}");
        assert!(stderr(&output).contains(usage), "{line}: {}", stderr(&output));
    }
}

#[test]
fn messages_to_users_have_no_patterns_and_no_advice_for_programmers() {
    if std::fs::File::options().read(true).write(true).open("/dev/net/tun").is_err() {
        // Without the device file, it is named, and nothing else.
        let text = stderr(&run(sockeye("tun --addr 10.9.0.2/24 --peer-addr none")));
        assert!(text.contains("/dev/net/tun") && !text.contains("sock%d"), "{text}");
        return;
    }
    // A name that is too long is refused before anything is made, with or without rights.
    let output = run(sockeye("tun --addr 10.9.0.2/24 --peer-addr none --name a-name-that-is-too-long"));
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("a-name-that-is-too-long") && !text.contains("descriptor"), "{text}");
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
