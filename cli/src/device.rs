//! The device that is used: found before anything is measured, and named with the figures.

use std::io::ErrorKind;
use std::net::{IpAddr, TcpListener};

use tagmatch::ofi::OfiInfo;
use tagmatch::ucx::UcxInfo;
use tagmatch::verbs::VerbsInfo;
use tagmatch::{Finding, ReadMode};
use tagmatch_os::stream;
use tagmatch_results::show::one_line;

use crate::spec::{DeviceArg, HwTagsArg};

/// A device of this machine.
#[derive(Clone, Debug)]
pub(crate) struct FoundDevice {
    /// With its full name.
    pub(crate) device: DeviceArg,
    /// A description, and why it was chosen.
    pub(crate) what: String,
    /// The NIC below it, if that is one with counts of its own.
    pub(crate) nic: Option<String>,
    /// Receives that it takes at a time, if there is a limit.
    pub(crate) receives_max: Option<usize>,
}

impl FoundDevice {
    /// Looks for the device; the error says what is missing and what to do.
    pub(crate) fn look(wanted: &DeviceArg, hw_tags: HwTagsArg) -> Result<Self, String> {
        let mut nic = None;
        let mut receives_max = None;
        let (device, what) = match wanted {
            DeviceArg::Shm => (DeviceArg::Shm, "shared memory, the default".to_owned()),
            DeviceArg::Auto => {
                let what = "shared memory on this machine; verbs or TCP with others";
                (DeviceArg::Auto, what.to_owned())
            }
            DeviceArg::Verbs { name } => {
                let first = if name.is_none() { "the first with an active port; " } else { "" };
                let info = VerbsInfo::probe(&wanted.verbs());
                let (name, port) = usable(&info)
                    .map_err(|MissingDevice { why, next }| format!("{why}; {next}"))?;
                let device = DeviceArg::Verbs { name: Some(name.to_owned()) };
                (device, format!("{first}port {port}"))
            }
            DeviceArg::Tcp { place } => {
                check_place(place.as_deref())?;
                let place = place.as_deref().unwrap_or("all interfaces");
                let what = format!("listening on {place}; the messages are not encrypted");
                (wanted.clone(), what)
            }
            DeviceArg::Ucx { .. } => {
                let info = UcxInfo::probe(&wanted.ucx());
                let library = ucx_usable(&info)
                    .map_err(|MissingDevice { why, next }| format!("{why}; {next}"))?;
                let what = format!("UCX {library}; {}", info.device.reason);
                (wanted.clone(), one_line(what))
            }
            DeviceArg::Ofi { .. } => {
                let info = OfiInfo::probe(&wanted.ofi(hw_tags));
                let library = ofi_usable(&info)
                    .map_err(|MissingDevice { why, next }| format!("{why}; {next}"))?;
                let what = format!("libfabric {library}; {}", info.device.reason);
                (nic, receives_max) = (info.nic, info.receives_max);
                (wanted.clone(), one_line(what))
            }
        };
        Ok(Self { device, what, nic, receives_max })
    }
}

/// Whether TCP can listen at a place that the user has named: an address or an interface.
fn check_place(place: Option<&str>) -> Result<(), String> {
    let Some(place) = place else { return Ok(()) };
    let next = "`ip address` lists what this machine has";
    if let Ok(address) = place.parse::<IpAddr>() {
        return match TcpListener::bind((address, 0)) {
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                Err(format!("this machine doesn't have the address {place}; {next}"))
            }
            // Whatever else is wrong, the device says it.
            _ => Ok(()),
        };
    }
    let found = stream::addresses_of(|name| name.to_bytes() == place.as_bytes());
    if found.is_ok_and(|addresses| addresses.is_empty()) {
        return Err(format!("no interface {place} is up and has an address; {next}"));
    }
    Ok(())
}

/// Why a device can't be used.
pub(crate) struct MissingDevice {
    pub(crate) why: String,
    /// What to do about it.
    pub(crate) next: &'static str,
}

/// Name and port of the verbs device that would be used.
pub(crate) fn usable(info: &VerbsInfo) -> Result<(&str, &str), MissingDevice> {
    let port = info.port.as_ref();
    let needed = [Some(&info.library), Some(&info.device), port];
    let absent = needed.into_iter().flatten().find(|finding| !finding.is_available);
    match (absent, port) {
        (None, Some(port)) => Ok((&info.device.reason, &port.reason)),
        (absent, _) => Err(missing(absent.unwrap_or(&info.device), "ibv_devinfo")),
    }
}

/// Version and path of the UCX library that would be used.
pub(crate) fn ucx_usable(info: &UcxInfo) -> Result<&str, MissingDevice> {
    match [&info.library, &info.device].into_iter().find(|finding| !finding.is_available) {
        None => Ok(&info.library.reason),
        Some(absent) => Err(missing(absent, "ucx_info -d")),
    }
}

/// Version and path of the libfabric that would be used.
pub(crate) fn ofi_usable(info: &OfiInfo) -> Result<&str, MissingDevice> {
    match [&info.library, &info.device].into_iter().find(|finding| !finding.is_available) {
        None => Ok(&info.library.reason),
        Some(absent) => Err(missing(absent, "fi_info -l")),
    }
}

fn missing(absent: &Finding, next: &'static str) -> MissingDevice {
    let next = absent.next.unwrap_or(next);
    // Some reasons end with the same advice.
    let reason = absent.reason.strip_suffix(next).unwrap_or(&absent.reason);
    let reason = reason.strip_suffix("; try: ").unwrap_or(reason);
    MissingDevice { why: one_line(format!("{}: {reason}", absent.what)), next }
}

/// How large messages are transferred from one worker to another.
pub(crate) fn large_messages(device: &DeviceArg, mode: ReadMode, transports: &[String]) -> String {
    let how = match (device, mode) {
        (_, ReadMode::Unknown) => "not known yet",
        (_, ReadMode::ByDevice) => {
            return match device {
                DeviceArg::Ofi { .. } => format!("as libfabric does by {}", transports.join(" ")),
                _ => format!("as UCX sees fit; its transports are {}", transports.join(" ")),
            };
        }
        (DeviceArg::Shm | DeviceArg::Auto, ReadMode::Direct) => {
            "read straight from the sender's memory, one copy"
        }
        (DeviceArg::Tcp { .. }, ReadMode::Direct) => {
            "streamed from the sender's memory into the receiver's"
        }
        (_, ReadMode::Direct) => "read by RDMA from the sender's memory into the receiver's",
        (_, ReadMode::Copied) => "copied through the device, two copies",
        _ => "in a way that this version has no word for",
    };
    how.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_of_tcp_that_is_not_there_is_refused_in_the_words_of_the_user() {
        for place in [None, Some("lo"), Some("127.0.0.1"), Some("127.0.0.2")] {
            assert_eq!(check_place(place), Ok(()), "{place:?}");
        }
        // The address is of a network for documentation.
        for place in ["nosuchif", "192.0.2.77"] {
            let why = check_place(Some(place)).unwrap_err();
            assert!(why.contains(place) && !why.contains("TcpConfig"), "{why}");
        }
    }
}
