//! `tagperf run --hosts` with an agent of the test's own.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};

use tagmatch_testkit::scratch::Scratch;

use crate::common::{command, eventually, lives};

/// A directory with an agent, in which ranks leave the numbers of their processes.
pub(crate) struct Place(pub(crate) Scratch);

impl Place {
    pub(crate) fn new(test: &str, agent: &str) -> Self {
        let scratch = Scratch::new(test);
        let script = scratch.file("agent", format!("#!/bin/sh\n{agent}\n"));
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        Self(scratch)
    }

    /// `tagperf run` with this agent, and its options.
    pub(crate) fn run(&self, options: &str) -> Command {
        let mut run = command("run --agent");
        run.arg(self.0.join("agent")).args(options.split_whitespace());
        run.stdout(Stdio::piped()).stderr(Stdio::piped());
        run
    }

    pub(crate) fn shell(&self, options: &str, script: &str) -> Output {
        self.run(options).args(["--", "sh", "-c", script]).output().unwrap()
    }

    /// Starts `-n 4` ranks that wait, and returns the numbers of these processes and of their two
    /// helpers.
    pub(crate) fn waiting(&self, options: &str) -> (Child, Vec<u32>) {
        self.waiting_on("one,two", options)
    }

    pub(crate) fn waiting_on(&self, hosts: &str, options: &str) -> (Child, Vec<u32>) {
        // A rank gets an answer only after its helper has told the launcher that its ranks run.
        let script = "exec 3<&$PMI_FD 4>&$PMI_FD
            echo cmd=init pmi_version=1 pmi_subversion=1 >&4; read -r answer <&3
            echo $$ $PPID > $0/$PMI_RANK.new; mv $0/$PMI_RANK.new $0/$PMI_RANK; exec sleep 600";
        let mut run = self.run(&format!("-n 4 --hosts {hosts} {options}"));
        let run = run.args(["--", "bash", "-c", script]).arg(&*self.0).spawn().unwrap();
        let files: Vec<_> = (0..4).map(|rank| self.0.join(rank.to_string())).collect();
        assert!(eventually(|| files.iter().all(|file| file.exists())));
        let text: Vec<_> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        let words = |at| text.iter().map(move |text| text.split_whitespace().nth(at).unwrap());
        let mut pids: Vec<_> = words(0).chain(words(1)).map(|pid| pid.parse().unwrap()).collect();
        pids.dedup();
        assert_eq!(pids.len(), 6, "four ranks, two helpers");
        (run, pids)
    }
}

/// The agent of most tests: any machine is this one.
pub(crate) const HERE: &str = "exec sh -c \"$2\"";

pub(crate) fn are_gone(pids: &[u32]) -> bool {
    eventually(|| !pids.iter().any(|&pid| lives(pid)))
}
