//! What machines behind the gateway say: frames with questions of DHCP, DHCPv6 and Neighbor Discovery, and DNS messages.
//!
//! The bytes choose frames, most with whole headers and a message of any bytes behind them, from one of a few machines. Invariants: an answer is no longer than a packet
//! of 1,280 bytes and comes from the gateway; an address that a machine was acknowledged is of the pool, and no other machine's that has not given it back; the answer for the
//! host's name answers its query. Leases end by a clock, but not before an hour, so it decides nothing. Tests: `tests/corpus.rs`.

mod gateway;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use sockeye::netif::{Checksum, MacAddr, Medium, Netif, RxFrame, Sent, TxFrame};
use sockeye_mbuf::{Chain, Pool, PoolConfig};

use gateway::lan::{Facts, Lan, Router};
use gateway::messages;
use gateway::plan::Plan;

/// Frames of an input.
const FRAMES_MAX: usize = 12;
/// Bytes of the longest message in a frame.
const MESSAGE_MAX: usize = 700;
/// The longest answer, bytes, with its Ethernet header.
const ANSWER_MAX: usize = 14 + 1280;
/// Places of the pool.
const PLACES: u32 = 24;
/// Where a frame of IPv4 with UDP has DHCP's message: the kind in its first option, if it stands there.
const DHCP_AT: usize = 14 + 20 + 8;
const FIXED: usize = 240;
const ACK: u8 = 5;
const MAGIC: [u8; 4] = [99, 130, 83, 99];

/// The target.
pub fn machine(data: &[u8]) {
    // Too few bytes decide nothing.
    let _ = run(&mut Unstructured::new(data));
}

/// A frame, and who has looked at its checksum.
type Shown = (Vec<u8>, Checksum);

/// A device that shows one frame, and keeps those that are sent.
#[derive(Clone, Default)]
struct Device {
    shown: Arc<Mutex<Option<Shown>>>,
    sent: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Netif for Device {
    fn mtu(&self) -> u32 {
        65_520
    }

    fn queue_count(&self) -> usize {
        1
    }

    fn medium(&self) -> Medium {
        Medium::Ethernet(MacAddr([2, 0, 0, 0, 0, 2]))
    }

    fn offloads_checksum(&self) -> bool {
        false
    }

    fn transmit(&self, _flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        let bytes = frames.drain(..).map(|frame| {
            let mut bytes = vec![0; frame.len()];
            frame.copy_to(&mut bytes);
            bytes
        });
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
        Sent { queue: 0, dropped_count: 0 }
    }

    fn ring(&self, _queue: usize) {}

    fn receive(&self, _queue: usize, _max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((bytes, checksum)) = shown else { return 0 };
        sink(RxFrame { checksum, ..RxFrame::new(&bytes, &Chain::new()) });
        1
    }

    fn wait(&self, _queue: usize, _spin: Duration) {}

    fn interrupt(&self, _queue: usize) {}
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let plan = Plan::default();
    let facts = Facts {
        plan,
        has_v6: u.arbitrary()?,
        mac: Facts::mac_of(&plan),
        mtu: 65_520,
        search: vec!["example.org".to_owned()],
    };
    let (device, mac) = (Device::default(), facts.mac);
    let lan = Lan::new(device.clone(), Arc::new(Router::new(facts, 0)));
    lan.attached(&Pool::new(PoolConfig::default()));
    let mut given: HashMap<Ipv4Addr, [u8; 6]> = HashMap::new();
    for _ in 0..u.int_in_range(1..=FRAMES_MAX)? {
        if u.ratio(1, 4)? {
            names(u, plan.host)?;
            continue;
        }
        let (frame, from) = frame(u, mac)?;
        // Most have no checksums, as from a device that computes them.
        let checksum = if u.ratio(1, 8)? { Checksum::Software } else { Checksum::Device };
        *device.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some((frame, checksum));
        assert_eq!(lan.receive(0, 64, &mut |_| ()), 1);
        let answers = std::mem::take(&mut *device.sent.lock().unwrap_or_else(PoisonError::into_inner));
        assert!(answers.len() <= 1, "{} answers to a question", answers.len());
        for answer in &answers {
            assert!(answer.len() <= ANSWER_MAX, "an answer of {} bytes", answer.len());
            assert_eq!(answer[6..12], mac.0, "the gateway answers");
        }
        match answers.first().and_then(|answer| acknowledged(answer)) {
            Some(addr) => {
                let place = addr.to_bits().wrapping_sub(Ipv4Addr::new(10, 0, 2, 100).to_bits());
                assert!(place < PLACES, "{addr} is not of the pool");
                let other = given.insert(addr, from).filter(|other| *other != from);
                assert!(other.is_none(), "{addr} is {other:?}'s and was given to {from:?}");
            }
            // It may have given its address back.
            None => given.retain(|_, mac| *mac != from),
        }
    }
    Ok(())
}

/// The address that an answer of DHCP acknowledges.
fn acknowledged(answer: &[u8]) -> Option<Ipv4Addr> {
    let message = answer.get(DHCP_AT..).filter(|_| answer[12..14] == [8, 0])?;
    let is_ack = message.get(FIXED - 4..FIXED + 3)? == [&MAGIC[..], &[53, 1, ACK]].concat();
    let addr = Ipv4Addr::new(message[16], message[17], message[18], message[19]);
    (is_ack && !addr.is_unspecified()).then_some(addr)
}

/// A frame, and who has sent it.
fn frame(u: &mut Unstructured<'_>, router: MacAddr) -> Result<(Vec<u8>, [u8; 6])> {
    let from = [2, 0, 0, 0, 1, if u.ratio(3, 4)? { u.int_in_range(0..=3)? } else { u.int_in_range(0..=40)? }];
    let kind = u.int_in_range(0..=5u8)?;
    let mut message = match kind {
        0..=2 => dhcp(u)?,
        _ => {
            let len = u.int_in_range(0..=MESSAGE_MAX)?.min(u.len());
            u.bytes(len)?.to_vec()
        }
    };
    let len = message.len() as u16;
    let mut frame = [&router.0[..], &from].concat();
    match kind {
        0..=2 => {
            let [high, low] = (len + 28).to_be_bytes();
            frame
                .extend([8, 0, 0x45, 0, high, low, 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255]);
            let sum = sum(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            let [high, low] = (len + 8).to_be_bytes();
            frame.extend([0, 68, 0, 67, high, low, 0, 0]);
        }
        3 => {
            v6(&mut frame, len + 8, 17);
            let [high, low] = (len + 8).to_be_bytes();
            frame.extend([2, 34, 2, 35, high, low, 0, 0]);
        }
        4 => {
            v6(&mut frame, len + 4, 58);
            frame.extend([133, 0, 0, 0]);
        }
        // Any bytes, behind the addresses.
        _ => {}
    }
    frame.append(&mut message);
    Ok((frame, from))
}

/// The header of IPv6, to the routers, from an address of the link.
fn v6(frame: &mut Vec<u8>, len: u16, protocol: u8) {
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend(len.to_be_bytes());
    frame.extend([protocol, if protocol == 58 { 255 } else { 1 }]);
    frame.extend(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9).octets());
    frame.extend(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2).octets());
}

