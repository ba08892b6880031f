//! The table of state transitions (RFC 9293 section 3.3.2, figure 5), each state against each event.

use super::super::state::State::{
    self, CloseWait, Closed, Closing, Established, FinWait1, FinWait2, LastAck, SynReceived, SynSent,
    TimeWait,
};
use super::script::{ACK, FIN, IRS, ISS, RST, SYN, SYN_ACK, Script, plain};

/// An event of the pcb.
#[derive(Clone, Copy, Debug)]
enum Event {
    Syn,
    SynAck,
    /// Acknowledges all that we have sent.
    AckAll,
    /// Acknowledges nothing new.
    AckNothing,
    FinAckAll,
    FinAckNothing,
    Reset,
    Shutdown,
    Close,
}

use Event::{AckAll, AckNothing, Close, FinAckAll, FinAckNothing, Reset, Shutdown, Syn, SynAck};

const EVENTS: [Event; 9] =
    [Syn, SynAck, AckAll, AckNothing, FinAckAll, FinAckNothing, Reset, Shutdown, Close];

/// Rows: states; columns: `EVENTS`.
const TABLE: [(State, [State; 9]); 10] = [
    (SynSent, [SynReceived, Established, SynSent, SynSent, SynSent, SynSent, Closed, SynSent, Closed]),
    // A FIN that acknowledges our SYN opens and half-closes at once.
    (
        SynReceived,
        [
            SynReceived,
            Established,
            Established,
            SynReceived,
            CloseWait,
            SynReceived,
            Closed,
            SynReceived,
            SynReceived,
        ],
    ),
    (
        Established,
        [
            Established,
            Established,
            Established,
            Established,
            CloseWait,
            CloseWait,
            Closed,
            FinWait1,
            FinWait1,
        ],
    ),
    (CloseWait, [CloseWait, CloseWait, CloseWait, CloseWait, CloseWait, CloseWait, Closed, LastAck, LastAck]),
    (FinWait1, [FinWait1, FinWait1, FinWait2, FinWait1, TimeWait, Closing, Closed, FinWait1, FinWait1]),
    (FinWait2, [FinWait2, FinWait2, FinWait2, FinWait2, TimeWait, TimeWait, Closed, FinWait2, FinWait2]),
    (Closing, [Closing, Closing, TimeWait, Closing, TimeWait, Closing, Closed, Closing, Closing]),
    (LastAck, [LastAck, LastAck, Closed, LastAck, Closed, LastAck, Closed, LastAck, LastAck]),
    (TimeWait, [TimeWait; 9]),
    (Closed, [Closed; 9]),
];

fn happen(t: &mut Script, event: Event) {
    let nothing = t.pcb.snd_una();
    let header = match event {
        Syn => t.raw(IRS, 0, SYN),
        SynAck => t.raw(IRS, ISS + 1, SYN_ACK),
        AckAll => t.seg(ACK),
        AckNothing => super::super::segment::Header { ack: nothing, ..t.seg(ACK) },
        FinAckAll => t.seg(FIN),
        FinAckNothing => super::super::segment::Header { ack: nothing, ..t.seg(FIN) },
        Reset => t.seg(RST.with(ACK)),
        Shutdown => return t.pcb.shutdown_write(),
        Close => {
            assert_eq!(t.pcb.close(0, t.now), None);
            return;
        }
    };
    let _ = t.input(header, &[]);
}

#[test]
fn every_state_meets_every_event() {
    for (state, row) in TABLE {
        for (event, expected) in EVENTS.into_iter().zip(row) {
            let mut t = Script::in_state(state, &plain(), false);
            happen(&mut t, event);
            assert_eq!(t.pcb.state(), expected, "{event:?} in {state:?}");
        }
    }
}

#[test]
fn the_table_has_every_state_once() {
    assert_eq!(TABLE.map(|(state, _)| state), State::ALL);
}
