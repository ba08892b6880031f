//! How far a run is.
//!
//! Purpose: a bar with the current case on a terminal, a plain line a case otherwise; on standard error,
//! so that it never mixes with results.
//!
//! Invariants: it draws between samples only. A bar that moves by itself would need a thread that runs
//! inside them.
//!
//! Tests: `apps/bench/tests/bench/results.rs`, for the plain lines.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressStyle};

/// The progress of one run.
pub struct Progress {
    bar: Option<ProgressBar>,
    steps: usize,
}

impl Progress {
    /// Of so many samples in so many steps.
    pub fn of(samples: usize, steps: usize) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(samples as u64);
            let style = ProgressStyle::with_template(TEMPLATE);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self { bar, steps }
    }

    /// Step `index` begins.
    pub fn step(&self, index: usize, name: &str, label: &str) {
        let text = format!("[{}/{}] {name}: {label}", index + 1, self.steps);
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None => eprintln!("{text}"),
        }
    }

    /// A sample was taken.
    pub fn sample(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// Runs `write` while nothing is drawn where it writes.
    pub fn suspend<R>(&self, write: impl FnOnce() -> R) -> R {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The progress of something of unknown length: its last line, on a terminal.
pub struct Activity(Option<ProgressBar>);

impl Activity {
    /// Prints the name of the next part.
    pub fn begin(what: &str) -> Self {
        eprintln!("{what}");
        Self(io::stderr().is_terminal().then(ProgressBar::new_spinner))
    }

    /// Shows a line in the place of the one before.
    pub fn line(&self, line: &str) {
        if let Some(bar) = &self.0 {
            bar.set_message(line.to_owned());
            bar.tick();
        }
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

const TEMPLATE: &str = "{bar:24} {pos}/{len} samples, {eta} left  {msg}";
