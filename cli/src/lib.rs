//! tagperf: latency, bandwidth, message rate and matching depth of `tagmatch`.
#![forbid(unsafe_code)]

pub mod trace;
