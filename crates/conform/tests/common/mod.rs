//! The common part of both tests beside the kernel: nothing is skipped without a message.

use std::io::Write;

use sockeye_conform::campaign::{self, Outcome};
use sockeye_conform::scenario::Scenario;
use sockeye_conform::{driven, kernel};

/// Whether this is a run of continuous integration, where a test that cannot run fails.
fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true" || value == "1")
}

/// Prints it where it is seen: the test harness hides the output of a test that passes.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {text}");
}

/// The outcomes of these beside the kernel; `None`, and they were run on Sockeye alone, where there may be no namespace and device.
///
/// # Panics
/// Under continuous integration, if there may be none.
pub fn outcomes(what: &str, scenarios: &[Scenario]) -> Option<Vec<Outcome>> {
    if let Err(why) = kernel::available() {
        assert!(!is_ci(), "in continuous integration this has to run: {why}");
        say(&format!("{what}, which were only run on Sockeye: {why}"));
        scenarios.iter().for_each(|scenario| assert!(!driven::run(scenario).records.is_empty()));
        return None;
    }
    let (outcomes, too_few) = campaign::run_as_test(scenarios, is_ci()).unwrap();
    if let Some(why) = too_few {
        say(&format!("{what}: {why}"));
    }
    Some(outcomes)
}
