//! The table of requests, for both engines: names, results, ends.

mod copies;
pub(crate) mod ends;
pub(crate) mod line;
pub(crate) mod request;
mod search;
pub(crate) mod table;
