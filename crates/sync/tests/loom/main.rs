//! Every interleaving of a few threads in each protocol of the crate.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p sockeye-sync --release --test loom
//! ```
//!
//! Without `--cfg loom` this file is empty. The numbers of threads and items are the smallest with which
//! each race described in the heads of the source files can happen: two producers to race for a
//! place in the list, one owner to leave under them, one worker to take over. More would take hours
//! and show nothing else. In models of three threads the number of forced switches is limited
//! (`PREEMPTIONS`): races of this kind need one or two.
#![cfg(loom)]

mod admission;
mod brief;
mod busy_poll;
mod claims;
mod exchange;
mod leader;
mod leave_undrained;
mod notify;
mod once_arc;
mod outlet;
mod pair;
mod parker;
mod poll_fd;
mod poll_queue;
mod precheck;
mod readiness;
mod reply;
mod seq_cell;
mod sleeper;
mod socket_lock;
mod squeue;
mod squeue_entry;
#[path = "../support/mod.rs"]
mod support;
mod take_queue;
mod tasks;
mod wait;
mod wait_list;

/// Forced switches per execution in models of three threads.
const PREEMPTIONS: usize = 3;

/// Runs `model` under all interleavings of two threads.
fn check(model: impl Fn() + Sync + Send + 'static) {
    loom::model(model);
}

/// Runs `model` under all interleavings with at most [`PREEMPTIONS`] forced switches.
fn check_bounded(model: impl Fn() + Sync + Send + 'static) {
    check_switching(PREEMPTIONS, model);
}

/// [`check_bounded`] with one less, for models of three threads that would take minutes.
fn check_three(model: impl Fn() + Sync + Send + 'static) {
    check_switching(PREEMPTIONS - 1, model);
}

fn check_switching(switches_max: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches_max);
    builder.check(model);
}
