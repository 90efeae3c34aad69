//! What stands between a wire and an engine.

use tagmatch_device::{Device, DeviceError, PeerId};
use tagmatch_model::{Chance, Delay, Knobs, Model, ModelConfig};

use crate::wire::Wire;
use tagmatch_testkit::random::Random;

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

    /// Whether the device may break with a peer by itself.
    fn may_break(&self) -> bool;

    /// A rule of the device that its host has broken.
    fn fault(&self, device: &Self::Device) -> Option<String>;
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

    fn may_break(&self) -> bool {
        false
    }

    fn fault(&self, _: &Wire) -> Option<String> {
        None
    }
}

/// Engines whose wires end in a NIC that matches. Slots, knobs and the peers that the list carries come
/// from the seed; messages of the others come up past it, as if from another device.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelNic {
    /// The NIC's own READs fail, and so do queue pairs.
    pub fails: bool,
}

impl ModelNic {
    fn config(self, seed: u64) -> ModelConfig {
        let mut random = Random::stream(seed, 5);
        let slots = random.pick(&[1, 2, 3, 8, 127]);
        let mut config = ModelConfig {
            slots,
            operations: random.pick(&[2 * slots + 2, 2 * slots + 2, 2, 3, 5]),
            seed,
            knobs: Knobs { deletes_in_order: random.per_mille(300), ..Knobs::random(seed) },
            ..ModelConfig::default()
        };
        if random.per_mille(200) {
            // A NIC that can't run far ahead of its host is told its count that often.
            let knobs = config.knobs;
            let (operation, answer) = (Delay::NONE, Delay::NONE);
            config.knobs = Knobs { sync_limit: 16, buffers_min: 1, operation, answer, ..knobs };
            config.buffers = 2;
            config.operations = 2 * slots + 2;
        }
        if self.fails {
            config.knobs.read_failure = Chance(random.pick(&[0, 3_000, 30_000]));
            config.knobs.queue_pair_error = Chance(random.pick(&[0, 1_000, 10_000]));
        }
        config
    }
}

impl Adapter for ModelNic {
    type Device = Model<Wire>;

    fn device(&self, wire: Wire, seed: u64) -> Result<Model<Wire>, DeviceError> {
        let mut device = Model::new(wire, &self.config(seed))?;
        let mut random = Random::stream(seed, 6);
        if random.per_mille(400) {
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

    fn may_break(&self) -> bool {
        self.fails
    }

    fn fault(&self, device: &Model<Wire>) -> Option<String> {
        device.nic().faults().first().map(ToString::to_string)
    }
}
