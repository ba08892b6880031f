//! A loop's device: a queue of a TUN or TAP device, or a machine at a socket (frames here; vhost-user in `guest.rs`).
//!
//! On Ethernet the gateway is the router of the segment ([`Lan`]), and the stack has the router's address.
//!
//! Tests: `tests/`.

use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use sockeye::Stack;
use sockeye::netif::{CaptureConfig, LinkOptions, Medium, Netif, NetifId, Prefix, capture_into};
use sockeye_drivers::{Adopted, FrameStream, Tun, VhostUser};
use sockeye_sync::Bell;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::interval;

use super::door::{Door, PAUSE};
use super::driver::LONG;
use super::guest::Guest;
use super::load::Load;
use super::queues::{Handle, Queues, Share};
use super::{Shared, task};
use crate::lan::{ADVERTISE_EVERY, Facts, LINK_LOCAL, Lan};
use crate::readiness::register;

/// Bits of the network of link-local addresses.
const LINK_LOCAL_LEN: u8 = 64;

/// Where a loop's frames come from.
pub enum Source {
    /// A queue of a TUN or TAP device that we have made.
    Own(OwnedFd),
    /// A queue of another program's.
    Queue(OwnedFd),
    /// A TUN device of several queues, which loops share; the loop's number.
    Shared(Arc<Queues>, usize),
    /// A machine that is there.
    Machine(OwnedFd),
    /// Machines that come, one after the other; or only the first.
    Machines(UnixListener, Turns),
    /// The front end of a machine's card that is there.
    Card(UnixStream),
    /// Front ends that come.
    Cards(UnixListener, Turns),
}

impl Source {
    /// The queues that loops share, if it is one of several.
    pub fn queues(&self) -> Option<Arc<Queues>> {
        match self {
            Self::Shared(queues, _) => Some(Arc::clone(queues)),
            _ => None,
        }
    }
}

/// How many machines are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turns {
    /// One after the other.
    All,
    /// The first.
    One,
}

/// A device that a loop serves.
pub enum Port {
    /// A queue, and a descriptor of it to wait at.
    Tun(Tun, AsyncFd<OwnedFd>),
    /// A share of several queues.
    Share(Reading),
    /// A machine.
    Stream(Box<Machine>),
    /// A machine's card.
    Guest(Box<Guest>),
}

/// A machine at a socket, or the place for one.
pub struct Machine {
    stream: FrameStream,
    socket: Option<AsyncFd<OwnedFd>>,
    door: Option<Door>,
}

impl Port {
    /// Takes the device into service, with all addresses of the gateway. Its packets are recorded in the file. Nothing arrives before [`sockeye::Stack::poll`].
    ///
    /// # Errors
    /// The system's; the stack's for a device that it cannot serve.
    pub fn attach(
        (source, pcap): (Source, Option<File>),
        stack: &Stack,
        shared: &Arc<Shared>,
    ) -> io::Result<Self> {
        let mac = Facts::mac_of(&shared.plan);
        match source {
            Source::Own(queue) => Self::of_queue((stack, shared), (queue, true), pcap),
            Source::Queue(queue) => Self::of_queue((stack, shared), (queue, false), pcap),
            Source::Shared(queues, index) => {
                let share = Share::new(&queues, index, shared.mtu)?;
                join(stack, shared, Handle(Arc::clone(&share)), pcap)?;
                Ok(Self::Share(Reading::new(share)))
            }
            Source::Machine(socket) => {
                let mut machine = Machine::new((stack, shared), pcap, None)?;
                machine.connect(socket)?;
                Ok(Self::Stream(Box::new(machine)))
            }
            Source::Machines(listener, turns) => {
                let door = Door::new(listener, turns)?;
                Ok(Self::Stream(Box::new(Machine::new((stack, shared), pcap, Some(door))?)))
            }
            Source::Card(socket) => {
                let card = VhostUser::new(mac, shared.mtu)?;
                join(stack, shared, card.clone(), pcap)?;
                Ok(Self::Guest(Box::new(Guest::of_socket(card, socket)?)))
            }
            Source::Cards(listener, turns) => {
                let card = VhostUser::new(mac, shared.mtu)?;
                join(stack, shared, card.clone(), pcap)?;
                Ok(Self::Guest(Box::new(Guest::of_door(card, Door::new(listener, turns)?)?)))
            }
        }
    }

