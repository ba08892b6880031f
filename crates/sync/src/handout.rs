//! Handing out: items that come on one core and are best taken by a thread of that core.
//!
//! What a connection costs is mostly where its lines lie: a handshake that ran on one core and a server that runs on
//! another fetch all of them across. So where several threads take, who takes an item looks for one of his own core first,
//! and an item that comes wakes a taker of its own core first. But no item waits for that: a core whose takers are busy is
//! helped by the others. And the oldest item is taken first where no other thread looks after its core: who takes alone
//! gets everything in the order in which it came, wherever he and it run.
//!
//! Everything here is called under one mutex, the owner's; the type has none of its own.
//!
//! # States
//!
//! An item is *queued* until it is taken. A taker that finds nothing for him is *waiting* (on the list), with a deadline
//! (*watching*) if there are items that he leaves to takers of their own core; who is told becomes *coming* (off the
//! list, counted under the core where he waited), and nothing again once he looks.
//!
//! | from | to | who, under the mutex |
//! |---|---|---|
//! | - | waiting | himself: nothing is queued |
//! | - | watching | himself: what is queued belongs to a core with takers other than him, and is younger than [`PATIENCE`] |
//! | waiting, watching | coming | whoever pushes an item, takes one and leaves others, or tells all that there will be none |
//! | watching | - | himself, at his deadline |
//! | coming | - | himself, when he looks |
//!
//! # Why no item is left behind
//!
//! While something is queued, somebody is coming, or somebody is watching, or nobody is on the list:
//!
//! * `push` finds a taker of the item's core and tells him; or one of that core is coming already; or tells any other,
//!   unless one is watching. If the list is empty, there is nobody to tell.
//! * Who takes an item and leaves others tells somebody on the list, unless one is watching.
//! * Who is coming takes something, or finds nothing, or becomes watching. Who is watching looks again at his deadline,
//!   when the oldest item is old enough for him, or when that item is gone and the rule holds for the next.
//!
//! So an item waits at most for the next taker to be free, and if its own core's takers were alive a moment ago, for
//! [`PATIENCE`] more. Who is coming may be held up by the scheduler: a `push` that finds an item older than that tells
//! another as well.
//!
//! Fairness: an item is overtaken by at most [`OVERTAKEN_MAX`] later ones. Bound: none of its own; the owner bounds
//! what is queued. Who takes is never unregistered otherwise: a wait here has no deadline of the caller's.
//!
//! Must not know what is handed out. Tests: below, `tests/loom/handout.rs`.

use core::time::Duration;
use std::collections::VecDeque;

use crate::facade::Arc;
use crate::wait::{Ticket, WaitQueue};

/// See the module's head. Times are microseconds of a clock of the caller's.
#[derive(Debug)]
pub struct Handout<T> {
    items: VecDeque<Item<T>>,
    /// Takers that wait: the last has the warmest cache and may still be spinning.
    takers: Vec<Taker>,
    /// By CPU, up to the highest seen.
    cores: Vec<Core>,
    /// How many have overtaken the oldest item.
    overtaken: u32,
}

#[derive(Debug)]
struct Item<T> {
    item: T,
    cpu: u32,
    since: u64,
}

#[derive(Debug)]
struct Taker {
    cpu: u32,
    is_watching: bool,
    thread: Arc<WaitQueue>,
}

/// What is remembered of a CPU.
#[derive(Clone, Copy, Default, Debug)]
struct Core {
    /// Takers that were told while they waited there and have not looked yet.
    coming: u32,
    /// When the last item came that was taken on its own CPU, this one, and who took it.
    served: Option<(u64, Option<usize>)>,
    /// From where the last item came that was taken here, if from a CPU without takers.
    stray_from: Option<u32>,
}

/// Who takes, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Here {
    /// The CPU that he runs on.
    pub cpu: u32,
    /// His number, as of [`slot`](crate::slot). Threads without one count as one.
    pub who: Option<usize>,
}

impl Here {
    fn bounded(self) -> Self {
        Self { cpu: bounded(self.cpu), ..self }
    }
}

