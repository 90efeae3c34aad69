//! Results of measurements: the data that is measured, and all of their texts.
//!
//! Internal, no promises: programs depend on `tagmatch`.
//!
//! 1. A measurement fills [`Samples`], [`Blocks`] and [`Matching`]; a [`Row`] has its figures, and
//!    a [`Document`] the rows of a test, as JSON has them.
//! 2. [`columns`] lists what rows have; [`Table`], [`Csv`] and [`Osu`] print it, [`stream`] has the
//!    lines of a stream.
//! 3. A [`SavedRun`] is read from JSON. [`Comparison`] tells two of them apart, [`chart`] draws
//!    one.
//!
//! `tagperf` and `ci/peers` measure and print with this crate.
#![forbid(unsafe_code)]

mod blocks;
pub mod chart;
pub mod columns;
mod comparison;
mod config;
mod csv;
mod depth_verdict;
mod distance;
mod document;
pub mod environment;
mod header;
mod histogram;
mod matching;
mod osu;
mod row;
mod samples;
mod saved_run;
pub mod show;
pub mod stream;
mod style;
mod table;
mod window;

pub use blocks::{BlockFigures, Blocks};
pub use comparison::Comparison;
pub use config::Config;
pub use csv::Csv;
pub use depth_verdict::depth_verdict;
pub use distance::{Distance, ONE_CACHE_BELOW_NS, ONE_CORE_BELOW_NS};
pub use document::Document;
pub use environment::Environment;
pub use header::Header;
pub use histogram::Histogram;
pub use matching::{Matching, NicCounted};
pub use osu::Osu;
pub use row::{Drained, Means, PerMessage, PerThread, PlannedRate, Recovered, Row};
pub use samples::{Latency, Samples};
pub use saved_run::SavedRun;
pub use style::Style;
pub use table::Table;
pub use window::{WINDOW_BYTES, default_window, fit};
