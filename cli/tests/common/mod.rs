//! Running the real command.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

pub(crate) fn command(args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tagperf"));
    command.args(args.split_whitespace()).stdin(Stdio::null());
    command
}

pub(crate) fn tagperf(args: &str) -> Output {
    command(args).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The one line of JSON that `args` print, and nothing else.
pub(crate) fn json(args: &str) -> Value {
    let output = tagperf(args);
    assert_eq!(text(&output.stderr), "", "{args}");
    assert_eq!(output.status.code(), Some(0), "{args}");
    let line = text(&output.stdout);
    assert!(line.ends_with('\n') && line.lines().count() == 1, "{args}: {line}");
    serde_json::from_str(line).unwrap()
}

/// Bad usage: status 2, one line on standard error that says what would be right.
pub(crate) fn refused(args: &str) -> String {
    let output = tagperf(args);
    assert_eq!(output.status.code(), Some(2), "{args}: {}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "", "{args}");
    assert_eq!(text(&output.stderr).lines().count(), 1, "{args}");
    text(&output.stderr).trim_end().to_owned()
}

/// Waits for `done`; false if it does not come to be.
pub(crate) fn eventually(mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Children of a process, whichever of its threads started them, by the kernel's word.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.map(|task| std::fs::read_to_string(task.path().join("children")));
    let lists: Vec<_> = lists.map(Result::unwrap_or_default).collect();
    lists.iter().flat_map(|list| list.split_whitespace()).map(|pid| pid.parse().unwrap()).collect()
}

/// Whether a process is there and not a zombie.
pub(crate) fn lives(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z')
}

pub(crate) fn kill(pid: u32) {
    let status = Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

/// A `tagperf serve` on a port of its own.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) port: u16,
    log: BufReader<ChildStderr>,
}

impl Server {
    pub(crate) fn start(args: &str) -> Self {
        let mut child = command(&format!("serve --port 0 {args}"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("tagperf serve: listening on 127.0.0.1:");
        let port = address.unwrap_or_else(|| panic!("{line}")).parse().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        Self { child, port, log }
    }

    /// The next line that it logs.
    pub(crate) fn logged(&mut self) -> String {
        let mut line = String::new();
        self.log.read_line(&mut line).unwrap();
        line
    }

    pub(crate) fn client(&self, args: &str) -> Output {
        let (test, rest) = args.split_once(' ').unwrap_or((args, ""));
        tagperf(&format!("{test} 127.0.0.1:{} {rest}", self.port))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A script for bash, as in docs/communicators.md: under MPICH's launcher it keeps the other ranks
/// running when its own rank is killed.
pub(crate) fn outliving(rank: &str) -> String {
    format!("trap '' USR1; {rank} & exec {{PMI_FD}}>&-; wait $! || exit 0")
}