/// One call that takes: begins as the default, and goes from look to look.
#[derive(Debug, Default)]
pub struct Turn {
    /// Where he waited, if he did since he looked last.
    waited_on: Option<u32>,
}

/// What a look has brought.
#[derive(Debug)]
pub enum Look<T> {
    /// An item, and the taker who is owed a [`WaitQueue::wake`] for what was left.
    Item(T, Option<Arc<WaitQueue>>),
    /// Nothing: the caller waits on his queue with this ticket and looks again, at latest after so long if there is a
    /// time. The CPU is where he would have more to do.
    Wait(Ticket, Option<Duration>, Option<u32>),
}

/// What who looks does.
enum Choice {
    /// Takes the item at this place.
    Take(usize),
    /// Waits, for so long at most.
    Leave(Option<Duration>),
}

impl Turn {
    /// Whether its taker has waited and not looked since: then he has to look again, or to [leave](Handout::leave).
    pub fn has_waited(&self) -> bool {
        self.waited_on.is_some()
    }
}

impl<T> Handout<T> {
    /// Nothing to hand out.
    pub const fn new() -> Self {
        Self { items: VecDeque::new(), takers: Vec::new(), cores: Vec::new(), overtaken: 0 }
    }

    /// How many items are queued.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// All that is queued, oldest first. Who waits goes on waiting.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.overtaken = 0;
        self.items.drain(..).map(|item| item.item)
    }

    /// Queues an item that came on `cpu`. Whoever comes back is owed a [`WaitQueue::wake`].
    pub fn push(&mut self, item: T, cpu: u32, now: u64) -> Option<Arc<WaitQueue>> {
        let cpu = bounded(cpu);
        let is_late = self.items.front().is_some_and(|oldest| !is_young(oldest.since, now));
        self.items.push_back(Item { item, cpu, since: now });
        if let Some(at) = self.takers.iter().rposition(|taker| taker.cpu == cpu) {
            return self.tell(at);
        }
        let is_cared_for =
            self.core(cpu).coming > 0 || (self.who_served(cpu, now).is_some() && self.is_watched());
        if is_cared_for && !is_late { None } else { self.tell_last() }
    }

    /// The oldest item, or `None`.
    pub fn take_oldest(&mut self) -> Option<T> {
        self.overtaken = 0;
        self.items.pop_front().map(|item| item.item)
    }

    /// The next item for the caller, or `None`. For those who do not wait here. `now` is asked where the oldest item is
    /// another core's.
    pub fn take(&mut self, here: Here, now: impl FnOnce() -> u64) -> Option<T> {
        let (here, oldest) = (here.bounded(), self.items.front()?.cpu);
        let is_free = oldest == here.cpu || !self.is_attended(oldest, here.who, now());
        let at = if is_free { None } else { self.own(here.cpu) };
        self.remove(at.unwrap_or(0), here)
    }

    /// The next item for the caller, or how to wait for it on `thread`, his own queue. `now` is asked where the oldest item is
    /// another core's.
    pub fn take_or_wait(
        &mut self,
        turn: &mut Turn,
        thread: &Arc<WaitQueue>,
        here: Here,
        now: impl FnOnce() -> u64,
    ) -> Look<T> {
        let here = here.bounded();
        self.arrive(turn, thread);
        let patience = match self.choose(here, now) {
            Choice::Take(at) => match self.remove(at, here) {
                Some(item) => return Look::Item(item, self.pass_on()),
                None => None,
            },
            Choice::Leave(patience) => patience,
        };
        let cpu = here.cpu;
        let has_company = self.takers.iter().any(|taker| taker.cpu == cpu);
        let better = if has_company { self.core(cpu).stray_from } else { None };
        turn.waited_on = Some(cpu);
        self.takers.push(Taker { cpu, is_watching: patience.is_some(), thread: Arc::clone(thread) });
        Look::Wait(thread.prepare(), patience, better)
    }

    /// For who waited in this turn and will not look again.
    pub fn leave(&mut self, turn: &mut Turn, thread: &Arc<WaitQueue>) -> Option<Arc<WaitQueue>> {
        self.arrive(turn, thread);
        self.pass_on()
    }

    /// Tells everybody who waits to look again: nothing more will come. Each who comes back is owed a [`WaitQueue::wake`].
    pub fn tell_all(&mut self) -> Vec<Arc<WaitQueue>> {
        (0..self.takers.len()).rev().filter_map(|at| self.tell(at)).collect()
    }

    /// What a thread does that could also wait.
    fn choose(&mut self, here: Here, now: impl FnOnce() -> u64) -> Choice {
        let Some(oldest) = self.items.front() else { return Choice::Leave(None) };
        let (of, since) = (oldest.cpu, oldest.since);
        if of == here.cpu {
            return Choice::Take(0);
        }
        let now = now();
        if !self.is_attended(of, here.who, now) {
            self.core(here.cpu).stray_from = Some(of);
            return Choice::Take(0);
        }
        match self.own(here.cpu) {
            Some(at) => Choice::Take(at),
            None if is_young(since, now) => {
                Choice::Leave(Some(PATIENCE.saturating_sub(Duration::from_micros(now.saturating_sub(since)))))
            }
            None => Choice::Take(0),
        }
    }

    /// Who looks is neither waiting nor coming.
    fn arrive(&mut self, turn: &mut Turn, thread: &Arc<WaitQueue>) {
        let Some(cpu) = turn.waited_on.take() else { return };
        match self.takers.iter().position(|taker| Arc::ptr_eq(&taker.thread, thread)) {
            Some(at) => {
                self.takers.remove(at);
            }
            None => self.core(cpu).coming -= 1,
        }
    }

    /// The first item of this CPU, unless it is the oldest item's turn.
    fn own(&self, cpu: u32) -> Option<usize> {
        let look = if self.overtaken < OVERTAKEN_MAX { LOOK } else { 1 };
        self.items.iter().take(look).position(|item| item.cpu == cpu)
    }

    fn remove(&mut self, at: usize, here: Here) -> Option<T> {
        let item = self.items.remove(at)?;
        self.overtaken = if at == 0 { 0 } else { self.overtaken + 1 };
        if item.cpu == here.cpu {
            let core = self.core(here.cpu);
            core.served = Some((item.since, here.who));
            core.stray_from = None;
        }
        Some(item.item)
    }

    /// Tells somebody of what is left.
    fn pass_on(&mut self) -> Option<Arc<WaitQueue>> {
        let oldest = self.items.front()?.cpu;
        if let Some(at) = self.takers.iter().rposition(|taker| taker.cpu == oldest) {
            return self.tell(at);
        }
        if self.is_watched() { None } else { self.tell_last() }
    }

    fn tell_last(&mut self) -> Option<Arc<WaitQueue>> {
        self.tell(self.takers.len().checked_sub(1)?)
    }

    fn tell(&mut self, at: usize) -> Option<Arc<WaitQueue>> {
        let taker = self.takers.remove(at);
        self.core(taker.cpu).coming += 1;
        taker.thread.notify().is_wake_owed().then_some(taker.thread)
    }

    fn is_watched(&self) -> bool {
        self.takers.iter().any(|taker| taker.is_watching)
    }

    /// Who of this CPU has served it lately.
    fn who_served(&self, cpu: u32, now: u64) -> Option<Option<usize>> {
        let (at, who) = self.cores.get(cpu as usize)?.served?;
        (now.saturating_sub(at) < ATTENDED.as_micros() as u64).then_some(who)
    }

    /// Whether a thread other than `me` looks after this CPU.
    fn is_attended(&self, cpu: u32, me: Option<usize>, now: u64) -> bool {
        self.who_served(cpu, now).is_some_and(|who| who != me)
    }

    fn core(&mut self, cpu: u32) -> &mut Core {
        let at = cpu as usize;
        if at >= self.cores.len() {
            self.cores.resize(at + 1, Core::default());
        }
        &mut self.cores[at]
    }
}

