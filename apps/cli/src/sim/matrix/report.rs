//! The matrix as a table: a row for each path, a column group for each amount of reordering.
//!
//! Each entry is the mean over seeds, in Mbit/s, with its share of the theory's expectation and, where the kernel was run
//! on the same path for as long, its part of the kernel's. An entry below [`GOAL`] of the kernel is marked. A kernel's
//! cell whose packets came late is left out, because its link was not the one that is compared. Does not depend on how
//! results came about. Tests: below.

use std::fmt::Write;

use super::cell::{Cell, Result, percent};
use crate::sim::args::On;
use crate::sim::chart::STYLE;

/// Sockeye's goal, as a share of the kernel's goodput.
pub const GOAL: f64 = 0.9;
/// Lateness beyond which a kernel's cell is not used: this part of the round-trip time, and no less than [`LATE_MS`].
const LATE_PART: f64 = 0.1;
const LATE_MS: f64 = 2.0;

/// One path, over all seeds.
#[derive(Clone, PartialEq, Debug)]
struct Entry {
    cell: Cell,
    sockeye: Option<Mean>,
    kernel: Option<Mean>,
}

/// Means over seeds.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Mean {
    goodput_bits: f64,
    /// Segments that were sent again, and needlessly, of all.
    again: f64,
    needless: f64,
    seeds: usize,
}

/// See the module's head.
pub struct Table {
    entries: Vec<Entry>,
    /// Kernel's results that came too late.
    late: usize,
}

impl Table {
    /// Of all results, in whatever order.
    pub fn new(results: &[Result]) -> Self {
        let (good, late): (Vec<&Result>, Vec<&Result>) = results.iter().partition(|result| !is_late(result));
        let mut entries: Vec<Entry> = Vec::new();
        for result in &good {
            if entries.iter().any(|entry| entry.cell.is_beside(&result.cell)) {
                continue;
            }
            let beside: Vec<&Result> =
                good.iter().filter(|one| one.cell.is_beside(&result.cell)).copied().collect();
            let (sockeye, kernel) = (mean(&beside, On::Sockeye), mean(&beside, On::Kernel));
            entries.push(Entry { cell: result.cell.clone(), sockeye, kernel });
        }
        let key = |entry: &Entry| {
            let cell = &entry.cell;
            (cell.seconds, cell.rate_bits, cell.rtt_ms, cell.loss.to_bits(), cell.reorder.to_bits())
        };
        entries.sort_by_key(key);
        Self { entries, late: late.len() }
    }

    /// How many entries there are, and which do not reach the goal.
    pub fn summary(&self) -> String {
        let compared: Vec<(&Entry, f64)> =
            self.entries.iter().filter_map(|entry| Some((entry, entry.ratio()?))).collect();
        let mut below: Vec<_> = compared.iter().filter(|(_, ratio)| *ratio < GOAL).collect();
        below.sort_by(|a, b| a.1.total_cmp(&b.1));
        let mut out = format!(
            "{} paths, {} beside the kernel, {} of them below {} %; {} of the kernel's results came late\n",
            self.entries.len(),
            compared.len(),
            below.len(),
            100.0 * GOAL,
            self.late
        );
        for (entry, ratio) in below {
            let (cell, kernel) = (&entry.cell, entry.kernel.map_or(0.0, |kernel| kernel.goodput_bits));
            let ours = entry.sockeye.map_or(0.0, |sockeye| sockeye.goodput_bits);
            let path = cell.label();
            let path = path.rsplit_once(", seed").map_or("", |(path, _)| path);
            // Writing into a string does not fail.
            let _ = writeln!(
                out,
                "{:.0} %: {} Mbit/s, kernel {}; {path}, {} s",
                100.0 * ratio,
                mbit(ours),
                mbit(kernel),
                cell.seconds
            );
        }
        out
    }

    /// The table in Markdown.
    pub fn markdown(&self) -> String {
        let mut out = format!("| {} |\n|{}\n", COLUMNS.join(" | "), "---|".repeat(COLUMNS.len()));
        for entry in &self.entries {
            let _ = writeln!(out, "| {} |", entry.columns().join(" | "));
        }
        out
    }

    /// The table as a page of its own.
    pub fn page(&self) -> String {
        let head: String = COLUMNS.iter().map(|name| format!("<th>{name}</th>")).collect();
        let row = |entry: &Entry| {
            let class = if entry.ratio().is_some_and(|ratio| ratio < GOAL) { " class=\"below\"" } else { "" };
            let columns: String = entry.columns().iter().map(|text| format!("<td>{text}</td>")).collect();
            format!("<tr{class}>{columns}</tr>\n")
        };
        let rows: String = self.entries.iter().map(row).collect();
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>goodput</title>\n\
             <style>{STYLE}{TABLE_STYLE}</style></head>\n<body>\n<h1>Goodput of one stream, Mbit/s</h1>\n<p>{}</p>\n\
             <div class=\"scroll\"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>\n\
             </body></html>\n",
            self.summary().lines().next().unwrap_or_default()
        )
    }
}

