//! What the front end, QEMU or another monitor, says over the socket: the guest's memory, the places of its rings, what it may be told.
//!
//! `vhost` reads and checks the messages and sends the answers; this file does what they say, on a thread of the connection's own. The front end is as trustworthy as a
//! program that the user runs: it can end its own network (a file of memory that it shortens ends this process by SIGBUS), and the guest has no part in that.
//!
//! Does not depend on frames. Locks: one ring's at a time. Tests: `apps/gateway/tests/machines/vhost.rs`.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use sockeye_sync::facade::Arc;
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use vm_memory::{GuestAddress, GuestMemoryMmap, GuestRegionMmap};

use super::pair::PAIRS_MAX;
use super::ring::{Memory, Ring};
use super::{Inner, feature};

/// The front end's addresses of a piece of the guest's memory.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    front: u64,
    len: u64,
    guest: u64,
}

/// See the module's head.
pub(super) struct Front {
    inner: Arc<Inner>,
    mappings: Vec<Mapping>,
}

impl Front {
    pub fn new(inner: Arc<Inner>) -> Self {
        Self { inner, mappings: Vec::new() }
    }

    /// The guest's address of what the front end has at this one.
    fn guest_addr(&self, front: u64) -> Result<u64> {
        let of = |mapping: &Mapping| {
            let offset = front.checked_sub(mapping.front).filter(|offset| *offset < mapping.len)?;
            mapping.guest.checked_add(offset)
        };
        self.mappings.iter().find_map(of).ok_or(Error::InvalidParam)
    }

    fn ring<T>(&self, index: u32, act: impl FnOnce(&mut Ring) -> T) -> Result<T> {
        self.inner.with_ring(index, act).ok_or(Error::InvalidParam)
    }

    fn each_ring(&self, act: impl Fn(&mut Ring)) {
        for index in 0.. {
            if self.inner.with_ring(index, &act).is_none() {
                return;
            }
        }
    }

    /// Takes the descriptor by which the guest says that it has made something available out of those that are waited at.
    fn forget_kick(&self, ring: &mut Ring) {
        if let Some(kick) = ring.kick.take() {
            // The front end has the same file open, so it does not go by itself.
            let _ = epoll::delete(&self.inner.events, kick);
        }
    }

    /// The connection ends: nothing of the guest's is touched any more.
    pub fn end(&self) {
        self.each_ring(|ring| {
            self.forget_kick(ring);
            ring.reset();
        });
        self.inner.lost();
    }
}

fn system(error: impl Into<io::Error>) -> Error {
    Error::ReqHandlerError(error.into())
}

const NOT_OFFERED: Error = Error::InvalidOperation("not offered");

impl VhostUserBackendReqHandlerMut for Front {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.each_ring(|ring| {
            self.forget_kick(ring);
            ring.stop();
        });
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(feature::OFFERED)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !feature::OFFERED != 0 {
            return Err(Error::InvalidParam);
        }
        self.each_ring(|ring| {
            ring.set_features(features);
            // Without them there is no message that enables a ring.
            if features & feature::PROTOCOL_FEATURES == 0 {
                ring.enable(true);
            }
        });
        self.inner.ring_bell();
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let mapped = |(region, file): (&VhostUserMemoryRegion, File)| {
            // What is mapped behind the end of a file ends the process that touches it.
            let end = region.mmap_offset.checked_add(region.memory_size);
            let there = file.metadata().map_err(system)?;
            if !there.is_file() || end.is_none_or(|end| end > there.len()) {
                return Err(Error::InvalidParam);
            }
            let memory = region.mmap_region(file)?;
            GuestRegionMmap::new(memory, GuestAddress(region.guest_phys_addr)).ok_or(Error::InvalidParam)
        };
        let pieces = regions.iter().zip(files).map(mapped).collect::<Result<Vec<_>>>()?;
        let memory = GuestMemoryMmap::from_regions(pieces).map_err(|_| Error::InvalidParam)?;
        let memory: Memory = Arc::new(memory);
        self.mappings = regions
            .iter()
            .map(|region| Mapping {
                front: region.user_addr,
                len: region.memory_size,
                guest: region.guest_phys_addr,
            })
            .collect();
        // The earlier memory goes with the last ring that has it.
        self.each_ring(|ring| ring.set_memory(&memory));
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        self.ring(index, |ring| ring.set_size(num))?.then_some(()).ok_or(Error::InvalidParam)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let (descriptor, used, available) =
            (self.guest_addr(descriptor)?, self.guest_addr(used)?, self.guest_addr(available)?);
        let is_set = self.ring(index, |ring| ring.set_addrs(descriptor, available, used))?;
        is_set.then_some(()).ok_or(Error::InvalidParam)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        self.ring(index, |ring| ring.set_next(base))
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let next = self.ring(index, |ring| {
            self.forget_kick(ring);
            ring.stop()
        })?;
        Ok(VhostUserVringState::new(index, next.into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let file = OwnedFd::from(file.ok_or(Error::InvalidOperation("a ring without kicks"))?);
        self.ring(index.into(), |ring| -> Result<()> {
            self.forget_kick(ring);
            // Each kick is an edge, so that nothing has to be read from a file that is another program's.
            let flags = EventFlags::IN | EventFlags::ET;
            epoll::add(&self.inner.events, &file, EventData::new_u64(index.into()), flags).map_err(system)?;
            ring.kick = Some(file);
            ring.start();
            Ok(())
        })??;
        self.inner.has_started(index.into());
        // What was made available before is looked for.
        self.inner.ring_bell();
        Ok(())
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        if let Some(file) = &file {
            // An interrupt never waits.
            let flags = fcntl_getfl(file).map_err(system)?;
            fcntl_setfl(file, flags | OFlags::NONBLOCK).map_err(system)?;
        }
        self.ring(index.into(), |ring| ring.set_call(file))
    }

    fn set_vring_err(&mut self, index: u8, _file: Option<File>) -> Result<()> {
        self.ring(index.into(), |_| ())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        // `vhost` adds those that it serves by itself: answers to every message.
        Ok(VhostUserProtocolFeatures::MQ)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(PAIRS_MAX as u64)
    }

    fn set_vring_enable(&mut self, _index: u32, _enable: bool) -> Result<()> {
        // See `Connection::enables`.
        Err(NOT_OFFERED)
    }

    fn get_config(&mut self, _offset: u32, _size: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        Err(NOT_OFFERED)
    }

    fn set_config(&mut self, _offset: u32, _bytes: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn set_gpu_socket(&mut self, _gpu: GpuBackend) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(NOT_OFFERED)
    }

    fn get_inflight_fd(&mut self, _inflight: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        Err(NOT_OFFERED)
    }

    fn set_inflight_fd(&mut self, _inflight: &VhostUserInflight, _file: File) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Err(NOT_OFFERED)
    }

    fn add_mem_region(
        &mut self,
        _region: &VhostUserSingleMemoryRegion,
        _fd: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        Err(NOT_OFFERED)
    }

    fn remove_mem_region(&mut self, _region: &VhostUserSingleMemoryRegion) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _fd: File,
    ) -> Result<Option<File>> {
        Err(NOT_OFFERED)
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(NOT_OFFERED)
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        Err(NOT_OFFERED)
    }
}
