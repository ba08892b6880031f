//! `--report`: all results on one page.
//!
//! Purpose: a self-contained page: charts, tables, counters, the documents' figures, the machine, the command, the
//! predictions. No script and nothing from elsewhere, so it can be kept beside the figures.
//!
//! Does not depend on how anything was measured.
//!
//! Invariants: the page is well-formed XML too; all text goes through [`escape`]. Tables that are wider than the screen scroll
//! by themselves, the page does not.
//!
//! Tests: below.

use std::fmt::Write;

use crate::experiment::Measured;
use crate::experiment::counters::{cell, is_known, lines, value};
use crate::experiment::figures::DISCLAIMER;
use crate::experiment::goals::verdict;
use crate::experiment::model::{Experiment, KERNEL, Lane};
use crate::experiment::plan::Plan;
use crate::experiment::run::LaneResult;
use crate::experiment::scale::Prediction;
use crate::experiment::text::{pairs, places};
use crate::machine::Machine;
use crate::page::{END, begin, escape};
use crate::stats::ministat::{Difference, general};

mod bars;
mod curves;
mod prediction;

/// Name of a lane, and its setting.
pub struct Name {
    text: String,
    /// Its index in the switch; `None` for the kernel.
    setting: Option<usize>,
}

impl Name {
    fn of(lane: &Lane, experiment: &Experiment) -> Self {
        let setting = experiment.settings.iter().position(|name| *name == lane.name());
        Self { text: lane.name().to_owned(), setting }
    }

    #[cfg(test)]
    fn setting(text: &str, index: usize) -> Self {
        Self { text: text.to_owned(), setting: Some(index) }
    }

    #[cfg(test)]
    fn kernel() -> Self {
        Self { text: KERNEL.to_owned(), setting: None }
    }
}

