//! The loop that drives a simulation: run all tasks that can run, then jump to the next event.
//!
//! At one moment of virtual time, tasks run first and then the stacks that have work; a stack that wakes a task
//! makes it run at the same moment. Only when all of them wait does the clock jump. A stack has work when packets came, when its timer has come, and when
//! a program's call says so (`Stack::set_driver_wake`). Its own clock moves when it is polled, so it is polled before a task of its host runs at a later moment than the last. With tokio, the last thing at each moment is a look
//! at all runtimes, whose tasks a program of another host may have woken.
//!
//! When nothing can happen any more while the program still waits, or the time is over, or a moment does not end,
//! the run fails ([`Stuck`]). Tests: `tests/hosts/programs.rs`.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sockeye::Stack;

use crate::event::{Event, Nanos, runtime_of};
use crate::executor::{Ambient, Tasks};
use crate::pipe::nanos;
use crate::runtime::Runtimes;
use crate::trace::What;
use crate::unordered;
use crate::world::World;

/// Why a simulation does not go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stuck {
    /// Nothing will ever happen, but the program is not over.
    Idle,
    /// The program was not over when the time was.
    Overtime,
    /// Tasks and stacks keep each other busy without waiting for time.
    Spinning,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => {
                "the program waits, and nothing will ever happen: no packet is on its way and no timer runs"
            }
            Self::Overtime => {
                "the program was not over within the simulated time that it was given (Sim::time_max)"
            }
            Self::Spinning => "time stands still: tasks wake each other without ever waiting for it",
        })
    }
}

/// Most turns of tasks and stacks within one moment.
const TURNS_MAX: u64 = 10_000_000;
/// Calls of the outside stack within one moment.
const OUTSIDE_TURNS_MAX: usize = 1000;

/// See the module's head.
pub(crate) struct Driver {
    pub world: Arc<World>,
    pub tasks: Rc<Tasks>,
    pub time_max: Duration,
}

impl Driver {
    /// Goes on until `is_done`.
    pub fn run(&self, is_over: impl Fn() -> bool) -> Result<(), Stuck> {
        let is_done = || {
            let is_over = is_over();
            let mut rules = self.tasks.rules.borrow_mut();
            rules.is_main_over = is_over;
            is_over && rules.are_met()
        };
        loop {
            self.settle(&is_done)?;
            if is_done() {
                return Ok(());
            }
            if let Some(runtimes) = &self.tasks.runtimes {
                let state = self.world.lock();
                let (now, next) = (state.now, state.queue.next_at());
                drop(state);
                if runtimes.main_needs_turn(now, next) {
                    self.turn(runtimes, None, None);
                    self.settle(&is_done)?;
                }
            }
            self.check_rules(None);
            self.jump()?;
        }
    }

    /// # Panics
    /// If a rule is broken.
    fn check_rules(&self, host: Option<usize>) {
        if self.tasks.rules.borrow().is_empty() {
            return;
        }
        let who = || self.world.lock().names().host(host).to_owned();
        // Taken out: a rule may add another.
        let mut rules = self.tasks.rules.take();
        self.ambient(None, 0).scope(|| rules.check(&self.world, who));
        let more = self.tasks.rules.replace(rules);
        self.tasks.rules.borrow_mut().add(more);
    }

    /// Everything that can be done at this moment.
    fn settle(&self, is_done: &impl Fn() -> bool) -> Result<(), Stuck> {
        for _ in 0..TURNS_MAX {
            if let Some(task) = self.world.ready.pop() {
                if let Some(host) = self.tasks.host_of(task)
                    && !self.world.lock().park(host, task)
                {
                    self.enter(host, Some(task));
                }
            } else if let Some(host) = self.tasks.runtimes.as_ref().and_then(|runtimes| runtimes.next()) {
                self.enter(host, None);
            } else {
                let mut state = self.world.lock();
                let Some(host) = state.dirty.pop_front() else {
                    drop(state);
                    match &self.tasks.runtimes {
                        Some(runtimes) if runtimes.find() => continue,
                        Some(_) | None => return Ok(()),
                    }
                };
                let entry = &state.hosts[host];
                let (is_dirty, has_news) = (entry.is_dirty, entry.has_news && !entry.is_paused);
                drop(state);
                if !is_dirty {
                    continue;
                }
                if !has_news || self.tasks.runtimes.is_none() {
                    self.poll(host);
                    continue;
                }
                // Tasks of tokio that the stack wakes within their runtime's turn cost less.
                self.enter(Some(host), None);
            }
            if is_done() {
                return Ok(());
            }
        }
        Err(Stuck::Spinning)
    }

