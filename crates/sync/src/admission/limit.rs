//! Which writer has a run token, and which gets the next: the rules of [`admission`](super), as plain data.
//!
//! A core has a list of the threads that hold its tokens and a queue of those that wait for one. A thread joins the queue of the core on
//! which its reader ran last, so that the two pairs that run are not crosswise on the cores. A core whose queue is empty, or is less than
//! half as long as the longest queue, takes the first of that one instead, so no core rests while another has a queue.
//!
//! Everything here is called under the mutex of [`Admission`](super::Admission). Does not depend on threads, clocks or sockets: a
//! waiter is a `T`, and times and the load are arguments.
//!
//! Bound: an entry for each thread that waits for a token or has one.
//!
//! Invariants: an id is in one queue, or holds one token, or is neither. A core has at most `per_core` tokens out, but for those
//! that were out when that number fell. After [`Limit::fill`] every queue of a core that has a token is empty.
//! Tests: below.

use core::time::Duration;
use std::collections::VecDeque;

/// See the module's head. Times are microseconds of the caller's clock.
#[derive(Debug)]
pub(super) struct Limit<T> {
    cores: Vec<Core<T>>,
    /// How many tokens a core has: one, and more for as long as cores are idle although a thread waits.
    per_core: usize,
    last_id: u64,
    /// When idleness was looked for last, and the CPU time of the process until then.
    looked: Option<Usage>,
}

#[derive(Debug)]
struct Core<T> {
    /// The CPU for which it stands; `None` until a thread waits whose reader runs on one that no other core stands for.
    cpu: Option<u32>,
    held: Vec<Held>,
    queue: VecDeque<Waiter<T>>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    id: u64,
    since: u64,
}

#[derive(Debug)]
struct Waiter<T> {
    id: u64,
    waiter: T,
}

/// How much CPU time the process had used at a time, both in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Usage {
    pub at: u64,
    pub used: u64,
}

/// Where an id stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// It holds a token.
    Holds,
    Queued,
    /// It has held a token for too long, or was never here.
    Gone,
}

impl<T> Limit<T> {
    /// For so many cores, at least one.
    pub fn new(cores: usize) -> Self {
        let core = || Core { cpu: None, held: Vec::new(), queue: VecDeque::new() };
        Self { cores: (0..cores.max(1)).map(|_| core()).collect(), per_core: 1, last_id: 0, looked: None }
    }

    /// Queues `waiter`, whose reader ran on CPU `cpu`. Returns the id of the token that it will get.
    pub fn queue(&mut self, waiter: T, cpu: u32) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let core = self.core_of(cpu);
        self.cores[core].queue.push_back(Waiter { id, waiter });
        id
    }

    /// The core that stands for this CPU, from now on if there is one that stands for none; else the one with the
    /// shortest queue.
    fn core_of(&mut self, cpu: u32) -> usize {
        let is_its = |core: &Core<T>| core.cpu == Some(cpu);
        if let Some(index) = self.cores.iter().position(is_its) {
            return index;
        }
        if let Some(index) = self.cores.iter().position(|core| core.cpu.is_none()) {
            self.cores[index].cpu = Some(cpu);
            return index;
        }
        (0..self.cores.len()).min_by_key(|&index| self.cores[index].queue.len()).unwrap_or(0)
    }

    /// Where this id stands.
    pub fn place(&self, id: u64) -> Place {
        if self.cores.iter().any(|core| core.held.iter().any(|held| held.id == id)) {
            Place::Holds
        } else if self.cores.iter().any(|core| core.queue.iter().any(|waiter| waiter.id == id)) {
            Place::Queued
        } else {
            Place::Gone
        }
    }

    /// The token of this id is free, or its wait for one is over. Nothing if it is gone already.
    pub fn end(&mut self, id: u64) {
        for core in &mut self.cores {
            if let Some(at) = core.held.iter().position(|held| held.id == id) {
                core.held.swap_remove(at);
                return;
            }
        }
        self.cores.iter_mut().for_each(|core| core.queue.retain(|waiter| waiter.id != id));
    }

    /// Gives every token that is free to the next one, which `notify` notifies.
    pub fn fill(&mut self, now: u64, mut notify: impl FnMut(T)) {
        for index in 0..self.cores.len() {
            while self.cores[index].held.len() < self.per_core
                && let Some(next) = self.next(index)
            {
                self.cores[index].held.push(Held { id: next.id, since: now });
                notify(next.waiter);
            }
        }
    }

    /// The next waiter on this core.
    fn next(&mut self, index: usize) -> Option<Waiter<T>> {
        let longest = (0..self.cores.len()).max_by_key(|&other| self.cores[other].queue.len())?;
        let is_short = 2 * self.cores[index].queue.len() < self.cores[longest].queue.len();
        self.cores[if is_short { longest } else { index }].queue.pop_front()
    }

    /// Whether it is time for [`look`](Self::look).
    pub fn is_look_due(&self, now: u64) -> bool {
        self.looked.is_none_or(|looked| now.saturating_sub(looked.at) >= micros(LOOK_EVERY))
    }

    /// Takes back tokens that were held for too long, and settles how many there are by how busy the cores were since the
    /// last look: the fewest that keep them so. The caller fills free places afterwards.
    pub fn look(&mut self, usage: Usage) {
        if !self.is_look_due(usage.at) {
            return;
        }
        for core in &mut self.cores {
            core.held.retain(|held| usage.at.saturating_sub(held.since) < micros(HELD_MAX));
        }
        let Some(before) = self.looked.replace(usage) else { return };
        let (time, used) = (usage.at.saturating_sub(before.at), usage.used.saturating_sub(before.used));
        if time > micros(LOOK_OLD) {
            // For much of that time no writer may have asked for a token.
            return;
        }
        let is_queued = self.cores.iter().any(|core| !core.queue.is_empty());
        let busy = used.saturating_mul(100) / time.saturating_mul(self.cores.len() as u64).max(1);
        self.per_core = per_core_after(self.per_core, busy, is_queued);
    }
}