/// The complement of a header's sum (RFC 1071).
fn sum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    !(((sum & 0xffff) + (sum >> 16)) as u16)
}

/// A message of DHCP, with options of any bytes.
fn dhcp(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut message = vec![0; FIXED];
    message[..3].copy_from_slice(&[1, 1, 6]);
    message[236..].copy_from_slice(&MAGIC);
    // The client's own address, and whether it wants a broadcast.
    if u.arbitrary()? {
        message[12..16].copy_from_slice(&[10, 0, 2, 98 + u.int_in_range(0..=7)?]);
    }
    message[10] = u.arbitrary()?;
    message.extend([53, 1, u.int_in_range(0..=9)?]);
    if u.arbitrary()? {
        message.extend([50, 4, 10, 0, 2, 98 + u.int_in_range(0..=7)?]);
    }
    if u.arbitrary()? {
        message.extend([54, 4, 10, 0, 2, u.int_in_range(1..=3)?]);
    }
    let len = u.int_in_range(0..=64)?.min(u.len());
    message.extend(u.bytes(len)?);
    Ok(message)
}

/// A query, and its answer by bytes.
fn names(u: &mut Unstructured<'_>, host: [IpAddr; 2]) -> Result<()> {
    let mut query = vec![0; 12];
    query[..2].copy_from_slice(&u.arbitrary::<[u8; 2]>()?);
    query[5] = 1;
    if u.arbitrary()? {
        query.extend(b"\x04host\x08internal\0");
        query.extend([0, u.arbitrary()?, 0, u.arbitrary()?]);
    }
    let len = u.int_in_range(0..=200)?.min(u.len());
    query.extend(u.bytes(len)?);
    if let Some(answer) = messages::own(host, &query) {
        assert!(messages::is_answer(&query, &answer), "{query:x?}: {answer:x?}");
        assert!(messages::addresses(&answer).iter().all(|(_, addr, _)| host.contains(addr)));
    }
    let mut answer = query;
    for _ in 0..u.int_in_range(0..=4)? {
        let at = u.choose_index(answer.len())?;
        answer[at] = u.arbitrary()?;
    }
    let len = u.len().min(200);
    let other = u.bytes(len)?;
    let _ = (messages::is_answer(other, &answer), messages::is_answer(&answer, other));
    let _ = (messages::addresses(&answer), messages::addresses(other));
    Ok(())
}
