//! Foundations: names, time, memory.

pub(crate) mod addr;
pub(crate) mod bind;
pub(crate) mod clock;
pub(crate) mod entropy;
pub(crate) mod errno;
pub(crate) mod names;
pub(crate) mod payload;
pub(crate) mod report;
