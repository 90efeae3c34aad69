//! Simulated wires: a [`Device`] whose every delay, refusal and failure comes from a seed.
//!
//! [`Device`]: tagmatch_device::Device

mod accesses;
mod channels;
mod device;
mod events;
mod ledger;
mod net;
mod reads;
mod site;
mod wire_fault;

pub use device::Wire;
pub use net::{Net, WireConfig};
pub use wire_fault::WireFault;

pub(crate) use net::{Note, ReadOutcome, RegionView};
