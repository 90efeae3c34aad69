//! What the devices of one command are like.

use tagmatch_model::ModelConfig;

/// What the devices of one command are like.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The numbers in the devices' names: `mlx5_0`.
    pub(crate) devices: Vec<u32>,
    /// The list of tags, and its choices. `slots` is one less than a power of two.
    pub(crate) model: ModelConfig,
}

impl Settings {
    /// The number of a device's port in its subnet.
    pub(crate) fn lid(device: usize) -> u16 {
        u16::try_from(device + 1).unwrap_or(u16::MAX)
    }

    /// The name of the device with a port, which no other device has.
    pub(crate) fn guid(lid: u16) -> [u8; 8] {
        let [high, low] = lid.wrapping_sub(1).to_be_bytes();
        [0x0c, 0x42, 0xa1, 0x03, 0x00, high, low, 0x33]
    }

    /// The name of a device's port, with the prefix of a subnet that was not configured.
    pub(crate) fn gid(device: usize) -> [u8; 16] {
        let mut gid = [0; 16];
        gid[..2].copy_from_slice(&[0xfe, 0x80]);
        gid[8..].copy_from_slice(&Self::guid(Self::lid(device)));
        gid
    }
}
