//! Two network namespaces that stand for two machines. Making them needs root.

use std::process::{Command, Stdio};

use crate::common::{eventually, text};

/// Two namespaces with a wire between them, removed at the end.
pub(crate) struct Machines(pub(crate) [String; 2]);

/// Addresses for documentation (RFC 5737).
pub(crate) const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

pub(crate) fn ip(args: &str) {
    let output = Command::new("ip").args(args.split_whitespace()).output();
    let output = output.expect("this test needs ip, of the package iproute2");
    assert!(output.status.success(), "ip {args}: {}", text(&output.stderr));
}

impl Machines {
    pub(crate) fn new() -> Self {
        let names = [1, 2].map(|n| format!("tagperf-{}-{n}", std::process::id()));
        let machines = Machines(names);
        let [a, b] = &machines.0;
        ip(&format!("netns add {a}"));
        ip(&format!("netns add {b}"));
        ip(&format!("link add wire1 netns {a} type veth peer name wire2 netns {b}"));
        for ((name, wire), address) in machines.0.iter().zip(["wire1", "wire2"]).zip(ADDRESSES) {
            ip(&format!("-n {name} address add {address}/24 dev {wire}"));
            ip(&format!("-n {name} link set {wire} up"));
            ip(&format!("-n {name} link set lo up"));
        }
        // UCX uses the links that are up when it looks, and a link takes its time.
        for (name, wire) in machines.0.iter().zip(["wire1", "wire2"]) {
            let link = ["-n", name, "-brief", "link", "show", wire];
            let show = || Command::new("ip").args(link).output().unwrap().stdout;
            assert!(eventually(|| text(&show()).contains(" UP ")), "{wire} stays down");
        }
        machines
    }

    /// The command in one of the namespaces, with no secret in its environment.
    pub(crate) fn on(&self, at: usize, args: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[at], env!("CARGO_BIN_EXE_tagperf")]);
        command.args(args.split_whitespace()).stdin(Stdio::null());
        command.env_remove("TAGMATCH_SECRET").env_remove("TAGMATCH_SECRET_FILE");
        command
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for name in &self.0 {
            // It may not have been made.
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}
