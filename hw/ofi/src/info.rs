//! What libfabric offers on this machine.

use std::fmt;

use tagmatch_device::Finding;
use tagmatch_fabric::settings::check_times;
use tagmatch_ofi_sys as sys;

use super::config::OfiConfig;
use super::library::load;
use super::objects::MatchMode;
use super::provider::{open, survey};
use super::telemetry::NicMatches;

/// What libfabric offers on this machine, as seen from this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfiInfo {
    /// libfabric's version, if it can be loaded.
    pub version: Option<String>,
    /// The provider that a device with these settings takes, with its domain.
    pub taken: Option<String>,
    /// Each provider that was there and isn't taken, with the reason.
    pub others: Vec<(String, String)>,
    /// libfabric itself.
    pub library: Finding,
    /// A device with these settings.
    pub device: Finding,
    /// Sleeping on the provider's descriptor.
    pub wakeup: Finding,
    /// Probes for messages that wait.
    pub probes: Finding,
    /// Matching in the NIC.
    pub tag_offload: Finding,
    /// The name of the NIC below the device, such as `cxi0`, if it has a NIC that matches.
    pub nic: Option<String>,
    /// The matches that this NIC has counted, those of all processes that use the NIC.
    pub nic_matches: Option<NicMatches>,
    /// Receives that a device can have posted at a time. Later ones match nothing until earlier
    /// ones have ended.
    pub receives_max: Option<usize>,
}

impl OfiInfo {
    /// Finds out what libfabric offers on this machine, and what a device with these settings
    /// takes.
    pub fn probe(config: &OfiConfig) -> Self {
        let why = "libfabric's other providers match on the CPU";
        let mut info = OfiInfo {
            version: None,
            taken: None,
            others: Vec::new(),
            library: Finding::no("libfabric", "", None),
            device: Finding::no("ofi device", "without libfabric", Some(sys::load::INSTALL)),
            wakeup: Finding::no("ofi wakeup", "without a device", None),
            probes: Finding::no("ofi probes", "without a device", None),
            tag_offload: Finding::no("ofi tag offload", why, Some("fi_info -p cxi")),
            nic: None,
            nic_matches: None,
            receives_max: None,
        };
        let libfabric = match load() {
            Ok(libfabric) => libfabric,
            Err(error) => {
                info.library =
                    Finding::no("libfabric", error.to_string(), Some(sys::load::INSTALL));
                return info;
            }
        };
        // SAFETY: a function without arguments.
        let version = unsafe { (libfabric.fi_version)() };
        let version = format!("{}.{}", sys::FI_MAJOR(version), sys::FI_MINOR(version));
        info.library = Finding::yes("libfabric", format!("{version} in {}", libfabric.path()));
        info.version = Some(version);
        let (offers, choice) = survey(libfabric, config);
        for (offer, reason) in offers.iter().zip(choice.reasons) {
            if reason.is_empty() {
                info.taken = Some(format!("{} on {}", offer.provider, offer.domain));
            } else if !info.others.iter().any(|(name, _)| *name == offer.provider) {
                info.others.push((offer.provider.clone(), reason));
            }
        }
        // A provider has an entry for each interface; one of them may be taken.
        let taken = choice.taken.map(|place| offers[place].provider.clone());
        info.others.retain(|(name, _)| Some(name) != taken.as_ref());
        match check_times(config.connect_timeout, config.keepalive)
            .and_then(|()| open(libfabric, config))
        {
            Ok((_, provider, ..)) => {
                let mode = provider.mode.map_or(String::new(), |mode| format!(", {mode} matching"));
                let what = format!("{} on {}{mode}", provider.name, provider.domain);
                info.device = Finding::yes("ofi device", what);
                let better = Some("fi_info -p 'tcp;ofi_rxm'");
                info.wakeup = if provider.wakes {
                    Finding::yes("ofi wakeup", "its descriptor tells of events")
                } else {
                    let reason =
                        "the provider has no descriptor that falls silent; a timer has to do";
                    Finding::no("ofi wakeup", reason, better)
                };
                info.probes = if provider.finds && provider.takes {
                    Finding::yes("ofi probes", "messages are found and taken")
                } else if provider.finds {
                    Finding::no("ofi probes", "messages are found, but can't be taken", better)
                } else {
                    Finding::no("ofi probes", "messages that wait are not found", better)
                };
                if provider.mode == Some(MatchMode::Hybrid) {
                    let reason = "hybrid: the NIC matches, software where it has no room";
                    info.tag_offload = Finding::yes("ofi tag offload", reason);
                }
                info.receives_max = Some(provider.receives_max);
                info.nic = provider.mode.map(|_| provider.domain);
                info.nic_matches = info.nic.as_deref().and_then(NicMatches::read);
            }
            Err(error) => {
                info.device = Finding::no("ofi device", error.to_string(), Some("fi_info -l"));
            }
        }
        info
    }

    /// All findings.
    pub fn findings(&self) -> [&Finding; 5] {
        [&self.library, &self.device, &self.wakeup, &self.probes, &self.tag_offload]
    }
}

impl fmt::Display for OfiInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in self.findings() {
            writeln!(f, "{finding}")?;
        }
        if let (Some(nic), Some(matches)) = (&self.nic, &self.nic_matches) {
            let NicMatches { posted, unexpected, in_software } = matches;
            let counts =
                format!("{posted} posted, {unexpected} unexpected, {in_software} in software");
            writeln!(f, "{:<16} of all processes on {nic}: {counts}", "NIC matches")?;
        }
        write!(f, "{:<16} {}", "taken", self.taken.as_deref().unwrap_or("none"))?;
        for (provider, reason) in &self.others {
            write!(f, "\n{:<16} {provider}: {reason}", "not taken")?;
        }
        Ok(())
    }
}
