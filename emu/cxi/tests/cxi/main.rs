//! What the provider promises to tests: each habit of cxi that it has, and each knob. Programs
//! reach it through libfabric alone.

mod client;
mod process;

mod messages;
