//! The result: a table with a row for each folder, the failures with their reasons, and all of it as JSON.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use super::Ip;

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    /// Path in the collection.
    pub script: String,
    #[serde(serialize_with = "name")]
    pub ip: Ip,
    pub passed: bool,
    /// Real time.
    pub seconds: f64,
    /// What packetdrill has said; of a script that passes, nothing or warnings.
    pub output: String,
}

fn name<S: serde::Serializer>(ip: &Ip, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(label(*ip))
}

fn label(ip: Ip) -> &'static str {
    match ip {
        Ip::Ipv4 => "ipv4",
        Ip::Ipv6 => "ipv6",
        Ip::Mapped => "mapped",
    }
}

impl Outcome {
    fn folder(&self) -> &str {
        self.script.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// The first line that says why.
    fn reason(&self) -> &str {
        let lines = || self.output.lines().map(str::trim).filter(|line| !line.is_empty());
        // An assertion's last line names the error.
        let error = lines().rev().find(|line| line.starts_with("AssertionError"));
        error.or_else(|| lines().find(|line| line.contains(".pkt:"))).or_else(|| lines().next()).unwrap_or("")
    }
}

/// Prints failures and the table.
pub(crate) fn print(outcomes: &[Outcome], verbose: bool, to: &mut dyn Write) -> io::Result<()> {
    for outcome in outcomes.iter().filter(|outcome| !outcome.passed) {
        writeln!(to, "{} {}: {}", label(outcome.ip), outcome.script, outcome.reason())?;
        if verbose {
            outcome.output.lines().try_for_each(|line| writeln!(to, "    {line}"))?;
        }
    }
    to.write_all(table(outcomes).as_bytes())?;
    to.flush()
}

/// Rows of folders, columns of versions, passed of all.
fn table(outcomes: &[Outcome]) -> String {
    let mut versions: Vec<Ip> = outcomes.iter().map(|outcome| outcome.ip).collect();
    versions.sort();
    versions.dedup();
    let mut rows: BTreeMap<&str, BTreeMap<Ip, (usize, usize)>> = BTreeMap::new();
    for outcome in outcomes {
        for row in [outcome.folder(), ALL] {
            let cell = rows.entry(row).or_default().entry(outcome.ip).or_default();
            *cell = (cell.0 + usize::from(outcome.passed), cell.1 + 1);
        }
    }
    let width = rows.keys().map(|row| row.len()).max().unwrap_or(0);
    let line = |first: &str, cells: &mut dyn Iterator<Item = String>| {
        let cells: String = cells.map(|cell| format!("{cell:>10}")).collect();
        format!("{first:<width$}{cells}\n")
    };
    let mut text = line("folder", &mut versions.iter().map(|ip| label(*ip).to_owned()));
    for (row, cells) in &rows {
        let cell = |ip: &Ip| cells.get(ip).map_or(String::new(), |(passed, all)| format!("{passed}/{all}"));
        text += &line(row, &mut versions.iter().map(cell));
    }
    text
}

/// Behind every folder's name.
const ALL: &str = "~ all";

/// Writes JSON: a list, in the order of the runs.
pub(crate) fn write(outcomes: &[Outcome], path: &Path) -> io::Result<()> {
    fs::write(path, serde_json::to_string_pretty(outcomes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(script: &str, ip: Ip, output: &str) -> Outcome {
        Outcome { script: script.into(), ip, passed: output.is_empty(), seconds: 0.1, output: output.into() }
    }

    #[test]
    fn the_table_counts_by_folder_and_version() {
        let all = [
            outcome("a/x.pkt", Ip::Ipv4, ""),
            outcome("a/y.pkt", Ip::Ipv4, "y.pkt:3: wrong"),
            outcome("a/x.pkt", Ip::Ipv6, ""),
            outcome("b/z.pkt", Ip::Ipv4, ""),
        ];
        let table = table(&all);
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["folder", "ipv4", "ipv6"]);
        assert_eq!(rows[1], ["a", "1/2", "1/1"]);
        assert_eq!(rows[2], ["b", "1/1"]);
        assert_eq!(rows[3], ["~", "all", "2/3", "1/1"]);
    }

    #[test]
    fn a_reader_that_has_seen_enough_is_an_error_and_no_panic() {
        struct Shut;
        impl Write for Shut {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let all = [outcome("a/y.pkt", Ip::Ipv4, "y.pkt:3: wrong")];
        assert_eq!(print(&all, true, &mut Shut).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let mut text = Vec::new();
        print(&all, true, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("ipv4 a/y.pkt: y.pkt:3: wrong\n    y.pkt:3: wrong\nfolder"), "{text}");
    }

    #[test]
    fn the_reason_is_the_line_that_names_the_script_or_the_assertion() {
        let said = |output: &str| outcome("x.pkt", Ip::Ipv4, output).reason().to_owned();
        assert_eq!(said("noise\nx.pkt:3: wrong\nmore"), "x.pkt:3: wrong");
        assert_eq!(
            said("x.pkt:3: error in Python code\nTraceback\nAssertionError: 5\n"),
            "AssertionError: 5"
        );
        assert_eq!(said("sh: not found"), "sh: not found");
    }
}
