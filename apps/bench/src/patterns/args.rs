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
    #[arg(long, value_name = "N")]
    pub count: Option<usize>,

    /// Number of the first pattern [default: 0] (patterns)
    #[arg(long, value_name = "N")]
    pub from: Option<usize>,

    /// Run this pattern alone, as often as --samples says [default: 5] (patterns)
    #[arg(long, value_name = "N", conflicts_with_all = ["count", "from"])]
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
