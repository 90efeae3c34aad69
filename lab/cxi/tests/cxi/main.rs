//! What the provider promises to tests: each habit of cxi that it has, and each knob. Programs
//! reach it through libfabric alone. Each test runs in a process of its own, since knobs are
//! environment variables.

mod cancels;
mod client;
mod deaths;
mod entries;
mod messages;
mod modes;
mod offers;
mod probes;
mod process;
mod random;
mod sends;
mod sleep;
mod telemetry;
