//! The settings of a runtime that all processes of a job, or of jobs that meet, must have in
//! common.

mod algorithms;
mod common;

pub use algorithms::Algorithms;
pub(crate) use algorithms::PAIRS_MAX;
pub(crate) use common::{CommonSettings, Difference, NAMES};
