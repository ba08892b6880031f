//! Looking for planted bugs, and trying the right program with many seeds: what an example does when it is started.
//!
//! Does not depend on the program. Tests: each example's.

use std::fmt::Debug;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use sockeye_sim::{Capture, Net, Seeds, Sim};

/// The first of these seeds with which the program fails, and what the failure says first.
pub fn first_failure<Fut>(seeds: Range<u64>, program: impl Fn(Net) -> Fut + Sync) -> Option<(u64, String)>
where
    Fut: Future + 'static,
    Fut::Output: Send,
{
    seeds.into_iter().find_map(|seed| {
        let sim = Sim::exactly(seed).tokio().capture(Capture::Off);
        let panic = catch_unwind(AssertUnwindSafe(|| sim.run(|net| program(net)))).err()?;
        let message = panic.downcast_ref::<String>().and_then(|text| text.lines().next());
        Some((seed, message.unwrap_or("a panic").to_owned()))
    })
}

/// Fails unless the program fails with one of these seeds, and the first failure says that it is the planted bug's.
#[cfg(test)]
pub fn assert_found<Fut>(seeds: Range<u64>, says: &str, program: impl Fn(Net) -> Fut + Sync)
where
    Fut: Future + 'static,
    Fut::Output: Send,
{
    let (seed, what) = first_failure(seeds, program).expect("the planted bug is found");
    assert!(what.contains(says), "seed {seed} failed otherwise: {what}");
}

/// Says how many seeds each planted bug takes to be found, and tries the program without one with all of them; or what the command line asks for instead.
pub fn start<B, Fut>(planted: &[B], right: B, program: impl Fn(Net, B) -> Fut + Sync)
where
    B: Copy + Debug + Sync,
    Fut: Future<Output = ()> + 'static,
{
    if sockeye_glue::is_twice() {
        return;
    }
    let seeds = sockeye_glue::seeds();
    let is_only_right = sockeye_glue::is_only_seeds();
    for bug in planted.iter().filter(|_| !is_only_right) {
        match first_failure(seeds.clone(), |net| program(net, *bug)) {
            Some((seed, what)) => println!("{bug:?}: found by seed {seed}: {what}"),
            None => println!("{bug:?}: not found"),
        }
    }
    Seeds::new(seeds).sim(|sim| sim.tokio()).run(|net| program(net, right));
    println!("what clients see of the right program is linearizable");
}