const COLUMNS: [&str; 11] = [
    "Mbit/s",
    "RTT ms",
    "loss %",
    "reordering %",
    "s",
    "theory",
    "Sockeye",
    "of theory",
    "Linux",
    "of Linux",
    "again, needlessly (Sockeye; Linux)",
];
const TABLE_STYLE: &str = ".scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
th,td{text-align:right;padding:.15rem .6rem;border-bottom:1px solid var(--faint);white-space:nowrap}\
.below td{color:#d33}";

impl Entry {
    /// Sockeye's part of the kernel's goodput, if both were run.
    fn ratio(&self) -> Option<f64> {
        Some(self.sockeye?.goodput_bits / self.kernel?.goodput_bits)
    }

    fn columns(&self) -> [String; COLUMNS.len()] {
        let Self { cell, sockeye, kernel } = self;
        let none = || "–".to_owned();
        let goodput = |mean: &Option<Mean>| mean.map_or_else(none, |mean| mbit(mean.goodput_bits));
        let again = |mean: &Option<Mean>| {
            mean.map_or_else(none, |mean| {
                format!("{:.2} %, {:.2} %", 100.0 * mean.again, 100.0 * mean.needless)
            })
        };
        let part = |part: Option<f64>| part.map_or_else(none, |part| format!("{:.0} %", 100.0 * part));
        let mut of_kernel = part(self.ratio());
        if self.ratio().is_some_and(|ratio| ratio < GOAL) {
            of_kernel.push_str(" ↓");
        }
        [
            (cell.rate_bits / 1_000_000).to_string(),
            cell.rtt_ms.to_string(),
            percent(cell.loss).to_string(),
            percent(cell.reorder).to_string(),
            cell.seconds.to_string(),
            mbit(cell.theory()),
            goodput(sockeye),
            part(sockeye.map(|mean| mean.goodput_bits / cell.theory())),
            goodput(kernel),
            of_kernel,
            format!("{}; {}", again(sockeye), again(kernel)),
        ]
    }
}

fn is_late(result: &Result) -> bool {
    let bound = LATE_MS.max(result.cell.rtt_ms as f64 * LATE_PART);
    result.late_ms.is_some_and(|late| late > bound)
}

fn mean(results: &[&Result], on: On) -> Option<Mean> {
    let of: Vec<&&Result> = results.iter().filter(|result| result.cell.on == on).collect();
    if of.is_empty() {
        return None;
    }
    let sum = |value: fn(&Result) -> f64| of.iter().map(|result| value(result)).sum::<f64>();
    let segments = sum(|result| result.segments as f64).max(1.0);
    Some(Mean {
        goodput_bits: sum(|result| result.goodput_bits) / of.len() as f64,
        again: sum(|result| result.retransmitted as f64) / segments,
        needless: sum(|result| result.needless as f64) / segments,
        seeds: of.len(),
    })
}

/// Megabits with three digits that count.
fn mbit(bits: f64) -> String {
    let mbit = bits / 1e6;
    let digits = if mbit >= 100.0 {
        0
    } else if mbit >= 10.0 {
        1
    } else {
        2
    };
    format!("{mbit:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(on: On, seed: u64, goodput_bits: f64, late_ms: Option<f64>) -> Result {
        let cell =
            Cell { on, rate_bits: 10_000_000, rtt_ms: 50, loss: 0.001, reorder: 0.0, seconds: 20, seed };
        Result { cell, goodput_bits, segments: 1000, retransmitted: 5, needless: 1, late_ms }
    }

    #[test]
    fn seeds_are_averaged_and_cells_below_the_goal_are_named() {
        let results = [
            result(On::Kernel, 1, 8e6, Some(0.1)),
            result(On::Sockeye, 1, 6e6, None),
            result(On::Sockeye, 2, 8e6, None),
            // Its link was another one.
            result(On::Kernel, 2, 1e6, Some(30.0)),
        ];
        let table = Table::new(&results);
        let summary = table.summary();
        assert!(summary.starts_with("1 paths, 1 beside the kernel, 1 of them below 90 %; 1 of"), "{summary}");
        assert!(summary.contains("88 %: 7.00 Mbit/s, kernel 8.00"), "{summary}");
        let markdown = table.markdown();
        assert!(markdown.contains("| 7.00 |") && markdown.contains("88 % ↓"), "{markdown}");
        assert!(table.page().contains("class=\"below\""));
        assert_eq!(table.entries[0].sockeye.map(|mean| mean.seeds), Some(2));
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        assert_eq!([1.234e6, 12.34e6, 123.4e6].map(mbit), ["1.23", "12.3", "123"]);
    }
}