    /// Runs a task of a host, or of none, and what of its runtime of tokio can go on.
    fn enter(&self, host: Option<usize>, task: Option<u64>) {
        if host.is_none() {
            // A program without a host may use every stack.
            let state = self.world.lock();
            let stale = |host: &usize| state.hosts[*host].clock != state.now;
            let stale: Vec<usize> = (0..state.hosts.len()).filter(stale).collect();
            drop(state);
            stale.into_iter().for_each(|host| self.poll(host));
        }
        let is_over = match &self.tasks.runtimes {
            Some(runtimes) => self.turn(runtimes, host, task),
            None => self.run_first(host, task),
        };
        self.note_step(host, task, is_over);
        self.check_rules(host);
    }

    /// Runs the due work of a host's stack, and then a task or, with tokio, those that the stack woke. Whether the task is over.
    fn run_first(&self, host: Option<usize>, task: Option<u64>) -> bool {
        if let Some(host) = host {
            let state = self.world.lock();
            let needs_poll =
                state.hosts[host].clock != state.now || (task.is_none() && state.hosts[host].is_dirty);
            drop(state);
            if needs_poll {
                self.poll(host);
            }
        }
        match task {
            Some(task) => self.tasks.run(task),
            None => {
                self.run_woken(host);
                false
            }
        }
    }

    /// Runs the tasks of a host that can go on now and are the next anyway.
    fn run_woken(&self, host: Option<usize>) {
        for _ in 0..self.world.ready.count() {
            let Some(task) = self.world.ready.front() else { return };
            if self.tasks.host_of(task) != Some(host) {
                return;
            }
            self.world.ready.pop();
            if !self.world.lock().park(host, task) {
                let is_over = self.tasks.run(task);
                self.note_step(host, Some(task), is_over);
                self.check_rules(host);
            }
        }
    }

    fn note_step(&self, host: Option<usize>, task: Option<u64>, is_over: bool) {
        let mut state = self.world.lock();
        state.note(What::Ran { host, task, is_over, drawn: self.world.machine.drawn() });
        if host.is_none() {
            let outside = state.outside.clone();
            drop(state);
            self.poll_outside(outside);
        }
    }

    /// A waker was called that may be of a task of tokio.
    fn look_at_runtimes(&self) {
        if let Some(runtimes) = &self.tasks.runtimes {
            runtimes.look_at_all();
        }
    }

    /// Runs a task and its host's runtime within each other, until all tasks of the runtime wait. Whether the task is over.
    fn turn(&self, runtimes: &Runtimes, host: Option<usize>, task: Option<u64>) -> bool {
        // A host that has crashed in the meantime has none.
        let Some(runtime) = runtimes.get(host) else {
            runtimes.look_at_all();
            return self.run_first(host, task);
        };
        let mut is_over = false;
        let next = self
            .ambient(host, runtime.life())
            .scope(|| runtime.turn(|| is_over = self.run_first(host, task)));
        runtimes.look_at_all();
        if host.is_some() {
            runtimes.program_ran();
        }
        let next = next.map_or(Nanos::MAX, |shown| self.world.local_clock(host).when(shown));
        if runtime.schedule(next) && next != Nanos::MAX {
            let mut state = self.world.lock();
            state.queue.push(next, Event::Turn { runtime: runtime_of(host) });
        }
        drop(runtime);
        for (host, doomed) in runtimes.take_doomed() {
            let ambient = self.ambient(Some(host), doomed.life());
            unordered::end_tasks(&self.world, || ambient.scope(|| drop(doomed)));
        }
        is_over
    }

    fn ambient(&self, host: Option<usize>, life: u32) -> Ambient {
        Ambient { world: Arc::clone(&self.world), host, life, tasks: Some(Rc::clone(&self.tasks)) }
    }

