//! What a device is like.

use tagmatch_model::ModelConfig;

/// A device that programs see.
#[derive(Clone, Debug)]
pub(crate) struct DeviceSettings {
    /// The number in its name, `mlx5_0`.
    pub(crate) number: u32,
    /// The NUMA node that it is near to; −1: none.
    pub(crate) numa_node: i32,
    /// The processors that it is near to, as in `local_cpulist` of sysfs.
    pub(crate) processors: String,
}

/// Where hardware may choose, beside the choices of [`tagmatch_model::Knobs`].
#[derive(Clone, Debug)]
pub(crate) struct HcaKnobs {
    /// Short messages are put into completions, if the library allows it. Default: yes.
    pub(crate) inline_scatter: bool,
}

impl Default for HcaKnobs {
    fn default() -> Self {
        HcaKnobs { inline_scatter: true }
    }
}

/// What the devices of one command are like.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The devices.
    pub(crate) devices: Vec<DeviceSettings>,
    /// The list of tags, and its choices. `slots` is one less than a power of two.
    pub(crate) model: ModelConfig,
    /// Other choices.
    pub(crate) knobs: HcaKnobs,
}

impl Settings {
    /// The number of a device's port in its subnet.
    pub(crate) fn lid(device: usize) -> u16 {
        u16::try_from(device + 1).unwrap_or(u16::MAX)
    }

    /// The name of a port's device that no other one has.
    pub(crate) fn guid(&self, lid: u16) -> [u8; 8] {
        let [high, low] = lid.wrapping_sub(1).to_be_bytes();
        [0x0c, 0x42, 0xa1, 0x03, 0x00, high, low, 0x33]
    }
}
