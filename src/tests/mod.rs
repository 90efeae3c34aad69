//! Tests of several files together.

#[cfg(loom)]
pub(crate) mod loom_model;
#[cfg(not(loom))]
mod sleeping;
