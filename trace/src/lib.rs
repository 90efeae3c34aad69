//! Matching histories: the formats `tagtrace 1` and `tagtrace 2`, and replaying such a trace.
//!
//! Internal, no promises: programs depend on `tagmatch`.
//!
//! A trace has the operations of one MPI process that matter to matching: messages that come,
//! receives that are posted, cancels, probes. `docs/traces.md` describes the formats.
//!
//! 1. [`Trace::parse`] reads a whole trace and finds everything that can be wrong with it. A replay
//!    of what it returns cannot fail. Its tags and patterns are packed as the matching lists take
//!    them.
//! 2. [`run`] runs a trace through a [`Matcher`]: [`IndexedLists`], which are tagmatch's own, or
//!    [`PlainLists`], linked lists as most MPI libraries have them. It measures the time and tells
//!    an observer what each operation came to.
//! 3. The observers: [`DepthCounter`] counts how deep the lists are, [`WalkCounter`] how many
//!    entries a plain list looks at, [`write_result`] writes what matched what. [`Census`] counts
//!    what can be counted without a run, [`Cost`] has the times of both kinds of lists.
//! 4. With the feature `workers`, `workers::replay` runs a trace through whole workers: one for
//!    each source, and one that receives, which may have a NIC that matches. The results must be
//!    those of 2, whatever the NIC does.
//! 5. With the feature `record`, `Recorder` writes `tagtrace 2` while a worker runs.
//!
//! `tagperf replay` is the command that does all this and renders a report. [`check`] is for
//! fuzzers.
#![forbid(unsafe_code)]

mod census;
mod check;
mod cost;
mod depth;
mod error;
mod fidelity;
mod format;
mod ids;
mod line;
mod matcher;
mod matches;
mod plain;
mod positions;
mod reader;
#[cfg(feature = "record")]
mod recorder;
mod records;
mod result;
mod run;
mod timeline;
mod trace;
mod walks;
#[cfg(feature = "workers")]
pub mod workers;

pub use census::{Census, OperationCounts, PatternCounts};
pub use check::check;
pub use cost::Cost;
pub use depth::{DepthCounter, DepthSummary, MatchCounts};
pub use error::{IdKind, Mistake, RecordMistake, TraceError};
pub use fidelity::{Fidelity, FidelityCounter};
pub use format::{HEADER, Id, ONESELF, TraceOp};
pub use matcher::{IndexedLists, Leftover, Matcher};
pub use matches::{write_leftover, write_result};
pub use plain::{PlainHandle, PlainLists, PlainQueue};
#[cfg(feature = "record")]
pub use recorder::Recorder;
#[doc(hidden)]
pub use records::fuzzing;
pub use result::OpResult;
pub use run::{Pass, run};
pub use timeline::{Peak, Timeline};
pub use trace::{Stop, Trace};
pub use walks::{WalkCounter, Walks};
