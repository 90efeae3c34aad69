//! A message between two processes, tried in processes of their own: a library that ends its process on an
//! error (`ucs_fatal` of UCX) must not end ours.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::failure::Failure;
use crate::spec::DeviceArg;

/// Until a trial is given up. UCX itself gives up after half a minute, or never.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the trial's output is allowed after its end: what it started may outlive it.
const AFTERWARDS: Duration = Duration::from_millis(500);

/// How a large message travels over `device`, as [`measure::large_messages`](crate::measure::large_messages).
pub(crate) fn large_messages(device: &DeviceArg) -> Result<String, Failure> {
    let mut command = std::env::current_exe().map(Command::new).map_err(unstarted)?;
    command.args(["lat", "--sizes", "8", "--iters", "1", "--warmup", "0", "--json", "-"]);
    command.arg("--device").arg(device.to_string());
    // Alone, whatever job we are in.
    for variable in ["PMI_FD", "PMI_PORT", "PMIX_NAMESPACE"] {
        command.env_remove(variable);
    }
    run(command, PATIENCE).and_then(|printed| {
        // What a library prints beside it is not ours.
        let parsed = |line| serde_json::from_str::<Value>(line).ok();
        let document = printed.lines().rev().find_map(parsed);
        let how = document.and_then(|d| Some(d["config"]["large_messages"].as_str()?.into()));
        how.ok_or_else(|| Failure::Measurement("a trial printed no result".into()))
    })
}

/// What a command prints, if it ends well and in time.
fn run(mut command: Command, patience: Duration) -> Result<String, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own: what it has started ends with it.
    let mut child = command.process_group(0).spawn().map_err(unstarted)?;
    let printed = collect(child.stdout.take());
    let errors = collect(child.stderr.take());
    let ended = wait(&mut child, Instant::now() + patience);
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
    let text = |output: Receiver<Vec<u8>>| {
        String::from_utf8_lossy(&output.recv_timeout(AFTERWARDS).unwrap_or_default()).into_owned()
    };
    match ended {
        Some(status) if status.success() => Ok(text(printed)),
        Some(status) => Err(Failure::Measurement(cause(status, &text(errors)))),
        None => Err(Failure::Measurement(format!("nothing within {} s", patience.as_secs()))),
    }
}

fn unstarted(error: io::Error) -> Failure {
    Failure::Measurement(format!("cannot start a process to try it: {error}"))
}

/// All of an output, when it ends; read at once, so that nobody waits for room in a pipe.
fn collect(output: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut all = Vec::new();
        if let Some(mut output) = output {
            // What came before an error is of use.
            let _ = output.read_to_end(&mut all);
        }
        // Nobody may be waiting any more.
        let _ = sender.send(all);
    });
    receiver
}

/// How it ended, if it has by then.
fn wait(child: &mut Child, until: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            _ => return None,
        }
    }
}

/// Its own words, and the signal that ended it, if one did.
fn cause(status: ExitStatus, errors: &str) -> String {
    let words = errors.lines().find(|line| line.contains("Fatal") || line.contains("tagperf: "));
    let words = words.or_else(|| errors.lines().find(|line| !line.trim().is_empty()));
    let words = words.map(|line| line.trim().trim_start_matches("tagperf: "));
    match (status.signal(), words) {
        (Some(signal), Some(words)) => format!("the process was ended by signal {signal}: {words}"),
        (Some(signal), None) => format!("the process was ended by signal {signal}"),
        (None, Some(words)) => words.into(),
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<String, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(command, Duration::from_secs(1)).map_err(|failure| failure.to_string())
    }

    #[test]
    fn whatever_ends_a_trial_is_told() {
        assert_eq!(shell("echo yes").as_deref(), Ok("yes\n"));
        let aborted =
            "echo '[x] ud_ep.c:276  Fatal: it is over' >&2; echo 'more' >&2; kill -ABRT $$";
        let said = "tagperf: the process was ended by signal 6: [x] ud_ep.c:276  Fatal: it is over";
        assert_eq!(shell(aborted), Err(said.into()));
        assert_eq!(shell("kill -9 $$"), Err("tagperf: the process was ended by signal 9".into()));
        let refused = "echo; echo 'tagperf: no such device' >&2; exit 2";
        assert_eq!(shell(refused), Err("tagperf: no such device".into()));
        assert_eq!(shell("exit 3"), Err("tagperf: exit status: 3".into()));
        assert_eq!(shell("sleep 60"), Err("tagperf: nothing within 1 s".into()));
        // What outlives it neither keeps us nor keeps running: its pipe ends with it.
        assert_eq!(shell("sleep 60 & echo on").as_deref(), Ok("on\n"));
        // More than a pipe holds.
        let many = shell("yes | head -c 1000000; yes | head -c 1000000 >&2").unwrap();
        assert_eq!(many.len(), 1_000_000);
    }
}
