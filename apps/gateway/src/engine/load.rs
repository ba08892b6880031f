//! When a loop joins those that read the device's queues, and when the last of them leaves.
//!
//! The first loop decides, every [`WINDOW`], from the time that all loops have worked, and from the system's idle time. Work is the CPU time of a loop's thread, less the time of its
//! busy polling.
//!
//! * One **joins** if those in use have worked [`BUSY`] of the time in [`JOIN_WINDOWS`] windows in a row, and the processors have been idle for [`IDLE`] of one processor's time meanwhile. Where all are
//!   busy, another loop would only take turns with the programs that it serves.
//! * The last one **leaves** if for [`LEAVE_WINDOWS`] windows in a row all loops together have worked less than [`FEW`] of the time of the loops that would be left.
//!
//! The system's idle time is read only in windows in which those in use are busy. Where both times are read is a [`Measure`], so tests give theirs. Does not depend on what joining is. Tests: below; `queues/tests.rs`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::queues::Share;

/// Between two decisions.
const WINDOW: Duration = Duration::from_millis(10);
/// Between two reports of a loop's work.
const REPORT: Duration = Duration::from_millis(5);
/// Parts of a hundred: those in use are busy; so much of one processor is idle; few enough for one loop less.
const BUSY: u32 = 88;
const IDLE: u32 = 20;
const FEW: u32 = 60;
/// Busy windows in a row before a loop joins.
const JOIN_WINDOWS: u32 = 4;
/// Windows with little work in a row before one leaves.
const LEAVE_WINDOWS: u32 = 30;
/// Bytes of the beginning of `/proc/stat` with the sums of all processors.
const STAT_LEN: usize = 256;
/// Of the system's idle time (USER_HZ).
const TICK_MS: u64 = 10;

/// Where the time of loops and processors is read.
pub trait Measure: Send + Sync {
    /// CPU time of the loop of this number, whose thread calls it.
    fn cpu_time(&self, index: usize) -> Duration;

    /// Idle time of all processors together, if it is known.
    fn idle(&self) -> Option<Duration>;
}

/// The system's times. The file is `/proc/stat`.
pub struct System(pub File);

impl Measure for System {
    fn cpu_time(&self, _index: usize) -> Duration {
        Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
    }

    /// Since the system's start (proc_stat(5)).
    fn idle(&self) -> Option<Duration> {
        let mut text = [0; STAT_LEN];
        let len = self.0.read_at(&mut text, 0).ok()?;
        let line = std::str::from_utf8(text.get(..len)?).ok()?.lines().next()?;
        let ticks: u64 = line.split_ascii_whitespace().nth(4)?.parse().ok()?;
        Some(Duration::from_millis(ticks.saturating_mul(TICK_MS)))
    }
}

/// A loop's record of its own work, and the first one's of all. Times are since the start of its driver.
#[derive(Default)]
pub struct Load {
    /// Busy polling, which is no work.
    looked: Duration,
    reported: Duration,
    decided: Duration,
    windows: Windows,
}

/// What has been in the last windows.
#[derive(Default)]
struct Windows {
    /// What all had worked at the last decision.
    worked: Duration,
    busy: u32,
    few: u32,
    /// The system's idle time when the first of these busy windows ended.
    idle: Option<Duration>,
}

impl Load {
    /// The loop was polling for so long.
    pub fn looked(&mut self, time: Duration) {
        self.looked += time;
    }

    /// A turn of the driver, at a time since its start. How long it may sleep, if that has a bound.
    pub fn turn(&mut self, share: &Share, now: Duration) -> Option<Duration> {
        let queues = &share.queues;
        let measure = queues.measure.as_ref()?;
        if now >= self.reported + REPORT {
            self.reported = now;
            queues.set_worked(share.index, measure.cpu_time(share.index).saturating_sub(self.looked));
        }
        if share.index > 0 {
            return None;
        }
        let in_use = queues.in_use();
        if now >= self.decided + WINDOW {
            let length = now - std::mem::replace(&mut self.decided, now);
            let next =
                self.windows.next((in_use, queues.count()), length, queues.worked(), || measure.idle());
            if next != in_use {
                queues.set_in_use(next);
            }
        }
        // What leaves is decided here, too, when nothing comes.
        (in_use > 1).then_some(WINDOW)
    }
}

