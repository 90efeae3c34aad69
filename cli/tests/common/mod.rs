//! Running the real command.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
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

/// A command with this secret in its environment, or none.
pub(crate) fn with_secret(secret: Option<&str>, args: &str) -> Command {
    let mut command = command(args);
    command.env_remove("TAGMATCH_SECRET").env_remove("TAGMATCH_SECRET_FILE");
    command.envs(secret.map(|secret| ("TAGMATCH_SECRET", secret)));
    command
}

/// Lets one test run at a time. All processes of a measurement spin, so several measurements on few
/// cores would each wait for the scheduler.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The output of a command that has `input` on its standard input, and succeeds.
pub(crate) fn fed(args: &str, input: &str) -> Output {
    let mut command = command(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    output
}

/// The JSON that a successful command has printed.
pub(crate) fn printed(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Each test in each of its ways, which every device runs.
pub(crate) const OVER_EACH_DEVICE: [&str; 13] = [
    "bw --sizes 8,64K",
    "bibw --sizes 8,64K",
    "bw --sizes 8,64K --completions queue",
    "bibw --sizes 8,64K --completions queue",
    "rate",
    "lat --sizes 8 --posted-depth 64 --unexpected-depth 64 --wildcard 50",
    "lat --sizes 8 --wildcard-recv",
    "lat --sizes 8 --idle-peers 3",
    "depth --queue posted --depths 64 --wildcard 50",
    "depth --drain --depths 64 --order random",
    "rate --threads 2",
    "lat --sizes 8 --threads 2",
    "bw --sizes 8 --single-buffer",
];

/// Tests for devices that match by themselves, beside those of [`OVER_EACH_DEVICE`].
pub(crate) const WHERE_THE_DEVICE_MATCHES: [&str; 4] = [
    "lat --sizes 0,8,1K,64K,1M",
    "depth --drain --depths 64 --order adversarial",
    "lat --sizes 8 --hw-tags auto",
    "rate --self",
];

/// A measurement of at least `iters` a row on `device`, checked as far as all of them are alike.
pub(crate) fn measured(args: &str, device: &str, iters: u64) -> Value {
    let document = json(args);
    assert_eq!(document["device"], device, "{args}");
    assert_eq!(document["validated"], !args.contains("--single-buffer"), "{args}");
    let results = document["results"].as_array().unwrap();
    assert!(!results.is_empty(), "{args}");
    for row in results {
        assert!(row["iters"].as_u64() >= Some(iters), "{args}: {row}");
    }
    document
}

/// Receives matched in hardware, posted and unexpected; every posted one has its reason.
pub(crate) fn matched(document: &Value) -> [u64; 3] {
    let count = |value: &Value| value.as_u64().unwrap();
    let matching = &document["matching"];
    let reasons: u64 = matching["not_offloaded"].as_object().unwrap().values().map(count).sum();
    assert_eq!(reasons, count(&matching["posted"]), "{matching}");
    for fault in ["list_faults", "bugs"] {
        assert!(matching.get(fault).is_none(), "{matching}");
    }
    ["hardware", "posted", "unexpected"].map(|name| count(&matching[name]))
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

/// Bad usage: status 2, one line on standard error that says what is expected.
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

/// A `tagperf serve`.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) port: u16,
    /// The line that it prints for the client: with its secret if it has made one.
    pub(crate) next: String,
    log: BufReader<ChildStderr>,
}

impl Server {
    /// One on a port of its own, with a secret of its own.
    pub(crate) fn start(args: &str) -> Self {
        Self::of(with_secret(None, &format!("serve --port 0 {args}")))
    }

    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let [first, next] = [(); 2].map(|()| lines.next().unwrap());
        let address = first.strip_prefix("tagperf serve: listening on ").unwrap();
        let (address, _) = address.split_once(';').unwrap();
        let port = address.rsplit(':').next().unwrap().parse().unwrap();
        let next = next.strip_prefix("next: ").unwrap().to_owned();
        let log = BufReader::new(child.stderr.take().unwrap());
        Self { child, port, next, log }
    }

    /// The secret that it has made and printed.
    pub(crate) fn secret(&self) -> &str {
        let secret = self.next.strip_prefix("TAGMATCH_SECRET=").unwrap();
        secret.split_once(' ').unwrap().0
    }

    /// All that it has logged since. Ends the server.
    pub(crate) fn log(mut self) -> String {
        let _ = self.child.kill();
        let mut log = String::new();
        self.log.read_to_string(&mut log).unwrap();
        log
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
        command.env("TAGMATCH_SECRET", self.secret());
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
        let secret = Secret::from_bytes(self.secret().as_bytes()).unwrap();
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
