//! Random use of devices in a [`World`](crate::World), and what must hold of it.

mod oracle;
mod scenario;

pub use scenario::{Ends, Plan, Scenario};
