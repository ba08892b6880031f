//! A page with three charts over time: sequence with retransmissions, congestion window, round-trip time.
//!
//! One file that needs nothing else: SVG in HTML, light and dark as the reader's system, wide or narrow. Does not
//! depend on how the results came about. Tests: below, `apps/cli/tests/cli/sim.rs`.

use std::fmt::Write;

use super::args::SimArgs;
use super::report::{millis, rate};
use super::transfer::{Outcome, Sample, Stream};

/// Size of a chart, and of the margins where its axes are, in its own units.
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 34.0;
/// Lines across a chart.
const TICKS: u32 = 5;
/// Colours that can be told apart on light and dark; more streams use them again.
const COLOURS: [&str; 6] = ["#3b7dd8", "#d9822b", "#2fa36b", "#c2477f", "#8a63d2", "#8d8d2a"];
/// Marks of retransmissions that are drawn; more would be one blot.
const MARKS_MAX: usize = 3000;

/// The whole page.
pub fn page(args: &SimArgs, outcome: &Outcome) -> String {
    let seconds = f64::from(args.seconds);
    let of = |value: fn(&Sample) -> Option<f64>| move |stream: &Stream| points(stream, value);
    let sequence = Chart::new(
        "Received by the application",
        "MB",
        seconds,
        outcome,
        of(|s| Some(s.received as f64 / 1e6)),
    );
    let window =
        Chart::new("Congestion window", "KiB", seconds, outcome, of(|s| Some(f64::from(s.cwnd) / 1024.0)));
    let rtt = Chart::new("Smoothed round-trip time", "ms", seconds, outcome, of(|s| s.srtt.map(millis)));
    let marks = marks(outcome, &sequence);
    let total = outcome.total(args);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>sockeye sim</title>\n\
         <style>{STYLE}</style></head>\n<body>\n<h1>{} of {}</h1>\n\
         <p>{:?} round trip, queue of {} bytes, {} % loss, {} % reordering, {} streams, {} s, seed {}. \
         {} segments were sent again ({} needlessly).</p>\n<p>{}</p>\n{}{}{}</body></html>\n",
        rate(total),
        rate(args.rate as f64),
        args.rtt,
        args.queue_bytes(),
        args.loss * 100.0,
        args.reorder * 100.0,
        outcome.streams.len(),
        args.seconds,
        args.seed,
        outcome.traffic.retransmitted,
        outcome.traffic.needless,
        legend(outcome.streams.len()),
        sequence.draw(&marks, "Crosses mark segments that were sent again."),
        window.draw("", ""),
        rtt.draw("", "")
    )
}

/// How pages of `sockeye sim` look.
pub const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#222;--faint:#d8d8d8;--paper:#fff}\
@media(prefers-color-scheme:dark){:root{--ink:#e4e4e4;--faint:#3a3a3a;--paper:#161616}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;margin:1.5rem auto;\
padding:0 1rem}h1{font-size:1.3rem}h2{font-size:1.05rem;margin:1.6rem 0 .3rem}\
svg{width:100%;height:auto;display:block}svg text{fill:var(--ink);font-size:13px}\
.grid{stroke:var(--faint)}.line{fill:none;stroke-width:1.6}.again{stroke:#d33;stroke-width:1.3}\
@media(max-width:600px){svg text{font-size:21px}}\
figcaption{font-size:.85rem;opacity:.8}figure{margin:0}";

/// A point in seconds and in the chart's unit.
type Point = (f64, f64);

fn points(stream: &Stream, value: fn(&Sample) -> Option<f64>) -> Vec<Point> {
    stream.samples.iter().filter_map(|sample| Some((sample.at.as_secs_f64(), value(sample)?))).collect()
}

/// A chart and its scales.
struct Chart {
    title: &'static str,
    unit: &'static str,
    seconds: f64,
    /// The value at the top.
    most: f64,
    lines: Vec<Vec<Point>>,
}

impl Chart {
    fn new(
        title: &'static str,
        unit: &'static str,
        seconds: f64,
        outcome: &Outcome,
        line: impl Fn(&Stream) -> Vec<Point>,
    ) -> Self {
        let lines: Vec<Vec<Point>> = outcome.streams.iter().map(line).collect();
        let most = lines.iter().flatten().map(|(_, value)| *value).fold(0.0, f64::max);
        Self { title, unit, seconds, most: round_up(most), lines }
    }

    fn x(&self, seconds: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * seconds / self.seconds
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.most
    }

    fn draw(&self, marks: &str, caption: &str) -> String {
        let Self { title, unit, seconds, most, .. } = self;
        let mut svg = format!(
            "<h2>{title}, {unit}</h2>\n<figure><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\
             <title>{title} over {seconds} seconds</title>\n"
        );
        for tick in 0..=TICKS {
            let part = f64::from(tick) / f64::from(TICKS);
            let (x, y) = (self.x(seconds * part), self.y(most * part));
            let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
            let anchor = if tick == TICKS { "end" } else { "middle" };
            // Writing into a string does not fail.
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{} s</text>",
                LEFT - 6.0,
                y + 4.0,
                short(most * part),
                bottom + 20.0,
                short(seconds * part)
            );
        }
        for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let place = |(at, value): &Point| format!("{:.1},{:.1}", self.x(*at), self.y(*value));
            let places: Vec<String> = line.iter().map(place).collect();
            let _ = writeln!(
                svg,
                "<polyline class=\"line\" stroke=\"{colour}\" points=\"{}\"/>",
                places.join(" ")
            );
        }
        let _ = writeln!(svg, "{marks}</svg><figcaption>{caption}</figcaption></figure>");
        svg
    }
}

/// The colour of each line.
fn legend(streams: usize) -> String {
    let entry = |(number, colour)| format!("<b style=\"color:{colour}\">&#9632;</b> stream {number} ");
    (1..=streams).zip(COLOURS).map(entry).collect()
}

/// Crosses where segments were sent again, at the height of the data received by then.
fn marks(outcome: &Outcome, chart: &Chart) -> String {
    let step = outcome.retransmissions.len().div_ceil(MARKS_MAX).max(1);
    let mut path = String::new();
    for again in outcome.retransmissions.iter().step_by(step) {
        let Some(line) = outcome.streams.iter().position(|stream| stream.from == again.src) else { continue };
        let at = again.at as f64 / 1e9;
        let value = chart.lines[line].iter().rfind(|(time, _)| *time <= at).map_or(0.0, |(_, value)| *value);
        let (x, y) = (chart.x(at.min(chart.seconds)), chart.y(value));
        let _ = write!(path, "M{:.1} {:.1}l5 5m0 -5l-5 5", x - 2.5, y - 2.5);
    }
    if path.is_empty() { path } else { format!("<path class=\"again\" d=\"{path}\"/>") }
}

/// The next number above that reads well, in five parts too.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps.iter().map(|step| step * power).find(|rounded| *rounded >= value).unwrap_or(10.0 * power)
}

/// A number without needless digits.
fn short(value: f64) -> String {
    if value == value.trunc() {
        format!("{value:.0}")
    } else {
        format!("{value:.2}").trim_end_matches('0').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_scales_end_at_round_numbers() {
        for (value, expected) in
            [(0.0, 1.0), (1.0, 1.0), (1.1, 1.5), (23.0, 25.0), (26.0, 30.0), (830.0, 1000.0)]
        {
            assert_eq!(round_up(value), expected, "{value}");
        }
        assert_eq!((short(2.0), short(2.5), short(0.25)), ("2".into(), "2.5".into(), "0.25".into()));
    }
}
