//! `sockeye sim matrix`: results that can be continued, a table, a page.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::*;

/// A file that is taken away at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("sockeye-matrix-{}-{name}", std::process::id())))
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_matrix_is_run_once_resumes_and_is_shown_beside_others() {
    let (out, beside) = (Scratch::new("out.jsonl"), Scratch::new("beside.jsonl"));
    let (markdown, page) = (Scratch::new("table.md"), Scratch::new("page.html"));
    let line = |loss: &str| {
        format!(
            "sim matrix --rate 10mbit --rtt 10ms,50ms,10ms --loss {loss} --reorder 5% --seconds 2 --out {}",
            out.0.display()
        )
    };
    let done = run(sockeye(&line("0%")));
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    assert_eq!(out.text().lines().count(), 2);
    // As if it had been interrupted while it wrote.
    fs::write(&out.0, format!("{}{{\"on\":\"sock", out.text())).unwrap();
    let first: Value = serde_json::from_str(out.text().lines().next().unwrap()).unwrap();
    let mut kernel = first.clone();
    kernel["on"] = "kernel".into();
    kernel["goodput_bits"] = (first["goodput_bits"].as_f64().unwrap() * 2.0).into();
    fs::write(&beside.0, format!("{kernel}\n")).unwrap();
    let line = format!(
        "{} --beside {} --markdown {} --html {}",
        line("0%,1%"),
        beside.0.display(),
        markdown.0.display(),
        page.0.display()
    );
    let done = run(sockeye(&line));
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    let message = stderr(&done);
    assert!(
        message.contains("[2/2]") && !message.contains(" 0 % loss"),
        "existing cells are not run again: {message}"
    );
    assert_eq!(out.text().lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count(), 4);
    let summary = stdout(&done);
    assert!(summary.starts_with("4 paths, 1 beside the kernel, 1 of them below 90 %"), "{summary}");
    assert!(summary.contains("50 %: "), "{summary}");
    assert_eq!(markdown.text().lines().count(), 2 + 4);
    let page = page.text();
    let document = roxmltree::Document::parse(page.split_once('\n').unwrap().1).unwrap();
    let rows = document.descendants().filter(|node| node.has_tag_name("tr")).count();
    assert_eq!(rows, 1 + 4);
}

#[test]
fn a_matrix_needs_a_file_and_valid_quantities() {
    for line in [
        "sim matrix",
        "sim matrix --out x --rtt 10",
        "sim matrix --out x --rtt 1500us",
        "sim --seed 3 matrix --out x",
    ] {
        assert_eq!(run(sockeye(line)).status.code(), Some(2), "{line}");
    }
}
