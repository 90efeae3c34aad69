//! The device that is used: found before anything is measured, and named with the figures.

use tagmatch::ReadMode;
use tagmatch::verbs::{Verbs, VerbsInfo};

use crate::args::device::DeviceArg;
use crate::failure::one_line;

/// A device of this machine.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// By its full name.
    pub(crate) device: DeviceArg,
    /// What it is, and how it came to be chosen.
    pub(crate) what: String,
}

impl Found {
    /// Looks for it; the error says what is missing and what to do.
    pub(crate) fn look(wanted: &DeviceArg) -> Result<Self, String> {
        match wanted {
            DeviceArg::Shm => {
                Ok(Self { device: DeviceArg::Shm, what: "shared memory, the default".into() })
            }
            DeviceArg::Verbs { name } => {
                let first = if name.is_none() { "the first with an active port; " } else { "" };
                let info = Verbs::probe(&wanted.verbs());
                let (name, port) =
                    usable(&info).map_err(|Missing { why, next }| format!("{why}; {next}"))?;
                let device = DeviceArg::Verbs { name: Some(name.to_owned()) };
                Ok(Self { device, what: format!("{first}port {port}") })
            }
        }
    }
}

/// What keeps verbs from being used.
pub(crate) struct Missing {
    pub(crate) why: String,
    /// What to do about it.
    pub(crate) next: &'static str,
}

/// Name and port of the verbs device that would be used.
pub(crate) fn usable(info: &VerbsInfo) -> Result<(&str, &str), Missing> {
    let port = info.port.as_ref();
    let needed = [Some(&info.library), Some(&info.device), port];
    let missing = needed.into_iter().flatten().find(|finding| !finding.is_available);
    match (missing, port) {
        (None, Some(port)) => Ok((&info.device.reason, &port.reason)),
        (missing, _) => {
            let missing = missing.unwrap_or(&info.device);
            let why = format!("{}: {}", missing.what, missing.reason);
            Err(Missing { why: one_line(why), next: missing.next.unwrap_or("ibv_devinfo") })
        }
    }
}

/// How large messages get from one worker to another.
pub(crate) fn large_messages(device: &DeviceArg, mode: ReadMode) -> &'static str {
    match (device, mode) {
        (_, ReadMode::Unknown) => "not known yet",
        (_, ReadMode::ByDevice) => "as UCX sees fit",
        (DeviceArg::Shm, ReadMode::Direct) => "read straight from the sender's memory, one copy",
        (DeviceArg::Verbs { .. }, ReadMode::Direct) => {
            "read by RDMA from the sender's memory into the receiver's"
        }
        (_, ReadMode::Copied) => "copied through the device, two copies",
    }
}
