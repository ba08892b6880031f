//! The gateway's own files of a decision. They stand in a program that has dependencies of its own, which a fuzzer need not build.
#![allow(dead_code, reason = "the gateway uses all of it")]

#[path = "../../../../apps/gateway/src/policy/decision.rs"]
pub mod decision;
#[path = "../../../../apps/gateway/src/policy/reach.rs"]
pub mod reach;
#[path = "../../../../apps/gateway/src/policy/rule.rs"]
pub mod rule;
