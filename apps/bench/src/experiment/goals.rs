//! Whether an experiment shows what it should.
//!
//! Purpose: a goal held against a row's outcome, in words.
//!
//! Does not depend on how the words are laid out.
//!
//! Invariants: a goal without its figures is neither reached nor missed.
//!
//! Tests: below.

use crate::experiment::counters::{cell, lines, value};
use crate::experiment::model::{Experiment, Goal};
use crate::experiment::run::Outcome;

/// A goal and its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The wanted value, and the measured one.
    pub text: String,
    /// Whether it was reached; `None` if that is unknown.
    pub reached: Option<bool>,
}

impl Verdict {
    /// As a word.
    pub fn word(&self) -> &'static str {
        match self.reached {
            Some(true) => "reached",
            Some(false) => "MISSED",
            None => "not measured",
        }
    }
}

/// The outcome of `goal`.
pub fn verdict(goal: &Goal, experiment: &Experiment, outcome: &Outcome) -> Verdict {
    let line = |name: &str, of: &str| {
        let line = lines(experiment).find(|line| line.name == name)?;
        value(line, outcome.of(of)?)
    };
    match *goal {
        Goal::Ratio { of, over, least } => {
            let median = |name: &str| outcome.of(name).map(|lane| lane.moments.median);
            let found = median(of).zip(median(over)).filter(|(_, b)| *b > 0.0).map(|(a, b)| a / b);
            let text = format!("{of} >= {least} x {over}");
            judged(text, found, found.map(|found| found >= least))
        }
        Goal::LineAtMost { of, line: name, most } => {
            let found = line(name, of);
            judged(format!("{name} with {of} <= {most}"), found, found.map(|found| found <= most))
        }
        Goal::LineShare { of, over, line: name, most } => {
            let both = line(name, of).zip(line(name, over));
            let found = both.map(|(a, b)| if a == 0.0 { 0.0 } else { a / b });
            let text = format!("{name} with {of} <= {most} of {over}");
            judged(text, found, found.map(|found| found <= most))
        }
    }
}

fn judged(wanted: String, found: Option<f64>, reached: Option<bool>) -> Verdict {
    let text = match found {
        Some(found) => format!("{wanted}: is {}", cell(Some(found))),
        None => wanted,
    };
    Verdict { text, reached }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::run::tests::lane;
    use crate::experiment::table::EXPERIMENTS;

    #[test]
    fn goals_are_reached_missed_or_left_open() {
        let experiment = &EXPERIMENTS[0];
        let line = experiment.lines.iter().find(|line| line.of == ["segments_in"]).unwrap();
        let outcome = Outcome {
            lanes: vec![
                lane("sync", &[2.0], &[("segments_in", 100)]),
                lane("async", &[3.0], &[("segments_in", 10)]),
            ],
            failures: Vec::new(),
        };
        let judge = |goal| verdict(&goal, experiment, &outcome);
        let ratio = judge(Goal::Ratio { of: "async", over: "sync", least: 1.5 });
        assert_eq!((ratio.text.as_str(), ratio.reached), ("async >= 1.5 x sync: is 1.500", Some(true)));
        assert_eq!(judge(Goal::Ratio { of: "async", over: "sync", least: 1.51 }).word(), "MISSED");
        assert_eq!(judge(Goal::Ratio { of: "precheck", over: "sync", least: 1.0 }).word(), "not measured");
        let name = line.name;
        assert_eq!(judge(Goal::LineAtMost { of: "async", line: name, most: 1.0 }).reached, Some(true));
        assert_eq!(judge(Goal::LineAtMost { of: "sync", line: name, most: 1.0 }).reached, Some(false));
        let share = |most| judge(Goal::LineShare { of: "async", over: "sync", line: name, most }).reached;
        assert_eq!((share(0.1), share(0.05)), (Some(true), Some(false)));
        assert_eq!(judge(Goal::LineAtMost { of: "sync", line: "nothing", most: 1.0 }).reached, None);
    }
}
