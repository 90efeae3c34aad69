//! The transport beneath the communicators.
//!
//! Everything above a transport is a state machine, driven by [`Net::progress`] and by tests of
//! operations. So the same code runs on a [`worker::WorkerNet`] between real processes, and on the
//! simulated network of the tests, where one thread runs a hundred processes and a seed decides on
//! every delay and death.

mod forward;
pub mod heartbeat;
mod incoming;
mod transport;
pub mod worker;

pub use crate::net_values::{Arrived, Envelope, FOREIGN_MAX, Mode, NetError, NetFailed, Pattern};
pub use crate::net_values::{ProcessId, ProcessName};
pub(crate) use incoming::Incoming;
pub use transport::{Directory, Net, Sleeper};