    fn of_queue(
        (stack, shared): (&Stack, &Arc<Shared>),
        (queue, is_own): (OwnedFd, bool),
        pcap: Option<File>,
    ) -> io::Result<Self> {
        let mac = Some(Facts::mac_of(&shared.plan));
        // Behind a device of our own is the kernel, which takes segments longer than packets.
        let adopted = Adopted { fds: vec![queue], mtu: Some(shared.mtu), mac, big_tcp: is_own };
        let tun = Tun::adopt(adopted)?;
        let Some(queue) = tun.descriptors().next() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let waited = register(queue.try_clone_to_owned()?, Interest::READABLE)?;
        join(stack, shared, tun.clone(), pcap)?;
        Ok(Self::Tun(tun, waited))
    }

    /// Whether nothing will come any more.
    pub fn is_down(&self) -> bool {
        match self {
            Self::Tun(tun, _) => tun.is_down(),
            Self::Share(reading) => reading.share.is_down(),
            Self::Stream(machine) => machine.stream.is_down(),
            Self::Guest(guest) => guest.card.is_down(),
        }
    }

    /// What ends the driver's wait from elsewhere.
    pub fn bell(&self) -> Arc<Bell> {
        match self {
            Self::Share(reading) => reading.share.queues.bell(reading.share.index),
            Self::Tun(..) | Self::Stream(_) | Self::Guest(_) => Arc::default(),
        }
    }

    /// The share of several queues, if it is one.
    pub fn share(&self) -> Option<Arc<Share>> {
        match self {
            Self::Share(reading) => Some(Arc::clone(&reading.share)),
            Self::Tun(..) | Self::Stream(_) | Self::Guest(_) => None,
        }
    }

    /// A turn of the driver begins, at a time since its start: the loop waits at the queues that are its now. How long it may sleep, at most.
    pub fn turn(&mut self, now: Duration) -> Duration {
        match self {
            Self::Share(reading) => {
                let sleep_max = reading.load.turn(&reading.share, now).unwrap_or(LONG);
                if reading.follow(now) { sleep_max } else { sleep_max.min(PAUSE) }
            }
            Self::Tun(..) | Self::Stream(_) | Self::Guest(_) => LONG,
        }
    }

    /// The driver was polling for so long, and found nothing.
    pub fn looked(&mut self, time: Duration) {
        if let Self::Share(reading) = self {
            reading.load.looked(time);
        }
    }

    /// Returns when the device may have frames. Its readiness is taken back: read until there is nothing.
    ///
    /// # Errors
    /// The runtime ends.
    pub async fn ready(&mut self, shared: &Shared) -> io::Result<()> {
        match self {
            Self::Tun(tun, queue) => {
                poll_fn(|task| poll_queue(queue, task)).await?;
                tun.announce();
                Ok(())
            }
            Self::Share(reading) => reading.ready().await,
            Self::Stream(machine) => machine.ready(shared).await,
            Self::Guest(guest) => guest.ready(shared).await,
        }
    }
}

/// Returns when the queue may have frames, and takes that back.
fn poll_queue<T: AsRawFd>(queue: &AsyncFd<T>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
    match queue.poll_write_ready(task) {
        // A device that was deleted reports an error and no hang-up, which tokio tells to writers alone, and nothing else to them: no interest in
        // room was declared.
        Poll::Ready(failed) => Poll::Ready(failed.map(drop)),
        Poll::Pending => queue.poll_read_ready(task).map_ok(|mut readable| readable.clear_ready()),
    }
}

/// A share, and the queues that are waited at.
pub struct Reading {
    share: Arc<Share>,
    /// As the share's devices.
    waited: Vec<Option<AsyncFd<Waited>>>,
    /// How many loops were in use when that was set up.
    in_use: usize,
    /// After a refusal: the time of the next try.
    again_at: Option<Duration>,
    load: Load,
}

