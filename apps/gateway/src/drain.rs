//! The end of a command: the kernel inside goes on with what the command has sent, and the gateway passes it on.
//!
//! Datagrams are in the device by then, and the loops are given [`DATAGRAMS_QUIET`] to send them on. Then the published ports are closed, so that the next gateway can have them.
//!
//! Of connections, nobody sees how much that kernel still has. But it sends while there is room, so a connection on which nothing comes for [`QUIET`], and of which nothing waits here, has none left: it is
//! one that another process inside keeps open. Where all are like that, or have ended, it is over.
//!
//! Bounds: [`DATAGRAMS_MAX`], and then [`DRAIN_MAX`]. Tests: below; `tests/gateway/endings.rs`.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::engine::forwards::Forwards;
use crate::flows::{Flows, Under};

/// How long connections are waited for, at most.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// For the kernel inside to send, or to send again what the device has lost (Linux: 200 ms).
const QUIET: Duration = Duration::from_millis(500);
/// For the loops to send on what is in the device.
const DATAGRAMS_QUIET: Duration = Duration::from_millis(20);
/// How long datagrams of other processes inside are waited for, at most.
const DATAGRAMS_MAX: Duration = Duration::from_millis(200);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Returns when everything that was sent has been passed on, or its time is over. Closes the published ports.
pub async fn passed_on(flows: &Flows, forwards: &Forwards) {
    // Datagrams that still come when this time is over are those of other processes.
    let _ = timeout(DATAGRAMS_MAX, datagrams(flows)).await;
    forwards.close();
    connections(flows).await;
}

/// Returns when no datagram has been sent for [`DATAGRAMS_QUIET`].
async fn datagrams(flows: &Flows) {
    loop {
        let before = flows.datagrams();
        sleep(DATAGRAMS_QUIET).await;
        if flows.datagrams() == before {
            return;
        }
    }
}

/// Returns when connections have nothing left to send, or [`DRAIN_MAX`] is over.
async fn connections(flows: &Flows) {
    let mut last = (Instant::now(), Under::default());
    let drain = async {
        loop {
            let now = flows.under_way();
            if now != last.1 || now.waiting > 0 {
                last = (Instant::now(), now);
            }
            if now.open == 0 || last.0.elapsed() >= QUIET {
                return;
            }
            sleep(LOOK_EVERY).await;
        }
    };
    // Those that go on then are reset by the end of their loops.
    let _ = timeout(DRAIN_MAX, drain).await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::flows::{Flow, Outward};
    use crate::policy::Protocol;
    use crate::rates::Rates;

    fn flow(flows: &Arc<Flows>, protocol: Protocol) -> Flow {
        let end = "192.0.2.1:80".parse().unwrap();
        flows.begin(protocol, (end, end), end).unwrap()
    }

    /// How long it takes, while something happens.
    async fn takes(flows: &Flows, happens: impl Future<Output = ()>) -> Duration {
        let start = Instant::now();
        let happens = async {
            happens.await;
            std::future::pending().await
        };
        tokio::select! {
            () = connections(flows) => start.elapsed(),
            () = happens => unreachable!("it goes on"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn datagrams_are_waited_for_and_ports_are_closed() {
        let (flows, _) = Flows::new(9, Rates::default(), None).unwrap();
        let forwards = Forwards::new(true);
        let start = Instant::now();
        passed_on(&flows, &forwards).await;
        assert_eq!(start.elapsed(), DATAGRAMS_QUIET);

        let comes = |every: Duration, times: u32| {
            let flow = flow(&flows, Protocol::Udp);
            async move {
                for _ in 0..times {
                    sleep(every).await;
                    flow.note_sent(1);
                }
                std::future::pending::<()>().await;
            }
        };
        for (times, long) in [(3, DATAGRAMS_QUIET * 3), (1000, DATAGRAMS_MAX)] {
            let start = Instant::now();
            tokio::select! {
                () = passed_on(&flows, &forwards) => {}
                () = comes(DATAGRAMS_QUIET / 2, times) => unreachable!("it goes on"),
            }
            assert_eq!(start.elapsed(), long, "{times}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_over_when_nothing_waits_and_nothing_comes() {
        let (flows, _) = Flows::new(9, Rates::default(), None).unwrap();
        let _datagrams = flow(&flows, Protocol::Udp);
        let tcp = flow(&flows, Protocol::Tcp);
        tcp.note_outward(Outward::Ended);
        assert_eq!(takes(&flows, async {}).await, Duration::ZERO);

        let open = flow(&flows, Protocol::Tcp);
        assert_eq!(takes(&flows, async {}).await, QUIET, "another process keeps it open");
        let comes = async {
            for _ in 0..4 {
                sleep(QUIET / 2).await;
                open.note_sent(1);
            }
        };
        let long = takes(&flows, comes).await;
        assert!(long > QUIET * 3 - LOOK_EVERY && long < QUIET * 3 + LOOK_EVERY * 3, "{long:?}");

        open.note_outward(Outward::Waits);
        let ends = async {
            sleep(QUIET * 3).await;
            open.note_outward(Outward::Ended);
        };
        let long = takes(&flows, ends).await;
        assert!(long >= QUIET * 3 && long < QUIET * 3 + LOOK_EVERY * 3, "{long:?}");
        open.note_outward(Outward::Waits);
        assert_eq!(takes(&flows, async {}).await, DRAIN_MAX, "its far end takes nothing");
    }
}