/// The page.
pub fn page(
    machine: &Machine,
    plan: &Plan,
    measured: &[Measured<'_>],
    predictions: &[Prediction<'_>],
    command: &str,
) -> String {
    let mut text = begin("Sockeye: experiments", machine, command);
    push(
        &mut text,
        format_args!(
            "<p>{} interleaved samples of {} s for each setting. Bars are averages from zero with their 95 % \
             interval (Student's t), ticks are samples. Differences are against the first setting.</p>\n",
            plan.samples,
            plan.timing.timed.as_secs_f64()
        ),
    );
    text += &words();
    text += &contents(plan);
    for part in &plan.parts {
        let experiment = part.experiment;
        push(
            &mut text,
            format_args!(
                "<h2 id=\"{}\">{}: {}</h2>\n<p class=\"soft\">{}.</p>\n",
                experiment.name,
                experiment.name,
                escape(experiment.title),
                escape(experiment.about)
            ),
        );
        text += &figure(experiment);
        for one in measured.iter().filter(|one| one.part.experiment.name == experiment.name) {
            text += &row(one);
        }
        for one in predictions.iter().filter(|one| one.experiment.name == experiment.name) {
            text += &prediction::section(one);
        }
    }
    text + END
}

fn words() -> String {
    let mut text = "<details><summary>Words on this page</summary>\n<dl>\n".to_owned();
    for (word, meaning) in WORDS {
        push(&mut text, format_args!("<dt>{word}</dt><dd class=\"soft\">{}</dd>\n", escape(meaning)));
    }
    text + "</dl></details>\n"
}

/// Words that a reader who does not know the stack's inside has to look up.
const WORDS: &[(&str, &str)] = &[
    (
        "setting",
        "one form of the technique that the experiment compares, on the same stack; the first one is the oldest",
    ),
    (
        "operation",
        "what the row counts: a write, a request with its response, a packet, or a connection; its counters say which",
    ),
    (
        "95 % interval",
        "where the true average lies in 19 of 20 such runs; two settings whose difference is proven do not share it",
    ),
    (
        "hand-off",
        "a core writes a word of memory that another core wrote before, so the word has to move between them; counted in a run of its own",
    ),
    ("squeue", "a queue of work for several connections, whose work one thread at a time does"),
    ("grain", "which connections share a lock or a squeue: each its own, those of a core, or all"),
    ("cores used", "CPU time of all threads over the time that passed"),
];

fn contents(plan: &Plan) -> String {
    let mut text = "<nav aria-label=\"Experiments\"><ul>\n".to_owned();
    for part in &plan.parts {
        let (name, title) = (part.experiment.name, escape(part.experiment.title));
        push(&mut text, format_args!("<li><a href=\"#{name}\">{name}: {title}</a></li>\n"));
    }
    text + "</ul></nav>\n"
}

fn figure(experiment: &Experiment) -> String {
    let figure = experiment.figure;
    let mut text = format!(
        "<h3>What the document found</h3>\n<p class=\"soft\">{}. {}. {}.</p>\n\
         <div class=\"scroll\"><table><thead><tr><th>what</th><th class=\"text\">figure</th><th>ratio</th></tr></thead><tbody>\n",
        escape(figure.source),
        escape(figure.workload),
        escape(figure.machine)
    );
    for (name, found, ratio) in figure.found {
        push(
            &mut text,
            format_args!(
                "<tr><td>{}</td><td class=\"text\">{}</td><td>{}</td></tr>\n",
                escape(name),
                escape(found),
                escape(ratio)
            ),
        );
    }
    push(&mut text, format_args!("</tbody></table></div>\n<p class=\"soft\">Beware: {DISCLAIMER}.</p>\n"));
    text
}

fn row(one: &Measured<'_>) -> String {
    let experiment = one.part.experiment;
    let mut text = format!("<h3>{}, {}</h3>\n", escape(&one.row.label), escape(one.row.unit));
    if !one.row.base.is_empty() {
        push(&mut text, format_args!("<p class=\"soft\">with {}</p>\n", escape(&pairs(one.row.base))));
    }
    let names: Vec<Name> = one.outcome.lanes.iter().map(|lane| Name::of(&lane.lane, experiment)).collect();
    let drawn: Vec<bars::Bar<'_>> = one
        .outcome
        .lanes
        .iter()
        .zip(&names)
        .map(|(lane, name)| bars::Bar { name, samples: &lane.samples, moments: &lane.moments })
        .collect();
    text += &bars::bars(&drawn, one.row.unit);
    text += &goals(one);
    text += &statistics(one);
    text += &counters(one);
    for failure in &one.outcome.failures {
        let (lane, error) = (failure.lane.name(), escape(&failure.error.to_string()));
        push(&mut text, format_args!("<p class=\"missed\">{lane} failed: {error}</p>\n"));
    }
    text
}

fn goals(one: &Measured<'_>) -> String {
    if one.goals().is_empty() {
        return String::new();
    }
    let mut text = "<ul class=\"goals\">\n".to_owned();
    for goal in one.goals() {
        let found = verdict(goal, one.part.experiment, &one.outcome);
        let class = match found.reached {
            Some(true) => "reached",
            Some(false) => "missed",
            None => "open",
        };
        push(
            &mut text,
            format_args!(
                "<li><span class=\"tag {class}\">{}</span> {}</li>\n",
                found.word(),
                escape(&found.text)
            ),
        );
    }
    text + "</ul>\n"
}

fn statistics(one: &Measured<'_>) -> String {
    let mut text = "<div class=\"scroll\"><table><thead><tr><th>setting</th><th>N</th><th>min</th><th>max</th>\
                    <th>median</th><th>average</th><th>deviation</th><th>difference at 95 %</th></tr></thead><tbody>\n"
        .to_owned();
    let base = one.outcome.base();
    for lane in &one.outcome.lanes {
        let of = &lane.moments;
        push(
            &mut text,
            format_args!(
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                escape(lane.lane.name()),
                of.count,
                general(of.min),
                general(of.max),
                general(of.median),
                general(of.average),
                general(of.deviation),
                difference(base, lane)
            ),
        );
    }
    text + "</tbody></table></div>\n"
}

fn difference(base: Option<&LaneResult>, lane: &LaneResult) -> String {
    let Some(base) = base.filter(|base| base.lane != lane.lane) else { return String::new() };
    match Difference::of(&base.moments, &lane.moments) {
        Some(found) if found.proven => format!("{:+.2} % ± {:.2} %", found.percent, found.percent_error),
        Some(_) => "none proven".to_owned(),
        None => "too few samples".to_owned(),
    }
}

fn counters(one: &Measured<'_>) -> String {
    let lanes: Vec<&LaneResult> =
        one.outcome.lanes.iter().filter(|lane| lane.lane.name() != KERNEL).collect();
    if lanes.is_empty() {
        return String::new();
    }
    let heads: String = lanes.iter().map(|lane| format!("<th>{}</th>", escape(lane.lane.name()))).collect();
    let mut text = format!(
        "<details><summary>Counters; an operation is a {}</summary>\n\
         <div class=\"scroll\"><table><thead><tr><th>counter</th>{heads}</tr></thead><tbody>\n",
        escape(one.row.operation)
    );
    for line in lines(one.part.experiment) {
        if is_known(line, &one.outcome.lanes) {
            text += &cells(line.name, lanes.iter().map(|lane| cell(value(line, lane))));
        }
    }
    text += &cells("cores used", lanes.iter().map(|lane| cell(lane.cpu)));
    text += "</tbody></table></div>\n";
    let absent = lines(one.part.experiment).filter(|line| !is_known(line, &one.outcome.lanes));
    let absent: Vec<&str> = absent.map(|line| line.name.trim()).collect();
    if !absent.is_empty() {
        push(&mut text, format_args!("<p class=\"soft\">Not counted: {}.</p>\n", escape(&absent.join("; "))));
    }
    text += "</details>\n";
    let counted = |lane: &&LaneResult| lane.counted.as_ref().is_some_and(|counted| !counted.top.is_empty());
    if lanes.iter().any(counted) {
        text += "<details><summary>Where lines change hands</summary>\n<div class=\"scroll\"><table>\
                 <thead><tr><th>setting</th><th class=\"text\">place, share of all hand-offs</th></tr></thead><tbody>\n";
        for lane in lanes {
            let places = lane.counted.as_ref().map(places).unwrap_or_default();
            let (name, places) = (escape(lane.lane.name()), escape(&places));
            push(&mut text, format_args!("<tr><td>{name}</td><td class=\"text\">{places}</td></tr>\n"));
        }
        text += "</tbody></table></div>\n</details>\n";
    }
    text
}

fn cells(name: &str, values: impl Iterator<Item = String>) -> String {
    let values: String = values.map(|value| format!("<td>{}</td>", escape(&value))).collect();
    let class = if name.starts_with(' ') { " class=\"sub\"" } else { "" };
    format!("<tr><td{class}>{}</td>{values}</tr>\n", escape(name.trim()))
}

fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing into a String cannot fail.
    let _ = text.write_fmt(arguments);
}

#[cfg(test)]
mod tests;
