//! The two hosts: processes that are started, stopped and killed on them, and faults of their
//! network.
//!
//! Tests run on one host. The other host runs shell scripts, one after the other, that it finds in
//! a directory which both share, so it works without a network, too: see `ci/parts/failures`.

use std::fmt::Display;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use tagmatch::Address;

/// What a process has to do, and the address of the worker that it does it with.
pub const ROLE: &str = "TAGMATCH_TEST_ROLE";
pub const PARENT: &str = "TAGMATCH_TEST_PARENT";

/// The limit of a test, and of the life of a process.
pub const LIMIT: Duration = Duration::from_secs(60);

const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A host, as seen by the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    Near,
    Far,
}

/// A directory that both hosts write to.
fn shared() -> PathBuf {
    let Ok(directory) = env::var("RXE_OUT") else {
        panic!("no second host (RXE_OUT is not set): these tests are run by ci/test failures");
    };
    directory.into()
}

/// A number that was not returned before.
fn next_number() -> u32 {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

impl Host {
    /// Runs a shell script on the host. Returns its output, as an error if the script failed.
    fn try_run(self, script: &str) -> Result<String, String> {
        match self {
            Host::Near => {
                let output = Command::new("sh").args(["-c", script]).output().unwrap();
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
                if output.status.success() {
                    Ok(text(&output.stdout))
                } else {
                    Err(text(&output.stderr))
                }
            }
            Host::Far => {
                // The file is renamed when it is complete, so nobody reads a part of it.
                static NUMBER: AtomicU32 = AtomicU32::new(0);
                let path = shared().join(NUMBER.fetch_add(1, Ordering::Relaxed).to_string());
                fs::write(path.with_extension("new"), script).unwrap();
                fs::rename(path.with_extension("new"), path.with_extension("sh")).unwrap();
                let status = loop {
                    if let Ok(status) = fs::read_to_string(path.with_extension("status")) {
                        break status;
                    }
                    thread::sleep(LOOK_INTERVAL);
                };
                let output = fs::read_to_string(path.with_extension("out")).unwrap();
                let output = output.trim().to_owned();
                if status.trim() == "0" { Ok(output) } else { Err(output) }
            }
        }
    }

    pub fn run(self, script: &str) -> String {
        match self.try_run(script) {
            Ok(output) => output,
            Err(output) => panic!("{self:?}: {script}: {output}"),
        }
    }

    /// How many packets the host's device sent again, or found to be repeated, missing or out of
    /// order.
    pub fn irregular_packets(self) -> u64 {
        let counters =
            "duplicate_request out_of_seq_request rcvd_seq_err completer_retry_err send_err";
        let script =
            format!("cd /sys/class/infiniband/$RXE_DEVICE/ports/1/hw_counters && cat {counters}");
        self.run(&script).lines().map(|line| line.parse::<u64>().unwrap()).sum()
    }

    /// How many segments the host's TCP sent again, or found to be repeated or out of order.
    pub fn irregular_segments(self) -> u64 {
        const COUNTERS: [&str; 4] =
            ["RetransSegs", "TCPOFOQueue", "TCPDSACKOldSent", "TCPDSACKOfoSent"];
        // A line of names, then a line of their values.
        let shown = self.run("cat /proc/net/snmp /proc/net/netstat");
        let lines: Vec<_> = shown.lines().collect();
        let pairs = lines.chunks_exact(2).flat_map(|two| two[0].split(' ').zip(two[1].split(' ')));
        let counted = pairs.filter(|(name, _)| COUNTERS.contains(name));
        counted.map(|(_, value)| value.parse::<u64>().unwrap()).sum()
    }
}

/// A fault of the network, which ends when the value is dropped.
pub struct Fault {
    pub host: Host,
    undo: &'static str,
}

impl Fault {
    /// What tc-netem(8) does with all packets that leave the host.
    pub fn netem(host: Host, what: &str) -> Self {
        host.run(&format!("tc qdisc add dev eth0 root netem {what}"));
        Fault { host, undo: "tc qdisc del dev eth0 root" }
    }

    /// How many packets passed through netem.
    pub fn packets(&self) -> u64 {
        let shown = self.host.run("tc -s qdisc show dev eth0 root");
        let words: Vec<_> = shown.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "pkt").unwrap();
        words[at - 1].parse().unwrap()
    }

    /// Takes the host's interface down.
    pub fn link_down(host: Host) -> Self {
        host.run("ip link set eth0 down");
        let undo = "ip link set eth0 up
            until grep -q ACTIVE /sys/class/infiniband/$RXE_DEVICE/ports/1/state; do sleep 0.1; done";
        Fault { host, undo }
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        if let Err(why) = self.host.try_run(self.undo) {
            eprintln!("{:?}: {}: {why}", self.host, self.undo);
        }
    }
}

/// This program in another process, in a role.
pub struct Process {
    host: Host,
    pid: String,
    output: PathBuf,
}

impl Process {
    pub fn start(host: Host, role: &str, parent: &Address) -> Self {
        let program = env::current_exe().unwrap();
        let output = shared().join(format!("process{}", next_number()));
        let pid = host.run(&format!(
            "{ROLE}='{role}' {PARENT}='{parent}' '{}' --exact role --nocapture --test-threads=1 \
             < /dev/null > '{}' 2>&1 & echo $!",
            program.display(),
            output.display()
        ));
        Process { host, pid, output }
    }

    /// What the process prints after this word. The test fails if it prints something else.
    pub fn hear(&self, word: &str) -> String {
        let word = format!("@{word} ");
        loop {
            let text = fs::read_to_string(&self.output).unwrap_or_default();
            let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            // The test runner prints before the first line.
            if let Some((_, said)) = lines.find_map(|line| line.split_once(&word)) {
                return said.trim().to_owned();
            }
            assert!(!text.contains("\ntest result:"), "{:?} {}: {text}", self.host, self.pid);
            thread::sleep(LOOK_INTERVAL);
        }
    }

    pub fn address(&self) -> Address {
        self.hear("address").parse().unwrap()
    }

    pub fn signal(&self, name: &str) {
        self.host.run(&format!("kill -{name} {}", self.pid));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() {
            let said = fs::read_to_string(&self.output).unwrap_or_default();
            eprintln!("{:?} {}: {said}", self.host, self.pid);
        }
        // Mostly the process has ended by itself.
        let _ = self.host.try_run(&format!("kill -KILL {} 2>&1", self.pid));
    }
}

/// Prints a line for the process that has started this one.
pub fn say(word: &str, rest: impl Display) {
    println!("@{word} {rest}");
    std::io::stdout().flush().unwrap();
}

/// Ends this process if it still runs after this time, so that a hang is a failure and not a long
/// run.
pub struct Limit {
    what: String,
    begun: Instant,
    /// Waits until the process has ended.
    _is_there: Sender<()>,
}

impl Limit {
    pub fn new(what: &str, time: Duration) -> Self {
        let (is_there, gone) = channel();
        let what = what.to_owned();
        let name = what.clone();
        thread::spawn(move || {
            if gone.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{name}: hangs, for it is not over after {time:?}\ntest result: hang");
                std::process::exit(101);
            }
        });
        Limit { what, begun: Instant::now(), _is_there: is_there }
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        println!("{}: {:.1} s", self.what, self.begun.elapsed().as_secs_f64());
    }
}
