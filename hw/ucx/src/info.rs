//! What UCX can use on this machine.

use std::fmt;

use tagmatch_device::{Finding, TagMatching};
use tagmatch_ucx_sys as sys;

use super::config::UcxConfig;
use super::library::{has_matching_nic, load, open};

/// What UCX can use on this machine, as seen from this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UcxInfo {
    /// UCX's version, if it can be loaded.
    pub version: Option<String>,
    /// The transports that the settings allow and the machine has, as `transport/device`.
    pub transports: Vec<String>,
    /// UCX itself.
    pub library: Finding,
    /// A device with these settings.
    pub device: Finding,
    /// Sleeping on UCX's descriptor.
    pub wakeup: Finding,
    /// Matching in the NIC.
    pub tag_offload: Finding,
}

impl UcxInfo {
    /// Finds out what UCX can use on this machine.
    pub fn probe(config: &UcxConfig) -> Self {
        let mut info = UcxInfo {
            version: None,
            transports: Vec::new(),
            library: Finding::no("UCX", "", None),
            device: Finding::no("ucx device", "without UCX", Some(sys::load::INSTALL)),
            wakeup: Finding::no("ucx wakeup", "without a device", None),
            tag_offload: judge_offload(config.hw_tags, has_matching_nic()),
        };
        let ucp = match load() {
            Ok(ucp) => ucp,
            Err(error) => {
                info.library = Finding::no("UCX", error.to_string(), Some(sys::load::INSTALL));
                return info;
            }
        };
        let (major, minor, release) = ucp.version();
        let version = format!("{major}.{minor}.{release}");
        info.library = Finding::yes("UCX", format!("{version} in {}", ucp.path()));
        info.version = Some(version);
        let opened = config.check().and_then(|carrier| open(ucp, config, &carrier));
        match opened {
            Ok((worker, endpoint)) => {
                info.transports = resources(&worker.context_text());
                let to_oneself = transports(&worker.endpoint_text(endpoint)).join(" ");
                info.device = Finding::yes("ucx device", format!("to oneself by {to_oneself}"));
                info.wakeup = if worker.descriptor().is_some() {
                    Finding::yes("ucx wakeup", "UCX's descriptor tells of events")
                } else {
                    let reason = "no transport of UCX_TLS can wake; a timer has to do";
                    Finding::no("ucx wakeup", reason, Some("UCX_TLS=posix,tcp,self"))
                };
            }
            Err(error) => {
                info.device = Finding::no("ucx device", error.to_string(), Some("ucx_info -d"));
            }
        }
        info
    }

    /// All findings.
    pub fn findings(&self) -> [&Finding; 4] {
        [&self.library, &self.device, &self.wakeup, &self.tag_offload]
    }
}

impl fmt::Display for UcxInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in self.findings() {
            writeln!(f, "{finding}")?;
        }
        let transports =
            if self.transports.is_empty() { "none".to_owned() } else { self.transports.join(" ") };
        write!(f, "{:<16} {transports}", "transports")
    }
}

fn judge_offload(wanted: TagMatching, has_nic: bool) -> Finding {
    let what = "ucx tag offload";
    match (wanted, has_nic) {
        (_, false) => {
            let reason = "no mlx5 device; UCX offloads matching to no other";
            Finding::no(what, reason, Some("ls /sys/class/infiniband"))
        }
        (TagMatching::Off, true) => {
            let reason = "switched off; with it, sends to a peer that dies don't end";
            Finding::no(what, reason, Some("set UcxConfig::hw_tags"))
        }
        (_, true) => {
            let reason = "asked for (UCX_RC_TM_ENABLE); endpoints without error handling";
            Finding::yes(what, reason)
        }
    }
}

/// Names of transports and devices, from the lines of `ucp_context_print_info`:
/// `resource 4  :  md 3  dev 3  flags -- posix/memory`.
fn resources(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.contains(" resource "));
    let names = lines.filter_map(|line| line.split_whitespace().last());
    names.filter(|name| name.contains('/')).map(Into::into).collect()
}

/// Names of transports and devices, from the lines of `ucp_ep_print_info`:
/// `lane[0]:  1:posix/memory.0 md[1] -> ...`.
pub(super) fn transports(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.contains(" lane["));
    let names = lines.filter_map(|line| line.split_once("]:")?.1.split_whitespace().next());
    let mut names: Vec<String> = names
        .map(|name| name.split_once(':').map_or(name, |(_, name)| name))
        .map(|name| name.rsplit_once('.').map_or(name, |(name, _)| name).to_owned())
        .collect();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_are_found_in_what_ucx_prints() {
        let context = "#\n#      resource 0  :  md 0  dev 0  flags -- self/memory0\n\
                       #      resource 1  :  md 1  dev 1  flags -- tcp/lo\n";
        assert_eq!(resources(context), ["self/memory0", "tcp/lo"]);
        let endpoint = "#                 lane[0]:  1:posix/memory.0 md[1]          -> md[1]/posix am\n\
                        #                 lane[1]:  2:cma/memory.0 md[2]  -> md[2]/cma rma_bw#0\n";
        assert_eq!(transports(endpoint), ["posix/memory", "cma/memory"]);
        assert!(transports("").is_empty() && resources("nonsense resource x").is_empty());
    }

    #[test]
    fn each_no_to_offload_has_a_command() {
        for (wanted, has_nic) in
            [(TagMatching::Off, false), (TagMatching::Auto, false), (TagMatching::Off, true)]
        {
            let finding = judge_offload(wanted, has_nic);
            assert!(!finding.is_available && finding.next.is_some());
        }
        assert!(judge_offload(TagMatching::Auto, true).is_available);
    }
}
