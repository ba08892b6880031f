//! The table as a page, or its ratios as a picture.
//!
//! Purpose: the contents of the table, with a drawing of the ratios above it: a dot for each row with its 95 % interval, on a logarithmic
//! axis where 1 is the kernel. The picture is that drawing alone, as an SVG file for documents.
//!
//! Does not depend on how anything was measured. Tests: below.

use super::table::{Cells, thousands};
use crate::machine::Machine;
use crate::page::{END, begin, escape};
use crate::stats::Ratio;

/// A row of the table.
pub struct Row {
    /// The workload.
    pub workload: &'static str,
    /// Its case.
    pub case: String,
    /// Its cells.
    pub cells: Cells,
    /// Sockeye's rate over the kernel's; none where less is better, as of memory.
    pub ratio: Option<Ratio>,
    /// Sides that failed, and why.
    pub failures: Vec<String>,
}

/// The page.
pub fn page(machine: &Machine, method: &str, rows: &[Row], command: &str) -> String {
    let mut text = begin("Sockeye beside the kernel", machine, command);
    text += &format!("<p class=\"soft\">{}</p>\n<figure style=\"margin:0\">", escape(method));
    text += &picture(rows);
    text += "</figure>\n<div class=\"scroll\"><table><thead><tr><th>workload</th><th class=\"text\">case</th><th>Sockeye</th>\
             <th>kernel</th><th>ratio</th><th>95 % interval</th><th>cores used, Sockeye / kernel</th>";
    let has_goals = rows.iter().any(|row| !row.cells.goal.is_empty());
    text += if has_goals { "<th class=\"text\">goal</th>" } else { "" };
    text += "</tr></thead><tbody>\n";
    for row in rows {
        let Cells { ours, theirs, ratio, interval, cores, goal, more } = &row.cells;
        text +=
            &format!("<tr><td>{}</td><td class=\"text\">{}</td>", escape(row.workload), escape(&row.case));
        for (value, more) in [(ours, more.as_ref().map(|m| &m.0)), (theirs, more.as_ref().map(|m| &m.1))] {
            let more = more.map_or(String::new(), |more| format!("<br/>{}", escape(more)));
            text += &format!("<td>{}{more}</td>", escape(value));
        }
        for value in [ratio, interval, cores] {
            text += &format!("<td>{}</td>", escape(value));
        }
        text += &if has_goals { format!("<td class=\"text\">{}</td>", escape(goal)) } else { String::new() };
        text += "</tr>\n";
    }
    text += "</tbody></table></div>\n";
    for failure in rows.iter().flat_map(|row| &row.failures) {
        text += &format!("<p class=\"missed\">{}</p>\n", escape(failure));
    }
    text + END
}

/// The ratios as a drawing, which is a document of its own: its colours are in it, for light and dark.
pub fn picture(rows: &[Row]) -> String {
    let drawn: Vec<(&Row, Ratio)> = rows.iter().filter_map(|row| Some((row, row.ratio?))).collect();
    let ends = drawn.iter().map(|(_, ratio)| ratio.interval.unwrap_or((ratio.ratio, ratio.ratio)));
    let (low, high) =
        ends.fold((1.0, 1.0), |(low, high): (f64, f64), (from, to)| (low.min(from), high.max(to)));
    let axis = Axis { low: low.max(LEAST) / 1.2, high: high * 1.2 };
    let bottom = TOP + STEP * drawn.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\">\
         <title>Sockeye's rate over the kernel's, with 95 % intervals</title>\n<style>{COLOURS}</style>\n",
        bottom + 8.0
    );
    text += &format!(
        "<text class=\"p-soft\" x=\"{LEFT}\" y=\"14\">Sockeye / kernel (1: the kernel's rate)</text>\n"
    );
    for tick in TICKS.into_iter().filter(|tick| (axis.low..=axis.high).contains(tick)) {
        let (x, class) = (axis.x(tick), if tick == 1.0 { "p-one" } else { "p-axis" });
        text += &format!(
            "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text class=\"p-soft\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>\n",
            TOP - 4.0
        );
    }
    for (index, (row, ratio)) in drawn.iter().enumerate() {
        text += &mark(&axis, TOP + STEP * (index as f64 + 0.5), row, *ratio);
    }
    text + "</svg>\n"
}

fn mark(axis: &Axis, y: f64, row: &Row, found: Ratio) -> String {
    let name = escape(&format!("{}: {}", spelled(row.workload), row.case));
    let class = if found.ratio < 1.0 { "p-less" } else { "p-more" };
    let mut text =
        format!("<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>", LEFT - 8.0, y + 4.0);
    if let Some((low, high)) = found.interval {
        text += &format!(
            "<line class=\"{class}\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y}\" y2=\"{y}\"/>",
            axis.x(low),
            axis.x(high)
        );
    }
    let x = axis.x(found.ratio);
    let figure = if found.ratio < 99.5 { format!("{:.2}", found.ratio) } else { thousands(found.ratio) };
    text += &format!(
        "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y}\" r=\"4\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{figure}</text>\n",
        WIDTH - 4.0,
        y + 4.0
    );
    text
}

