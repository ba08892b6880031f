//! The programs of a host as a whole: the process that is killed, stopped, and started again, and the host's clock.
//!
//! A killed process leaves its kernel behind, which closes the process's sockets; a crash (`network.rs`) leaves nothing. A stopped process does not run, while its
//! kernel goes on. Tests: `tests/hosts/processes.rs`, `tests/hosts/clocks.rs`.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

#[cfg(feature = "entropy")]
use crate::executor::Ambient;
use crate::network::Host;

/// Makes a host's program, each time that it starts.
pub(crate) type Program = Rc<dyn Fn() -> Pin<Box<dyn Future<Output = ()>>>>;

impl Host {
    /// Has a program that starts now if the host is up, and again at each [`restart`](Self::restart). It is made anew each time: what it keeps in memory is lost with the
    /// process, and what the function has captured is not, as files are not.
    ///
    /// An earlier program is replaced, but goes on until it is killed.
    pub fn program<F, Fut>(&self, program: F)
    where
        F: Fn() -> Fut + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        self.net.tasks.set_program(self.index, Rc::new(move || Box::pin(program())));
        if self.is_up() {
            self.start_program();
        }
    }

    /// Starts the host again, after a crash with a new stack, or after [`kill`](Self::kill), with this program in place of its earlier one.
    ///
    /// # Panics
    /// As [`restart`](Self::restart).
    pub fn restart_with<F, Fut>(&self, program: F)
    where
        F: Fn() -> Fut + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        self.net.tasks.set_program(self.index, Rc::new(move || Box::pin(program())));
        self.restart();
    }

    pub(crate) fn start_program(&self) {
        if let Some(program) = self.net.tasks.program(self.index) {
            // Made by its task: what it starts before it returns its future is of this host as well.
            self.spawn(async move { program().await });
        }
    }

    /// Ends all of its programs, as `SIGKILL` ends a process. The host's kernel stays, and closes their sockets: a peer gets a FIN, or an RST if the program had not read
    /// all that had come (RFC 9293 section 3.10.4, as Linux does), connections that wait to be accepted an RST. Nothing if the host is down.
    ///
    /// Unlike those of a process, destructors run. Sockets that were moved to another host's program stay open. If a program of the host itself
    /// calls this, it ends at its next `await`. Programs can be started again at once, by [`restart`](Self::restart) or [`spawn`](Self::spawn).
    pub fn kill(&self) {
        let mut state = self.net.world.lock();
        let now = state.now;
        let host = &mut state.hosts[self.index];
        let Some(stack) = host.stack.clone() else { return };
        host.is_killed = true;
        host.processes += 1;
        host.is_paused = false;
        host.parked.clear();
        host.clock = now;
        let signals = std::mem::take(&mut host.signals);
        state.fault(Some(self.index), "killed");
        drop(state);
        drop(signals);
        // The stack's clock is that of its last call; what closing sends is sent now.
        stack.poll(std::time::Duration::from_nanos(now));
        self.net.tasks.doom_host(self.index);
        if let Some(runtimes) = &self.net.tasks.runtimes {
            runtimes.doom(self.index);
        }
        self.start_runtime();
        self.net.world.lock().mark(self.index);
    }

    /// Stops its programs where they stand, as `SIGSTOP` stops a process, until [`resume`](Self::resume). Its kernel goes on: it acknowledges what comes until the buffers are
    /// full, and accepts connections until the backlog is. Timers that end meanwhile are noticed afterwards.
    ///
    /// If a program of the host itself calls this, it stops at its next `await`; tasks of tokio that can go on at this moment still do. Nothing if the host is down.
    pub fn pause(&self) {
        let mut state = self.net.world.lock();
        let host = &mut state.hosts[self.index];
        if host.stack.is_none() || host.is_paused {
            return;
        }
        host.is_paused = true;
        state.fault(Some(self.index), "paused");
        drop(state);
        if let Some(runtimes) = &self.net.tasks.runtimes {
            runtimes.pause(self.index);
        }
    }

    /// Lets its programs go on after [`pause`](Self::pause).
    pub fn resume(&self) {
        let mut state = self.net.world.lock();
        let host = &mut state.hosts[self.index];
        if !std::mem::take(&mut host.is_paused) {
            return;
        }
        let parked = std::mem::take(&mut host.parked);
        let is_doomed = host.signals.is_doomed;
        state.fault(Some(self.index), "resumed");
        drop(state);
        if is_doomed {
            return self.kill();
        }
        parked.into_iter().for_each(|task| self.net.world.ready.push(task));
        if let Some(runtimes) = &self.net.tasks.runtimes {
            runtimes.resume(self.index);
        }
    }

    /// Whether its programs are stopped.
    pub fn is_paused(&self) -> bool {
        self.net.world.lock().hosts[self.index].is_paused
    }
}

/// The host's clock, which `std` and tokio show in its programs. Packets, the stack's timers and [`time`](crate::time) follow the simulation's time.
#[cfg(feature = "entropy")]
impl Host {
    /// Has its clocks go fast by so many millionths from now on, or slow if negative: `std`'s `Instant` and `SystemTime`, and the timers of tokio. Quartz is within
    /// some 100. It goes on over crashes.
    ///
    /// # Panics
    /// Beyond half a million either way.
    pub fn set_clock_drift(&self, ppm: i32) {
        assert!(
            ppm.abs() <= crate::clock::PPM_MAX,
            "a clock is fast or slow by half at most, not by {ppm} millionths"
        );
        let mut state = self.net.world.lock();
        let now = state.now;
        state.hosts[self.index].local.set_rate(now, ppm);
        state.fault(Some(self.index), format!("its clock is fast by {ppm} ppm"));
        self.shift_clocks(state);
        if let Some(runtimes) = &self.net.tasks.runtimes {
            runtimes.clock_changed(self.index);
        }
    }

    /// Sets the time of day forward: `SystemTime`, and nothing else. It stays so over crashes.
    pub fn step_clock_forward(&self, by: std::time::Duration) {
        self.step_clock(
            i64::try_from(by.as_nanos()).unwrap_or(i64::MAX),
            format!("its clock is set forward by {by:?}"),
        );
    }

    /// Sets the time of day back: `SystemTime`, and nothing else. It stays so over crashes.
    pub fn step_clock_back(&self, by: std::time::Duration) {
        self.step_clock(
            -i64::try_from(by.as_nanos()).unwrap_or(i64::MAX),
            format!("its clock is set back by {by:?}"),
        );
    }

    fn step_clock(&self, by: i64, text: String) {
        let mut state = self.net.world.lock();
        state.hosts[self.index].local.step(by);
        state.fault(Some(self.index), text);
        self.shift_clocks(state);
    }

    /// A program that changes its own host's clock sees it at once.
    fn shift_clocks(&self, state: parking_lot::MutexGuard<'_, crate::world::State>) {
        drop(state);
        if Ambient::host_of_caller() == Some(self.index) {
            self.net.world.show_clock_of(Some(self.index));
        }
    }
}
