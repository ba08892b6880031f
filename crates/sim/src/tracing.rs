//! `tracing` in a run: lines with virtual time and the host's name, which are among the run's events too (feature `tracing`).
//!
//! ```
//! use std::time::Duration;
//! use sockeye_sim::tracing::{VirtualTime, layer};
//! use tracing_subscriber::layer::SubscriberExt;
//!
//! let printed = tracing_subscriber::fmt::layer().with_timer(VirtualTime).with_ansi(false).with_test_writer();
//! let subscriber = tracing_subscriber::registry().with(layer()).with(printed);
//! tracing::subscriber::with_default(subscriber, || {
//!     sockeye_sim::run(7, |net| async move {
//!         let served = net.host("server").spawn(async {
//!             sockeye_sim::time::sleep(Duration::from_millis(1500)).await;
//!             tracing::info!(requests = 3, "ready"); // prints "1.5s server  INFO rust_out: ready requests=3"
//!         });
//!         served.await.unwrap();
//!     });
//! });
//! ```
//!
//! A run inherits the subscriber of the thread that called [`Sim::run`](crate::Sim::run); one that was set for the whole process counts everywhere. With [`layer`], what is logged is in the report of a failure and on its
//! timeline, beside packets and faults, and it counts in [`Net::digest`](crate::Net::digest): runs that are to be compared need the same filter.
//!
//! Bounds: a line among the events has 1,000 bytes. Tests: `tests/hosts/tracing.rs`.

use std::fmt::{self, Write};
use std::time::Duration;

use ::tracing::field::{Field, Visit};
use ::tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::executor::Ambient;
use crate::trace::What;

/// Bytes of a line among the run's events; the rest is left out.
const LINE_MAX: usize = 1000;

/// Virtual time since the start of the run, and the name of the host whose program is running: `1.5s server`. Outside of a run: `-`.
#[derive(Clone, Copy, Debug, Default)]
pub struct VirtualTime;

impl FormatTime for VirtualTime {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        let Some(Ambient { world, host, .. }) = Ambient::if_any() else { return w.write_str("-") };
        // Locked only by a packet's predicate that logs.
        let Some(state) = world.try_lock() else { return w.write_str("-") };
        let now = Duration::from_nanos(state.now);
        let name = host.and_then(|host| state.hosts.get(host)).map(|host| host.name.clone());
        drop(state);
        write!(w, "{now:?} {}", name.as_deref().unwrap_or("main"))
    }
}

/// Puts what is logged among the events of the run. Ignores what is logged outside of runs, and by predicates of links.
pub fn layer() -> Lines {
    Lines(())
}

/// See [`layer`].
#[derive(Debug)]
pub struct Lines(());

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let Some(Ambient { world, host, .. }) = Ambient::if_any() else { return };
        let mut line = Line(String::new());
        let metadata = event.metadata();
        let _cut = write!(line, "{} {}", metadata.level(), metadata.target());
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            let _cut = write!(line, ":{}", span.name());
        }
        let _cut = line.write_str(":");
        event.record(&mut line);
        if let Some(mut state) = world.try_lock() {
            state.note(What::Said { host, is_fault: false, text: line.0.into() });
        }
    }
}

/// A line, which is cut at its bound.
struct Line(String);

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LINE_MAX.saturating_sub(self.0.len());
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        if text.len() <= room { Ok(()) } else { Err(fmt::Error) }
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            let _cut = write!(self, " {value}");
        } else {
            self.record_debug(field, &value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _cut = match field.name() {
            "message" => write!(self, " {value:?}"),
            name => write!(self, " {name}={value:?}"),
        };
    }
}
