//! Options of `info`.

use clap::Args;

use crate::spec::DeviceArg;

/// `tagperf info`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Info {
    /// Instead: let two workers exchange messages for a few seconds, and print which ways to carry
    /// them they have found faster
    #[arg(long)]
    pub(crate) learned: bool,
    /// Device that carries messages [shm]
    #[arg(long, value_name = "DEVICE", requires = "learned")]
    pub(crate) device: Option<DeviceArg>,
}
