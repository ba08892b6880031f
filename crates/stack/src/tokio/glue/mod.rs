//! The traits that other libraries ask of sockets, each library behind a feature. Does not depend on how sockets work.
//!
//! Nothing in this workspace turns the features on: their examples, which are tests, are in the workspace `apps/glue`.

#[cfg(feature = "axum")]
pub mod axum;
#[cfg(feature = "hickory")]
pub mod hickory;
#[cfg(feature = "hyper-util")]
pub mod hyper_util;
#[cfg(feature = "tonic")]
pub mod tonic;
