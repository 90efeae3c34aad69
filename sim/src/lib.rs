//! Deterministic simulation of tagmatch: many workers in one thread, on wires and with faults that are all
//! functions of one seed, judged by an oracle while they run.
//!
//! | module | knows | must not know |
//! |---|---|---|
//! | `profile` | what kind of trouble is looked for; what a seed makes of it | what programs do with it |
//! | `program` | steps of callers, and how to draw them | results |
//! | `wire` | messages, READs, deaths; a device | matching |
//! | `adapter` | what stands between wire and engine: nothing, or a model NIC | the rest |
//! | `world` | makes the calls of a program, takes their results | what is right |
//! | `oracle` | what is right, from what is seen outside | the code under test |
//! | `exhaust` | every interleaving of a small scope, on a NIC driven by hand | seeds |
//! | `run`, `shrink` | a run from plan to report; a smaller plan | |
//!
//! # A run
//! 1. [`Plan::new`] draws settings and a program from seed and profile.
//! 2. [`Plan::run`] makes each step. After each, all that the acting worker can see is shown to the
//!    oracle, which says at once what is wrong.
//! 3. At the end everything is drained, and nothing may be left anywhere.
//! 4. A plan that fails is made small by [`shrink()`], run again with words, and printed.
//!
//! # How messages are told apart
//! By immediate data, which is the message's number, or, without it, by a length that no other message of
//! the pair has that is under way. So each envelope names one message, also if its buffer was too small for
//! a byte of it. Bytes are a function of the number. A failing READ has an error number of its own, which
//! both sides report.
//!
//! # What is not simulated
//! Hostile bytes (fuzz targets do that), threads, and sleeping. A write after completion can't happen
//! in safe code: buffers are moved, and each that comes back is spoilt by its next use, so that a late read
//! of it is seen.
#![forbid(unsafe_code)]

mod adapter;
mod exhaust;
mod history;
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

pub use adapter::{Adapter, Bare, ModelNic};
pub use exhaust::{Explored, Failure, Scope};
pub use profile::{PROFILES, Profile, Range, Setup, Weights};
pub use program::{Ask, Mode, Op};
pub use run::{Plan, Report, THOROUGH_EVERY};
pub use shrink::shrink;
pub use violation::{Rule, Violation};
pub use wire::{Net, Sabotage, Wire, WireConfig};
pub use world::Counts;
