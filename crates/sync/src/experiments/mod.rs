//! Parts that only older settings of the stack use, for experiments: the squeue, and replies to messages. Only with the feature
//! `experiments`.

mod replies;
mod squeue;

pub use replies::{Replies, Request};
pub use squeue::{
    DEPTH_MAX, ELIDE_MAX, Entry, Exit, Filled, Found, HandedOff, Inside, Items, Outcome, Poisoned, Served,
    Squeue, SqueueId,
};
