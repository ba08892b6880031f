//! The page: it is well-formed and self-contained, and shows the measurements.

use super::*;
use crate::args::{BenchArgs, Target};
use crate::experiment::run::Outcome;
use crate::experiment::run::tests::lane;
use crate::experiment::scale::Curve;
use crate::experiment::scale::usl::Usl;

fn plan() -> Plan {
    Plan::of(&BenchArgs { quick: true, ..BenchArgs::default() }, Target::All).unwrap()
}

fn measured(plan: &Plan) -> Vec<Measured<'_>> {
    let mut measured = Vec::new();
    for part in &plan.parts {
        for row in &part.rows {
            let lanes = part.lanes_of(row);
            let results = lanes.iter().enumerate().map(|(index, at)| {
                let base = 100.0 * (index + 1) as f64;
                lane(at.name(), &[base, base * 1.1, base * 0.9, base], &[("segments_in", 30)])
            });
            measured.push(Measured {
                part,
                row,
                outcome: Outcome { lanes: results.collect(), failures: Vec::new() },
            });
        }
    }
    measured
}

fn prediction(plan: &Plan) -> Prediction<'_> {
    let part = &plan.parts[0];
    let usl = Usl { lambda: 100.0, rho: 0.0, sigma: 0.1, kappa: 0.0 };
    let curve = |lane: &Lane| Curve {
        lane: lane.clone(),
        points: vec![(1, 100.0), (2, 180.0)],
        operation: 1e-6,
        handoffs: None,
        usl,
        early: None,
        band: Some((Usl { sigma: 0.2, ..usl }, Usl { sigma: 0.05, ..usl })),
    };
    let row = &part.rows[0];
    let curves = part.lanes_of(row).iter().map(curve).collect();
    Prediction { experiment: part.experiment, row, curves, handoff: Some(1e-7), failures: Vec::new() }
}

fn whole(command: &str) -> String {
    let plan = plan();
    let (measured, prediction) = (measured(&plan), prediction(&plan));
    page(&Machine::read().unwrap(), &plan, &measured, &[prediction], command)
}

#[test]
fn the_page_is_well_formed_and_self_contained() {
    let page = whole("sockeye bench all --set grain=\"<&>\"\u{1}");
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(&page, options).unwrap();
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        let name = node.tag_name().name();
        assert!(!["script", "link", "img", "iframe"].contains(&name), "{name}");
        for attribute in node.attributes() {
            let value = attribute.value();
            assert!(!value.contains("//") && !attribute.name().starts_with("on"), "{attribute:?}");
            let link = attribute.name() == "href" && value.starts_with('#');
            assert!(attribute.name() != "href" || link, "{attribute:?}");
        }
    }
    assert!(!page.contains("url(") && !page.contains("@import"));
}

#[test]
fn each_drawing_has_a_title_and_each_wide_table_scrolls() {
    let page = whole("sockeye bench all");
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(&page, options).unwrap();
    let mut drawings = 0;
    for node in document.descendants() {
        if node.has_tag_name("svg") && node.attribute("aria-hidden").is_none() {
            drawings += 1;
            assert_eq!(node.attribute("role"), Some("img"));
            let title = node.children().find(|child| child.has_tag_name("title")).unwrap();
            assert!(title.text().is_some_and(|text| text.len() > 5));
        }
        if node.has_tag_name("table") {
            assert_eq!(node.parent().unwrap().attribute("class"), Some("scroll"));
        }
    }
    assert!(drawings > 20, "{drawings}");
}

#[test]
fn the_page_shows_experiments_machine_command_documents_and_assumptions() {
    let page = whole("sockeye bench all --quick");
    for part in plan().parts {
        assert!(page.contains(&format!("id=\"{}\"", part.experiment.name)));
        assert!(page.contains(&escape(part.experiment.figure.source)));
    }
    for part in [
        "sockeye bench all --quick",
        "machine:",
        "Predicted, not measured",
        "whole loss",
        "cannot be told from this run",
        "prefers-color-scheme",
        "Words on this page",
    ] {
        assert!(page.contains(part), "{part}");
    }
}
