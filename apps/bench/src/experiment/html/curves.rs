//! Curves: predicted throughput over cores.
//!
//! Purpose: a drawing with both axes logarithmic, the band between the worst and the best reading of each lane's samples, its
//! curve, and the measurements of this machine as dots; a legend below it, as text of the page, so that no label overlaps
//! another.
//!
//! Does not depend on how a curve came about.
//!
//! Invariants: everything drawn lies inside the frame.
//!
//! Tests: below.

use crate::experiment::html::Name;
use crate::experiment::html::bars::short;
use crate::experiment::scale::CORES;
use crate::experiment::scale::usl::Usl;
use crate::page::escape;
use crate::page::style::{colour, dashes};

/// One lane's.
pub struct Line<'a> {
    /// Name and colour.
    pub name: &'a Name,
    /// The curve.
    pub usl: Usl,
    /// The worst and the best of it.
    pub band: (Usl, Usl),
    /// The largest number of cores for which it can be told; `None` for none.
    pub told: Option<usize>,
    /// Measurements: cores and throughput.
    pub dots: Vec<(f64, f64)>,
}

/// The drawing and its legend.
pub fn curves(lines: &[Line<'_>], title: &str, unit: &str) -> String {
    let Some(frame) = Frame::around(lines) else { return String::new() };
    let mut text = format!(
        "<figure class=\"curves\" style=\"margin:0\"><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\"><title>{}</title>\n",
        escape(title)
    );
    text += &frame.axes(unit);
    for line in lines {
        text += &frame.band(line);
    }
    for line in lines {
        text += &frame.curve(line);
    }
    text += "</svg>\n<ul class=\"legend\">\n";
    for line in lines {
        let colour = colour(line.name.setting);
        text += &format!(
            "<li><svg viewBox=\"0 0 40 12\" aria-hidden=\"true\"><line x1=\"0\" x2=\"40\" y1=\"6\" y2=\"6\" \
             stroke=\"{colour}\" stroke-width=\"3\" stroke-dasharray=\"{}\"/></svg>{}</li>\n",
            dashes(line.name.setting),
            escape(&line.name.text)
        );
    }
    text + "</ul></figure>\n"
}

/// The range of throughput that is shown.
struct Frame {
    low: f64,
    high: f64,
}

impl Frame {
    fn around(lines: &[Line<'_>]) -> Option<Self> {
        let all = |line: &Line<'_>| -> Vec<f64> {
            let at = |usl: Usl| points().map(move |cores| usl.throughput(cores));
            let dots = line.dots.iter().map(|dot| dot.1);
            [line.usl, line.band.0, line.band.1].into_iter().flat_map(at).chain(dots).collect()
        };
        let values: Vec<f64> = lines.iter().flat_map(all).filter(|value| *value > 0.0).collect();
        let low = values.iter().copied().reduce(f64::min)?;
        let high = values.iter().copied().reduce(f64::max)?;
        Some(Self { low: low / 1.2, high: high * 1.2 })
    }

    fn x(cores: f64) -> f64 {
        let last = CORES[CORES.len() - 1] as f64;
        LEFT + cores.log2() / last.log2() * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value / self.low).ln() / (self.high / self.low).ln();
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn axes(&self, unit: &str) -> String {
        let mut text = String::new();
        for cores in CORES {
            let x = Self::x(cores as f64);
            text += &format!(
                "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{cores}</text>\n",
                HEIGHT - BOTTOM,
                HEIGHT - BOTTOM + 14.0
            );
        }
        for value in self.ticks() {
            let y = self.y(value);
            text += &format!(
                "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
                WIDTH - RIGHT,
                LEFT - 5.0,
                y + 4.0,
                short(value)
            );
        }
        text += &format!(
            "<text x=\"{LEFT}\" y=\"12\">{}, predicted</text><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">cores</text>\n",
            escape(unit),
            WIDTH - RIGHT,
            HEIGHT - 4.0
        );
        text
    }

    /// One or a few for each power of ten, as many as do not come too close.
    fn ticks(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let steps: &[f64] = if decades > 3.0 {
            &[1.0]
        } else if decades > 1.5 {
            &[1.0, 3.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        (first..=last)
            .flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)))
            .filter(|value| (self.low..=self.high).contains(value))
            .collect()
    }

    fn band(&self, line: &Line<'_>) -> String {
        let (worst, best) = line.band;
        let there = points().map(|cores| (cores, best));
        let back = points().collect::<Vec<_>>().into_iter().rev().map(|cores| (cores, worst));
        let all: Vec<String> = there.chain(back).map(|(cores, usl)| self.point(cores, usl)).collect();
        let colour = colour(line.name.setting);
        format!("<polygon points=\"{}\" fill=\"{colour}\" fill-opacity=\"0.1\"/>\n", all.join(" "))
    }

    fn curve(&self, line: &Line<'_>) -> String {
        let told = points().take_while(|cores| line.told.is_some_and(|most| *cores <= most as f64 + 0.01));
        let all: Vec<String> = told.map(|cores| self.point(cores, line.usl)).collect();
        let colour = colour(line.name.setting);
        let mut text = format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{}\"/>\n",
            all.join(" "),
            dashes(line.name.setting)
        );
        for &(cores, value) in &line.dots {
            text += &format!(
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{colour}\"><title>{}: measured {} with {cores} \
                 core(s)</title></circle>\n",
                Self::x(cores),
                self.y(value),
                escape(&line.name.text),
                short(value)
            );
        }
        text
    }

    fn point(&self, cores: f64, usl: Usl) -> String {
        format!("{:.1},{:.1}", Self::x(cores), self.y(usl.throughput(cores)))
    }
}

/// Cores at which a curve is drawn.
fn points() -> impl Iterator<Item = f64> {
    (0..=POINTS).map(|index| {
        let last = CORES[CORES.len() - 1] as f64;
        2_f64.powf(last.log2() * f64::from(index) / f64::from(POINTS))
    })
}

const POINTS: u32 = 56;
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 34.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_inside_the_frame_and_ticks_do_not_touch() {
        let name = Name::setting("sync", 0);
        for (lambda, sigma, kappa) in [(100.0, 0.0, 0.0), (2e6, 0.3, 0.01), (0.5, 1.0, 0.0)] {
            let usl = Usl { lambda, rho: 0.1, sigma, kappa };
            let worse = Usl { lambda: lambda / 2.0, ..usl };
            let dots = vec![(1.0, lambda), (2.0, lambda * 1.5)];
            let line = Line { name: &name, usl, band: (worse, usl), told: Some(128), dots };
            let frame = Frame::around(std::slice::from_ref(&line)).unwrap();
            for cores in points() {
                for value in [usl.throughput(cores), worse.throughput(cores)] {
                    assert!((LEFT..=WIDTH - RIGHT + 0.01).contains(&Frame::x(cores)));
                    assert!((TOP..=HEIGHT - BOTTOM).contains(&frame.y(value)));
                    assert!((frame.low..=frame.high).contains(&value));
                }
            }
            let ticks: Vec<f64> = frame.ticks().into_iter().map(|value| frame.y(value)).collect();
            assert!(!ticks.is_empty() && ticks.windows(2).all(|pair| pair[0] - pair[1] > 11.0), "{ticks:?}");
            assert!(curves(&[line], "a title", "ops/s").contains("polyline"));
        }
        assert_eq!(curves(&[], "nothing", "ops/s"), "");
    }
}
