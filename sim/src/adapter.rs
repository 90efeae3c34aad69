//! What stands between a wire and an engine.

use tagmatch_hw::model::{Knobs, Model, ModelConfig};
use tagmatch_hw::{Device, DeviceError, PeerId};

use crate::rng::Rng;
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

    /// Whether the device holds nothing back that a later poll would tell. Until all say so, a run is
    /// not at rest.
    fn is_idle(&self, device: &Self::Device) -> bool;
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

    fn is_idle(&self, _: &Wire) -> bool {
        true
    }
}

/// Engines whose wires end in a NIC that matches. Slots, knobs and the peers that the list carries come
/// from the seed; messages of the others come up past it, as if from another device.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelNic;

impl Adapter for ModelNic {
    type Device = Model<Wire>;

    fn device(&self, wire: Wire, seed: u64) -> Result<Model<Wire>, DeviceError> {
        let mut rng = Rng::new(seed, 5);
        let slots = rng.pick(&[1, 2, 3, 8, 127]);
        let operations = 2 * slots + 2;
        let knobs = Knobs::random(seed);
        let config = ModelConfig { slots, operations, seed, knobs, ..ModelConfig::default() };
        let mut device = Model::new(wire, &config)?;
        if rng.per_mille(400) {
            device.set_carried(|peer: PeerId| peer.0 % 2 == 1);
        }
        Ok(device)
    }

    fn software_decides(&self) -> bool {
        false
    }

    fn is_idle(&self, device: &Model<Wire>) -> bool {
        !device.has_work()
    }
}