/// A queue of a share as a descriptor to wait at: a loop needs none anew to join.
struct Waited {
    share: Arc<Share>,
    queue: usize,
}

impl AsFd for Waited {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.share.descriptor(self.queue)
    }
}

impl AsRawFd for Waited {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Reading {
    fn new(share: Arc<Share>) -> Self {
        let waited = share.tuns.iter().map(|_| None).collect();
        Self { waited, share, in_use: 0, again_at: None, load: Load::default() }
    }

    /// Waits at the queues that are this loop's. False if that cannot be: it is reported, and tried again after a pause.
    fn follow(&mut self, now: Duration) -> bool {
        let in_use = self.share.queues.in_use();
        if self.in_use == in_use {
            return true;
        }
        if self.again_at.is_none_or(|at| at <= now) {
            // Until this is done, the queues that are waited at are those of neither number.
            self.in_use = 0;
            match self.wait_at_those_of(in_use) {
                Ok(()) => (self.in_use, self.again_at) = (in_use, None),
                Err(error) => {
                    eprintln!("sockeye gateway: a queue of the device cannot be waited at: {error}");
                    self.again_at = Some(now + PAUSE);
                }
            }
        }
        self.again_at.is_none()
    }

    fn wait_at_those_of(&mut self, in_use: usize) -> io::Result<()> {
        for ((queue, _), waited) in self.share.tuns.iter().zip(&mut self.waited) {
            if !self.share.reads(*queue, in_use) {
                *waited = None;
            } else if waited.is_none() {
                let queue = Waited { share: Arc::clone(&self.share), queue: *queue };
                *waited = Some(register(queue, Interest::READABLE)?);
            }
        }
        Ok(())
    }

    async fn ready(&mut self) -> io::Result<()> {
        poll_fn(|task| {
            let mut ready = Poll::Pending;
            for ((_, tun), queue) in self.share.tuns.iter().zip(&self.waited) {
                if let Some(queue) = queue
                    && let Poll::Ready(of_this) = poll_queue(queue, task)
                {
                    of_this?;
                    tun.announce();
                    ready = Poll::Ready(Ok(()));
                }
            }
            ready
        })
        .await
    }
}

impl Machine {
    fn new(
        (stack, shared): (&Stack, &Arc<Shared>),
        pcap: Option<File>,
        door: Option<Door>,
    ) -> io::Result<Self> {
        let stream = FrameStream::new(Facts::mac_of(&shared.plan), shared.mtu)?;
        join(stack, shared, stream.clone(), pcap)?;
        Ok(Self { stream, socket: None, door })
    }

    fn connect(&mut self, socket: OwnedFd) -> io::Result<()> {
        self.socket = Some(connect(&self.stream, socket)?);
        Ok(())
    }

