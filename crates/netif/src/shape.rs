//! Settings of interfaces inside the process and their bounds, for the wire and the channel alike.
//!
//! Does not depend on how frames move. Tests: with each of the two, which are refused by the name of the
//! field.

use std::io;

use crate::{MTU_MAX, MTU_MIN, QUEUES_MAX};

/// Most frames that a queue may hold.
const QUEUE_LEN_MAX: usize = 1 << 20;

/// The fields that both have, and the name of whose they are.
pub(crate) struct Shape {
    pub config: &'static str,
    pub mtu: u32,
    pub queues: usize,
    pub queue_len: usize,
    pub offload: bool,
    pub segment_max: u32,
    pub udp_segment_max: u32,
}

impl Shape {
    /// `InvalidInput` if a field is out of its bounds.
    pub fn check(&self) -> io::Result<()> {
        self.within("mtu", self.mtu as usize, MTU_MIN as usize, MTU_MAX as usize)?;
        self.within("queues", self.queues, 1, QUEUES_MAX)?;
        self.within("queue_len", self.queue_len, 1, QUEUE_LEN_MAX)?;
        self.check_segments("segment_max", self.segment_max)?;
        self.check_segments("udp_segment_max", self.udp_segment_max)
    }

    /// A frame that the other side cuts is as long as a packet at least, and without a checksum.
    fn check_segments(&self, field: &str, segment_max: u32) -> io::Result<()> {
        if segment_max == 0 {
            return Ok(());
        }
        self.within(field, segment_max as usize, self.mtu as usize, u16::MAX.into())?;
        if self.offload {
            return Ok(());
        }
        let config = self.config;
        Err(invalid(format!("{config}::{field} needs {config}::offload")))
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
