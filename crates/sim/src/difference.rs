//! The first event in which two runs of a seed differ.
//!
//! Two runs are made that keep their events from the first on. If they differ behind what they could keep, their marks tell between which events, and two more runs
//! keep the events from there on. Those may turn out to be equal, since what made the first two differ is not decided by the seed; then only the interval is known.
//! Tests: `tests/hosts/determinism.rs`.

use std::fmt;

use crate::trace::{Entry, Names, Record};

/// Events that are shown from before the difference.
const BEFORE: usize = 8;

/// Two runs of one seed that are not the same: see [`Sim::first_difference`](crate::Sim::first_difference). Its display has the events.
#[derive(Clone, PartialEq, Eq)]
pub struct Difference {
    seed: u64,
    index: u64,
    until: Option<u64>,
    before: Vec<String>,
    runs: [Option<String>; 2],
}

impl Difference {
    /// Events that both runs have in common: the number of the first that differs. If the runs could not be repeated, it is only known that it is not before this one.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The events in which the two runs differ, in words; `None` if a run ended before it, or if it is not known.
    pub fn events(&self) -> [Option<&str>; 2] {
        self.runs.each_ref().map(|event| event.as_deref())
    }
}

/// What the traces of two runs tell.
pub(crate) enum Found {
    Same,
    Differ(Difference),
    /// Behind what they kept, in the events from this one to that.
    Between(u64, u64),
}

/// Compares two runs that kept their events from the same one on.
pub(crate) fn compare(seed: u64, first: &Record, second: &Record) -> Found {
    if (first.digest, first.count) == (second.digest, second.count) {
        return Found::Same;
    }
    // Marks of the larger distance are among those of the smaller one.
    let stride = first.stride.max(second.stride);
    let marks = |record: &Record| {
        let step = usize::try_from(stride / record.stride).unwrap_or(1);
        record.marks.iter().skip(step - 1).step_by(step).copied().collect::<Vec<u64>>()
    };
    let same = marks(first).iter().zip(marks(second)).take_while(|(one, two)| **one == *two).count() as u64;
    let from = same * stride;
    if from < first.first {
        // Not behind where they differed last time.
        return Found::Between(from, from + stride);
    }
    let skip = usize::try_from(from - first.first).unwrap_or(usize::MAX);
    let both = first.entries.iter().zip(&second.entries).skip(skip);
    let equal = both.take_while(|(one, two)| one == two).count();
    let place = skip + equal;
    let [one, two] = [first, second].map(|record| record.entries.get(place));
    if one.is_none() && two.is_none() {
        return Found::Between(from, from + stride);
    }
    let words = |record: &Record| record.entries.get(place).map(|entry| words(&record.names, entry));
    let before = first.entries.iter().take(place).skip(place.saturating_sub(BEFORE));
    Found::Differ(Difference {
        seed,
        index: from + equal as u64,
        until: None,
        before: before.map(|entry| self::words(&first.names, entry)).collect(),
        runs: [words(first), words(second)],
    })
}

fn words(names: &Names, entry: &Entry) -> String {
    names.show(entry).to_string()
}

impl Difference {
    /// Runs that differed in these events, and did not differ again.
    pub(crate) fn between(seed: u64, from: u64, to: u64) -> Self {
        Self { seed, index: from, until: Some(to), before: Vec::new(), runs: [None, None] }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, index, .. } = self;
        if let Some(until) = self.until {
            return write!(
                f,
                "two runs of seed {seed} differ somewhere in the events {index} to {until}; two more runs did not differ there"
            );
        }
        write!(f, "two runs of seed {seed} are the same for {index} events, and then differ")?;
        let first = index - self.before.len() as u64;
        for (number, event) in (first..).zip(&self.before) {
            write!(f, "\n  both    #{number}: {event}")?;
        }
        for (run, event) in ["first ", "second"].iter().zip(&self.runs) {
            write!(f, "\n  {run}  #{index}: {}", event.as_deref().unwrap_or("the run is over"))?;
        }
        f.write_str(
            "\nA program must take time and chance from the simulation: docs/sim.md, \"What a program must avoid\"",
        )
    }
}

impl fmt::Debug for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What `unwrap` and `assert_eq!` show.
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Difference {}
