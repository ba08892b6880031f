//! The page of a failed run: hosts as columns, time downwards, packets as arrows, faults and notes where they happened.
//!
//! One HTML file with a drawing in it and nothing to load, so it opens without a server and can be mailed. Rows are events, not equal times: an hour without a packet
//! takes no room. Computes only, from the trace's last events. Tests: below, `tests/failures.rs`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use crate::event::Nanos;
use crate::trace::{Entry, Names, What};

/// Rows that are drawn, the latest.
const ROWS_MAX: usize = 2000;
/// Pixels.
const ROW: usize = 16;
const COLUMN: usize = 220;
const LEFT: usize = 150;
const TOP: usize = 50;

/// What the page says above the drawing.
pub(crate) struct Head<'a> {
    pub seed: u64,
    pub message: &'a str,
    pub replay: &'a str,
    /// The file of packets, if there is one.
    pub packets: Option<&'a str>,
}

/// A packet's arrow: where and when it began.
struct Arrow {
    row: usize,
    label: String,
    note: Option<&'static str>,
    is_lost: bool,
    pipe: usize,
}

struct Drawing<'a> {
    names: &'a Names,
    svg: String,
    under: String,
    /// Packets on their way.
    flying: BTreeMap<u64, Arrow>,
    /// Hosts that are out of order: since which row, and how.
    out: BTreeMap<usize, (usize, &'static str)>,
    row: usize,
    last_at: Option<Nanos>,
}

/// The page of these events, oldest first.
pub(crate) fn page<'a>(
    head: &Head<'_>,
    names: &Names,
    entries: impl DoubleEndedIterator<Item = &'a Entry>,
) -> String {
    let is_shown = |entry: &&Entry| !matches!(entry.what, What::Ran { .. } | What::Polled { .. });
    let mut shown: Vec<&Entry> = entries.rev().filter(is_shown).take(ROWS_MAX).collect();
    shown.reverse();
    let mut drawing = Drawing {
        names,
        svg: String::new(),
        under: String::new(),
        flying: BTreeMap::new(),
        out: BTreeMap::new(),
        row: 0,
        last_at: None,
    };
    shown.iter().for_each(|entry| drawing.event(entry));
    let drawn = drawing.finish();
    let Head { seed, message, replay, packets } = head;
    let (message, replay) = (escape(message), escape(replay));
    let packets =
        packets.map_or(String::new(), |path| format!("<p>Packets: <code>{}</code></p>", escape(path)));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Seed {seed}</title><style>{STYLE}</style></head><body>\n\
         <h1>Seed {seed} failed</h1><pre>{message}</pre><p>Replay: <code>{replay}</code></p>{packets}\n\
         <p>{} of the last events. Rest the pointer on an arrow for the packet.</p>\n{drawn}\n</body></html>\n",
        shown.len()
    )
}

const STYLE: &str = "body{font:14px sans-serif;margin:16px}pre,code{background:#f3f3f3;padding:2px 4px}\
    svg text{font:11px monospace}.host{font:bold 13px sans-serif}.life{stroke:#bbb}.packet{stroke:#36c}.lost{stroke:#c22}\
    .odd{stroke:#b70}.flying{stroke:#36c;stroke-dasharray:3}.label{fill:#555}.fault{fill:#c22}.note{fill:#170}\
    .down{fill:#c22;opacity:.15}.paused{fill:#b70;opacity:.2}";