/// A workload's name for readers who do not know its short one.
fn spelled(workload: &str) -> &str {
    match workload {
        "rr" => "request/response",
        "crr" => "connect/request/close",
        "one-way" => "one-way messages",
        name => name,
    }
}

/// A logarithmic axis.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn x(&self, value: f64) -> f64 {
        let share = (value.max(self.low) / self.low).ln() / (self.high / self.low).ln();
        LEFT + share * (WIDTH - RIGHT - LEFT)
    }
}

const WIDTH: f64 = 800.0;
const LEFT: f64 = 300.0;
const RIGHT: f64 = 56.0;
const TOP: f64 = 36.0;
const STEP: f64 = 18.0;
/// The least ratio that is drawn at its place.
const LEAST: f64 = 0.01;
const TICKS: [f64; 11] = [0.01, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
const COLOURS: &str = "\
text { font: 12px system-ui, 'Liberation Sans', 'DejaVu Sans', sans-serif; fill: #1c2024; } text.p-soft { fill: #5d6670; } \
.p-axis { stroke: #d5dae0; } .p-one { stroke: #5d6670; stroke-width: 2; } \
.p-more { stroke: #16733a; fill: #16733a; stroke-width: 3; } .p-less { stroke: #b3232f; fill: #b3232f; stroke-width: 3; } \
@media (prefers-color-scheme: dark) { text { fill: #e6e9ec; } text.p-soft { fill: #9aa4ae; } .p-axis { stroke: #353c44; } \
.p-one { stroke: #9aa4ae; } .p-more { stroke: #55c985; fill: #55c985; } .p-less { stroke: #ff7b81; fill: #ff7b81; } }";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, ratio: Option<Ratio>, goal: &str) -> Row {
        let cell = str::to_owned;
        Row {
            workload: "stream",
            case: case.to_owned(),
            cells: Cells {
                ours: cell("2 a<b"),
                theirs: cell("1"),
                ratio: cell("2.00x"),
                interval: cell("[1.90-2.10]"),
                cores: cell("1 / 1"),
                goal: goal.to_owned(),
                more: Some((cell("3 Gbit/s"), cell("4 Gbit/s"))),
            },
            ratio,
            failures: vec!["kernel failed: no ports".to_owned()],
        }
    }

    fn rows(goal: &str) -> Vec<Row> {
        let ratio = |ratio: f64| Some(Ratio { ratio, interval: Some((ratio * 0.9, ratio * 1.1)) });
        vec![row("slow & small", ratio(0.5), goal), row("fast", ratio(60.0), ""), row("none", None, "")]
    }

    #[test]
    fn the_page_is_well_formed_and_has_every_row_and_failure() {
        let page = page(&Machine::read().unwrap(), "a method", &rows(""), "sockeye bench <x>");
        let (doctype, document) = page.split_once('\n').unwrap();
        assert_eq!(doctype, "<!DOCTYPE html>");
        let document = roxmltree::Document::parse(document).unwrap();
        let texts: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
        for part in
            ["2 a<b", "slow & small", "3 Gbit/s", "kernel failed: no ports", "sockeye bench <x>", "a method"]
        {
            assert!(texts.iter().any(|text| text.contains(part)), "{part}");
        }
        let count = |name: &str| document.descendants().filter(|node| node.has_tag_name(name)).count();
        assert_eq!((count("tr"), count("script"), count("link")), (4, 0, 0));
        assert!(!texts.contains(&"goal"), "no goals were asked for");
    }

    #[test]
    fn goals_have_a_column_if_there_are_any() {
        let page = page(&Machine::read().unwrap(), "", &rows(">= 1.5x reached"), "");
        assert!(page.contains("&gt;= 1.5x reached") && page.contains(">goal</th>"));
    }

    #[test]
    fn the_picture_is_a_document_with_a_mark_inside_its_frame_for_each_ratio() {
        let picture = picture(&rows(""));
        let document = roxmltree::Document::parse(&picture).unwrap();
        assert_eq!(document.root_element().tag_name().namespace(), Some("http://www.w3.org/2000/svg"));
        let marks: Vec<f64> = document
            .descendants()
            .filter(|node| node.tag_name().name() == "circle")
            .map(|node| node.attribute("cx").unwrap().parse().unwrap())
            .collect();
        assert_eq!(marks.len(), 2);
        assert!(marks[0] < marks[1] && marks.iter().all(|x| (LEFT..=WIDTH - RIGHT).contains(x)), "{marks:?}");
    }
}
