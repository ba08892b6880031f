//! Completions and man pages contain the same as the help: every sub-command, every flag.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::bench::Folder;
use super::*;

/// Shells, and the prefix of a long flag in the completions of each.
const SHELLS: [(&str, &str); 5] =
    [("bash", "--"), ("zsh", "--"), ("fish", "-l "), ("elvish", "--"), ("powershell", "--")];

/// The commands by the words that call them, each with its long flags, as the help has them.
fn commands() -> BTreeMap<&'static str, Vec<String>> {
    let lines = [
        "sim",
        "sim matrix",
        "sim merge",
        "tun",
        "gateway",
        "gateway ctl",
        "gateway ctl list",
        "gateway ctl add",
        "gateway ctl remove",
        "gateway ctl flows",
        "gateway ctl stats",
        "gateway ctl rules",
        "gateway ctl set-rules",
        "iperf3",
        "ss",
        "nstat",
        "why",
        "completions",
        "man",
    ];
    lines.into_iter().map(|line| (line, flags(&stdout(&run(sockeye(&format!("{line} --help"))))))).collect()
}

/// The long flags of a help text: `--name`, at the beginning of a line or behind a short one.
fn flags(help: &str) -> Vec<String> {
    let flag = |line: &str| {
        let line = line.trim_start();
        let long = line.strip_prefix("--").or_else(|| {
            let (short, rest) = line.split_once(", --")?;
            (short.len() == 2 && short.starts_with('-')).then_some(rest)
        })?;
        let end = long.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(long.len());
        Some(long[..end].to_owned())
    };
    help.lines().filter_map(flag).collect()
}

#[test]
fn the_completions_of_every_shell_name_every_command_and_flag() {
    let commands = commands();
    assert!(commands["sim"].contains(&"rtt".to_owned()) && commands["iperf3"].contains(&"udp".to_owned()));
    for (shell, before) in SHELLS {
        let output = run(sockeye(&format!("completions {shell}")));
        assert_eq!(output.status.code(), Some(0), "{shell}: {}", stderr(&output));
        let script = stdout(&output);
        for (line, flags) in &commands {
            assert!(line.split(' ').all(|name| script.contains(name)), "{line} is not in those of {shell}");
            // The generator for fish writes no flags of commands three deep.
            let is_deep = shell == "fish" && line.split(' ').count() > 2;
            for flag in flags.iter().filter(|_| !is_deep) {
                assert!(
                    script.contains(&format!("{before}{flag}")),
                    "{line} --{flag} is not in those of {shell}"
                );
            }
        }
        assert!(script.contains("bench"), "{shell}");
    }
}

#[test]
fn bash_accepts_its_completions() {
    let script = stdout(&run(sockeye("completions bash")));
    let mut bash = Command::new("bash");
    let complete =
        "COMP_WORDS=(sockeye sim --lo); COMP_CWORD=2; _sockeye sockeye --lo sim; echo \"${COMPREPLY[@]}\"";
    bash.args(["-c", &format!("{script}\n{complete}")]);
    let output = run(bash);
    assert_eq!((stdout(&output).trim(), stderr(&output).as_str()), ("--loss", ""));
}

#[test]
fn an_unknown_shell_is_refused_with_the_known_ones() {
    let output = run(sockeye("completions tcsh"));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("bash") && stderr(&output).contains("fish"), "{}", stderr(&output));
}

#[test]
fn every_command_has_a_man_page_with_its_flags_that_man_renders() {
    // A copy, beside which there is no measuring program.
    let program = Folder::new("man", "release");
    let folder = program.0.join("pages");
    let output = run(program.sockeye(&format!("man {}", folder.display())));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let mut commands = commands();
    commands.insert("", Vec::new());
    commands.insert("bench", Vec::new());
    for (line, flags) in &commands {
        let name = format!("sockeye {line}").trim().replace(' ', "-");
        let path = folder.join(format!("{name}.1"));
        let page = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(page.contains(&format!(".TH {name} 1")), "{page}");
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION"] {
            assert!(page.contains(&format!(".SH {section}\n")), "{name}: {section} is not in {page}");
        }
        for flag in flags {
            assert!(
                page.contains(&format!("\\-\\-{}", flag.replace('-', "\\-"))),
                "{name}: --{flag} is not in {page}"
            );
        }
        is_rendered(&path, &name);
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), commands.len());
    assert!(fs::read_to_string(folder.join("sockeye-tun.1")).unwrap().contains(".SH EXAMPLES\n"));
}

/// Checks that man(1) formats a page without a warning. If there is no man(1), prints that.
fn is_rendered(path: &Path, name: &str) {
    let mut man = Command::new("man");
    man.args(["--warnings", "-l"]).arg(path).env("MANWIDTH", "100").env("LC_ALL", "C.UTF-8");
    match man.output() {
        Ok(output) => {
            let text = stdout(&output);
            assert!(output.status.success() && text.contains("SYNOPSIS"), "{name}: {}", stderr(&output));
            assert_eq!(stderr(&output), "", "{name}");
        }
        Err(error) => eprintln!("man pages are not rendered here: man: {error}"),
    }
}

#[test]
fn the_measuring_program_writes_its_own_page() {
    let program = Folder::new("man-bench", "release");
    program.script("sockeye-bench", "echo \"whole $1\" >\"$2/sockeye-bench.1\"");
    let pages = program.0.join("pages");
    assert_eq!(run(program.sockeye(&format!("man {}", pages.display()))).status.code(), Some(0));
    assert_eq!(fs::read_to_string(pages.join("sockeye-bench.1")).unwrap(), "whole man\n");
    assert!(pages.join("sockeye-tun.1").exists());
    program.script("sockeye-bench", "exit 2");
    let output = run(program.sockeye(&format!("man {}", pages.display())));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("sockeye-bench man"), "{}", stderr(&output));
}

#[test]
fn the_main_page_is_written_to_standard_output() {
    let text = stdout(&run(sockeye("man")));
    for part in [".TH sockeye 1", "sockeye\\-tun(1)", ".SH EXAMPLES\n"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}
