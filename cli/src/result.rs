//! Results: samples, rows, matching counts, and the document that holds them. Plain data; the rooms
//! that measure fill it, the rooms that report read it.

mod blocks;
mod document;
mod histogram;
mod matching;
mod row;
mod samples;

#[cfg(test)]
pub(crate) use blocks::BlockFigures;
pub(crate) use blocks::Blocks;
pub(crate) use document::{Document, SCHEMA};
pub(crate) use histogram::Histogram;
pub(crate) use matching::Matching;
pub(crate) use row::{
    Drained, Means, More, PerMessage, PerThread, PlannedRate, Recovered, Row, tenths,
};
pub(crate) use samples::{Latency, PERCENTILES, Percentile, Samples};
