//! The RDMA devices of this machine, and why one can't be used.

use std::fmt;

use tagmatch_device::{DeviceError, Finding, InCall};
use tagmatch_os::process;
use tagmatch_rdma_core_sys as sys;

use super::choice::{self, PortChoice};
use super::config::VerbsConfig;
use super::context::{Context, library};
use super::gid::Chosen;
use super::port::Port;
use super::settings::{self, SETTINGS, Setting};

/// The state of RDMA as seen from this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsInfo {
    /// Whether libibverbs can be loaded, and from which path.
    pub library: Finding,
    /// Whether there is a device with an active port, and which one would be used.
    pub device: Finding,
    /// Why this device and port, if there were several. See
    /// [`VerbsConfig::device`](super::VerbsConfig::device).
    pub choice: Option<String>,
    /// The other ports, each with the reason why it isn't used: `mana_0, port 1: it has no shared
    /// receive queues`.
    pub left_out: Vec<String>,
    /// The device's port and its address. None without a device.
    pub port: Option<Finding>,
    /// Whether the NIC can match tags. None without a device.
    pub tag_matching: Option<Finding>,
    /// The limit on locked memory, in bytes. None if it is unlimited.
    pub locked_memory: Option<u64>,
    /// Name and value of each of the [`SETTINGS`](super::SETTINGS) that the environment or the
    /// program has given.
    pub settings: Vec<(&'static str, String)>,
}

fn finding(what: &'static str, result: Result<String, DeviceError>) -> Finding {
    match result {
        Ok(reason) => Finding::yes(what, reason),
        Err(DeviceError::System { call, source, hint }) => {
            let next = Some(hint.trim_start_matches("; ")).filter(|hint| !hint.is_empty());
            Finding::no(what, format!("{call}: {source}"), next)
        }
        Err(error) => Finding::no(what, error.to_string(), None),
    }
}

impl VerbsInfo {
    /// Finds out what RDMA there is on this machine, and what a device with these settings takes.
    pub fn probe(config: &VerbsConfig) -> Self {
        let path = library(config).map(|library| library.path().to_owned());
        let mut info = VerbsInfo {
            library: finding("libibverbs", path),
            device: Finding::yes("RDMA device", ""),
            choice: None,
            left_out: Vec::new(),
            port: None,
            tag_matching: None,
            locked_memory: process::locked_memory_limit(),
            settings: Vec::new(),
        };
        let config = match settings::resolve(config.clone()) {
            Ok(config) => config,
            Err(error) => {
                info.device = finding("RDMA device", Err(error));
                return info;
            }
        };
        let given = |setting: &Setting| Some((setting.name, setting.value(&config)?));
        info.settings = SETTINGS.iter().filter_map(given).collect();
        match choice::open(&config) {
            Err(error) => info.device = finding("RDMA device", Err(error)),
            Ok(PortChoice { context, left_out }) => {
                info.left_out = left_out;
                info.device.reason = context.name.clone();
                info.choice = Some(context.why.clone()).filter(|why| !why.is_empty());
                info.port = Some(finding("port", describe_port(&context, &config)));
                info.tag_matching = Some(judge_tag_matching(context.tag_matching()));
            }
        }
        info
    }

    /// All findings, in the order in which the parts are used.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        [&self.library, &self.device].into_iter().chain(&self.port).chain(&self.tag_matching)
    }
}

impl fmt::Display for VerbsInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in self.findings() {
            writeln!(f, "{finding}")?;
        }
        if let Some(choice) = &self.choice {
            writeln!(f, "chosen           {choice}")?;
        }
        for (name, value) in &self.settings {
            writeln!(f, "{name:<16} {value}")?;
        }
        for port in &self.left_out {
            writeln!(f, "left out         {port}")?;
        }
        match self.locked_memory {
            Some(bytes) => write!(f, "locked memory    {} KiB (ulimit -l)", bytes / 1024),
            None => write!(f, "locked memory    unlimited"),
        }
    }
}

fn describe_port(context: &Context, config: &VerbsConfig) -> Result<String, DeviceError> {
    let attr = context.attributes().in_call("ibv_query_device")?;
    let port = Port::open(context, &attr, config)?;
    let Chosen { index, gid, kind, .. } = port.gid;
    let link = match (port.link_layer, kind) {
        (sys::IBV_LINK_LAYER_ETHERNET, sys::IBV_GID_TYPE_ROCE_V2) => "RoCE v2",
        (sys::IBV_LINK_LAYER_ETHERNET, _) => "RoCE v1",
        _ => "InfiniBand",
    };
    let key = port.partition.key;
    let mtu = 128u32 << port.mtu.min(5);
    let number = port.number;
    Ok(format!("{number}, {link}, GID {index} {gid}, partition key {key:#06x}, MTU {mtu}"))
}

fn judge_tag_matching(caps: std::io::Result<sys::ibv_tm_caps>) -> Finding {
    let what = "tag matching";
    let no = |reason: &str| Finding::no(what, reason, None);
    match caps {
        Err(error) => no(&format!("ibv_query_device_ex: {error}")),
        Ok(caps) if caps.max_num_tags == 0 => {
            no("the device has no tag matching (tm_caps is zero)")
        }
        Ok(caps) if caps.flags & sys::IBV_TM_CAP_RC == 0 => {
            no("the device has tag matching, but not for RC queue pairs")
        }
        Ok(caps) => {
            let reason = format!("{} entries, {} operations", caps.max_num_tags, caps.max_ops);
            Finding::yes(what, reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_tag_matching_is_told_from_one_with_it() {
        let mut caps = sys::ibv_tm_caps::zeroed();
        assert!(!judge_tag_matching(Ok(caps)).is_available);
        caps.max_num_tags = 127;
        assert!(!judge_tag_matching(Ok(caps)).is_available);
        caps.flags = sys::IBV_TM_CAP_RC;
        let found = judge_tag_matching(Ok(caps));
        assert!(found.is_available && found.reason.contains("127 entries"), "{found}");
    }

    #[test]
    fn a_missing_device_is_reported() {
        let config = VerbsConfig { device: Some("nosuchdevice".to_owned()), ..Default::default() };
        let info = VerbsInfo::probe(&config);
        assert!(!info.device.is_available && !info.device.reason.is_empty(), "{info}");
        assert_eq!(info.port, None);
        assert!(info.to_string().contains("locked memory"));
    }
}
