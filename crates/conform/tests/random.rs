//! Random scenarios.

use sockeye_conform::driven;
use sockeye_conform::generate::generate;

#[test]
fn a_random_scenario_goes_the_same_way_each_time() {
    for seed in 0..300 {
        let scenario = generate(seed);
        assert_eq!(driven::run(&scenario).records, driven::run(&scenario).records, "seed {seed}");
    }
}
