//! What the public API promises, between workers of one process: over shared memory, or over the
//! device that the environment names.

#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

mod arrivals;
mod buffers;
#[path = "../common/mod.rs"]
mod common;
mod ends;
mod fork;
mod leaving;
mod matching;
mod messages;
mod one_sided;
mod pair;
mod queue;
mod random;
mod random_remote;
mod raw_memory;
mod region_memory;
mod requests;
mod sleepers;
mod slices;
mod snapshots;
mod threads;
