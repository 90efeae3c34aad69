//! Runs a program with a time limit.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often is looked whether a program has ended.
const LOOK: Duration = Duration::from_millis(4);

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Passed,
    Failed,
    TookTooLong,
    /// The deadline was before the end of the time that the program has.
    OutOfTime,
}

/// How long a program may run.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// The time that the program has.
    pub time: Duration,
    /// When the whole run is over.
    pub deadline: Instant,
}

/// A run that has ended.
#[derive(Debug, PartialEq, Eq)]
pub struct EndedRun {
    pub ending: Ending,
    /// What the program printed.
    pub lines: Vec<String>,
    /// The number of the program's process.
    pub process: u32,
}

impl EndedRun {
    fn without_process(ending: Ending) -> Self {
        EndedRun { ending, lines: Vec::new(), process: 0 }
    }
}

/// Runs a program to its end, or to the first test that fails if `ends_at_failure`, or to the
/// limit. Ends all processes of its group.
pub fn run(mut command: Command, limit: Limit, ends_at_failure: bool) -> EndedRun {
    let began = Instant::now();
    if began >= limit.deadline {
        return EndedRun::without_process(Ending::OutOfTime);
    }
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return EndedRun::without_process(Ending::Failed) };
    let process = child.id();
    let has_failed = Arc::new(AtomicBool::new(false));
    let output = child.stdout.take().map(|output| {
        let has_failed = Arc::clone(&has_failed);
        thread::spawn(move || {
            let mut lines = Vec::new();
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if line.starts_with("test ") && line.contains(" ... FAILED") {
                    has_failed.store(true, Ordering::Relaxed);
                }
                lines.push(line);
            }
            lines
        })
    });
    let ending = loop {
        if ends_at_failure && has_failed.load(Ordering::Relaxed) {
            break Ending::Failed;
        }
        match child.try_wait() {
            Ok(Some(status)) if status.success() => break Ending::Passed,
            Ok(Some(_)) | Err(_) => break Ending::Failed,
            Ok(None) if began.elapsed() >= limit.time => break Ending::TookTooLong,
            Ok(None) if Instant::now() >= limit.deadline => break Ending::OutOfTime,
            Ok(None) => thread::sleep(LOOK),
        }
    };
    // The shell's own `kill` is there on every system.
    let mut shell = Command::new("sh");
    shell.args(["-c", "kill -s KILL -- -$0", &process.to_string()]).stderr(Stdio::null());
    let _ = shell.status();
    let _ = child.wait();
    let lines = output.and_then(|output| output.join().ok()).unwrap_or_default();
    EndedRun { ending, lines, process }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::{Ending, Limit, run};

    const LONG: Duration = Duration::from_secs(100);
    const SHORT: Duration = Duration::from_millis(10);

    fn shell(script: &str, time: Duration, left: Duration) -> (Ending, Vec<String>) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let ended = run(command, Limit { time, deadline: Instant::now() + left }, true);
        (ended.ending, ended.lines)
    }

    #[test]
    fn a_program_ends_by_itself_or_at_its_limit() {
        assert_eq!(shell("echo a", LONG, LONG), (Ending::Passed, vec!["a".to_owned()]));
        assert_eq!(shell("exit 1", LONG, LONG).0, Ending::Failed);
        assert_eq!(shell("sleep 100", SHORT, LONG).0, Ending::TookTooLong);
        assert_eq!(shell("sleep 100", LONG, SHORT).0, Ending::OutOfTime);
        assert_eq!(shell("echo a", LONG, Duration::ZERO), (Ending::OutOfTime, Vec::new()));
    }

    #[test]
    fn a_program_ends_at_the_first_test_that_fails() {
        assert_eq!(shell("echo test a ... FAILED; sleep 100", LONG, LONG).0, Ending::Failed);
    }
}
