//! A prediction on the page.
//!
//! Purpose: the curves, their parameters, their predictions for some numbers of cores, the check against this machine, and the
//! assumptions, in one section and never without each other.
//!
//! Does not depend on how the curves came about.
//!
//! Tests: `tests.rs`.

use crate::experiment::html::bars::short;
use crate::experiment::html::curves::{Line, curves};
use crate::experiment::html::{Name, cells, push};
use crate::experiment::scale::{ASSUMPTIONS, CORES, CORES_MAX, Curve, Prediction};
use crate::experiment::text::{measured_on, parameters, predicted};
use crate::page::escape;

/// The section.
pub fn section(of: &Prediction<'_>) -> String {
    let mut text = format!("<h3>Prediction for 1 to {CORES_MAX} cores: {}</h3>\n", escape(&of.row.label));
    if of.curves.is_empty() {
        return text
            + "<p class=\"soft\">Nothing to predict from: this needs two cores, and work that was done on one and on all.</p>\n";
    }
    text += "<p class=\"warning\">Predicted, not measured. Dots are what was measured here; a line ends where this run cannot tell how it goes on.</p>\n";
    let names: Vec<Name> = of.curves.iter().map(|curve| Name::of(&curve.lane, of.experiment)).collect();
    let lines: Vec<Line<'_>> = of
        .curves
        .iter()
        .zip(&names)
        .map(|(curve, name)| Line {
            name,
            usl: curve.usl,
            band: curve.drawn_band(),
            told: CORES.into_iter().take_while(|cores| curve.range(*cores).is_some()).last(),
            dots: curve.points.iter().map(|&(cores, value)| (cores as f64, value)).collect(),
        })
        .collect();
    text += &curves(
        &lines,
        &format!("{}: predicted {} over cores", of.experiment.title, of.row.unit),
        of.row.unit,
    );
    text += &table(of);
    text += "<ul class=\"soft\">\n";
    for assumption in ASSUMPTIONS {
        push(&mut text, format_args!("<li>{}</li>\n", escape(assumption)));
    }
    text + "</ul>\n"
}

fn table(of: &Prediction<'_>) -> String {
    let heads: String =
        of.curves.iter().map(|curve| format!("<th>{}</th>", escape(curve.lane.name()))).collect();
    let mut text = format!(
        "<div class=\"scroll\"><table><thead><tr><th>{}</th>{heads}</tr></thead><tbody>\n",
        escape(of.row.unit)
    );
    for (index, name) in measured_on(of).iter().enumerate() {
        let figure = |curve: &Curve| curve.points.get(index).map_or(String::new(), |point| short(point.1));
        text += &cells(name, of.curves.iter().map(figure));
    }
    for cores in CORES.into_iter().skip(1) {
        let predicted = |curve: &Curve| predicted(curve, cores, short);
        text += &cells(&format!("predicted, {cores} cores"), of.curves.iter().map(predicted));
    }
    for (name, value) in parameters(of) {
        text += &cells(&name, value.into_iter());
    }
    text + "</tbody></table></div>\n<p class=\"soft\">A question mark: it cannot be told from this run.</p>\n"
}