    async fn ready(&mut self, shared: &Shared) -> io::Result<()> {
        if !self.stream.is_connected() {
            if self.socket.take().is_some() && self.door.as_ref().is_none_or(Door::is_for_one) {
                // The machine has gone, and was the last.
                self.stream.end();
                return Ok(());
            }
            let Self { stream, socket, door } = self;
            let Some(door) = door else { return std::future::pending().await };
            let connect = |came: UnixStream| {
                // Another machine than before, perhaps.
                shared.router.forget();
                connect(stream, came.into())
            };
            *socket = Some(door.next(connect).await);
            return Ok(());
        }
        let Some(socket) = &self.socket else { return std::future::pending().await };
        poll_fn(|task| poll_socket(&self.stream, socket, task)).await
    }
}

/// Connects a machine, and waits at a descriptor of its socket. That comes first: a connection that is not waited at would never end.
fn connect(stream: &FrameStream, socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    let waited = register(socket.try_clone()?, Interest::READABLE | Interest::WRITABLE)?;
    stream.connect(socket)?;
    Ok(waited)
}

/// Returns when a machine has sent something or has gone, and takes that back. Until then what waits for room is sent. Tasks send while the driver is here, so there may be
/// some by then where there was none before; the driver need not hear of it.
fn poll_socket(
    stream: &FrameStream,
    socket: &AsyncFd<OwnedFd>,
    task: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while let Poll::Ready(room) = socket.poll_write_ready(task) {
        let mut room = room?;
        // That is not taken back. Those who read are told as well, at the latest when something was sent in vain.
        let is_closed = room.ready().is_write_closed();
        // Before anything is sent: room that comes when the socket has refused the rest is reported again.
        room.clear_ready();
        stream.flush();
        if is_closed {
            break;
        }
    }
    socket.poll_read_ready(task).map_ok(|mut readable| readable.clear_ready())
}

/// Gives the stack the device, the gateway's addresses there, and everything that comes. Packets are recorded in the file.
pub(super) fn join(
    stack: &Stack,
    shared: &Arc<Shared>,
    device: impl Netif,
    pcap: Option<File>,
) -> io::Result<()> {
    match pcap {
        // No rotation: the path is of no use to a process that sees no files.
        Some(file) => {
            let (device, capture) = capture_into(device, file, &CaptureConfig::to(""))?;
            shared.captures.lock().unwrap_or_else(PoisonError::into_inner).push(capture);
            join_as(stack, shared, device)
        }
        None => join_as(stack, shared, device),
    }
}

fn join_as(stack: &Stack, shared: &Arc<Shared>, device: impl Netif) -> io::Result<()> {
    let plan = shared.plan;
    let addrs = plan.with_networks(plan.host).chain(plan.with_networks(plan.names));
    let netif = match device.medium() {
        Medium::Ip => stack.attach(device, &addrs.collect::<Vec<_>>())?,
        Medium::Ethernet(_) => {
            // That which machines have as their router's address, and a router's advertisements come from.
            let own = Prefix::new(LINK_LOCAL.into(), LINK_LOCAL_LEN).map_err(io::Error::other)?;
            let options = LinkOptions {
                accept_ra: false,
                link_local: false,
                detect_duplicates: false,
                router: true,
                ..LinkOptions::default()
            };
            let lan = Lan::new(device, Arc::clone(&shared.router));
            let netif = stack.attach_with(lan.clone(), &addrs.chain([own]).collect::<Vec<_>>(), &options)?;
            task(async move {
                let mut every = interval(ADVERTISE_EVERY);
                loop {
                    every.tick().await;
                    lan.advertise();
                }
            });
            netif
        }
    };
    everything(stack, netif)
}

fn everything(stack: &Stack, netif: NetifId) -> io::Result<()> {
    stack.set_any_address(netif, true)?;
    for everywhere in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
        stack.add_route(Prefix::new(everywhere, 0).map_err(io::Error::other)?, netif)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockeye::netif::{Checksum, TxFrame};
    use sockeye_mbuf::{Pool, PoolConfig};
    use tokio::io::AsyncReadExt;
    use tokio::time::timeout;

    #[tokio::test]
    async fn what_a_task_sends_while_the_driver_waits_leaves_when_there_is_room() {
        const LEN: usize = 60_000;
        let shared = Shared::for_tests(&[], (64, 1 << 20), 65_520);
        let stream = FrameStream::new(Facts::mac_of(&shared.plan), 65_520).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut theirs = tokio::net::UnixStream::from_std(theirs).unwrap();
        let mut machine = Machine { stream: stream.clone(), socket: None, door: None };
        machine.connect(ours.into()).unwrap();
        let drives = async {
            loop {
                machine.ready(&shared).await.unwrap();
            }
        };
        let sends = async {
            let pool = Pool::new(PoolConfig::default());
            let mut count = 0;
            while !stream.has_unsent() {
                let payload = pool.copy_in(&[7; LEN]).unwrap();
                let frame = TxFrame::new(&[], payload, Checksum::Software).unwrap();
                assert_eq!(stream.transmit(0, &mut vec![frame]).dropped_count, 0);
                count += 1;
            }
            // Each frame has its length before it.
            let mut bytes = vec![0; count * (4 + LEN)];
            theirs.read_exact(&mut bytes).await.unwrap();
        };
        tokio::select! {
            biased;
            () = drives => {}
            sent = timeout(Duration::from_secs(20), sends) => sent.expect("the last bytes come"),
        }
    }
}
