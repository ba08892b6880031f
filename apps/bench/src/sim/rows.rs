//! The rows: worlds of one shape, and the simulators that run each.
//!
//! A row's first lane is what the others are compared with. A lane is the words of a command line of `sockeye-bench-sim`.
//!
//! turmoil steps every host once in each simulated millisecond, whether anything happens or not. So a call costs it as many steps as the links take
//! milliseconds, and links of 1 ms are its best case. Its own default is a latency drawn from 0 to 100 ms, 20 ms in the mean.
//!
//! Does not depend on how anything is timed. Tests: below.

use clap::ValueEnum;

/// Groups of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// A key-value protocol, 100 hosts in pairs, 1,000 calls of each client
    Many,
    /// The same, 2 hosts and 10,000 calls
    Two,
    /// An axum service and a client, 2 hosts and 2,000 calls
    Axum,
    /// A tonic service and a channel, 2 hosts and 2,000 calls
    Tonic,
    /// A day in which nothing happens
    Idle,
    /// Worlds of many seeds, one at a time and two at a time
    Seeds,
}

/// Worlds of one shape.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: Name,
    pub label: String,
    /// Of the work that the program counts.
    pub unit: &'static str,
    /// At least two.
    pub lanes: Vec<Lane>,
}

/// A simulator, or a way to use it.
#[derive(Clone, Debug)]
pub struct Lane {
    pub name: &'static str,
    pub words: Vec<String>,
    /// Worlds at a time, if the program runs many.
    pub threads: Option<usize>,
    pub goal: Option<Goal>,
}

/// What the project wants of a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// At least so many times the work of the first lane in a second of CPU time.
    Cpu(f64),
    /// At least so many times the work of the first lane in a second of real time.
    Wall(f64),
    /// At most so many seconds of real time for all of it.
    Seconds(f64),
}

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub is_quick: bool,
    /// Calls of each client, in place of the row's own number.
    pub calls: Option<usize>,
}

/// The rows of these names, or all.
pub fn rows(names: &[Name], effort: Effort) -> Vec<Row> {
    let wanted = |name: &Name| names.is_empty() || names.contains(name);
    Name::value_variants().iter().filter(|name| wanted(name)).flat_map(|name| of(*name, effort)).collect()
}

fn of(name: Name, effort: Effort) -> Vec<Row> {
    let share = if effort.is_quick { QUICK_SHARE } else { 1 };
    let calls = |full: usize| effort.calls.unwrap_or(full / share);
    let row = |world: World| LATENCIES.iter().map(|latency| world.row(name, *latency)).collect();
    match name {
        Name::Many => row(World {
            program: "kv",
            hosts: 100,
            calls: calls(1000),
            goals: [Some(Goal::Cpu(5.0)), Some(Goal::Cpu(20.0))],
        }),
        Name::Two => row(World {
            program: "kv",
            hosts: 2,
            calls: calls(10_000),
            goals: [Some(Goal::Cpu(1.0)), Some(Goal::Cpu(1.0))],
        }),
        Name::Axum => row(World { program: "axum", hosts: 2, calls: calls(2000), goals: [None; 2] }),
        Name::Tonic => row(World { program: "tonic", hosts: 2, calls: calls(2000), goals: [None; 2] }),
        Name::Idle => vec![idle(effort)],
        Name::Seeds => vec![seeds(calls(200), if effort.is_quick { 20 } else { 200 })],
    }
}

/// Hosts in pairs, a server and its client.
#[derive(Clone, Copy)]
struct World {
    program: &'static str,
    hosts: usize,
    calls: usize,
    /// With tokio inside, and without.
    goals: [Option<Goal>; 2],
}

impl World {
    fn row(&self, name: Name, latency: Option<u32>) -> Row {
        let Self { program, hosts, calls, .. } = *self;
        let links = match latency {
            Some(latency) => format!("links of {latency} ms"),
            None => "turmoil's links".to_owned(),
        };
        let mut names = vec![("turmoil", None), ("tokio", self.goals[0])];
        if program == "kv" {
            names.push(("native", self.goals[1]));
        }
        let lane = |(on, goal): (&'static str, Option<Goal>)| Lane {
            name: on,
            words: self.words("calls", on, latency),
            threads: None,
            goal,
        };
        Row {
            name,
            label: format!("{program}, {hosts} hosts x {calls} calls, {links}"),
            unit: "calls",
            lanes: names.into_iter().map(lane).collect(),
        }
    }