/// How many tokens a core has after a time in which the cores were busy for so many hundredths of it; `is_queued`: a thread
/// would begin if there were more.
fn per_core_after(before: usize, busy: u64, is_queued: bool) -> usize {
    match busy {
        0..BUSY_LOW if is_queued => (before * 2).min(PER_CORE_MAX),
        0..BUSY_HIGH => before,
        _ => (before - before.div_ceil(4)).max(1),
    }
}

const fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}

/// Between two looks: some thirty tokens' time, a look (a sum over the threads of the process) costs little beside it.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A look after so long says nothing of the time in between.
const LOOK_OLD: Duration = Duration::from_millis(100);
/// A token is used for a third of a millisecond on a core of one's own. A thread that has it for so long does something else.
const HELD_MAX: Duration = Duration::from_millis(20);
/// Tokens that a core has at most: no limit, in effect.
const PER_CORE_MAX: usize = 64;
/// Below this many hundredths of the cores' time there are more tokens, if a thread waits for one.
const BUSY_LOW: u64 = 92;
/// From this many on there may be fewer. With all cores in use it is 97.
const BUSY_HIGH: u64 = 96;

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(limit: &mut Limit<char>, now: u64) -> String {
        let mut notified = String::new();
        limit.fill(now, |waiter| notified.push(waiter));
        notified
    }

    /// With these waiting for readers on CPU 4 and CPU 9, in this order.
    fn limit(on_4: &str, on_9: &str) -> (Limit<char>, Vec<u64>) {
        let mut limit = Limit::new(2);
        let all = on_4.chars().map(|waiter| (waiter, 4)).chain(on_9.chars().map(|waiter| (waiter, 9)));
        let ids = all.map(|(waiter, cpu)| limit.queue(waiter, cpu)).collect();
        (limit, ids)
    }

    #[test]
    fn each_core_gives_its_token_to_the_first_writer_whose_reader_runs_there() {
        let (mut limit, ids) = limit("ab", "xy");
        assert_eq!(filled(&mut limit, 0), "ax");
        assert_eq!(limit.place(ids[0]), Place::Holds);
        assert_eq!(limit.place(ids[2]), Place::Holds);
        assert_eq!(limit.place(ids[1]), Place::Queued);
        assert_eq!(filled(&mut limit, 0), "", "and there are no more");
        limit.end(ids[2]);
        assert_eq!(limit.place(ids[2]), Place::Gone);
        assert_eq!(filled(&mut limit, 0), "y");
    }

    #[test]
    fn a_holder_that_waits_again_is_queued_last() {
        let (mut limit, ids) = limit("abc", "x");
        assert_eq!(filled(&mut limit, 0), "ax");
        limit.end(ids[0]);
        limit.queue('a', 4);
        assert_eq!(filled(&mut limit, 0), "b");
    }

    #[test]
    fn a_core_with_few_or_no_waiters_takes_from_the_longest_queue() {
        let (mut limit, ids) = limit("abcdef", "");
        assert_eq!(filled(&mut limit, 0), "ab");
        assert_eq!(limit.place(ids[1]), Place::Holds, "on the core that stands for no CPU yet");
        let x = limit.queue('x', 9);
        limit.end(ids[1]);
        // Four wait on CPU 4, one on CPU 9.
        assert_eq!(filled(&mut limit, 0), "c");
        assert_eq!(limit.place(ids[2]), Place::Holds);
        limit.queue('y', 9);
        limit.end(ids[2]);
        assert_eq!(filled(&mut limit, 0), "x", "two are not less than half of three");
        assert_eq!(limit.place(x), Place::Holds);
    }

    #[test]
    fn a_cpu_without_a_core_uses_the_shortest_queue() {
        let (mut limit, _) = limit("ab", "x");
        let stray = limit.queue('s', 7);
        assert_eq!(filled(&mut limit, 0), "ax");
        limit.queue('y', 9);
        assert_eq!(limit.cores[1].queue.front().map(|waiter| waiter.id), Some(stray));
    }

    #[test]
    fn a_waiter_that_gives_up_is_skipped() {
        let (mut limit, ids) = limit("ab", "x");
        limit.end(ids[0]);
        assert_eq!(filled(&mut limit, 0), "bx");
    }

    fn usage(at: Duration, busy: u64) -> Usage {
        Usage { at: micros(at), used: micros(at) * 2 * busy / 100 }
    }

    #[test]
    fn a_token_that_is_not_returned_is_reclaimed() {
        let (mut limit, ids) = limit("ab", "");
        filled(&mut limit, 0);
        limit.look(usage(HELD_MAX - Duration::from_micros(1), 100));
        assert_eq!(limit.place(ids[0]), Place::Holds);
        limit.look(usage(HELD_MAX + LOOK_EVERY, 100));
        assert_eq!(limit.place(ids[0]), Place::Gone);
        // Ended afterwards, it takes nothing from the thread that has it now.
        limit.queue('c', 4);
        assert_eq!(filled(&mut limit, 0), "c");
        limit.end(ids[0]);
        assert_eq!(limit.cores[0].held.len() + limit.cores[1].held.len(), 1);
    }

    #[test]
    fn idle_cores_admit_more_writers_and_busy_cores_fewer() {
        let (mut limit, _) = limit("abcdef", "uvwxyz");
        assert_eq!(filled(&mut limit, micros(LOOK_EVERY)), "au");
        limit.look(usage(LOOK_EVERY, 10));
        assert_eq!(filled(&mut limit, 0), "", "the first look has nothing to compare with");
        limit.look(usage(2 * LOOK_EVERY, 10));
        assert_eq!(filled(&mut limit, micros(2 * LOOK_EVERY)), "bv");
        limit.look(usage(2 * LOOK_EVERY + Duration::from_micros(1), 10));
        assert_eq!(filled(&mut limit, 0), "", "too early");
        assert_eq!(limit.per_core, 2);
    }

    #[test]
    fn tokens_become_as_few_as_keep_the_cores_busy() {
        let up: Vec<_> =
            core::iter::successors(Some(1), |&n| Some(per_core_after(n, 0, true))).take(8).collect();
        assert_eq!(up, [1, 2, 4, 8, 16, 32, 64, 64]);
        let down: Vec<_> =
            core::iter::successors(Some(8), |&n| Some(per_core_after(n, 100, false))).take(8).collect();
        assert_eq!(down, [8, 6, 4, 3, 2, 1, 1, 1]);
        assert_eq!([91, 92, 95, 96].map(|busy| per_core_after(4, busy, true)), [8, 4, 4, 3]);
        assert_eq!(per_core_after(4, 0, false), 4, "no writer would take them");
    }

    #[test]
    fn a_look_after_a_long_time_changes_nothing() {
        let (mut limit, _) = limit("abc", "x");
        filled(&mut limit, 0);
        limit.look(usage(LOOK_EVERY, 0));
        limit.look(usage(2 * LOOK_OLD, 0));
        assert_eq!(limit.per_core, 1);
    }
}
