//! The gateway's own files that read what machines say. They stand in a program that has dependencies of its own, which a fuzzer need not build.
#![allow(dead_code, unused_imports, reason = "the gateway uses all of it")]

#[path = "../../../../apps/gateway/src/lan/mod.rs"]
pub mod lan;
#[path = "../../../../apps/gateway/src/engine/messages.rs"]
pub mod messages;
#[path = "../../../../apps/gateway/src/plan.rs"]
pub mod plan;
/// What `plan.rs` needs of it.
pub mod policy {
    pub use crate::reach::policy::reach;
}
