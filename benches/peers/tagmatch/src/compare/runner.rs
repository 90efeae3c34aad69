//! Runs programs one after the other, and keeps the record of what they print.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, id};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::networks::Networks;
use super::options::{Options, Setup};
use super::plan::cases;
use super::programs::Programs;
use crate::case::Outcome;
use crate::report::Record;

/// The probe, which is a sample of the floor as well.
const PROBE: &str = "latency:8:exact:exact:0:500";
/// The text of a failure has so many characters at most.
const WHY_CHARS: usize = 200;

/// The process that runs now, 0 if none does: timeout(1), which passes a signal on to all that it
/// has started.
static RUNNING: AtomicI32 = AtomicI32::new(0);
static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

pub(super) struct Runner<'a> {
    setup: &'a Setup,
    programs: Programs,
    folder: Folder,
    /// All lines so far, and what they say.
    pub(super) text: String,
    pub(super) record: Record,
    /// They end after the last program.
    _networks: Option<Networks>,
}

/// A temporary folder, in memory where that is possible: it has the probes' cache lines.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Outcome<Self> {
        let name = format!("peers-{}", id());
        let places = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
        let folder = places.into_iter().map(|place| place.join(&name));
        let made = folder.map(|path| fs::create_dir(&path).map(|()| Folder(path)));
        let made = made.reduce(|first, second| first.or(second));
        Ok(made.ok_or("no folder for temporary files")??)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl<'a> Runner<'a> {
    /// Begins the record with the run's parameters and its plan.
    pub(super) fn new(options: &Options, setup: &'a Setup) -> Outcome<Self> {
        watch_signals()?;
        let networks = options.namespaces.then(Networks::new).transpose()?;
        let programs = Programs::new(setup, networks.as_ref().map(Networks::files))?;
        let mut runner = Runner {
            setup,
            programs,
            folder: Folder::new()?,
            text: String::new(),
            record: Record::default(),
            _networks: networks,
        };
        let lines = runner.folder.0.join("lines");
        runner.programs.variables.push(("PEERS_LINES", lines.into()));
        runner.describe(options)?;
        runner.plan()?;
        Ok(runner)
    }

    fn describe(&mut self, options: &Options) -> Outcome<()> {
        let first_line = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpu = first_line("/proc/cpuinfo");
        let cpu =
            cpu.lines().find_map(|line| Some(line.strip_prefix("model name")?.split_once(": ")?.1));
        let kernel = first_line("/proc/sys/kernel/osrelease");
        let load = first_line("/proc/loadavg");
        let load = load.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
        let [a, b] = self.setup.cores;
        let Setup { time_ms, enough, .. } = self.setup;
        let stat = options.stat.name();
        let transports = self.programs.variables.iter().find(|(name, _)| *name == "UCX_TLS");
        let transports = transports.map_or(String::new(), |(_, value)| value.display().to_string());
        self.push(&format!("run\tmachine\t{}, Linux {}", cpu.unwrap_or("?"), kernel.trim()))?;
        self.push(&format!("run\tcores\t{a} and {b}"))?;
        self.push(&format!(
            "run\tsamples\t{time_ms} ms each, {enough} of each case at each distance; {stat} of the \
             batches' means"
        ))?;
        self.push(&format!("run\tload\t{load} at the start"))?;
        self.push(&format!("run\tUCX_TLS\t{transports}"))
    }

    fn plan(&mut self) -> Outcome<()> {
        for group in &self.setup.groups {
            // Figures of memory hardly differ, and a job takes a second or two.
            let is_few = matches!(group.as_str(), "memory" | "ranks");
            let enough = self.setup.enough;
            let enough = if is_few { enough.div_ceil(2) } else { enough };
            for program in &self.setup.programs {
                let cases = cases(group, program).join("\t");
                if !cases.is_empty() {
                    self.push(&format!("plan\t{group}\t{program}\t{enough}\t{cases}"))?;
                }
            }
        }
        Ok(())
    }

    /// Adds a line to the record.
    pub(super) fn push(&mut self, line: &str) -> Outcome<()> {
        self.text += line;
        self.text.push('\n');
        self.record.push(line)
    }

    /// Notes that `program` isn't run for `group` any more ("all": for any group).
    pub(super) fn fail(&mut self, program: &str, group: &str, why: &str) -> Outcome<()> {
        self.push(&format!("failed\t{program}\t{group}\t{why}"))
    }

    /// Lets `program` measure all of its cases in `group`.
    pub(super) fn turn(&mut self, program: &str, group: &str) -> Outcome<()> {
        let cases = cases(group, program);
        if group != "ranks" {
            let printed = self.start(program, group, 2, &cases)?.0;
            return self.keep_results(program, group, &printed, None);
        }
        for case in cases {
            let ranks = case.split(':').nth(2).and_then(|ranks| ranks.parse().ok()).unwrap_or(2);
            let before = self.probe()?;
            let (printed, is_done) =
                self.start(program, group, ranks, std::slice::from_ref(&case))?;
            if !is_done {
                return Ok(());
            }
            let after = self.probe()?;
            self.keep_results(program, group, &printed, Some([before, after]))?;
        }
        Ok(())
    }

    /// The distance of this moment in ns, by the floor's program; NaN if it can't run. Its result
    /// is a sample, too.
    pub(super) fn probe(&mut self) -> Outcome<f64> {
        let group = if self.setup.groups[0] == "tcp" { "tcp" } else { "latency" };
        if self.record.is_failed("floor", group) {
            return Ok(f64::NAN);
        }
        let (printed, is_done) = self.start("floor", group, 2, &[PROBE.to_owned()])?;
        if !is_done {
            return Ok(f64::NAN);
        }
        self.keep_results("floor", group, &printed, None)?;
        Ok(self.record.samples.last().map_or(f64::NAN, |sample| sample.probes[1]))
    }

    /// Puts results into the record; with both distances, if the program has not probed by itself.
    fn keep_results(
        &mut self,
        program: &str,
        group: &str,
        printed: &str,
        probes: Option<[f64; 2]>,
    ) -> Outcome<()> {
        for line in printed.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            let ["result", case, min, p50, p90, batches, before, after] = words[..] else {
                continue;
            };
            let figures = [case, min, p50, p90, batches].join("\t");
            let probes = match probes {
                Some([before, after]) => format!("{before}\t{after}"),
                None => format!("{before}\t{after}"),
            };
            self.push(&format!("result\t{program}\t{group}\t{figures}\t{probes}"))?;
        }
        Ok(())
    }

    /// Runs so many processes of a program, and kills those that hang. What they have printed, and
    /// whether they ended well; otherwise the failure is in the record.
    fn start(
        &mut self,
        program: &str,
        group: &str,
        count: u32,
        cases: &[String],
    ) -> Outcome<(String, bool)> {
        check_interrupt()?;
        // Far more than any program needs, unless it hangs.
        let each = 1 + 5 * self.setup.time_ms / 1000;
        let limit = (30 + cases.len() as u64 * each).to_string();
        let [a, b] = self.setup.cores;
        let numbers = [a.to_string(), b.to_string(), self.setup.time_ms.to_string()];
        let place = |name: &str| self.folder.0.join(name);
        fs::write(place("lines"), [0; 4096])?;
        let mut child = Command::new("timeout")
            .args(["-k", "2", &limit])
            .args(self.programs.command(program, count)?)
            .args(numbers)
            .args(cases)
            .envs(self.programs.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(File::create(place("out"))?)
            .stderr(File::create(place("err"))?)
            .spawn()?;
        RUNNING.store(child.id().cast_signed(), Ordering::SeqCst);
        let status = child.wait()?;
        RUNNING.store(0, Ordering::SeqCst);
        check_interrupt()?;
        let printed = read(&place("out"));
        let version = printed.lines().find_map(|line| line.strip_prefix("version "));
        let is_new = !self.record.versions.iter().any(|(known, _)| known == program);
        if let Some(version) = version.filter(|_| is_new) {
            self.push(&format!("version\t{program}\t{version}"))?;
        }
        if status.success() {
            return Ok((printed, true));
        }
        let begun = printed.lines().filter_map(|line| line.strip_prefix("begin ")).next_back();
        let begun = begun.unwrap_or("its start");
        let why = match status.code() {
            Some(124 | 137) => format!("hung at {begun}: killed after {limit} s"),
            code => {
                let last_words = last_words(&read(&self.folder.0.join("err")));
                format!("status {} at {begun}: {last_words}", code.unwrap_or(-1))
            }
        };
        eprintln!("ci/peers: {program}, {group}: {why}");
        self.fail(program, group, &why)?;
        Ok((printed, false))
    }
}

