//! Tests of the generator: a seed gives one scenario, and each kind of scenario occurs about as often as conformance.md says.

use std::collections::BTreeMap;

use super::patience::Subject;
use super::*;

#[test]
fn a_seed_gives_one_scenario_that_can_be_written_down() {
    for seed in 0..20 {
        let scenario = generate(seed);
        assert_eq!(scenario, generate(seed));
        assert_eq!(scenario.to_string().parse::<Scenario>().unwrap(), scenario);
        assert!(scenario.events.windows(2).all(|pair| pair[0].at_ms <= pair[1].at_ms));
    }
    assert_ne!(generate(1), generate(2));
}

/// Habits that replace the usual ones, and in how many of 100 scenarios.
const RARE: &[(&str, u32)] = &[
    ("FastOpen", 5),
    ("Reuse", 4),
    ("Deferral", 2),
    ("Oddities", 2),
    ("Urgency", 2),
    ("Calls", 2),
    ("Joins", 2),
    ("Patience", 4),
    ("Patience(Inherited)", 2),
];

/// The number of usual habits.
const USUAL: usize = 15;

#[test]
fn choices_that_replace_each_other_leave_each_habit_its_share() {
    const SEEDS: u32 = 20_000;
    let (mut habits, mut with_cookies) = (BTreeMap::<String, u32>::new(), BTreeMap::<String, u32>::new());
    for seed in (0..SEEDS).map(u64::from) {
        let habit = match Habit::of(seed, &mut Random::new(!seed)) {
            inherited @ Habit::Patience(Subject::Inherited) => format!("{inherited:?}"),
            Habit::Patience(_) => "Patience".to_owned(),
            habit => format!("{habit:?}"),
        };
        let mut settings = BTreeMap::new();
        cookies::set(&mut settings, seed);
        *with_cookies.entry(habit.clone()).or_insert(0) += u32::from(!settings.is_empty());
        *habits.entry(habit).or_insert(0) += 1;
    }
    for (name, percent) in RARE {
        let met = habits.remove(*name).unwrap_or(0);
        assert!(met * 200 >= SEEDS * percent, "{name}: {met} of {SEEDS}");
    }
    assert_eq!(habits.len(), USUAL, "{habits:?}");
    assert!(habits.values().all(|met| met * 2 * 16 >= SEEDS), "{habits:?}");
    // A scenario of any habit may have cookies, and most have none.
    let share: u32 = with_cookies.values().sum();
    assert!((SEEDS / 100..SEEDS * 3 / 100).contains(&share), "{share}");
    assert!(with_cookies.values().all(|met| *met > 0), "{with_cookies:?}");
    assert!(with_cookies["Joins"] * 10 < share, "{with_cookies:?}");
}
