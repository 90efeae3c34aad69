//! Tests of several files together.

pub(crate) mod loom_model;
