//! The devices that stand between a wire and an engine.

use tagmatch_device::{Device, DeviceError, Join, PeerId};
use tagmatch_model::{Chance, Delay, Knobs, Model, ModelConfig};
use tagmatch_routed::Routed;
use tagmatch_testkit::random::Random;

use crate::wire::Wire;

/// What stands between a wire and an engine in a run.
#[derive(Clone, Copy, Debug)]
pub enum Devices {
    /// Nothing.
    Bare(Bare),
    /// A NIC that matches.
    Nic(ModelNic),
    /// Several networks.
    Several,
    /// Several networks, on the first of which is a NIC that matches.
    SeveralWithNic(ModelNic),
}

/// Makes the devices of a run.
pub(crate) trait Adapter {
    /// The device that engines run on.
    type Device: Device;

    /// A device on a wire. All its decisions are a function of the seed.
    ///
    /// # Errors
    /// The device can't be made. The run fails.
    fn device(&self, wire: Wire, seed: u64) -> Result<Self::Device, DeviceError>;

    /// As [`Adapter::device`], for the further networks of a worker: no message comes through a
    /// list of this device.
    ///
    /// # Errors
    /// The device can't be made. The run fails.
    fn further_device(&self, wire: Wire, seed: u64) -> Result<Self::Device, DeviceError> {
        self.device(wire, seed)
    }

    /// Whether software decides each match, when a message arrives or a receive is posted. Then the
    /// oracle predicts each match. Where a NIC decides, the oracle checks only the rules of order.
    fn software_decides(&self) -> bool;

    /// Whether the device may disconnect from a peer by itself.
    fn may_break(&self) -> bool {
        false
    }

    /// The entries that the NIC of the device has.
    fn entries(&self, device: &Self::Device) -> usize {
        let _ = device;
        0
    }

    /// A rule of the device that its host has broken.
    fn fault(&self, device: &Self::Device) -> Option<String> {
        let _ = device;
        None
    }
}

/// Engines on bare wires.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bare {
    /// The oracle predicts no match, as if a NIC decided.
    pub is_unpredicted: bool,
}

impl Adapter for Bare {
    type Device = Wire;

    fn device(&self, wire: Wire, _: u64) -> Result<Wire, DeviceError> {
        Ok(wire)
    }

    fn software_decides(&self) -> bool {
        !self.is_unpredicted
    }
}

/// Engines on NICs that match. The seed decides the slots, the knobs and the peers whose messages
/// pass through the list. Messages of other peers arrive past the list, as if through another
/// device.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelNic {
    /// The NIC's own READs fail, and so do queue pairs.
    pub fails: bool,
}

impl ModelNic {
    fn config(self, seed: u64) -> ModelConfig {
        let mut random = Random::stream(seed, 5);
        let slots = random.pick(&[1, 2, 3, 8, 127]);
        let mut config = ModelConfig::default()
            .slots(slots)
            .operations(random.pick(&[2 * slots + 2, 2 * slots + 2, 2, 3, 5]))
            .seed(seed)
            .knobs(Knobs::random(seed).deletes_in_order(random.per_mille(300)));
        if random.per_mille(200) {
            // The host must tell its count more often to a NIC with a low sync limit.
            let knobs = config.knobs;
            let operation = Delay::NONE;
            let answer = Delay::NONE;
            config.knobs = knobs.sync_limit(16).buffers_min(1).operation(operation).answer(answer);
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

    fn further_device(&self, wire: Wire, seed: u64) -> Result<Model<Wire>, DeviceError> {
        let mut device = Model::new(wire, &self.config(seed))?;
        device.set_carried(|_| false);
        Ok(device)
    }

    fn software_decides(&self) -> bool {
        false
    }

    fn may_break(&self) -> bool {
        self.fails
    }

    fn entries(&self, device: &Model<Wire>) -> usize {
        device.nic().slots_taken()
    }

    fn fault(&self, device: &Model<Wire>) -> Option<String> {
        device.nic().faults().first().map(ToString::to_string)
    }
}

/// Engines whose workers are on several machines. A worker reaches the peers of its own machine
/// over one wire, and all others over the best network that both are on. The first of its networks
/// has what `A` puts on a wire.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Several<A>(pub(crate) A);

impl<A: Adapter> Adapter for Several<A>
where
    A::Device: Join,
{
    type Device = Routed<Wire, A::Device, ()>;

    fn device(&self, wire: Wire, seed: u64) -> Result<Self::Device, DeviceError> {
        let mut networks = Vec::new();
        for beyond in wire.beyond() {
            networks.push(Box::new(if networks.is_empty() {
                self.0.device(beyond, seed)?
            } else {
                self.0.further_device(beyond, seed)?
            }));
        }
        Routed::sleepless(wire, networks)
    }

    fn software_decides(&self) -> bool {
        self.0.software_decides()
    }

    fn may_break(&self) -> bool {
        self.0.may_break()
    }

    fn entries(&self, device: &Self::Device) -> usize {
        device.networks().map(|network| self.0.entries(network)).sum()
    }

    fn fault(&self, device: &Self::Device) -> Option<String> {
        device.networks().find_map(|network| self.0.fault(network))
    }
}
