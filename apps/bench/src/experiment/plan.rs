//! The experiments that a command line selects.
//!
//! Purpose: which experiments, rows and lanes, the number and length of samples, and the total time.
//!
//! Does not depend on how anything is run.
//!
//! Invariants: every configuration of a plan is valid, so a wrong setting is refused before anything is
//! measured. Every row is bounded in samples and time.
//!
//! Tests: below; the command line's in `tests/bench`.

use std::time::Duration;

use sockeye_shared::end::UsageError;

use crate::args::{BenchArgs, On, Target};
use crate::experiment::model::{Asked, Experiment, Lane, Row};
use crate::experiment::table::EXPERIMENTS;
use crate::meter::Timing;

/// A whole run.
pub struct Plan {
    /// The experiments, in order.
    pub parts: Vec<Part>,
    /// Samples of each lane of a row.
    pub samples: usize,
    /// Time of a sample.
    pub timing: Timing,
    /// The settings of `--set`.
    pub given: Vec<(String, String)>,
    /// Whether the experiments themselves are run.
    pub measures: bool,
    /// Whether throughput on more cores is predicted.
    pub predicts: bool,
}

/// One experiment of a run.
pub struct Part {
    /// Which.
    pub experiment: &'static Experiment,
    /// Its lanes; the kernel's is left out of rows that do not exist there.
    pub lanes: Vec<Lane>,
    /// The experiments that it runs.
    pub rows: Vec<Row>,
    /// Goals are shown. They are always in JSON.
    pub shows_goals: bool,
}

impl Part {
    /// The lanes of one of its rows.
    pub fn lanes_of(&self, row: &Row) -> Vec<Lane> {
        let here = |lane: &&Lane| match lane {
            Lane::Kernel => row.kernel,
            Lane::Setting(_) => true,
        };
        self.lanes.iter().filter(here).cloned().collect()
    }
}

impl Plan {
    /// The plan for `args`; `target` is an experiment, all of them, or their scaling.
    pub fn of(args: &BenchArgs, target: Target) -> Result<Self, UsageError> {
        let (chosen, measures, predicts): (Vec<&'static Experiment>, bool, bool) = match target {
            Target::Experiment(index) => (vec![&EXPERIMENTS[index]], true, args.report.is_some()),
            Target::All => (EXPERIMENTS.iter().collect(), true, true),
            Target::Scale => (EXPERIMENTS.iter().collect(), false, true),
            Target::Workload(_)
            | Target::Tun
            | Target::Hostile
            | Target::Udp
            | Target::Patterns
            | Target::Sim => (Vec::new(), false, false),
        };
        if chosen.len() != 1 && !args.variants.is_empty() {
            return Err(UsageError(format!(
                "--variants needs one experiment whose settings they are, such as: sockeye bench rcvd \
                 --variants {}",
                args.variants.join(",")
            )));
        }
        let asked = Asked {
            connections: args.connections.clone(),
            threads: args.threads,
            size: args.size,
            clients: args.clients.clone(),
            dev: args.dev,
        };
        let parts: Vec<Part> = chosen
            .into_iter()
            .map(|experiment| {
                let lanes = lanes(experiment, &args.variants, args.on)?;
                Ok(Part { experiment, lanes, rows: (experiment.rows)(&asked)?, shows_goals: args.goals })
            })
            .collect::<Result<_, UsageError>>()?;
        let (samples, seconds) = if args.quick { QUICK } else { FULL };
        let seconds = args.seconds.unwrap_or(seconds);
        let timing = Timing {
            warm_up: Duration::from_secs_f64((seconds * WARM_UP_SHARE).max(WARM_UP_MIN)),
            timed: Duration::from_secs_f64(seconds),
        };
        let samples = args.samples.unwrap_or(samples);
        let plan = Self { parts, samples, timing, given: args.set.clone(), measures, predicts };
        plan.check_configurations()?;
        Ok(plan)
    }

    /// How many samples its experiments take, without predictions.
    pub fn samples_all(&self) -> usize {
        self.rows().map(|(part, row)| self.samples * part.lanes_of(row).len()).sum()
    }

    /// About how long the experiments take.
    pub fn planned_time(&self) -> Duration {
        let one = |(part, row): (&Part, &Row)| {
            // One more of each lane to count hand-offs.
            let samples = u32::try_from((self.samples + 1) * part.lanes_of(row).len()).unwrap_or(u32::MAX);
            (self.timing.warm_up + self.timing.timed + row.setup) * samples
        };
        self.rows().map(one).sum()
    }

