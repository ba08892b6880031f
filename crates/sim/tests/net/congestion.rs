//! Congestion control over simulated paths: queues that mark, and the shares of flows at a bottleneck.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use sockeye::{
    AccEcnFail, AccEcnOptionSeen, Config, CongestionControl, EcnMode, TcpConfig, TcpInfo, TcpSocket,
};
use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::{Host, HostConfig, LinkConfig, LinkStats, Sim, time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MS: Duration = Duration::from_millis(1);

/// A host whose connections use this configuration.
fn host(congestion_control: CongestionControl, ecn: EcnMode) -> HostConfig {
    let stack = Config {
        sndbuf: 8 << 20,
        rcvbuf: 8 << 20,
        tcp: TcpConfig { congestion_control, ecn, ..TcpConfig::default() },
        ..Config::default()
    };
    HostConfig { stack, ..HostConfig::default() }
}

/// An endless stream from one host to another: the number of bytes read so far, and the sender's state.
fn begin(from: &Host, to: &Host, port: u16) -> (Rc<Cell<u64>>, Rc<Cell<Option<TcpInfo>>>) {
    begin_with(from, to, port, None)
}

/// The same with congestion control of the connection's own.
fn begin_with(
    from: &Host,
    to: &Host,
    port: u16,
    own: Option<CongestionControl>,
) -> (Rc<Cell<u64>>, Rc<Cell<Option<TcpInfo>>>) {
    let (read, info) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(None)));
    let (counted, reported, addr) = (Rc::clone(&read), Rc::clone(&info), to.at(port));
    to.spawn(async move {
        let listener = TcpListener::bind(addr).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let len = stream.read(&mut buffer).await.unwrap() as u64;
            counted.set(counted.get() + len);
        }
    });
    let stack = from.stack().unwrap();
    from.spawn(async move {
        let mut socket = TcpSocket::new_v4(&stack);
        socket.set_nonblocking(true);
        own.into_iter().for_each(|own| socket.set_congestion_control(own));
        let mut stream = TcpStream::from_std(socket.connect(addr).unwrap()).unwrap();
        stream.writable().await.unwrap();
        let chunk = vec![7; 64 << 10];
        loop {
            stream.write_all(&chunk).await.unwrap();
            reported.set(stream.get_ref().info().ok());
        }
    });
    (read, info)
}

/// One sender for `seconds`: the share of the rate that arrived, percent; its own account, and the link's.
fn alone(config: HostConfig, link: LinkConfig, seconds: u64) -> (u64, TcpInfo, LinkStats) {
    Sim::new(3).time_max(Duration::from_secs(seconds + 60)).run(|net| async move {
        let (from, to) =
            (net.host_with("sender", config.clone()).unwrap(), net.host_with("receiver", config).unwrap());
        let way = net.link(&from, &to, link.clone());
        let (read, info) = begin(&from, &to, 80);
        time::sleep(Duration::from_secs(seconds)).await;
        let share = read.get() * 8 * 100 / seconds / link.rate.unwrap();
        (share, info.take().unwrap(), way.there().stats())
    })
}

/// 50 Mbit/s at 20 ms, with room for two round trips.
fn path() -> LinkConfig {
    LinkConfig { rate: Some(50_000_000), queue: 250_000, ..LinkConfig::rtt(20 * MS) }
}

#[test]
fn a_queue_that_marks_loses_nothing_is_short_and_is_no_slower() {
    for cc in [CongestionControl::Cubic, CongestionControl::NewReno] {
        let marking = LinkConfig { mark: Some(60_000), ..path() };
        let (share, info, link) = alone(host(cc, EcnMode::On), marking.clone(), 20);
        assert!(info.ecn && info.mark_count > 5 && link.marked >= u64::from(info.mark_count), "{info:?}");
        assert_eq!((info.rexmt_bytes, link.dropped()), (0, 0), "{info:?} {link:?}");
        assert!(share >= 90, "{cc:?}: {share} %");
        // A flow that has not agreed to ECN is not marked, and fills the queue.
        let (_, info, link) = alone(host(cc, EcnMode::Accept), marking, 20);
        assert!(!info.ecn && link.marked == 0 && link.queue_full > 0, "{info:?} {link:?}");
    }
}

#[test]
fn accurate_ecn_counts_each_mark_of_a_queue() {
    let marking = LinkConfig { mark: Some(60_000), ..path() };
    for cc in [CongestionControl::Cubic, CongestionControl::Bbr] {
        let (share, info, link) = alone(host(cc, EcnMode::Accurate), marking.clone(), 20);
        let ecn = info.accurate_ecn.expect("both asked for it");
        assert!(
            info.ecn && ecn.fail == AccEcnFail::default() && ecn.option_seen == AccEcnOptionSeen::Counters,
            "{ecn:?}"
        );
        // The link has marked more since the last write, which this is the state at.
        let untold = link.marked - u64::from(ecn.delivered_ce);
        assert!(ecn.delivered_ce > 50 && untold * 10 < link.marked, "{ecn:?} {link:?}");
        // All of it was text, in whole segments but for the ends of writes.
        let bytes = u64::from(ecn.delivered.ce);
        assert!(
            bytes <= link.marked * u64::from(info.snd_mss)
                && bytes * 10 >= u64::from(ecn.delivered_ce) * u64::from(info.snd_mss) * 9,
            "{ecn:?}"
        );
        assert!(ecn.delivered.ect_0 > ecn.delivered.ce && ecn.delivered.ect_1 == 0, "{ecn:?}");
        assert!(info.mark_count > 5 && info.mark_count < ecn.delivered_ce, "once a round trip: {info:?}");
        assert_eq!((info.rexmt_bytes, link.dropped()), (0, 0), "{info:?} {link:?}");
        assert!(share >= 75, "{cc:?}: {share} %");
    }
}