    fn words(&self, work: &str, on: &str, latency: Option<u32>) -> Vec<String> {
        let Self { program, hosts, calls, .. } = *self;
        let mut line = format!("{work} {program} --on {on} --hosts {hosts} --calls {calls}");
        if let Some(latency) = latency {
            line.push_str(&format!(" --latency {latency}"));
        }
        split(&line)
    }
}

fn idle(effort: Effort) -> Row {
    let of_turmoil = if effort.is_quick { IDLE_TURMOIL_S / QUICK_SHARE } else { IDLE_TURMOIL_S };
    let lane = |on: &'static str, seconds: usize, goal| Lane {
        name: on,
        words: split(&format!("idle --on {on} --seconds {seconds}")),
        threads: None,
        goal,
    };
    let day = Some(Goal::Seconds(1.0));
    Row {
        name: Name::Idle,
        label: format!("two idle hosts: a day; turmoil {of_turmoil} s"),
        unit: "simulated s",
        lanes: vec![lane("turmoil", of_turmoil, None), lane("tokio", DAY_S, day), lane("native", DAY_S, day)],
    }
}

fn seeds(calls: usize, count: usize) -> Row {
    let world = World { program: "kv", hosts: 10, calls, goals: [None; 2] };
    let mut words = world.words("seeds", "tokio", Some(10));
    words.extend(split(&format!("--seeds {count}")));
    let lane = |name, threads, goal| Lane { name, words: words.clone(), threads: Some(threads), goal };
    Row {
        name: Name::Seeds,
        label: format!("{count} seeds of 10 hosts x {calls} calls, links of 10 ms"),
        unit: "seeds",
        lanes: vec![lane("one", 1, None), lane("two", 2, Some(Goal::Wall(1.7)))],
    }
}

fn split(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Of each link, milliseconds; `None`: as turmoil draws it unless told otherwise.
const LATENCIES: [Option<u32>; 3] = [Some(1), Some(10), None];
/// `--quick` does the inverse of this.
const QUICK_SHARE: usize = 10;
const DAY_S: usize = 86_400;
/// A day would take turmoil many minutes: the rate is compared.
const IDLE_TURMOIL_S: usize = 600;

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Effort = Effort { is_quick: false, calls: None };

    #[test]
    fn each_row_has_lanes_of_the_same_work_and_the_first_has_no_goal() {
        for row in rows(&[], FULL) {
            assert!(row.lanes.len() >= 2 && row.lanes[0].goal.is_none(), "{row:?}");
            let work = |lane: &Lane| {
                let own = [lane.name, "--seconds"];
                let words = lane.words.iter().filter(|word| !own.contains(&word.as_str()));
                words.filter(|word| row.name != Name::Idle || word.parse::<u32>().is_err()).cloned().collect()
            };
            let first: Vec<String> = work(&row.lanes[0]);
            assert!(row.lanes.iter().all(|lane| work(lane) == first), "{row:?}");
        }
    }

    #[test]
    fn names_choose_rows_and_calls_replace_their_numbers() {
        let chosen = rows(&[Name::Two], Effort { is_quick: true, calls: Some(7) });
        assert_eq!(chosen.len(), LATENCIES.len());
        assert_eq!(
            chosen[0].lanes[0].words.join(" "),
            "calls kv --on turmoil --hosts 2 --calls 7 --latency 1"
        );
        assert_eq!(chosen[2].lanes[2].words.join(" "), "calls kv --on native --hosts 2 --calls 7");
        let quick = rows(&[Name::Many], Effort { is_quick: true, calls: None });
        assert!(quick[1].label.contains("100 calls, links of 10 ms"), "{}", quick[1].label);
    }
}
