//! Simulated wires: a [`Device`] whose every delay, refusal and failure comes from a seed.
//!
//! [`Device`]: tagmatch_device::Device

mod device;
mod events;
mod ledger;
mod net;
mod reads;
mod sabotage;
mod ways;

pub use device::Wire;
pub(crate) use device::address;
pub use net::{Net, WireConfig};
pub use sabotage::Sabotage;

pub(crate) use net::{Note, ReadOutcome};
