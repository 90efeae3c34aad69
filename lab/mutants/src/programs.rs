//! The programs of tests: which mutants their tests reach, and whether they notice one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A test has this long, and five times what it takes without a mutant.
const LIMIT: Duration = Duration::from_secs(10);
/// How long a program may take without a mutant.
const FIRST_LIMIT: Duration = Duration::from_secs(240);
/// How often is looked whether a program has ended.
const LOOK: Duration = Duration::from_millis(4);
/// Most tests that are asked by name in one run.
const NAMED_MAX: usize = 60;

/// A program of tests as cargo built it.
#[derive(Debug, Clone)]
pub struct Built {
    pub package: String,
    pub name: String,
    pub folder: PathBuf,
    pub file: PathBuf,
}

/// A program of tests that has run once without a mutant.
#[derive(Debug)]
pub struct Program {
    pub built: Built,
    /// Seconds of each test that passes.
    seconds: BTreeMap<String, f64>,
    /// Tests that fail without a mutant.
    pub failing: Vec<String>,
    /// The tests whose first thread reaches a mutant.
    by_test: BTreeMap<u32, BTreeSet<String>>,
    /// Mutants that other threads or processes reach.
    by_others: BTreeSet<u32>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Passed,
    Failed,
    TookTooLong,
}

impl Program {
    /// Runs all tests without a mutant. `scratch` is a folder for what they reach. None if the
    /// program is no list of tests or does not end.
    #[must_use]
    pub fn try_out(built: Built, scratch: &Path) -> Option<Self> {
        let _ = fs::remove_dir_all(scratch);
        fs::create_dir_all(scratch).ok()?;
        let mut command = command(&built);
        // Seconds per test are for those who ask for unstable options.
        command.args(["-Zunstable-options", "--report-time"]).env("RUSTC_BOOTSTRAP", "1");
        command.env("TAGMATCH_REACHED", scratch);
        let (ending, lines) = run(command, FIRST_LIMIT, false);
        let mut program = Program {
            built,
            seconds: BTreeMap::new(),
            failing: Vec::new(),
            by_test: BTreeMap::new(),
            by_others: BTreeSet::new(),
        };
        for line in &lines {
            let Some((name, result)) =
                line.strip_prefix("test ").and_then(|line| line.split_once(" ... "))
            else {
                continue;
            };
            if result.starts_with("ok") {
                let seconds = result
                    .split(['<', '>'])
                    .nth(1)
                    .and_then(|it| it.trim_end_matches('s').parse().ok());
                program.seconds.insert(name.into(), seconds.unwrap_or(1.0));
            } else if result.starts_with("FAILED") {
                program.failing.push(name.into());
            }
        }
        if ending == Ending::TookTooLong || program.seconds.is_empty() {
            return None;
        }
        program.read_reached(scratch);
        Some(program)
    }

    fn read_reached(&mut self, folder: &Path) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for text in entries.filter_map(|entry| fs::read_to_string(entry.path()).ok()) {
            for (number, name) in text.lines().filter_map(|line| line.split_once('\t')) {
                let Ok(number) = number.parse() else { continue };
                if self.seconds.contains_key(name) {
                    self.by_test.entry(number).or_default().insert(name.into());
                } else if !self.failing.iter().any(|failing| failing == name) {
                    self.by_others.insert(number);
                }
            }
        }
    }

    /// Whether a test reaches this mutant.
    #[must_use]
    pub fn reaches(&self, number: u32) -> bool {
        self.by_test.contains_key(&number) || self.by_others.contains(&number)
    }

    /// Asks the tests that reach this mutant by themselves: the quickest first.
    #[must_use]
    pub fn ask_named(&self, number: u32) -> Ending {
        let Some(names) = self.by_test.get(&number) else { return Ending::Passed };
        let mut names: Vec<(&str, f64)> =
            names.iter().map(|name| (name.as_str(), self.seconds[name])).collect();
        names.sort_by(|a, b| a.1.total_cmp(&b.1));
        names.truncate(NAMED_MAX);
        let mut command = command(&self.built);
        command.arg("--exact").args(names.iter().map(|(name, _)| name));
        self.ask(command, number, names.iter().map(|(_, seconds)| seconds).sum())
    }

    /// Asks all tests, if some reach this mutant that [`ask_named`](Self::ask_named) doesn't ask.
    #[must_use]
    pub fn ask_all(&self, number: u32) -> Ending {
        let is_asked = self.by_test.get(&number).is_none_or(|names| names.len() <= NAMED_MAX);
        if is_asked && !self.by_others.contains(&number) {
            return Ending::Passed;
        }
        let mut command = command(&self.built);
        command.arg("--exact");
        for name in &self.failing {
            command.args(["--skip", name]);
        }
        self.ask(command, number, self.seconds.values().sum())
    }

    fn ask(&self, mut command: Command, number: u32, seconds: f64) -> Ending {
        command.env("TAGMATCH_MUTANT", number.to_string());
        run(command, LIMIT + Duration::from_secs_f64(5.0 * seconds), true).0
    }
}

/// One thread more than the test needs, so that the test harness names the threads after the tests.
fn command(built: &Built) -> Command {
    let mut command = Command::new(&built.file);
    command.arg("--test-threads=2").current_dir(&built.folder);
    // As `.cargo/config.toml` sets it for programs that cargo runs.
    command.env("TAGMATCH_TEST_SAFETY_TIMERS", "off").env("RUST_BACKTRACE", "0");
    command.env("CARGO_MANIFEST_DIR", &built.folder);
    command
}

/// Runs a program to its end, or to the first test that fails, or for this long. Returns what it
/// printed. Ends all processes of its group.
fn run(mut command: Command, limit: Duration, ends_at_failure: bool) -> (Ending, Vec<String>) {
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return (Ending::Failed, Vec::new()) };
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
    let began = Instant::now();
    let ending = loop {
        if ends_at_failure && has_failed.load(Ordering::Relaxed) {
            break Ending::Failed;
        }
        match child.try_wait() {
            Ok(Some(status)) if status.success() => break Ending::Passed,
            Ok(None) if began.elapsed() < limit => thread::sleep(LOOK),
            Ok(None) => break Ending::TookTooLong,
            Ok(Some(_)) | Err(_) => break Ending::Failed,
        }
    };
    // The shell's own `kill` is there on every system.
    let mut shell = Command::new("sh");
    shell.args(["-c", "kill -KILL -- -$0", &child.id().to_string()]).stderr(Stdio::null());
    let _ = shell.status();
    let _ = child.wait();
    let lines = output.and_then(|output| output.join().ok()).unwrap_or_default();
    (ending, lines)
}
