//! The options that belong to `sockeye bench patterns` alone.
//!
//! Does not depend on how anything is measured. Tests: `tests/bench/patterns.rs`.

use clap::Args;

/// What is drawn and shown.
#[derive(Args, Debug, Default)]
pub struct PatternArgs {
    /// Seed of the patterns; pattern N of a seed is always the same [default: 1] (patterns)
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,

    /// Number of patterns [default: 200] (patterns)
    #[arg(long, value_name = "N", value_parser = count)]
    pub count: Option<usize>,

    /// Number of the first pattern [default: 0] (patterns)
    #[arg(long, value_name = "N", value_parser = number)]
    pub from: Option<usize>,

    /// Run this pattern alone, as often as --samples says [default: 5] (patterns)
    #[arg(long, value_name = "N", value_parser = number, conflicts_with_all = ["count", "from"])]
    pub only: Option<usize>,

    /// Print the patterns without running them (patterns)
    #[arg(long)]
    pub list: bool,

    /// Number of patterns in the table, the worst first [default: 10] (patterns)
    #[arg(long, value_name = "N")]
    pub worst: Option<usize>,

    /// Exit with 1 if a pattern is slower than 0.8 of the kernel (patterns)
    #[arg(long)]
    pub check: bool,
}

impl PatternArgs {
    /// The flags, an example, and whether each was given.
    pub fn flags(&self) -> [(&'static str, &'static str, bool); 7] {
        [
            ("--seed", "--seed 2", self.seed.is_some()),
            ("--count", "--count 50", self.count.is_some()),
            ("--from", "--from 200", self.from.is_some()),
            ("--only", "--only 17", self.only.is_some()),
            ("--list", "--list", self.list),
            ("--worst", "--worst 20", self.worst.is_some()),
            ("--check", "--check", self.check),
        ]
    }
}

/// How many patterns, at most: a month of them.
const COUNT_MAX: usize = 1_000_000;
/// The last of them.
const NUMBER_MAX: usize = 1_000_000_000;

fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=COUNT_MAX).contains(&n) => Ok(n),
        Ok(_) | Err(_) => Err(format!("write a whole number from 1 to {COUNT_MAX}, such as 200")),
    }
}

fn number(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n <= NUMBER_MAX => Ok(n),
        Ok(_) | Err(_) => Err(format!("write a pattern's number, from 0 to {NUMBER_MAX}")),
    }
}
