//! Two network namespaces with a pair of virtual interfaces between them.

use std::ffi::OsString;
use std::process::{Command, Stdio, id};

use crate::case::Outcome;

/// The addresses of both ends.
pub(super) const ADDRESS: &str = "192.0.2.1";
pub(super) const OTHER_ADDRESS: &str = "192.0.2.2";

/// Two namespaces, which end with this value.
pub(super) struct Networks([String; 2]);

impl Networks {
    /// # Errors
    /// This process is not root, or `iproute2` is not installed.
    pub(super) fn new() -> Outcome<Self> {
        let networks = Networks([1, 2].map(|number| format!("peers-{}-{number}", id())));
        let [one, two] = &networks.0;
        ip(&format!("netns add {one}"))?;
        ip(&format!("netns add {two}"))?;
        ip(&format!("link add veth0 netns {one} type veth peer name veth0 netns {two}"))?;
        for (network, address) in [(one, ADDRESS), (two, OTHER_ADDRESS)] {
            ip(&format!("-n {network} address add {address}/24 dev veth0"))?;
            ip(&format!("-n {network} link set veth0 up"))?;
            ip(&format!("-n {network} link set lo up"))?;
        }
        Ok(networks)
    }

    /// The files of the namespaces.
    pub(super) fn files(&self) -> [OsString; 2] {
        self.0.clone().map(|name| format!("/run/netns/{name}").into())
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for name in &self.0 {
            let delete =
                Command::new("ip").args(["netns", "del", name]).stderr(Stdio::null()).status();
            // One that was never made can't be deleted.
            let _ = delete;
        }
    }
}

fn ip(arguments: &str) -> Outcome<()> {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    if status.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err(format!("ip {arguments} failed; use --namespaces as root, with iproute2 installed").into())
}
