//! Bars: the lanes of a row beside each other.
//!
//! Purpose: for each lane its name, a bar as long as its average with the 95 % interval on it and a tick at each sample, and
//! the figure. Names and figures are text of the page and not of the drawing, so they keep their size on any screen and
//! nothing can overlap; the drawing alone is stretched.
//!
//! Does not depend on units.
//!
//! Tests: below.

use crate::experiment::html::Name;
use crate::page::escape;
use crate::page::style::colour;
use crate::stats::ministat::{Moments, general};

/// One bar.
pub struct Bar<'a> {
    /// Name and colour.
    pub name: &'a Name,
    /// Its data.
    pub samples: &'a [f64],
    /// Of the samples.
    pub moments: &'a Moments,
}

/// The bars, from zero to the largest of them.
pub fn bars(bars: &[Bar<'_>], unit: &str) -> String {
    let most = bars.iter().map(|bar| bar.moments.max.max(upper(bar.moments))).fold(0.0, f64::max);
    let mut text = "<div class=\"bars\">\n".to_owned();
    for bar in bars {
        let name = escape(&bar.name.text);
        let error = bar.moments.error_95();
        let figure = match error {
            Some(error) => format!("{} ± {}", short(bar.moments.average), short(error)),
            None => short(bar.moments.average),
        };
        let title = format!("{}: {figure} {unit}, {} samples", bar.name.text, bar.moments.count);
        text += &format!(
            "<div class=\"bar\"><span class=\"name\" style=\"color:{}\">{name}</span>\
             <span class=\"drawing\">{}</span><span class=\"value\">{figure}</span></div>\n",
            colour(bar.name.setting),
            drawing(bar, most, &title)
        );
    }
    text + "</div>\n"
}

fn drawing(bar: &Bar<'_>, most: f64, title: &str) -> String {
    let at = |value: f64| if most > 0.0 { value.max(0.0) / most * WIDTH } else { 0.0 };
    let Moments { average, .. } = *bar.moments;
    let colour = colour(bar.name.setting);
    let mut text = format!(
        "<svg viewBox=\"0 0 {WIDTH} 20\" preserveAspectRatio=\"none\" role=\"img\"><title>{}</title>\
         <rect x=\"0\" y=\"4\" width=\"{:.2}\" height=\"12\" fill=\"{colour}\" fill-opacity=\"0.35\"/>",
        escape(title),
        at(average)
    );
    for sample in bar.samples {
        text += &line(at(*sample), at(*sample), 6.0, 14.0, &colour, 1.0);
    }
    if let Some(error) = bar.moments.error_95() {
        let (low, high) = (at(average - error), at(average + error));
        text += &line(low, high, 10.0, 10.0, "var(--ink)", 2.0);
        text += &line(low, low, 3.0, 17.0, "var(--ink)", 2.0);
        text += &line(high, high, 3.0, 17.0, "var(--ink)", 2.0);
    }
    text + "</svg>"
}

/// A line whose width is not stretched with the drawing.
fn line(x1: f64, x2: f64, y1: f64, y2: f64, colour: &str, width: f64) -> String {
    format!(
        "<line x1=\"{x1:.2}\" x2=\"{x2:.2}\" y1=\"{y1}\" y2=\"{y2}\" stroke=\"{colour}\" \
         stroke-width=\"{width}\" vector-effect=\"non-scaling-stroke\"/>"
    )
}

fn upper(moments: &Moments) -> f64 {
    moments.average + moments.error_95().unwrap_or(0.0)
}

/// A figure for the eye: three or four digits, thousands and millions with their letter.
pub fn short(value: f64) -> String {
    let digits = |value: f64| match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    match value.abs() {
        size if size >= 999_500_000.0 => format!("{} G", digits(value / 1e9)),
        size if size >= 999_500.0 => format!("{} M", digits(value / 1e6)),
        size if size >= 9_999.5 => format!("{} k", digits(value / 1e3)),
        size if size > 0.0 && size < 0.01 => general(value),
        _ => digits(value),
    }
}

const WIDTH: f64 = 1000.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_the_drawing_and_nothing_is_outside() {
        let (one, two) = (Name::setting("a<b", 0), Name::kernel());
        let (low, high) = ([10.0, 11.0, 12.0], [100.0, 90.0, 110.0]);
        let (first, second) = (Moments::of(&low).unwrap(), Moments::of(&high).unwrap());
        let text = bars(
            &[
                Bar { name: &one, samples: &low, moments: &first },
                Bar { name: &two, samples: &high, moments: &second },
            ],
            "ops/s",
        );
        assert!(text.contains("a&lt;b") && !text.contains("a<b"));
        let numbers = |key: &str| -> Vec<f64> {
            text.split(key).skip(1).map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect()
        };
        let ends: Vec<f64> = [" x1=\"", " x2=\"", " width=\""].into_iter().flat_map(numbers).collect();
        assert!(ends.iter().all(|x| (0.0..=WIDTH).contains(x)), "{ends:?}");
        assert!(ends.iter().any(|x| (x - WIDTH).abs() < 1e-9));
    }

    #[test]
    fn figures_are_short() {
        for (value, text) in [
            (0.0, "0.00"),
            (0.0012, "0.0012"),
            (1.234, "1.23"),
            (56.78, "56.8"),
            (9_999.0, "9999"),
            (12_345.0, "12.3 k"),
            (1_234_567.0, "1.23 M"),
            (999_999.0, "1.00 M"),
            (5e9, "5.00 G"),
        ] {
            assert_eq!(short(value), text);
        }
    }
}
