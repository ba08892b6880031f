//! UDP by flow and the hook for IP packets, over a channel, against a model: peers send datagrams and ICMP errors, the application accepts,
//! receives, sends, rejects, leaves flows, changes their idle times and drops the listener; a hook answers, ignores, keeps, panics
//! and calls back.
//!
//! Invariants for any input, besides no panic:
//! * each datagram is the next one of its flow's receives, or was dropped for a reason that is counted, and a full backlog is one;
//! * a flow that has ended has been idle for its time or was displaced, and one that has not was not; it sends nothing;
//! * every flow that was ever begun waits, is held or was dropped: no place of the bounded table is lost, and no more are used than there are;
//! * a hook is asked about each packet once or the packet is counted as too many, and what leaves is what it has decided;
//! * at the end there is no flow and all packet memory is returned.
//!
//! The stack is driven and seeded, so an input has the same effect twice. Tests: `tests/corpus.rs`.

mod hook;
mod model;
mod packets;

use std::time::Duration;

use arbitrary::{Result, Unstructured};

use model::Bed;

/// Steps of one input.
const STEPS_MAX: usize = 400;

/// Steps between two looks at the sums.
const CHECKED_EVERY: usize = 8;

/// See the module's head.
pub fn flows(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let Ok(mut bed) = Bed::new(&mut u) else { return };
    for count in 0..STEPS_MAX {
        if u.is_empty() || step(&mut bed, &mut u).is_err() {
            break;
        }
        // Adding up costs more than a step, and what is lost stays lost.
        if count % CHECKED_EVERY == 0 {
            bed.check();
        }
    }
    bed.end();
}

fn step(bed: &mut Bed, u: &mut Unstructured<'_>) -> Result<()> {
    match u.int_in_range(0..=23u8)? {
        0..=7 => bed.datagram(packets::pair(u)?, u.int_in_range(0..=1200)?),
        8..=10 => bed.accept(),
        11..=12 => bed.receive(u.arbitrary()?),
        13..=14 => bed.send(u.arbitrary()?),
        15 => bed.icmp_error(u.arbitrary()?, packets::error(u)?),
        16 => bed.leave(u)?,
        17 => bed.set_idle(u)?,
        18 if u.ratio(1, 4)? => bed.toggle_listener(),
        19 => bed.stray(u)?,
        20 => hook::choose(bed, u)?,
        21 => hook::ask(bed, u)?,
        22 => hook::decide(bed, u)?,
        _ => bed.pass(Duration::from_millis(u.int_in_range(0..=3000)?)),
    }
    Ok(())
}
