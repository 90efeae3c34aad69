//! `tagperf replay`: runs a recorded matching history and reports on it.
//!
//! `command` reads the trace, replays it with `tagmatch-trace` and writes what was asked for.
//! `facts` has the counts. `report` is the report, as text and as JSON: `verdict` says what to make
//! of the trace, `nic` how much of it a NIC would match, and `chart` draws the depths over time.
//! `recording` is what
//! a trace tells of its program, `several` the report on several traces. `wording` is what they
//! share.

mod chart;
mod command;
mod facts;
mod nic;
mod recording;
mod report;
mod several;
mod verdict;
mod wording;

pub(crate) use command::command;
