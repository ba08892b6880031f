//! Help, and the result of a wrong command line: a message on standard error and status 2.

use super::*;

#[test]
fn a_wrong_command_line_is_explained_on_stderr_and_exits_with_2() {
    for (line, parts) in [
        ("stream --size 12X", &["--size", "12X", "64K"][..]),
        ("rr --samples 0", &["--samples", "0", "such as 10"]),
        ("nothing", &["nothing", "stream"]),
        ("stream --clients 3", &["--clients", "stream", "crr"]),
        ("--touch", &["--touch", "sockeye bench mem"]),
        ("rr --connections 5 --size 1M", &["--size", "1M", "4K"]),
        ("udp --report page.html", &["--report", "udp", "--json"]),
        ("rcvd --report page.svg", &["--report", ".html"]),
        ("rr --against x --report page.html", &["--against", "--report"]),
        ("udp --goals", &["--goals", "udp"]),
        ("hostile --out x", &["--out", "hostile"]),
        ("patterns --seconds 1", &["--seconds", "patterns"]),
        ("patterns --from 18446744073709551615", &["--from", "1000000000"]),
        ("patterns --only 18446744073709551615", &["--only", "1000000000"]),
        ("patterns --count 1000000000000", &["--count", "1000000"]),
        ("patterns --count 0", &["--count", "from 1"]),
    ] {
        let output = run(bench(line));
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(output.stdout.is_empty(), "{line}");
        for part in parts {
            let text = stderr(&output);
            assert!(text.contains(part), "{line}: {part} is not in {text}");
        }
    }
}

#[test]
fn help_has_examples_and_hides_the_helpers() {
    let output = run(bench("--help"));
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    for part in
        ["Usage: sockeye bench", "sockeye bench --quick", "--connections 1,2,10", "Exit codes", "cubic"]
    {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!text.contains("__"), "{text}");
}

#[test]
fn a_closed_output_pipe_is_no_error() {
    let mut child = bench("stream --on kernel --samples 1 --seconds 0.05")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_report_that_cannot_be_written_is_told_before_anything_is_measured() {
    for line in ["rcvd --quick", "rr --quick", "patterns --count 1"] {
        let file = if line.starts_with("patterns") { "--out" } else { "--report" };
        let output = run(bench(&format!("{line} {file} /nonexistent/folder/x.html")));
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{line}: {}", stdout(&output));
        assert!(stderr(&output).contains("/nonexistent/folder/x.html"), "{}", stderr(&output));
    }
}
