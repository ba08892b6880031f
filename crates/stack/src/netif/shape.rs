//! What interfaces inside the process are like, and the bounds of that: for the wire and the channel alike.
//!
//! Must not know how frames move. Tests: with each of the two, which are refused by the name of the field.

use std::io;

use super::table::{MTU_MAX, MTU_MIN, QUEUES_MAX};

/// Most frames that a queue may hold.
const QUEUE_LEN_MAX: usize = 1 << 20;

/// The fields that both have, and the name of whose they are.
pub(super) struct Shape {
    pub config: &'static str,
    pub mtu: u32,
    pub queues: usize,
    pub queue_len: usize,
    pub offload: bool,
    pub segment_max: u32,
}

impl Shape {
    /// `InvalidInput` if a field is out of its bounds.
    pub fn check(&self) -> io::Result<()> {
        self.within("mtu", self.mtu as usize, MTU_MIN as usize, MTU_MAX as usize)?;
        self.within("queues", self.queues, 1, QUEUES_MAX)?;
        self.within("queue_len", self.queue_len, 1, QUEUE_LEN_MAX)?;
        if self.segment_max > 0 {
            self.within("segment_max", self.segment_max as usize, self.mtu as usize, u16::MAX.into())?;
            if !self.offload {
                let config = self.config;
                return Err(invalid(format!("{config}::segment_max needs {config}::offload")));
            }
        }
        Ok(())
    }

    fn within(&self, field: &str, value: usize, min: usize, max: usize) -> io::Result<()> {
        if (min..=max).contains(&value) {
            return Ok(());
        }
        Err(invalid(format!("{}::{field} is {value}: it must be {min} to {max}", self.config)))
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
