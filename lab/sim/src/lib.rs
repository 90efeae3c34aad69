//! Deterministic simulation of tagmatch: many workers in one thread, on simulated wires. One seed
//! decides all delays and faults, and an oracle checks each result while the workers run.
//!
//! | module | knows | must not know |
//! |---|---|---|
//! | `profile` | the kinds of runs; the settings that a seed draws | what programs do with them |
//! | `program` | steps of callers, and how to draw them | results |
//! | `wire` | messages, READs, deaths; a device | matching |
//! | `adapter` | the device between wire and engine: none, a model NIC, or several devices as one | the rest |
//! | `world` | the calls of a program and their results | which results are right |
//! | `oracle` | which results are right, from what is seen outside | the code under test |
//! | `exhaust` | every interleaving of a small scope, on a NIC driven by hand | seeds |
//! | `one_sided` | one-sided operations, by a world and an oracle of its own; small programs of them in every order | programs |
//! | `run`, `shrink` | a run from plan to report; a smaller plan | |
//!
//! # A run
//! 1. [`Plan::new`] draws settings and a program from seed and profile.
//! 2. [`Plan::run`] makes each step. After each step the oracle gets all that the acting worker can
//!    see, and reports the first violation.
//! 3. At the end everything is drained, and nothing may be left anywhere.
//! 4. [`shrink()`] makes a failing plan small. The small plan is run again, and its history is
//!    printed.
//!
//! # How messages are told apart
//! The immediate data is the message's number. A message without immediate data has a length that
//! no other message in transit between the two workers has. So each status names one message, even
//! if the buffer was too small for its first byte. The payload is a function of the number. Each
//! failing READ has its own error number, which both sides report.
//!
//! # What is not simulated
//! Hostile bytes (fuzz targets test these), threads, and sleeping. A write after completion can't
//! happen in safe code, because buffers are moved. A returned buffer is overwritten by its next
//! use, so the oracle notices a late read of it.
#![forbid(unsafe_code)]

mod adapter;
mod exhaust;
mod history;
mod limited_ends;
mod one_sided;
mod oracle;
mod payload;
mod profile;
mod program;
mod run;
mod shrink;
mod violation;
mod wire;
mod worker;
mod world;

pub use adapter::{Bare, Devices, ModelNic};
pub use exhaust::{Explored, Failure, Scope};
pub use one_sided::{OneSidedCounts, OneSidedRun, OneSidedScopes, run_one_sided_scopes};
pub use profile::{PROFILES, Profile, Range, Setup, Weights};
pub use program::{Ask, Mode, Op, SendCall};
pub use run::{Plan, Report, THOROUGH_EVERY};
pub use shrink::shrink;
pub use violation::{Rule, Violation};
pub use wire::{Net, Wire, WireConfig, WireFault};
pub use world::Counts;
