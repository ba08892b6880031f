//! What must always hold, and what must come true once the faults are over.
//!
//! Rules are functions of the test's over whatever state the programs share with it. They are looked at after each step of a program and each jump of the clock, by the loop, with nothing locked.
//! A broken rule is a panic of the loop, and so fails the run at that step.
//!
//! A fault is over when it has ended: a link is mended, a host is up and not paused, a hold is released, a schedule (`faults.rs`) is through. Tests: `tests/rules.rs`.

use std::fmt;
use std::time::Duration;

use crate::event::{Event, Nanos};
use crate::network::Net;
use crate::pipe::nanos;
use crate::world::{State, World};

/// All rules of a run.
#[derive(Default)]
pub(crate) struct Rules {
    always: Vec<Always>,
    eventually: Vec<Eventually>,
    /// The main program has ended: faults that are still there stay.
    pub is_main_over: bool,
    /// How many faults had begun or ended when it was last looked, and whether one was there.
    seen: (u64, bool),
}

struct Always {
    name: String,
    rule: Box<dyn FnMut() -> Result<(), String>>,
}

struct Eventually {
    name: String,
    within: Nanos,
    condition: Box<dyn FnMut() -> bool>,
    since: Nanos,
    is_met: bool,
    /// The deadline for which there is an event.
    deadline: Nanos,
}

/// What an invariant returns: `Ok`, or what is wrong; or whether it holds.
pub trait Holds {
    /// What is wrong, if anything.
    fn into_result(self) -> Result<(), String>;
}

impl Holds for bool {
    fn into_result(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("it does not hold".to_owned()) }
    }
}

impl<E: fmt::Display> Holds for Result<(), E> {
    fn into_result(self) -> Result<(), String> {
        self.map_err(|error| error.to_string())
    }
}

impl Net {
    /// Checks an invariant at every step of the run from now on: after each step of a program, and when the clock has moved. The rule returns whether it holds, or a `Result`. It may read what
    /// programs share with it, and must not run programs or change the network.
    ///
    /// # Panics
    /// The run does, at the step that breaks it.
    pub fn always<H: Holds>(&self, name: &str, mut rule: impl FnMut() -> H + 'static) {
        let rule = Box::new(move || rule().into_result());
        self.tasks.rules.borrow_mut().always.push(Always { name: name.to_owned(), rule });
    }

    /// Checks that a condition is true at some step within this time after the last fault is over, and again after each later fault. While a fault is there the time does not count;
    /// [`faults_over`](Self::faults_over) says that those which are there are to stay. If the main program ends earlier, the run goes on until the condition was true.
    ///
    /// # Panics
    /// The run does, when the time is over.
    pub fn eventually(&self, name: &str, within: Duration, condition: impl FnMut() -> bool + 'static) {
        let rule = Eventually {
            name: name.to_owned(),
            within: nanos(within),
            condition: Box::new(condition),
            since: self.world.lock().now,
            is_met: false,
            deadline: Nanos::MAX,
        };
        self.tasks.rules.borrow_mut().eventually.push(rule);
    }

    /// Says that faults which are there now, such as a host that stays down, are to stay: [`eventually`](Self::eventually) counts from now on.
    pub fn faults_over(&self) {
        let mut state = self.world.lock();
        state.has_settled = true;
        state.fault(None, "the last fault");
    }
}

impl Rules {
    pub fn is_empty(&self) -> bool {
        self.always.is_empty() && self.eventually.is_empty()
    }

    /// Takes rules that were added while it was looked at these.
    pub fn add(&mut self, more: Self) {
        self.always.extend(more.always);
        self.eventually.extend(more.eventually);
    }

    /// Whether nothing is left to come true.
    pub fn are_met(&self) -> bool {
        self.eventually.iter().all(|rule| rule.is_met)
    }

    /// Looks at all rules, after a step of `who`.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check(&mut self, world: &World, who: impl Fn() -> String) {
        for Always { name, rule } in &mut self.always {
            if let Err(error) = rule() {
                panic!(
                    "the invariant {name:?} is broken at {:?}, after a step of {}: {error}",
                    world.now(),
                    who()
                );
            }
        }
        if self.eventually.is_empty() {
            return;
        }
        let mut state = world.lock();
        if self.seen.0 != state.fault_count {
            self.seen = (state.fault_count, state.has_fault());
        }
        let (now, last) = (state.now, state.last_fault_at);
        // A schedule ends what it begins, also after the main program.
        if self.seen.1 && (!self.is_main_over || state.planned > 0) {
            self.eventually.iter_mut().for_each(|rule| (rule.is_met, rule.since) = (false, now));
            return;
        }
        for rule in self.eventually.iter_mut().filter(|rule| last > rule.since) {
            (rule.is_met, rule.since) = (false, last);
        }
        for rule in self.eventually.iter_mut().filter(|rule| !rule.is_met) {
            let deadline = rule.since.saturating_add(rule.within);
            if rule.deadline != deadline {
                rule.deadline = deadline;
                state.queue.push(deadline.max(now), Event::Check);
            }
        }
        drop(state);
        for rule in self.eventually.iter_mut().filter(|rule| !rule.is_met) {
            rule.is_met = (rule.condition)();
            assert!(
                rule.is_met || now < rule.deadline,
                "{:?} has not come true within {:?} after the last fault, at {:?}",
                rule.name,
                Duration::from_nanos(rule.within),
                Duration::from_nanos(rule.since)
            );
        }
    }
}

impl State {
    /// Whether a fault is there.
    fn has_fault(&self) -> bool {
        let has_fault = || {
            self.planned > 0
                || !self.holds.is_empty()
                || self.pipes.iter().any(|pipe| !pipe.is_up)
                || self.hosts.iter().any(|host| host.stack.is_none() || host.is_paused || host.is_killed)
        };
        !self.has_settled && has_fault()
    }
}
