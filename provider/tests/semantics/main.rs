//! What the provider promises to programs, through the tables of functions as programs call them.
//! Each test is named after its promise, which is that of libfabric's manual pages if no other is
//! named.
//!
//! The endpoints of a test are in domains of their own, and reach each other through shared memory.
//! `processes` has other processes as well.
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

#[path = "../client/mod.rs"]
mod client;

mod cancelled_threads;
mod cancels;
mod children;
mod counters;
mod events;
mod information;
mod matching;
mod multi;
mod multi_from;
mod notices;
mod objects;
mod offload;
mod orders;
mod peers;
mod privileges;
mod probes;
mod processes;
mod progress;
mod queues;
mod random;
mod receives;
mod regions;
mod remote_atomics;
mod remote_memory;
mod reports;
mod selves;
mod senders;
mod sends;
mod tables;
mod threads;
mod unexpected;
mod vectors;
mod waits;