impl Drawing<'_> {
    fn x(host: Option<usize>) -> usize {
        // The main program is the first column.
        LEFT + COLUMN / 2 + host.map_or(0, |host| host + 1) * COLUMN
    }

    fn y(row: usize) -> usize {
        TOP + row * ROW
    }

    fn event(&mut self, entry: &Entry) {
        self.row += 1;
        let y = Self::y(self.row);
        if self.last_at != Some(entry.at) {
            self.last_at = Some(entry.at);
            let time = Duration::from_nanos(entry.at);
            let _infallible = write!(self.svg, "<text class=\"label\" x=\"4\" y=\"{y}\">{time:?}</text>");
        }
        match &entry.what {
            What::Sent { pipe, number, seen, arrival, note } => {
                let arrow = Arrow {
                    row: self.row,
                    label: escape(&format!("packet {number}, {seen}")),
                    note: *note,
                    is_lost: arrival.is_none(),
                    pipe: *pipe,
                };
                if arrow.is_lost {
                    self.arrow(&arrow, self.row, "lost");
                } else {
                    self.flying.insert(*number, arrow);
                }
            }
            What::Arrived { number, is_taken, .. } => {
                // A copy of a doubled packet arrives a second time, and has no arrow then.
                if let Some(arrow) = self.flying.remove(number) {
                    let class = if !is_taken {
                        "lost"
                    } else if arrow.note.is_some() {
                        "odd"
                    } else {
                        "packet"
                    };
                    self.arrow(&arrow, self.row, class);
                }
            }
            What::Said { host, is_fault, text } => {
                let (class, x) = (if *is_fault { "fault" } else { "note" }, Self::x(*host) + 6);
                let _infallible = write!(
                    self.svg,
                    "<circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"4\"/><text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>",
                    x - 6,
                    y - 4,
                    escape(text)
                );
                if let (Some(host), true) = (host, *is_fault) {
                    self.state(*host, text);
                }
            }
            What::Ran { .. } | What::Polled { .. } => {}
        }
    }

    /// A host's fault begins or ends.
    fn state(&mut self, host: usize, text: &str) {
        let class = match text {
            "crashed" | "killed" => Some("down"),
            "paused" => Some("paused"),
            "started again" | "resumed" => None,
            _ => return,
        };
        self.band(host);
        if let Some(class) = class {
            self.out.insert(host, (self.row, class));
        }
    }

    /// Draws the time in which a host was out of order, until now.
    fn band(&mut self, host: usize) {
        if let Some((since, class)) = self.out.remove(&host) {
            let (x, y, height) = (Self::x(Some(host)) - 12, Self::y(since), (self.row - since) * ROW);
            let _infallible = write!(
                self.under,
                "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"24\" height=\"{height}\"/>"
            );
        }
    }

    fn arrow(&mut self, arrow: &Arrow, row: usize, class: &str) {
        let (from, to) = self.names.ends(arrow.pipe);
        let (x1, x2) = (Self::x(Some(from)), Self::x(Some(to)));
        // A lost one ends half way.
        let x2 = if class == "lost" { x1.midpoint(x2) } else { x2 };
        let (y1, y2) = (Self::y(arrow.row) - 4, Self::y(row) - 4);
        let note = arrow.note.map_or(String::new(), |note| format!(": {}", escape(note)));
        let end = if class == "lost" { "cross" } else { "head" };
        let _infallible = write!(
            self.svg,
            "<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" marker-end=\"url(#{end})\"><title>{}{note}</title></line>",
            arrow.label
        );
        if let (Some(note), "lost") = (arrow.note, class) {
            let _infallible =
                write!(self.svg, "<text class=\"fault\" x=\"{x2}\" y=\"{y2}\">{}</text>", escape(note));
        }
    }

    fn finish(mut self) -> String {
        self.row += 1;
        for arrow in std::mem::take(&mut self.flying).into_values() {
            self.arrow(&arrow, self.row, "flying");
        }
        for host in 0..self.names.hosts.len() {
            self.band(host);
        }
        let (width, height) = (LEFT + (self.names.hosts.len() + 1) * COLUMN, Self::y(self.row + 2));
        let mut lives = String::new();
        let columns = std::iter::once(None).chain((0..self.names.hosts.len()).map(Some));
        for host in columns {
            let (x, name) = (Self::x(host), escape(self.names.host(host)));
            let _infallible = write!(
                lives,
                "<text class=\"host\" x=\"{x}\" y=\"24\" text-anchor=\"middle\">{name}</text>\
                 <line class=\"life\" x1=\"{x}\" y1=\"34\" x2=\"{x}\" y2=\"{height}\"/>"
            );
        }
        let marker = |id: &str, path: &str| {
            format!(
                "<marker id=\"{id}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">\
                 <path d=\"{path}\" fill=\"none\" stroke=\"#555\"/></marker>"
            )
        };
        let (head, cross) = (marker("head", "M0 0L8 4L0 8"), marker("cross", "M3 0L8 8M8 0L3 8"));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\"><defs>{head}{cross}</defs>{}{lives}{}</svg>",
            self.under, self.svg
        )
    }
}

fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            char => safe.push(char),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Seen;

    #[test]
    fn packets_are_arrows_and_faults_are_bands_and_foreign_text_is_escaped() {
        let names = Names { hosts: vec!["<a>".into(), "b".into()], pipes: vec![(0, 1), (1, 0)] };
        let seen = Seen { len: 60, digest: 0, tcp: None };
        let said = |host, text: &str| What::Said { host, is_fault: true, text: text.into() };
        let sent = |number, arrival, note| What::Sent { pipe: 0, number, seen, arrival, note };
        let whats = [
            sent(0, Some(2), None),
            sent(1, None, Some("loss")),
            What::Arrived { pipe: 0, number: 0, is_taken: true },
            said(Some(1), "crashed"),
            What::Polled { host: 0, next: 5 },
            said(Some(1), "started again"),
            sent(2, Some(9), None),
        ];
        let entries: Vec<Entry> = (0..).zip(whats).map(|(at, what)| Entry { at, what }).collect();
        let head = Head { seed: 7, message: "a < b", replay: "again", packets: None };
        let page = page(&head, &names, entries.iter());
        for (part, count) in [
            ("class=\"packet\"", 1),
            ("class=\"lost\"", 1),
            ("class=\"flying\"", 1),
            ("class=\"down\"", 1),
            ("&lt;a&gt;", 1),
            ("a &lt; b", 1),
            ("<a>", 0),
            ("http-equiv", 0),
            ("<script", 0),
            ("6 of the last events", 1),
        ] {
            assert_eq!(page.matches(part).count(), count, "{part} in {page}");
        }
    }
}
