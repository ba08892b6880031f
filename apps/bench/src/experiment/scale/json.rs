//! Predictions as JSON, one object a line.
//!
//! Purpose: the measurements with their numbers of cores, the predictions for more, and the check of the prediction from one and
//! two cores alone, so that a later run on a larger machine can be compared with an earlier one.
//!
//! Does not depend on where it is written to. Tests: below.

use serde_json::{Value, json};

use super::{CORES, Curve, Prediction};
use crate::machine::Machine;

/// The object of one prediction.
pub fn object(of: &Prediction<'_>, machine: &Machine) -> Value {
    json!({
        "bench": "scale",
        "machine": machine.to_string(),
        "cores": machine.cores.len(),
        "experiment": of.experiment.name,
        "row": of.row.label,
        "params": of.row.params,
        "unit": of.row.unit,
        "handoff_ns": of.handoff.map(nanos),
        "curves": of.curves.iter().map(curve_object).collect::<Vec<_>>(),
        "failures": of.failures.iter().map(|failure| format!("{}: {}", failure.lane.name(), failure.error)).collect::<Vec<_>>(),
    })
}

fn curve_object(curve: &Curve) -> Value {
    let measured = |&(cores, value): &(usize, f64)| json!({"cores": cores, "throughput": value});
    let (worst, best) = curve.drawn_band();
    let predicted = |cores: usize| {
        let at = |usl: &super::usl::Usl| usl.throughput(cores as f64);
        json!({
            "cores": cores, "throughput": at(&curve.usl), "low": at(&worst), "high": at(&best),
            "can_be_told": curve.range(cores).is_some(),
        })
    };
    let held = curve.held().map(|(cores, ratio)| json!({"cores": cores, "predicted_over_measured": ratio}));
    json!({
        "lane": curve.lane.name(),
        "measured": curve.points.iter().map(measured).collect::<Vec<_>>(),
        "operation_ns": nanos(curve.operation),
        "serial_ns": nanos(curve.serial()),
        "handoffs_paired": curve.handoffs.map(|handoffs| handoffs.paired),
        "handoffs_shared": curve.handoffs.map(|handoffs| handoffs.shared),
        "lambda": curve.usl.lambda,
        "rho": curve.usl.rho,
        "sigma": curve.usl.sigma,
        "kappa": curve.usl.kappa,
        "predicted": CORES.into_iter().map(predicted).collect::<Vec<_>>(),
        "from_two_cores": held.collect::<Vec<_>>(),
    })
}

fn nanos(seconds: f64) -> f64 {
    seconds * 1e9
}

#[cfg(test)]
mod tests {
    use super::super::tests::on_eight_cores;
    use super::*;

    #[test]
    fn a_curve_has_its_measurements_and_the_prediction_of_its_first_two_figures() {
        let object = curve_object(&on_eight_cores());
        let of = |name: &str| object[name].as_array().unwrap().len();
        assert_eq!((of("measured"), of("predicted"), of("from_two_cores")), (4, CORES.len(), 2));
        assert_eq!(object["from_two_cores"][1]["cores"], 8);
        assert!(object["from_two_cores"][1]["predicted_over_measured"].as_f64().unwrap() > 1.0);
    }
}
