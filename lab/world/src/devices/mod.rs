//! Random use of devices in a [`World`](crate::World), and what must hold of it.

mod oracle;
mod scenario;
mod settling;

pub use scenario::{Ends, Plan, Scenario};
