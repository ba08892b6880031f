//! What only older settings of the stack use, for experiments: the squeue. Only with the feature `experiments`.

mod squeue;

pub use squeue::{
    DEPTH_MAX, ELIDE_MAX, Entry, Exit, Filled, Found, HandedOff, Inside, Items, Outcome, Poisoned, Served,
    Squeue, SqueueId,
};
