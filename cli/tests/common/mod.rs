//! Running the real command.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tagmatch_secret::{Greeting, ProofEnd, Role, Secret};
use tagmatch_testkit::process::{Signal, send_signal};

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

/// The process that runs the jobs of a `tagperf run`: the one process that this one has started.
pub(crate) fn guardian(run: u32) -> u32 {
    assert!(eventually(|| children(run).len() == 1));
    children(run)[0]
}

pub(crate) fn kill(pid: u32) {
    send_signal(pid, Signal::KILL);
}

/// A `tagperf serve` on a port of its own.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) port: u16,
    /// The secret that it has made and printed.
    pub(crate) secret: String,
    log: BufReader<ChildStderr>,
}

impl Server {
    pub(crate) fn start(args: &str) -> Self {
        let mut child = command(&format!("serve --port 0 {args}"))
            .env_remove("TAGMATCH_SECRET")
            .env_remove("TAGMATCH_SECRET_FILE")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let [first, next] = [(); 2].map(|()| lines.next().unwrap());
        let address = first.strip_prefix("tagperf serve: listening on 127.0.0.1:");
        let (port, _) = address.and_then(|rest| rest.split_once(';')).unwrap();
        let secret = next.strip_prefix("next: TAGMATCH_SECRET=").unwrap();
        let (secret, _) = secret.split_once(' ').unwrap();
        let (port, secret) = (port.parse().unwrap(), secret.to_owned());
        let log = BufReader::new(child.stderr.take().unwrap());
        Self { child, port, secret, log }
    }

    /// The next line that it logs.
    pub(crate) fn logged(&mut self) -> String {
        let mut line = String::new();
        self.log.read_line(&mut line).unwrap();
        line
    }

    pub(crate) fn client(&self, args: &str) -> Output {
        self.client_command(args).output().unwrap()
    }

    pub(crate) fn client_command(&self, args: &str) -> Command {
        let (test, rest) = args.split_once(' ').unwrap_or((args, ""));
        let mut command = command(&format!("{test} 127.0.0.1:{} {rest}", self.port));
        command.env("TAGMATCH_SECRET", &self.secret);
        command
    }

    /// A connection that has proved to know the secret.
    pub(crate) fn proved(&self) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let own = *b"\x01tagperf0123456789abcdef";
        stream.write_all(&own).unwrap();
        let mut theirs = [0; 24];
        stream.read_exact(&mut theirs).unwrap();
        let [caller, listener] = [&own, &theirs]
            .map(|hello| ProofEnd { nonce: hello.last_chunk().unwrap(), address: b"" });
        let greeting = Greeting { protocol: b"tagperf control 1", caller, listener };
        let secret = Secret::from_bytes(self.secret.as_bytes()).unwrap();
        stream.write_all(&greeting.proof(&secret, Role::Caller)).unwrap();
        stream.read_exact(&mut [0; 32]).unwrap();
        stream
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
