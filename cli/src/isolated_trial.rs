//! A trial message between two other processes: a library that ends its process on an error
//! (`ucs_fatal` of UCX) must not end this one.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::failure::Failure;
use crate::spec::DeviceArg;

/// The time limit of a trial. UCX itself gives up after half a minute, or never.
const PATIENCE: Duration = Duration::from_secs(20);

/// The time to wait for the output after the end of the trial. Processes that it started may hold
/// the pipe open.
const AFTERWARDS: Duration = Duration::from_millis(500);

/// How a large message travels over `device`, as
/// [`measure::large_messages`](crate::measure::large_messages).
pub(crate) fn large_messages(device: &DeviceArg) -> Result<String, Failure> {
    let mut command = std::env::current_exe().map(Command::new).map_err(unstarted)?;
    command.args(["lat", "--sizes", "8", "--iters", "1", "--warmup", "0", "--json", "-"]);
    command.arg("--device").arg(device.to_string());
    // Outside of any job that this process is in.
    for variable in ["PMI_FD", "PMI_PORT", "PMIX_NAMESPACE"] {
        command.env_remove(variable);
    }
    command.env("TAGMATCH_ALONE", "1");
    run(command, PATIENCE).and_then(|printed| {
        // A library may print other lines.
        let parsed = |line| serde_json::from_str::<Value>(line).ok();
        let document = printed.lines().rev().find_map(parsed);
        let how = document.and_then(|d| Some(d["config"]["large_messages"].as_str()?.into()));
        how.ok_or_else(|| Failure::Measurement("a trial printed no result".into()))
    })
}

/// The output of a command that succeeds in time.
fn run(mut command: Command, patience: Duration) -> Result<String, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // In a process group of its own, so that all processes that it starts end with it.
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
    Failure::system("start a process to try it", &error)
}

/// Reads an output to its end on a thread, so that the process never waits for room in a pipe.
fn collect(output: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut all = Vec::new();
        if let Some(mut output) = output {
            // Bytes before an error are of use.
            let _ = output.read_to_end(&mut all);
        }
        // The receiver may have been dropped.
        let _ = sender.send(all);
    });
    receiver
}

/// The exit status; `None` if the process has not ended in time.
fn wait(child: &mut Child, until: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            _ => return None,
        }
    }
}

/// The reason of a failure: the process' own words, and the signal that ended it.
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
        // A process that outlives the trial is killed, and its pipe is not waited for.
        assert_eq!(shell("sleep 60 & echo on").as_deref(), Ok("on\n"));
        // More than a pipe has room for.
        let many = shell("yes | head -c 1000000; yes | head -c 1000000 >&2").unwrap();
        assert_eq!(many.len(), 1_000_000);
    }
}
