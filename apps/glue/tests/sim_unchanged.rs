//! Parts of tokio and tokio-util that libraries use, on hosts of the simulator, as they are. What `crates/sim/tests/tokio.rs` has is not repeated.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::SinkExt;
use sockeye::tokio::{TcpListener, TcpStream};
use sockeye_sim::Sim;
use tokio::sync::{Barrier, Notify, Semaphore, broadcast, watch};
use tokio::time::{self, Instant, MissedTickBehavior};
use tokio_stream::StreamExt;
use tokio_util::codec::{Framed, LengthDelimitedCodec, LinesCodec};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn codecs_of_tokio_util_frame_a_connection() {
    Sim::new(1).tokio().run(|net| async move {
        let (client, server) = (net.host("client"), net.host("server"));
        server.spawn(async {
            let listener = TcpListener::bind("0.0.0.0:80").await.unwrap();
            let mut lines = Framed::new(listener.accept().await.unwrap().0, LinesCodec::new());
            while let Some(line) = lines.next().await {
                lines.send(line.unwrap().to_uppercase()).await.unwrap();
            }
            let mut frames = Framed::new(listener.accept().await.unwrap().0, LengthDelimitedCodec::new());
            while let Some(frame) = frames.next().await {
                frames.send(frame.unwrap().freeze()).await.unwrap();
            }
        });
        client
            .spawn(async {
                let mut lines =
                    Framed::new(TcpStream::connect("server:80").await.unwrap(), LinesCodec::new());
                for word in ["a", "line", "and another"] {
                    lines.send(word).await.unwrap();
                    assert_eq!(lines.next().await.unwrap().unwrap(), word.to_uppercase());
                }
                drop(lines);
                let stream = TcpStream::connect("server:80").await.unwrap();
                let mut frames = Framed::new(stream, LengthDelimitedCodec::new());
                frames.send(bytes::Bytes::from(vec![7; 100_000])).await.unwrap();
                assert_eq!(frames.next().await.unwrap().unwrap().len(), 100_000);
            })
            .await
            .unwrap();
    });
}

#[test]
fn tokens_and_trackers_of_tokio_util_end_the_tasks_of_a_host() {
    Sim::new(2).tokio().run(|net| async move {
        let host = net.host("host");
        let ended = host.spawn(async {
            let (token, tracker, begin) = (CancellationToken::new(), TaskTracker::new(), Instant::now());
            for number in 1..=3 {
                let token = token.child_token();
                tracker.spawn(async move {
                    tokio::select! {
                        () = token.cancelled() => "cancelled",
                        () = time::sleep(number * SECOND) => "slept",
                    }
                });
            }
            tracker.close();
            time::sleep(1500 * MS).await;
            token.cancel();
            tracker.wait().await;
            begin.elapsed()
        });
        assert_eq!(ended.await.unwrap(), 1500 * MS);
    });
}

#[test]
fn primitives_of_tokio_meet_in_simulated_time() {
    Sim::new(3).tokio().run(|net| async move {
        let host = net.host("host");
        host.spawn(async {
            let begin = Instant::now();
            let (gate, barrier) =
                (std::sync::Arc::new(Semaphore::new(2)), std::sync::Arc::new(Barrier::new(4)));
            let (say, heard) = watch::channel(0);
            let (call, _) = broadcast::channel(8);
            let tasks: Vec<_> = (0..4)
                .map(|number| {
                    let (gate, barrier) = (gate.clone(), barrier.clone());
                    let (mut heard, mut called) = (heard.clone(), call.subscribe());
                    tokio::spawn(async move {
                        let permit = gate.acquire().await.unwrap();
                        time::sleep(SECOND).await;
                        drop(permit);
                        barrier.wait().await;
                        heard.wait_for(|value| *value == 1).await.unwrap();
                        (number, called.recv().await.unwrap())
                    })
                })
                .collect();
            time::sleep(3 * SECOND).await;
            say.send(1).unwrap();
            call.send("go").unwrap();
            for (number, task) in tasks.into_iter().enumerate() {
                assert_eq!(task.await.unwrap(), (number, "go"));
            }
            assert_eq!(begin.elapsed(), 3 * SECOND);

            let mut ticks = time::interval(10 * MS);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            ticks.tick().await;
            time::sleep(35 * MS).await;
            ticks.tick().await;
            ticks.tick().await;
            assert_eq!(begin.elapsed(), 3 * SECOND + 40 * MS);

            let notify = std::sync::Arc::new(Notify::new());
            let waiter = tokio::spawn({
                let notify = notify.clone();
                async move { time::timeout_at(Instant::now() + SECOND, notify.notified()).await.is_ok() }
            });
            tokio::task::yield_now().await;
            notify.notify_one();
            assert!(waiter.await.unwrap());
        })
        .await
        .unwrap();
    });
}

/// Which branch comes first is drawn: both are seen, and a seed draws the same again.
#[cfg(tokio_unstable)]
#[test]
fn a_fair_select_and_the_order_of_a_hash_map_follow_from_the_seed() {
    let draws = |seed| {
        Sim::new(seed).tokio().run(|net| async move {
            let host = net.host("host");
            host.spawn(async {
                let mut first = Vec::new();
                for _ in 0..32 {
                    first.push(tokio::select! { () = async {} => true, () = async {} => false });
                }
                let map: HashMap<u32, ()> = (0..32).map(|number| (number, ())).collect();
                (first, map.into_keys().collect::<Vec<_>>())
            })
            .await
            .unwrap()
        })
    };
    let (first, order) = draws(7);
    assert!(first.contains(&true) && first.contains(&false));
    assert_eq!(draws(7), (first.clone(), order.clone()));
    let other = draws(8);
    assert!(other.0 != first && other.1 != order);
}