impl<T> Default for Handout<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Beyond so many, CPUs share their numbers, which costs some of them their preference.
fn bounded(cpu: u32) -> u32 {
    cpu % CPUS_MAX
}

fn is_young(since: u64, now: u64) -> bool {
    now.saturating_sub(since) < PATIENCE.as_micros() as u64
}

/// CPUs told apart.
const CPUS_MAX: u32 = 256;
/// Items looked at for one of the taker's own core.
const LOOK: usize = 16;
/// Items that may overtake the oldest.
pub const OVERTAKEN_MAX: u32 = 64;
/// How long an item is left to its own core's takers: some turns of the threads of a busy core.
pub const PATIENCE: Duration = Duration::from_micros(100);
/// Takers that served their core so lately are expected back.
const ATTENDED: Duration = Duration::from_millis(5);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LATER: u64 = PATIENCE.as_micros() as u64;

    struct Waiter(Arc<WaitQueue>, Turn);

    /// The one thread of these tests.
    fn on(cpu: u32) -> Here {
        Here { cpu, who: Some(7) }
    }

    impl Waiter {
        fn new() -> Self {
            Self(Arc::new(WaitQueue::new()), Turn::default())
        }

        /// The item, or whether he watches.
        fn look<T>(&mut self, queue: &mut Handout<T>, cpu: u32, now: u64) -> Result<T, bool> {
            match queue.take_or_wait(&mut self.1, &self.0, on(cpu), || now) {
                Look::Item(item, _owed) => Ok(item),
                Look::Wait(_, patience, _) => Err(patience.is_some()),
            }
        }
    }

    fn told<T>(queue: &Handout<T>) -> u32 {
        queue.cores.iter().map(|core| core.coming).sum()
    }

    /// A queue whose CPUs 0 and 1 other threads than this one served at time 0.
    fn attended() -> Handout<u32> {
        let mut queue = Handout::new();
        for cpu in 0..2 {
            queue.core(cpu).served = Some((0, Some(cpu as usize)));
        }
        queue
    }

    #[test]
    fn an_item_is_taken_on_its_own_core_first_where_another_thread_looks_after_the_others() {
        let mut queue = attended();
        for (item, cpu) in [(1, 0), (2, 1), (3, 0), (4, 1)] {
            queue.push(item, cpu, 0);
        }
        assert_eq!(Waiter::new().look(&mut queue, 1, 0), Ok(2));
        assert_eq!(queue.take(on(1), || 0), Some(4));
        assert_eq!(Waiter::new().look(&mut queue, 0, 0), Ok(1));
        assert_eq!((queue.take_oldest(), queue.take_oldest()), (Some(3), None));
    }

    #[test]
    fn who_takes_alone_gets_everything_in_order() {
        let (mut queue, mut waiter) = (Handout::new(), Waiter::new());
        for round in 0..1_000u32 {
            (0..3).for_each(|n| assert!(queue.push(3 * round + n, (round + n) % 5, 0).is_none()));
            // On whatever core he is, waiting or not.
            assert_eq!(waiter.look(&mut queue, round % 3, 0), Ok(3 * round));
            assert_eq!(queue.take(on(round % 2), || 0), Some(3 * round + 1));
            assert_eq!(waiter.look(&mut queue, round % 7, 0), Ok(3 * round + 2));
        }
    }

    #[test]
    fn an_item_of_a_core_with_takers_is_left_to_them_for_a_while() {
        let mut queue = attended();
        queue.push(1, 0, 0);
        let mut waiter = Waiter::new();
        assert_eq!(waiter.look(&mut queue, 1, LATER - 1), Err(true));
        assert_eq!(waiter.look(&mut queue, 1, LATER), Ok(1));
        assert_eq!((queue.takers.len(), told(&queue)), (0, 0));
    }

    #[test]
    fn an_item_of_a_core_without_takers_is_anybodys() {
        let mut queue = Handout::new();
        queue.push(1, 0, 0);
        assert_eq!(Waiter::new().look(&mut queue, 1, 0), Ok(1));
        // The takers that were there have not come for long.
        let mut queue = attended();
        let now = ATTENDED.as_micros() as u64;
        queue.push(1, 0, now);
        assert_eq!(Waiter::new().look(&mut queue, 1, now), Ok(1));
    }

    #[test]
    fn the_oldest_item_is_not_overtaken_for_ever() {
        let mut queue = attended();
        queue.push(0, 0, 0);
        let mut overtook = 0;
        loop {
            queue.push(1, 1, 0);
            if queue.take(on(1), || 0) == Some(0) {
                break;
            }
            overtook += 1;
        }
        assert_eq!(overtook, OVERTAKEN_MAX);
    }

    #[test]
    fn a_push_tells_a_taker_of_its_core_and_nobody_else_while_he_comes() {
        let mut queue = attended();
        let (mut here, mut there) = (Waiter::new(), Waiter::new());
        assert_eq!(here.look(&mut queue, 0, 0), Err(false));
        assert_eq!(there.look(&mut queue, 1, 0), Err(false));
        queue.push(1, 0, 0);
        queue.push(2, 0, 0);
        assert_eq!((queue.takers.len(), queue.takers[0].cpu, told(&queue)), (1, 1, 1));
        // The one who came tells the other of what he leaves; that one watches.
        assert_eq!(here.look(&mut queue, 0, 0), Ok(1));
        assert_eq!((queue.takers.len(), told(&queue)), (0, 1));
        queue.core(0).served = Some((0, None));
        assert_eq!(there.look(&mut queue, 1, 0), Err(true));
        assert_eq!((queue.takers.len(), told(&queue)), (1, 0));
        // Nobody is told twice.
        queue.push(3, 0, 0);
        assert_eq!((queue.takers.len(), told(&queue)), (1, 0));
        assert_eq!(there.look(&mut queue, 1, LATER), Ok(2));
    }

    #[test]
    fn who_is_held_up_is_not_waited_for() {
        let mut queue = attended();
        let (mut here, mut there) = (Waiter::new(), Waiter::new());
        assert_eq!(here.look(&mut queue, 0, 0), Err(false));
        assert_eq!(there.look(&mut queue, 1, 0), Err(false));
        queue.push(1, 0, 0);
        queue.push(2, 0, LATER);
        assert_eq!(told(&queue), 2, "the first is old: whoever was told of it does not come");
        assert_eq!(there.look(&mut queue, 1, LATER), Ok(1));
        assert_eq!(here.look(&mut queue, 0, LATER), Ok(2));
        assert_eq!(told(&queue), 0);
    }

    #[test]
    fn who_waits_where_others_wait_is_shown_where_items_come_from() {
        let mut queue = Handout::new();
        let (mut one, mut other) = (Waiter::new(), Waiter::new());
        assert_eq!(one.look(&mut queue, 0, 0), Err(false));
        queue.push(1, 1, 0);
        assert_eq!(one.look(&mut queue, 0, 0), Ok(1));
        assert_eq!(other.look(&mut queue, 0, 0), Err(false));
        let Look::Wait(_, _, better) = queue.take_or_wait(&mut one.1, &one.0, on(0), || 0) else {
            panic!("there is nothing to take")
        };
        assert_eq!(better, Some(1));
    }

    #[test]
    fn who_leaves_hands_on_what_he_was_told_of() {
        let mut queue = Handout::new();
        let (mut one, mut other) = (Waiter::new(), Waiter::new());
        assert_eq!(one.look(&mut queue, 0, 0), Err(false));
        assert_eq!(other.look(&mut queue, 0, 0), Err(false));
        queue.push(1, 0, 0);
        // The last that waits is told.
        queue.leave(&mut other.1, &other.0);
        assert_eq!((queue.takers.len(), told(&queue)), (0, 1));
        assert_eq!(one.look(&mut queue, 0, 0), Ok(1));
        assert_eq!(queue.drain().count(), 0);
    }
}
