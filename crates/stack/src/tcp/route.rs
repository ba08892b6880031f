//! A segment whose receiver is not known yet: from its 4-tuple to whatever answers for it.
//!
//! Runs with no socket lock held. The order of the questions is RFC 9293's: is there a connection
//! (section 3.10.7.4), one in TIME-WAIT, a half-open one, a listener (3.10.7.2), nothing (3.10.7.1)?
//! Here a connection learns its peer, so its data segments do not come here.

use sockeye_proto::tcp::closed::{self, ListenAction};
use sockeye_proto::tcp::segment::{Header, Payload};
use sockeye_proto::tcp::time_wait::TimeWaitAction;
use sockeye_sync::facade::Arc;

use crate::base::addr::FourTuple;
use crate::base::payload::Data;
use crate::inet::input::count;
use crate::inet::netif::table::Via;
use crate::rt::counter;
use crate::rt::failpoints::{self, Point};
use crate::rt::panics::{self, PanicSource};
use crate::tcp::conn::outbox::{Context, Routed, Unowned, Wake};
use crate::tcp::conn::{Conn, Work, transmit};
use crate::tcp::discipline::{Chosen, Discipline};
use crate::tcp::handshake::admission;
use crate::tcp::handshake::passive;
use crate::tcp::handshake::values::{self, Carried, Value};
use crate::tcp::tables::listeners::Replica;

/// Brings the segment to its receiver, here or outside.
pub(crate) fn route(cx: &mut Context<'_>, segment: Routed) {
    let core = cx.core;
    match core.netifs.via_from(segment.to.remote.addr, segment.to.local.addr) {
        Some(Via::LOOPBACK) => {
            let Routed { from, to, header, payload, unowned } = segment;
            if let Some((to, header, payload)) = core.loopback.carry(core, (to, header, payload)) {
                deliver(cx, Routed { from, to, header, payload, unowned });
            }
        }
        Some(via) => transmit::send(
            cx,
            via,
            &segment.to.reversed(),
            (&segment.header, segment.unowned),
            segment.payload,
        ),
        None => core.input.count(count::UNSENDABLE, 1),
    }
}

/// Finds the receiver of a segment that has arrived, and hands it over.
pub(crate) fn deliver(cx: &mut Context<'_>, segment: Routed) {
    look_up(cx, segment, None);
    values::bury(cx);
}

/// [`deliver`] of a SYN that the application of the listener `bind_id` has said yes to, with what it sends along.
pub(crate) fn admit(cx: &mut Context<'_>, segment: Routed, bind_id: u64, value: Option<Value>) {
    let carried = value.map(|value| Carried::new(value, &cx.core.dropped_values));
    look_up(cx, segment, Some(Admitted { bind_id, carried }));
    values::bury(cx);
}

/// The application of a listener has said yes.
struct Admitted {
    bind_id: u64,
    carried: Option<Carried>,
}

fn look_up(cx: &mut Context<'_>, segment: Routed, admitted: Option<Admitted>) {
    let core = cx.core;
    let (tuple, header) = (segment.to, segment.header);
    let hash = tuple.hash(&core.key);
    // A listener is looked up before the shard is locked: the bind table ranks above it.
    let is_syn = closed::listen(&header) == ListenAction::Syn;
    let mut listener = if is_syn { core.ports.listener(&tuple.local, hash, cx.cpu) } else { None };
    // Another listener may have come since, which has not been asked, and for which the value is not.
    let admitted =
        admitted.filter(|admitted| listener.as_ref().is_some_and(|l| l.bind_id == admitted.bind_id));
    let is_admitted = admitted.is_some();
    if let Some(Admitted { carried: Some(carried), .. }) = admitted {
        listener = listener.map(|listener| Replica::carrying(&listener, carried));
    }
    let mut shard = core.demux.shard(hash);
    failpoints::hit(Point::LookUp, u64::from(tuple.local.port));
    if let Some(conn) = shard.conn(hash, &tuple).cloned() {
        drop(shard);
        acquaint(segment.from.as_ref(), &conn);
        Chosen::enter(cx, &conn, Work::segment(header.into(), segment.payload));
        return;
    }
    if let Some(listener) = &listener
        && !is_admitted
        && listener.admission.asks()
        && !shard.half_open.contains(&tuple)
    {
        drop(shard);
        let asked = admission::ask(cx, listener, tuple, &header);
        return cx.outbox.wakes.extend(asked.map(|asked| Wake::Ask(Box::new(asked))));
    }
    let mut iss_floor = None;
    if let Some(resting) = shard.resting_mut(hash, &tuple) {
        let (record, unowned) = (&mut resting.record, resting.unowned);
        let action = panics::catch(PanicSource::Protocol, "a segment to a name in TIME-WAIT", || {
            let action = record.on_segment(&header, segment.payload.len(), cx.now);
            failpoints::hit(Point::TimeWait, u64::from(tuple.local.port));
            let ack = matches!(action, TimeWaitAction::Reopen { .. }).then(|| record.ack(cx.now));
            (action, ack)
        });
        let (action, ack_again) = match action {
            Ok(action) => action,
            Err(caught) => {
                // The record is half changed: the name is free now.
                shard.wake_resting(hash, &tuple);
                return cx.due.caught.push(caught);
            }
        };
        match action {
            TimeWaitAction::Ignore => return,
            TimeWaitAction::Ack(ack) => return answer_by(cx, tuple, ack, unowned),
            TimeWaitAction::Reopen { iss_floor: floor } => {
                if listener.is_none() {
                    ack_again.into_iter().for_each(|ack| answer_by(cx, tuple, ack, unowned));
                    return;
                }
                iss_floor = Some(floor);
                shard.wake_resting(hash, &tuple);
            }
            TimeWaitAction::Closed => {
                shard.wake_resting(hash, &tuple);
            }
        }
    }
    match listener {
        Some(listener) => passive::on_syn(cx, shard, hash, segment, &listener, iss_floor),
        None => passive::third_segment(cx, shard, hash, segment),
    }
}

/// Two ends in one process remember each other.
pub(crate) fn acquaint(from: Option<&Arc<Conn>>, to: &Arc<Conn>) {
    let Some(from) = from else { return };
    // Set once each; if another thread was first, it was the same connection.
    let _ = from.peer.set(Arc::downgrade(to));
    let _ = to.peer.set(Arc::downgrade(from));
}

/// Sends `header` to the other side of `receiver`, without a connection.
pub(crate) fn answer(cx: &mut Context<'_>, receiver: FourTuple, header: Header) {
    answer_by(cx, receiver, header, Unowned::default());
}

/// [`answer`], with an IP header of its own.
pub(crate) fn answer_by(cx: &mut Context<'_>, receiver: FourTuple, header: Header, unowned: Unowned) {
    cx.core.count(counter::SEGMENTS_OUT);
    let to = receiver.reversed();
    cx.outbox.routed.push_back(Routed { from: None, to, header, payload: Data::default(), unowned });
}
