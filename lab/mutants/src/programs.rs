//! The programs of tests: which mutants their tests reach, and whether they notice one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::mem;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::run::{EndedRun, Ending, Limit, run};

/// A test has this long, and five times what it takes without a mutant.
const LIMIT: Duration = Duration::from_secs(10);
/// How long a program may take without a mutant.
const FIRST_LIMIT: Duration = Duration::from_secs(240);
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
    built: Built,
    /// Seconds of each test that passes.
    seconds: BTreeMap<String, f64>,
    /// Seconds of a program without a test harness, which passes or fails as a whole.
    whole: Option<f64>,
    /// Tests that fail without a mutant.
    pub failing: Vec<String>,
    /// The tests whose first thread reaches a mutant.
    by_test: BTreeMap<u32, BTreeSet<String>>,
    /// Mutants that other threads or processes reach.
    by_others: BTreeSet<u32>,
    /// Mutants that tests reach that fail without one.
    by_failing: BTreeSet<u32>,
}

impl Program {
    fn new(built: Built) -> Self {
        Program {
            built,
            seconds: BTreeMap::new(),
            whole: None,
            failing: Vec::new(),
            by_test: BTreeMap::new(),
            by_others: BTreeSet::new(),
            by_failing: BTreeSet::new(),
        }
    }

    /// Runs all tests without a mutant. `scratch` is a folder for what they reach. None if the
    /// program does not pass, for another reason than tests that fail.
    #[must_use]
    pub fn try_out(built: Built, scratch: &Path, deadline: Instant) -> Option<Self> {
        let mut program = Program::new(built);
        let _ = fs::remove_dir_all(scratch);
        fs::create_dir_all(scratch).ok()?;
        let mut processes = BTreeSet::new();
        let mut run = |mut command: Command| {
            command.env("TAGMATCH_REACHED", scratch);
            let ended = run(command, Limit { time: FIRST_LIMIT, deadline }, false);
            processes.insert(ended.process);
            ended
        };
        let EndedRun { ending, lines, .. } = run(program.timed_tests());
        if lines.iter().any(|line| is_head(line)) {
            program.read_results(&lines);
            let is_sound =
                ending == Ending::Passed || ending == Ending::Failed && !program.failing.is_empty();
            is_sound.then_some(())?;
        } else {
            let began = Instant::now();
            let ending = run(program.command()).ending;
            (ending == Ending::Passed).then_some(())?;
            program.whole = Some(began.elapsed().as_secs_f64());
        }
        if !program.failing.is_empty() {
            // A test that fails beside others may pass without them.
            let mut failing = mem::take(&mut program.failing);
            let mut command = program.timed_tests();
            command.arg("--exact").args(&failing);
            program.read_results(&run(command).lines);
            failing.retain(|name| !program.seconds.contains_key(name));
            program.failing = failing;
        }
        program.read_reached(scratch, &processes);
        Some(program)
    }

    /// The program of tests, which prints how long each test takes.
    fn timed_tests(&self) -> Command {
        let mut command = self.command();
        // Seconds per test are for those who ask for unstable options.
        command.args(["--test-threads=2", "-Zunstable-options", "--report-time"]);
        command.env("RUSTC_BOOTSTRAP", "1");
        command
    }

