//! The judge of `ci/peers`: it reads the record and gives the next turn, tables, JSON and charts.
//!
//! `record` reads the record and says at which distance each sample counts; `schedule` chooses the
//! next turn; `rows` forms medians at one distance; `aims` judges them; `table`, `json`,
//! `markdown` and `charts` show them.

mod aims;
mod charts;
mod json;
mod markdown;
mod record;
mod rows;
mod schedule;
mod table;

pub(crate) use charts::write as write_charts;
pub(crate) use json::document;
pub(crate) use markdown::markdown;
pub(crate) use record::Record;
pub(crate) use rows::Stat;
pub(crate) use schedule::{Next, next};
pub(crate) use table::text;

#[cfg(test)]
mod tests;
