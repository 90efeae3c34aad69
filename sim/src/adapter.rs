//! What stands between a wire and an engine.

use tagmatch_hw::{Device, DeviceError};

use crate::wire::Wire;

/// Makes the devices of a run.
pub trait Adapter {
    /// The device that engines run on.
    type Device: Device;

    /// A device on a wire. All that it decides is a function of the seed.
    ///
    /// # Errors
    /// As the device says; the run fails then.
    fn device(&self, wire: Wire, seed: u64) -> Result<Self::Device, DeviceError>;

    /// Whether each match is decided in software, at arrival or at post: then it is predicted, and
    /// held to that. Where a NIC decides, only the rules of order hold.
    fn software_decides(&self) -> bool;
}

/// Engines on bare wires.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bare;

impl Adapter for Bare {
    type Device = Wire;

    fn device(&self, wire: Wire, _: u64) -> Result<Wire, DeviceError> {
        Ok(wire)
    }

    fn software_decides(&self) -> bool {
        true
    }
}