    /// As [`poll`](Self::poll), for the stack of programs that are on no host. Its sockets reach only each other, through loopback.
    fn poll_outside(&self, stack: Option<Stack>) {
        let Some(stack) = stack else { return };
        let now = self.world.lock().now;
        // What one call leaves for the same moment the next one does, as often as it takes; a program that keeps itself busy
        // so is found by its tasks' turns.
        let next = std::iter::repeat_with(|| stack.poll(Duration::from_nanos(now)).map_or(Nanos::MAX, nanos));
        let next = next.take(OUTSIDE_TURNS_MAX).find(|at| *at > now).unwrap_or(now + 1);
        self.look_at_runtimes();
        if next != Nanos::MAX {
            self.world.lock().queue.push(next, Event::PollOutside);
        }
    }

    /// Sets the clock of a host's stack and runs its due work.
    fn poll(&self, host: usize) {
        let mut state = self.world.lock();
        let now = state.now;
        let entry = &mut state.hosts[host];
        (entry.is_dirty, entry.has_news, entry.clock) = (false, false, now);
        let Some(stack) = entry.stack.clone() else { return };
        let was_killed = entry.processes > 0;
        drop(state);
        let run = || stack.poll(Duration::from_nanos(now));
        // Its timers may have been armed in the order in which a library dropped its tasks.
        let next = if was_killed { unordered::send_in_order(&self.world, run) } else { run() };
        if let Some(runtimes) = &self.tasks.runtimes {
            runtimes.stack_worked(host);
        }
        let mut state = self.world.lock();
        let at = next.map_or(Nanos::MAX, nanos);
        state.note(What::Polled { host, next: at });
        if at <= now {
            return state.mark(host);
        }
        if state.hosts[host].wake_at != at {
            state.hosts[host].wake_at = at;
            if next.is_some() {
                state.queue.push(at, Event::Poll { host });
            }
        }
    }

    /// Moves the clock to the next event, and handles all of that moment.
    fn jump(&self) -> Result<(), Stuck> {
        let mut state = self.world.lock();
        let (at, first) = state.queue.pop().ok_or(Stuck::Idle)?;
        if at > nanos(self.time_max) {
            return Err(Stuck::Overtime);
        }
        state.set_now(at);
        drop(state);
        let mut event = Some(first);
        while let Some(next) = event {
            self.handle(next);
            event = self.world.lock().queue.pop_at(at);
        }
        Ok(())
    }

    fn handle(&self, event: Event) {
        let mut state = self.world.lock();
        state.events += 1;
        match event {
            Event::Arrive { frame } => {
                let lost = state.arrive(frame);
                drop(state);
                drop(lost);
            }
            Event::Release { pipe, frame, number } => {
                if state.pipes[pipe].release(number) {
                    let lost = state.arrive(frame);
                    drop(state);
                    drop(lost);
                }
            }
            Event::Poll { host } => {
                let now = state.now;
                if state.hosts[host].wake_at == now {
                    state.hosts[host].wake_at = Nanos::MAX;
                    state.mark(host);
                }
            }
            Event::Turn { runtime } => {
                let now = state.now;
                drop(state);
                if let Some(runtimes) = &self.tasks.runtimes {
                    runtimes.fire(runtime, now);
                }
            }
            // They are, after each moment.
            Event::Check => {}
            Event::PollOutside => {
                let outside = state.outside.clone();
                drop(state);
                self.poll_outside(outside);
            }
            Event::Wake { timer, number } => {
                let entry = state.timers.get_mut(timer).filter(|entry| entry.number == number);
                let waker = entry.and_then(|entry| entry.waker.take());
                drop(state);
                if let Some(waker) = waker {
                    waker.wake();
                    self.look_at_runtimes();
                }
            }
        }
    }

    /// Ends everything: tasks, stacks, packets.
    pub fn end(&self) {
        self.tasks.clear();
        if let Some(runtimes) = &self.tasks.runtimes {
            let doomed = runtimes.take_doomed().into_iter().map(|(host, runtime)| (Some(host), runtime));
            for (host, runtime) in doomed.chain(runtimes.take_all()) {
                self.ambient(host, runtime.life()).scope(|| drop(runtime));
            }
        }
        let mut state = self.world.lock();
        let stacks: Vec<_> =
            state.hosts.iter_mut().map(|host| (host.stack.take(), std::mem::take(&mut host.inbox))).collect();
        let frames = state.sweep();
        let holds = std::mem::take(&mut state.holds);
        let filters: Vec<_> = state.pipes.iter_mut().map(|pipe| pipe.filter.take()).collect();
        let outside = state.outside.take();
        drop(state);
        drop((stacks, outside, frames, holds, filters));
    }
}
