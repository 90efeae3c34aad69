//! Loading UCX, and making a worker of it.

use std::io;

use tagmatch_device::{DeviceError, TagMatching};
use tagmatch_ucx_sys as sys;

use super::carrier::TagCodec;
use super::config::UcxConfig;
use super::log;
use super::worker::{PeerEndpoint, Worker};

/// Loads UCX, with a failure as an error of the device.
pub(super) fn load() -> Result<&'static sys::Ucp, DeviceError> {
    let ucp = sys::Ucp::get().map_err(|error| DeviceError::System {
        call: "load UCX",
        source: io::Error::new(io::ErrorKind::NotFound, error.to_string()),
        hint: "",
    })?;
    log::take_over(ucp);
    Ok(ucp)
}

/// Whether this machine has a NIC whose list of receives UCX can use.
pub(super) fn has_matching_nic() -> bool {
    let devices = std::fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    devices.into_iter().any(|device| device.file_name().to_string_lossy().starts_with("mlx5"))
}

/// A worker, and its endpoint to itself.
pub(super) fn open(
    ucp: &'static sys::Ucp,
    config: &UcxConfig,
    carrier: &TagCodec,
) -> Result<(Worker, PeerEndpoint), DeviceError> {
    let offloads = config.hw_tags != TagMatching::Off && has_matching_nic();
    if config.hw_tags == TagMatching::Required && !offloads {
        return Err(DeviceError::Unsupported {
            what: "matching in the NIC by UCX",
            why: "no mlx5 device is here; UCX offloads to no other",
        });
    }
    // The transport `self` alone can't wake a thread, and UCX refuses it for a worker that has to.
    // A timer wakes then.
    for wakes in [true, false] {
        let worker = Worker::new(ucp, config, carrier, wakes, !offloads)?;
        match worker.connect(worker.address(), None) {
            Ok(endpoint) => return Ok((worker, endpoint)),
            Err(sys::UCS_ERR_UNREACHABLE) if wakes => {}
            Err(status) => {
                let source = io::Error::other(ucp.status_text(status));
                let hint = "; no transport of UCX_TLS reaches oneself: add self, posix or tcp";
                return Err(DeviceError::System { call: "ucp_ep_create", source, hint });
            }
        }
    }
    Err(DeviceError::Unsupported { what: "a message to oneself", why: "UCX_TLS leaves no way" })
}
