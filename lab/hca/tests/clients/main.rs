//! A ConnectX in software under unmodified clients, without a guest: libibverbs' own commands,
//! perftest, rdma-core's tests, UCX, our verbs device, the public API and tagperf, with matching in
//! software and by the NIC's list; the end of each process of the command.
//!
//! They need Debian's clients, and programs of other crates: `ci/test hca`, with `--ignored`.

mod commands;
mod denied;
mod devices;
mod ends;
mod faults;
mod knobs;
mod matching;
mod rdma_core;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tagmatch_testkit::scratch::Scratch;

/// The command.
const HCA: &str = env!("CARGO_BIN_EXE_tagmatch-hca");
/// A folder with test programs of other crates, by the names of their files.
const PROGRAMS: &str = "TAGMATCH_TEST_PROGRAMS";
/// The server and the client of a command, as their manuals say, at a port of their own. The client
/// begins when the server listens.
const BOTH: &str = r#"port=$(shuf -n 1 -i 20000-29999)
    "$@" -p $port > /dev/null 2>&1 &
    for try in $(seq 100); do
        grep -qE ":$(printf %04X $port) [0-9A-F:]+ 0A " /proc/net/tcp /proc/net/tcp6 && break
        sleep 0.05
    done
    "$@" -p $port localhost; status=$?; wait; exit $status"#;

/// A program of this workspace that is built beside the command.
fn built(program: &str) -> String {
    let path = Path::new(HCA).parent().unwrap().join(program);
    assert!(path.exists(), "{} is not built", path.display());
    path.display().to_string()
}

fn tagperf() -> String {
    built("tagperf")
}

/// A test program of another crate.
fn program(name: &str) -> String {
    let folder = std::env::var_os(PROGRAMS).map(PathBuf::from).expect(PROGRAMS);
    folder.join(name).display().to_string()
}

/// The words of a command line, none of which has a space.
fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// The words of a command whose server and client both run.
fn both(line: &str) -> Vec<String> {
    let shell = ["sh", "-c", BOTH, "both"].map(str::to_owned);
    [shell.to_vec(), words(line)].concat()
}

/// A program with arguments.
fn with(program: &str, args: &str) -> Vec<String> {
    [vec![program.to_owned()], words(args)].concat()
}

/// A script for a shell, with arguments.
fn script(script: &str, args: &[&str]) -> Vec<String> {
    let shell = ["sh", "-c", script, "script"];
    shell.iter().chain(args).map(|word| (*word).to_owned()).collect()
}

/// A command that gets SIGTERM after so many seconds. Then its status is 124.
fn limited(seconds: u32, words: &[String]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &seconds.to_string()]).args(words).stdin(Stdio::null());
    command
}

/// The words that run a command inside, with options of the command.
fn inside(options: &str, command: &[String]) -> Vec<String> {
    let hca = with(HCA, options);
    [hca, vec!["--".to_owned()], command.to_vec()].concat()
}

/// How a command has ended, and all that it has printed.
#[derive(Debug)]
struct Ended {
    status: Option<i32>,
    text: String,
    report: String,
}

impl Ended {
    fn of(output: &Output) -> Self {
        let [out, err] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
        let text = format!("{out}{err}");
        Ended { status: output.status.code(), text, report: String::new() }
    }

    #[track_caller]
    fn succeeded(self) -> Self {
        assert_eq!(self.status, Some(0), "{}", self.text);
        self
    }

    #[track_caller]
    fn failed(self) -> Self {
        assert_ne!(self.status, Some(0), "{}", self.text);
        assert_ne!(self.status, Some(124), "it hangs: {}", self.text);
        self
    }

    #[track_caller]
    fn tells(self, what: &str) -> Self {
        assert!(self.text.contains(what), "lacks `{what}`: {}", self.text);
        self
    }

    /// The sum of a field of the report over all processes.
    #[track_caller]
    fn count(&self, field: &str) -> u64 {
        let field = format!("\"{field}\":");
        let lines = self.report.lines().filter_map(|line| line.trim().strip_prefix(&field));
        lines.map(|value| value.trim().trim_end_matches(',').parse::<u64>().unwrap()).sum()
    }

    /// Checks that at least so many tests have passed.
    #[track_caller]
    fn passed(self, least: u64) -> Self {
        let passed = self.text.lines().rev().find_map(|line| {
            line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse::<u64>().ok()
        });
        let passed = passed.unwrap_or(0);
        assert!(passed >= least, "{passed} tests, not {least}: {}", self.text);
        self
    }
}

/// Runs a command inside, for a minute at most.
fn run(options: &str, command: &[String]) -> Ended {
    Ended::of(&limited(60, &inside(options, command)).output().unwrap())
}

/// Runs a command inside, which succeeds, and keeps what the NIC reports.
#[track_caller]
fn reported(options: &str, command: &[String]) -> Ended {
    let scratch = Scratch::new("report");
    let report = scratch.path("report");
    let output = limited(240, &inside(&format!("--report {report} {options}"), command)).output();
    let mut ended = Ended::of(&output.unwrap()).succeeded();
    ended.report = std::fs::read_to_string(&report).unwrap_or_default();
    ended
}

/// The words of a command as an ordinary user, for tests that root runs.
fn ordinary() -> Vec<String> {
    if rustix::process::geteuid().is_root() {
        words("setpriv --reuid 65534 --regid 65534 --clear-groups")
    } else {
        Vec::new()
    }
}

/// Copies of programs where every user reaches them.
fn reachable(test: &str, programs: &[&str]) -> Scratch {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = Scratch::new(test);
    for program in programs {
        let name = Path::new(program).file_name().unwrap();
        std::fs::copy(program, scratch.join(name)).unwrap();
    }
    std::fs::set_permissions(&*scratch, std::fs::Permissions::from_mode(0o755)).unwrap();
    scratch
}
