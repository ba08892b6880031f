//! How the page looks.
//!
//! Purpose: one style sheet, for light and dark, for wide pages and for phones. Colours of lanes are variables, so that
//! drawings follow the scheme; each lane also has a dash pattern, so that colours are not needed to tell them apart.
//!
//! Does not depend on the content.
//!
//! Tests: those of the pages; looked at in a browser, light, dark and 390 pixels wide.

/// The style sheet.
pub const CSS: &str = "\
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1c2024; --soft: #5d6670; --rule: #d5dae0; \
--panel: #f5f7f9; --lane0: #5b6472; --lane1: #0f6fb8; --lane2: #1a8a4a; --lane3: #a8480b; --lane4: #7a3ea8; \
--kernel: #b3232f; --good: #16733a; --bad: #b3232f; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e6e9ec; --soft: #9aa4ae; \
--rule: #353c44; --panel: #1d2226; --lane0: #a3adb9; --lane1: #5cb0f2; --lane2: #55c985; --lane3: #f0954f; \
--lane4: #c493ec; --kernel: #ff7b81; --good: #55c985; --bad: #ff7b81; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem 1rem 4rem; max-width: 60rem; background: var(--paper); color: var(--ink); \
font: 16px/1.5 system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', 'DejaVu Sans', sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 1rem 0 .5rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .5rem; padding-top: 1rem; border-top: 2px solid var(--rule); }
h3 { font-size: 1.05rem; margin: 1.75rem 0 .25rem; }
p { margin: .4rem 0; }
a { color: var(--lane1); }
.soft { color: var(--soft); font-size: .9rem; }
pre, code { font: .85rem/1.45 ui-monospace, 'DejaVu Sans Mono', 'Liberation Mono', monospace; }
pre { background: var(--panel); padding: .6rem .8rem; overflow-x: auto; border-radius: 6px; margin: .5rem 0; }
nav ul { padding-left: 1.2rem; margin: .5rem 0; }
.scroll { overflow-x: auto; margin: .5rem 0; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .22rem .7rem; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td.sub { padding-left: 1.2rem; }
th.text { text-align: left; }
td.text { text-align: left; white-space: normal; min-width: 14rem; }
th { font-weight: 600; color: var(--soft); }
.bars { margin: .6rem 0; }
.bar { display: grid; grid-template: 'name drawing value' / 8.5rem minmax(0, 1fr) 8.5rem; gap: 0 .8rem; \
align-items: center; margin: .25rem 0; }
.bar svg { width: 100%; height: 1.5rem; display: block; }
.bar .name { grid-area: name; font-weight: 600; }
.bar .drawing { grid-area: drawing; }
.bar .value { grid-area: value; font-variant-numeric: tabular-nums; text-align: right; }
@media (max-width: 36rem) { .bar { grid-template: 'name value' 'drawing drawing' / 1fr max-content; } \
.bar svg { height: 1.1rem; } }
@media (max-width: 36rem) { th, td { padding: .22rem .4rem; } td:first-child { white-space: normal; \
min-width: 8.5rem; } }
.curves { max-width: 38rem; }
.curves svg { width: 100%; height: auto; display: block; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0; margin: .3rem 0; \
font-size: .9rem; }
.legend svg { width: 2.2rem; height: .8rem; vertical-align: middle; margin-right: .4rem; }
svg text { fill: var(--soft); font: 11px system-ui, 'Liberation Sans', 'DejaVu Sans', sans-serif; }
svg .axis { stroke: var(--rule); stroke-width: 1; }
.tag { display: inline-block; padding: 0 .5rem; border-radius: 1rem; border: 1px solid currentColor; \
font-size: .8rem; }
.reached { color: var(--good); } .missed { color: var(--bad); } .open { color: var(--soft); }
ul.goals { list-style: none; padding: 0; margin: .5rem 0; } ul.goals li { margin: .2rem 0; }
dl { margin: .5rem 0; } dt { font-weight: 600; } dd { margin: 0 0 .3rem 1.2rem; } details { margin: .5rem 0; } summary { cursor: pointer; color: var(--soft); }
.warning { border-left: 4px solid var(--lane3); padding: .1rem .8rem; background: var(--panel); }
";

/// The variable of a lane's colour: of its setting's index, or the kernel's.
pub fn colour(setting: Option<usize>) -> String {
    match setting {
        Some(index) => format!("var(--lane{})", index % SETTING_COLOURS),
        None => "var(--kernel)".to_owned(),
    }
}

/// The dash pattern of a lane's line.
pub fn dashes(setting: Option<usize>) -> &'static str {
    match setting {
        Some(index) => DASHES[index % DASHES.len()],
        None => "1 3",
    }
}

const SETTING_COLOURS: usize = 5;
const DASHES: [&str; 5] = ["8 3", "none", "2 2", "10 2 2 2", "5 2"];