    fn read_results(&mut self, lines: &[String]) {
        for line in lines {
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
                self.seconds.insert(name.into(), seconds.unwrap_or(1.0));
            } else if result.starts_with("FAILED") {
                self.failing.push(name.into());
            }
        }
    }

    /// Each file of the folder is of one process. A process that a test has started may be the same
    /// program, with tests of the same names: what it reaches belongs to no test.
    fn read_reached(&mut self, folder: &Path, processes: &BTreeSet<u32>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(text) = fs::read_to_string(entry.path()) else { continue };
            let process = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let is_own = process.is_some_and(|process| processes.contains(&process));
            for (number, name) in text.lines().filter_map(|line| line.split_once('\t')) {
                let Ok(number) = number.parse() else { continue };
                if !is_own {
                    self.by_others.insert(number);
                } else if self.seconds.contains_key(name) {
                    self.by_test.entry(number).or_default().insert(name.into());
                } else if self.failing.iter().any(|failing| failing == name) {
                    self.by_failing.insert(number);
                } else {
                    self.by_others.insert(number);
                }
            }
        }
    }

    /// Whether a test reaches this mutant that passes without it.
    #[must_use]
    pub fn reaches(&self, number: u32) -> bool {
        self.by_test.contains_key(&number) || self.by_others.contains(&number)
    }

    /// Whether a test reaches this mutant that can't be asked, because it fails without one.
    #[must_use]
    pub fn fails_there(&self, number: u32) -> bool {
        self.by_failing.contains(&number)
    }

    /// Asks the tests that reach this mutant by themselves: the quickest first.
    #[must_use]
    pub fn ask_named(&self, number: u32, deadline: Instant) -> Ending {
        let Some(names) = self.by_test.get(&number) else { return Ending::Passed };
        let mut names: Vec<(&str, f64)> =
            names.iter().map(|name| (name.as_str(), self.seconds[name])).collect();
        names.sort_by(|a, b| a.1.total_cmp(&b.1));
        names.truncate(NAMED_MAX);
        let mut command = self.command();
        command.args(["--test-threads=2", "--exact"]).args(names.iter().map(|(name, _)| name));
        let seconds = names.iter().map(|(_, seconds)| seconds).sum();
        ask(command, number, limit(seconds, deadline))
    }

    /// Asks all tests, if some reach this mutant that [`ask_named`](Self::ask_named) doesn't ask.
    #[must_use]
    pub fn ask_all(&self, number: u32, deadline: Instant) -> Ending {
        let is_asked = self.by_test.get(&number).is_none_or(|names| names.len() <= NAMED_MAX);
        if is_asked && !self.by_others.contains(&number) {
            return Ending::Passed;
        }
        let mut command = self.command();
        if let Some(seconds) = self.whole {
            return ask(command, number, limit(seconds, deadline));
        }
        command.args(["--test-threads=2", "--exact"]);
        for name in &self.failing {
            command.args(["--skip", name]);
        }
        ask(command, number, limit(self.seconds.values().sum(), deadline))
    }

    /// The program as cargo runs it. Callers set two threads: with one, the test harness doesn't
    /// name threads after tests.
    fn command(&self) -> Command {
        let Built { package, folder, file, .. } = &self.built;
        let mut command = Command::new(file);
        command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
        // A test program that leaves something open fails (`hw/os/src/exit_audit.rs`).
        command.env("CARGO_PKG_NAME", package).env("RUST_BACKTRACE", "0");
        // No safety timer rescues a wake-up that a mutant has lost.
        command.env("TAGMATCH_TEST_SAFETY_TIMERS", "off");
        command
    }
}

/// Whether a line is the head of a list of tests.
fn is_head(line: &str) -> bool {
    line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test"))
}

fn limit(seconds: f64, deadline: Instant) -> Limit {
    Limit { time: LIMIT + Duration::from_secs_f64(5.0 * seconds), deadline }
}

fn ask(mut command: Command, number: u32, limit: Limit) -> Ending {
    command.env("TAGMATCH_MUTANT", number.to_string());
    run(command, limit, true).ending
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use super::{Built, Program};

    #[test]
    fn what_only_failing_tests_reach_is_not_reached() {
        let folder = env::temp_dir().join(format!("mutants-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("1"), "1\ta\n2\tb\n3\tb\n3\ta\n4\t-\n").unwrap();
        fs::write(folder.join("2"), "6\ta\n").unwrap();
        let file = folder.join("program");
        let built = Built { package: "p".into(), name: "n".into(), folder: folder.clone(), file };
        let mut program = Program::new(built);
        let lines = ["running 2 tests", "test a ... ok <0.5s>", "test b ... FAILED <0.1s>"];
        program.read_results(&lines.map(str::to_owned));
        program.read_reached(&folder, &[1].into());
        assert_eq!((program.seconds["a"], &program.failing[..]), (0.5, &["b".to_owned()][..]));
        assert_eq!([1, 2, 3, 4, 5].map(|n| program.reaches(n)), [true, false, true, true, false]);
        // A process of its own, with a test of this name.
        assert!(program.by_others.contains(&6));
        assert_eq!([1, 2, 3, 4].map(|n| program.fails_there(n)), [false, true, true, false]);
        fs::remove_dir_all(folder).unwrap();
    }
}