fn check_interrupt() -> Outcome<()> {
    if IS_INTERRUPTED.load(Ordering::SeqCst) { Err("interrupted".into()) } else { Ok(()) }
}

/// On ^C, ends the program that runs; the run ends after it.
fn watch_signals() -> Outcome<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let watch = move || {
        for _ in &mut signals {
            IS_INTERRUPTED.store(true, Ordering::SeqCst);
            if let Some(process) = Pid::from_raw(RUNNING.load(Ordering::SeqCst)) {
                let _ = kill_process(process, Signal::TERM);
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(watch)?;
    Ok(())
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// The first line that looks like an error, otherwise the last line.
fn last_words(text: &str) -> String {
    let errors = ["error", "fail", "not ", "can't", "cannot", "unable", "wrong", "no "];
    let is_error = |line: &&str| {
        let line = line.to_lowercase();
        errors.iter().any(|word| line.contains(word))
    };
    let mut lines =
        text.lines().filter(|line| line.contains(|c: char| !c.is_whitespace() && c != '-'));
    let last = lines.clone().next_back();
    let line = lines.find(is_error).or(last).unwrap_or("nothing was printed");
    line.replace('\t', " ").chars().take(WHY_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_failure_is_the_line_that_looks_like_one() {
        assert_eq!(last_words(""), "nothing was printed");
        assert_eq!(last_words("hello\n-----\n"), "hello");
        assert_eq!(last_words("----\nstarted\nCan't open\tx\nbye\n"), "Can't open x");
    }
}
