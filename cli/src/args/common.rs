//! Options of every measuring command.

use std::path::PathBuf;

use clap::Args;

use super::report::ReportOptions;
use crate::cpus::{is_pinning_refused, possible, two_cpus};
use crate::spec::{DeviceArg, HwTagsArg, Pin, PinChoice};

/// Options of all measuring commands.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Common {
    /// CPU numbers for this side and the other, or none [here: the first 2]
    #[arg(long, value_name = "CPU,CPU")]
    pub(crate) pin: Option<PinChoice>,
    /// Device that carries messages: shm (within a machine), verbs[:NAME] (RDMA),
    /// tcp[:INTERFACE|:ADDRESS], auto (all of these), ucx[:UCX_TLS] or ofi[:PROVIDER] [shm; auto
    /// for ranks on several machines]
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<DeviceArg>,
    /// Where receives are matched: off (software), auto (the NIC), emu, or a model NIC of so many
    /// entries, model[:SLOTS] [off]
    #[arg(long, value_name = "MATCHER", default_value_t = HwTagsArg::Off)]
    #[arg(hide_default_value = true)]
    pub(crate) hw_tags: HwTagsArg,
    /// Do not check the bytes received
    #[arg(long)]
    pub(crate) no_validate: bool,
    /// One line of JSON (times in ns) to FILE; with - nothing else is printed
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) report: ReportOptions,
}

impl Common {
    /// The CPUs of both sides, if they are to be pinned.
    pub(crate) fn pin(&self) -> Option<Pin> {
        self.pin.and_then(PinChoice::pin)
    }

    /// The device: shared memory unless another one was named.
    pub(crate) fn device(&self) -> DeviceArg {
        self.device.clone().unwrap_or_default()
    }

    /// These options for ranks of a launched job. Unless a device was named, ranks that shared
    /// memory doesn't reach use every network that there is. Ranks that it reaches use it alone, so
    /// that none of them listens for other machines.
    pub(crate) fn for_ranks(&self, are_in_one_network: bool) -> Self {
        let default = if are_in_one_network { DeviceArg::Shm } else { DeviceArg::Auto };
        Self { device: Some(self.device.clone().unwrap_or(default)), ..self.clone() }
    }

    /// These options with CPUs chosen, unless the user did, for two sides that both run here.
    pub(crate) fn with_pin(&self) -> Self {
        let ours = || two_cpus().map(PinChoice::Ours);
        let pin = possible(self.pin.or_else(ours), is_pinning_refused);
        Self { pin, ..self.clone() }
    }
}