    fn rows(&self) -> impl Iterator<Item = (&Part, &Row)> {
        self.parts.iter().flat_map(|part| part.rows.iter().map(move |row| (part, row)))
    }

    fn check_configurations(&self) -> Result<(), UsageError> {
        for (part, row) in self.rows() {
            for lane in &part.lanes {
                if let Lane::Setting(setting) = lane {
                    row.config(&self.given, part.experiment.key, setting)?;
                }
            }
            if self.given.iter().any(|(key, _)| key == part.experiment.key) {
                let (key, name) = (part.experiment.key, part.experiment.name);
                return Err(UsageError(format!(
                    "--set {key}=... is what bench {name} compares; use --variants to choose its settings"
                )));
            }
        }
        Ok(())
    }
}

fn lanes(experiment: &Experiment, variants: &[String], on: On) -> Result<Vec<Lane>, UsageError> {
    let mut lanes = Vec::new();
    if on != On::Kernel {
        if let Some(unknown) = variants.iter().find(|name| !experiment.settings.contains(&name.as_str())) {
            return Err(UsageError(format!(
                "--variants {unknown} is no setting of {}; give some of {}",
                experiment.key,
                experiment.settings.join(",")
            )));
        }
        let wanted = |name: &&&str| variants.is_empty() || variants.iter().any(|given| given == **name);
        lanes.extend(experiment.settings.iter().filter(wanted).map(|name| Lane::Setting(name)));
    }
    if on != On::Sockeye {
        lanes.push(Lane::Kernel);
    }
    Ok(lanes)
}

/// Samples and seconds for figures to be quoted.
const FULL: (usize, f64) = (10, 1.0);
/// Samples and seconds that show every experiment in a few minutes.
const QUICK: (usize, f64) = (10, 0.05);
/// Of the window's length, before it.
const WARM_UP_SHARE: f64 = 0.2;
/// In seconds: buffers and windows have grown and threads found their cores.
const WARM_UP_MIN: f64 = 0.03;

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(target: Target, change: impl FnOnce(&mut BenchArgs)) -> Result<Plan, UsageError> {
        let mut args = BenchArgs { quick: true, ..BenchArgs::default() };
        change(&mut args);
        Plan::of(&args, target)
    }

    #[test]
    fn all_of_them_have_rows_lanes_and_valid_configurations_and_quick_is_minutes() {
        let all = plan(Target::All, |_| ()).unwrap();
        assert_eq!(all.parts.len(), EXPERIMENTS.len());
        for part in &all.parts {
            assert!(!part.rows.is_empty(), "{}", part.experiment.name);
            assert_eq!(part.rows.iter().filter(|row| row.scales).count(), 1, "{}", part.experiment.name);
            for (index, row) in part.rows.iter().enumerate() {
                assert!(part.lanes_of(row).len() >= 2);
                let same = part.rows[..index].iter().any(|other| other.label == row.label);
                assert!(!same, "{} twice", row.label);
            }
        }
        assert!(all.samples >= 10 && all.samples_all() > 100);
        assert!(all.planned_time() < Duration::from_secs(300), "{:?}", all.planned_time());
    }

    #[test]
    fn variants_keep_the_order_of_the_settings_and_the_kernel_is_last() {
        let chosen = plan(Target::Experiment(0), |args| {
            args.variants = vec!["async".to_owned(), "sync".to_owned()];
        });
        let lanes = &chosen.unwrap().parts[0].lanes;
        let names: Vec<&str> = lanes.iter().map(Lane::name).collect();
        assert_eq!(names, ["sync", "async", "kernel"]);
    }

    #[test]
    fn invalid_plans_are_refused_with_a_remedy() {
        let refused = |target, change: fn(&mut BenchArgs)| plan(target, change).err().unwrap().0;
        let one = Target::Experiment(0);
        let message = refused(one, |args| args.variants = vec!["asink".to_owned()]);
        assert!(message.contains("asink") && message.contains("sync,async,precheck"), "{message}");
        let message = refused(Target::All, |args| args.variants = vec!["sync".to_owned()]);
        assert!(message.contains("bench rcvd --variants sync"), "{message}");
        let set = |key: &str, value: &str| vec![(key.to_owned(), value.to_owned())];
        let message = refused(one, |args| args.set = vec![("rcvd".to_owned(), "sync".to_owned())]);
        assert!(message.contains("--variants"), "{message}");
        for (given, part) in [(set("sndbuf", "1"), "sndbuf"), (set("sendbuf", "4K"), "sendbuf")] {
            let message = plan(one, |args| args.set = given).err().unwrap().0;
            assert!(message.contains(part), "{message}");
        }
    }
}