#[test]
fn each_end_gets_the_ecn_that_both_know() {
    use EcnMode::{Accept, AcceptAccurate, AcceptAccurateOn, Accurate, Off, On};
    for (client, server, ecn, is_accurate) in [
        (Accurate, Accurate, true, true),
        (Accurate, AcceptAccurate, true, true),
        (Accurate, AcceptAccurateOn, true, true),
        (Accurate, Accept, true, false),
        (Accurate, On, true, false),
        (Accurate, Off, false, false),
        (On, Accurate, true, false),
        (AcceptAccurateOn, Accurate, true, false),
        (AcceptAccurate, Accurate, false, false),
        (Accept, Accurate, false, false),
    ] {
        let info = Sim::new(3).time_max(Duration::from_secs(10)).run(|net| async move {
            let cubic = CongestionControl::Cubic;
            let from = net.host_with("client", host(cubic, client)).unwrap();
            let to = net.host_with("server", host(cubic, server)).unwrap();
            net.link(&from, &to, path());
            let (_, info) = begin(&from, &to, 80);
            time::sleep(Duration::from_millis(500)).await;
            info.take().unwrap()
        });
        assert_eq!((info.ecn, info.accurate_ecn.is_some()), (ecn, is_accurate), "{client:?} {server:?}");
    }
}

#[test]
fn bbr_continues_at_random_losses_that_stop_cubic() {
    let lossy = LinkConfig { loss: 0.01, ..path() };
    let (bbr, info, _) = alone(host(CongestionControl::Bbr, EcnMode::Off), lossy.clone(), 20);
    let (cubic, ..) = alone(host(CongestionControl::Cubic, EcnMode::Off), lossy, 20);
    // In a flight of 86 segments two lost are more than the share that BBR bears while it probes, so it is not unmoved.
    assert!(bbr >= 60 && cubic <= 20, "bbr {bbr} %, cubic {cubic} %: {info:?}");
    assert_eq!(info.rexmt_rto, 0);
}

#[test]
fn bbr_fills_a_path_and_leaves_its_queue_short() {
    let (share, info, link) = alone(host(CongestionControl::Bbr, EcnMode::Off), path(), 20);
    assert!(share >= 90, "{share} %");
    assert!(info.srtt.unwrap() < 40 * MS && link.queue_full == 0, "{info:?} {link:?}");
}

#[test]
fn bbr_fills_a_path_whose_queue_marks_without_a_drop() {
    let marking = LinkConfig { mark: Some(30_000), ..path() };
    let (share, info, link) = alone(host(CongestionControl::Bbr, EcnMode::On), marking, 20);
    assert!(share >= 75 && info.mark_count > 0 && link.dropped() == 0, "{share} % {info:?} {link:?}");
}

#[test]
fn two_bbr_flows_share_a_bottleneck() {
    let shares = Sim::new(5).time_max(Duration::from_secs(100)).run(|net| async move {
        let host = || host(CongestionControl::Bbr, EcnMode::Off);
        let (from, to) =
            (net.host_with("sender", host()).unwrap(), net.host_with("receiver", host()).unwrap());
        net.link(&from, &to, path());
        let first = begin(&from, &to, 80).0;
        time::sleep(Duration::from_secs(3)).await;
        let second = begin(&from, &to, 81).0;
        // What the second finds while it starts depends on chance; the difference becomes smaller within some probes.
        time::sleep(Duration::from_secs(27)).await;
        let before = [first.get(), second.get()];
        time::sleep(Duration::from_secs(30)).await;
        [first.get() - before[0], second.get() - before[1]]
    });
    let (sum, squares) = (shares[0] + shares[1], shares[0].pow(2) + shares[1].pow(2));
    assert!(sum * 8 * 100 / 30 >= 90 * 50_000_000, "{shares:?}");
    assert!(sum * sum * 100 / (2 * squares) >= 90, "{shares:?}");
}

/// Neither starves the other; that they get the same is not to be expected of algorithms that aim at different things.
#[test]
fn bbr_and_cubic_share_one_queue() {
    let shares = Sim::new(5).time_max(Duration::from_secs(100)).run(|net| async move {
        let host = || host(CongestionControl::Cubic, EcnMode::Off);
        let (from, to) =
            (net.host_with("sender", host()).unwrap(), net.host_with("receiver", host()).unwrap());
        net.link(&from, &to, path());
        let (cubic, first) = begin(&from, &to, 80);
        let (bbr, second) = begin_with(&from, &to, 81, Some(CongestionControl::Bbr));
        time::sleep(Duration::from_secs(10)).await;
        let before = [cubic.get(), bbr.get()];
        time::sleep(Duration::from_secs(40)).await;
        let chosen = [first, second].map(|info| info.take().unwrap().congestion_control);
        assert_eq!(chosen, [CongestionControl::Cubic, CongestionControl::Bbr]);
        [cubic.get() - before[0], bbr.get() - before[1]]
    });
    let sum = shares[0] + shares[1];
    assert!(sum * 8 * 100 / 40 >= 90 * 50_000_000, "{shares:?}");
    assert!(shares.iter().all(|share| share * 100 / sum >= 10), "{shares:?}");
}