impl Windows {
    /// A window of this length ends: how many loops are to be in use from now on.
    fn next(
        &mut self,
        (in_use, loops): (usize, usize),
        length: Duration,
        worked: Duration,
        idle: impl Fn() -> Option<Duration>,
    ) -> usize {
        let work = worked.saturating_sub(std::mem::replace(&mut self.worked, worked));
        let part = |percent: u32, loops: usize| length * percent / 100 * loops as u32;
        let is_busy = in_use < loops && work >= part(BUSY, in_use);
        let has_few = in_use > 1 && work < part(FEW, in_use - 1);
        self.busy = if is_busy { self.busy + 1 } else { 0 };
        self.few = if has_few { self.few + 1 } else { 0 };
        if self.busy == 1 {
            self.idle = idle();
        }
        if self.busy > JOIN_WINDOWS {
            self.busy = 0;
            let wanted = (WINDOW * JOIN_WINDOWS * IDLE / 100).max(Duration::from_millis(TICK_MS));
            if idle().zip(self.idle).is_some_and(|(now, then)| now.saturating_sub(then) >= wanted) {
                return in_use + 1;
            }
        }
        if self.few >= LEAVE_WINDOWS {
            self.few = 0;
            return in_use - 1;
        }
        in_use
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows in which all loops work so much of one's time, in parts of a hundred, and so much of a processor is idle: how many are in use after each.
    fn run(windows: &mut Windows, in_use: usize, count: u32, (work, idle): (u32, u32)) -> Vec<usize> {
        let mut in_use = in_use;
        (0..count)
            .map(|window| {
                let worked = windows.worked + WINDOW * work / 100;
                let idle = WINDOW * window * idle / 100;
                in_use = windows.next((in_use, 3), WINDOW, worked, || Some(idle));
                in_use
            })
            .collect()
    }

    #[test]
    fn a_loop_joins_where_those_in_use_are_busy_and_a_processor_is_idle() {
        assert_eq!(run(&mut Windows::default(), 1, 6, (95, 40)), [1, 1, 1, 1, 2, 2]);
        assert!(
            run(&mut Windows::default(), 1, 100, (95, 10)).ends_with(&[1]),
            "the others want the processors"
        );
        assert!(run(&mut Windows::default(), 1, 100, (80, 100)).ends_with(&[1]), "it keeps up");
        assert!(run(&mut Windows::default(), 2, 100, (150, 100)).ends_with(&[2]));
        assert!(run(&mut Windows::default(), 1, 100, (300, 100)).ends_with(&[3, 3]), "there is no fourth");
        let mut windows = Windows::default();
        for _ in 0..50 {
            assert_eq!(run(&mut windows, 1, 3, (95, 40)), [1; 3]);
            assert_eq!(run(&mut windows, 1, 1, (50, 40)), [1], "a pause");
        }
        let no_time = || None;
        assert!((0..100).all(|_| Windows::default().next((1, 3), WINDOW, WINDOW, no_time) == 1));
    }

    #[test]
    fn the_last_leaves_where_the_others_would_do_and_not_at_once() {
        assert_eq!(
            run(&mut Windows::default(), 2, LEAVE_WINDOWS - 1, (10, 90)),
            [2; LEAVE_WINDOWS as usize - 1]
        );
        assert!(run(&mut Windows::default(), 2, LEAVE_WINDOWS, (10, 90)).ends_with(&[2, 1]));
        assert!(
            run(&mut Windows::default(), 3, 3 * LEAVE_WINDOWS, (0, 90)).ends_with(&[1]),
            "one after the other"
        );
        assert!(
            run(&mut Windows::default(), 1, 3 * LEAVE_WINDOWS, (0, 90)).ends_with(&[1]),
            "the first stays"
        );
        // What two loops do with two thirds of their time, one could not do.
        assert!(run(&mut Windows::default(), 2, 10 * LEAVE_WINDOWS, (130, 0)).ends_with(&[2]));
    }

    #[test]
    fn the_idle_time_of_the_system_is_read() {
        let of = |path| System(File::open(path).unwrap()).idle();
        assert!(of("/proc/stat").unwrap() > Duration::ZERO);
        assert_eq!(of("/dev/null"), None);
    }
}
