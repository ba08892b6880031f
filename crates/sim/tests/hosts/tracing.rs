//! What programs log, with virtual time and their host.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::tracing::{VirtualTime, layer};
use sockeye_sim::{Fate, LinkConfig, Net, Sim, time};
use tracing_subscriber::layer::SubscriberExt;

/// What was printed.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn program(net: Net) -> u64 {
    let (client, server) = (net.host("client"), net.host("server"));
    let link = net.link(&client, &server, LinkConfig::rtt(Duration::from_millis(100)));
    // The world is locked while a predicate runs.
    link.there().filter(|_| {
        tracing::info!("a packet passes");
        Fate::Pass
    });
    server.spawn(async {
        let listener = TcpListener::bind("server:80").await.unwrap();
        let (_stream, from) = listener.accept().await.unwrap();
        let span = tracing::info_span!("accepted");
        let _in_span = span.enter();
        tracing::warn!(%from, "it is late; {}", "long ".repeat(1000));
    });
    client.spawn(async {
        tokio::spawn(async { tracing::info!(host = "server", "connecting") });
        let _stream = TcpStream::connect("server:80").await.unwrap();
        time::sleep(Duration::from_secs(1)).await;
    });
    time::sleep(Duration::from_secs(2)).await;
    tracing::info!("main program");
    net.digest()
}

#[test]
fn lines_have_virtual_time_and_host_and_are_among_the_events() {
    let printed = Printed::default();
    let writer = printed.clone();
    let lines = tracing_subscriber::fmt::layer()
        .with_timer(VirtualTime)
        .with_ansi(false)
        .with_writer(move || writer.clone());
    let subscriber = tracing_subscriber::registry().with(layer()).with(lines);
    let (logged, again, page) = tracing::subscriber::with_default(subscriber, || {
        tracing::info!("before the run");
        let [logged, again] = [(); 2].map(|()| Sim::exactly(1).tokio().run(program));
        let fails = |net: Net| async move {
            program(net).await;
            panic!("look at the report");
        };
        std::panic::catch_unwind(|| Sim::exactly(2).tokio().run(fails)).unwrap_err();
        let path = std::env::temp_dir().join(format!("sockeye-sim-{}-2.html", std::process::id()));
        let page = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        (logged, again, page)
    });
    let silent = Sim::exactly(1).tokio().run(program);
    assert!(logged == again && logged != silent, "what is logged counts");
    let text = String::from_utf8(printed.0.lock().unwrap().clone()).unwrap();
    for line in [
        "-  INFO hosts::tracing: before the run",
        "0ns client  INFO hosts::tracing: connecting host=\"server\"",
        "-  INFO hosts::tracing: a packet passes",
        "2s main  INFO hosts::tracing: main program",
    ] {
        assert!(text.lines().any(|one| one == line), "{line:?} in {text}");
    }
    let late = text.lines().find(|line| line.contains("it is late")).unwrap();
    assert!(late.starts_with("150ms server  WARN accepted: hosts::tracing: it is late; long"), "{late}");
    for part in [
        "INFO hosts::tracing: connecting host=&quot;server&quot;",
        "WARN hosts::tracing:accepted: it is late; long",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(page.lines().all(|line| !line.contains(&"long ".repeat(250))), "a line is cut");
}

#[test]
fn the_example_of_the_guide_is_that_of_the_module_which_is_tested() {
    let guide = include_str!("../../docs/sim.md");
    let example = guide.split_once("\n## Logging\n").expect("the section is there").1;
    let example = example.split_once("```rust\n").unwrap().1.split_once("```").unwrap().0;
    let module = include_str!("../../src/tracing.rs");
    for line in example.lines().filter(|line| !line.is_empty()) {
        assert!(module.contains(&format!("//! {line}\n")), "{line}");
    }
}
