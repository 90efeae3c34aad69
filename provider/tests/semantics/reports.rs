//! The report (`TAGMATCH_FI_REPORT`) of jobs whose ranks are killed: docs/provider.md.
//!
//! Each rank is a process of its own, which runs this program with the test `rank`. The ranks of a
//! job have one parent, as they would have a launcher.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::client::{Node, call};

const IS_RANK: &str = "TAGMATCH_TEST_RANK";

/// A rank, which has opened its endpoint.
struct Rank {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Rank {
    /// Starts a rank of a job of `size`. `variables`: what the launcher tells.
    fn start(rank: usize, size: usize, report: &str, variables: &[(&str, String)]) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "reports::rank", "--nocapture", "--test-threads=1"])
            .env(IS_RANK, "1")
            .env("TAGMATCH_FI_DEVICE", "shm")
            .env("TAGMATCH_FI_REPORT", report)
            .env("PMI_RANK", rank.to_string())
            .env("PMI_SIZE", size.to_string())
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("@opened") {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "the rank has opened nothing");
        }
        Rank { process, output }
    }

    /// Lets the rank end. Gives what it says on standard error.
    fn end(mut self) -> String {
        drop(self.process.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        let output = self.process.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }

    /// Files of the rank may have so many bytes from now on (`ulimit -f`).
    fn limit_files(&self, bytes: u64) {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        let process = self.process.id().cast_signed();
        // SAFETY: `limit` lives through the call, and the old limit isn't asked for.
        let answer = unsafe {
            libc::prlimit(process, libc::RLIMIT_FSIZE, &raw const limit, std::ptr::null_mut())
        };
        assert_eq!(answer, 0);
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Plays a rank: opens an endpoint, and ends when standard input does.
#[test]
fn rank() {
    if std::env::var_os(IS_RANK).is_none() {
        return;
    }
    let node = Node::new();
    println!("@opened");
    std::io::stdin().read_to_string(&mut String::new()).unwrap();
    node.close();
    // libfabric calls this when the process ends.
    call!(tagmatch_fi::fi_prov_ini(), cleanup());
}

/// The ranks of the rows, in order.
fn ranks(report: &str) -> Vec<usize> {
    let first = |line: &str| line.split_whitespace().next()?.parse().ok();
    let (_, table) =
        report.split_once("rank  host").unwrap_or_else(|| panic!("no table: {report}"));
    let rows = table.lines().skip(1).take_while(|line| !line.is_empty());
    rows.filter_map(first).collect()
}

/// What reports in shared memory are named.
fn left(job: &str) -> Vec<String> {
    let names = std::fs::read_dir("/dev/shm").unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("tagmatch-report") && name.contains(job)).collect()
}

/// A job's number that no other process uses now.
fn job(number: usize) -> Vec<(&'static str, String)> {
    let id = format!("{}x{number}", std::process::id());
    vec![("SLURM_JOB_ID", id), ("SLURM_STEP_ID", "0".into())]
}

#[test]
fn the_last_living_rank_prints_the_rows_of_all_that_ended_and_nothing_is_left() {
    let variables = job(1);
    let name = &variables[0].1;
    // All ranks open; one is killed before the last one ends, or after all others have ended.
    for is_killed_last in [false, true] {
        let mut jobs: Vec<Rank> =
            (0..3).map(|rank| Rank::start(rank, 3, "-", &variables)).collect();
        let last = jobs.pop().unwrap();
        let victim = jobs.pop().unwrap();
        let first = jobs.pop().unwrap().end();
        assert!(!first.contains("tagmatch report"), "{first}");
        if is_killed_last {
            let report = last.end();
            assert!(!report.contains("tagmatch report"), "{report}");
            victim.kill();
        } else {
            victim.kill();
            assert_eq!(ranks(&last.end()), [0, 2]);
        }
        assert_eq!(left(name), Vec::<String>::new());
    }
    // A rank dies before all have opened their endpoints.
    let victim = Rank::start(0, 2, "-", &variables);
    victim.kill();
    let report = Rank::start(1, 2, "-", &variables).end();
    assert_eq!(ranks(&report), [1]);
    assert_eq!(left(name), Vec::<String>::new());
}

#[test]
fn a_later_step_of_a_job_does_not_take_rows_of_an_earlier_one() {
    let path = std::env::temp_dir().join(format!("tagmatch-steps-{}", std::process::id()));
    let mut variables = job(2);
    for report in ["-", path.to_str().unwrap()] {
        for step in 0..2 {
            variables[1].1 = step.to_string();
            let zero = Rank::start(0, 2, report, &variables);
            let one = Rank::start(1, 2, report, &variables);
            // One rank of each step leaves no row.
            let words = if step == 0 {
                zero.kill();
                one.end()
            } else {
                one.kill();
                zero.end()
            };
            let text = if report == "-" { words } else { std::fs::read_to_string(&path).unwrap() };
            assert_eq!(ranks(&text), [1 - step], "{text}");
        }
    }
    std::fs::remove_file(path).unwrap();
    assert_eq!(left(&variables[0].1), Vec::<String>::new());
}

#[test]
fn a_launcher_that_names_no_job_may_start_another_one_with_the_same_report() {
    let path = std::env::temp_dir().join(format!("tagmatch-jobs-{}", std::process::id()));
    let start = |rank| Rank::start(rank, 2, path.to_str().unwrap(), &[]);
    let zero = start(0);
    let one = start(1);
    zero.kill();
    one.end();
    // The first job's row has time to be older than the second job.
    std::thread::sleep(std::time::Duration::from_millis(50));
    let zero = start(0);
    let one = start(1);
    zero.end();
    assert_eq!(ranks(&std::fs::read_to_string(&path).unwrap()), [0]);
    one.end();
    assert_eq!(ranks(&std::fs::read_to_string(&path).unwrap()), [0, 1]);
    std::fs::remove_file(path).unwrap();
}

/// Writing beyond the limit would raise SIGXFSZ, which ends a process that doesn't expect it.
#[test]
fn a_limit_on_files_leaves_the_report_as_it_is_and_is_said() {
    let path = std::env::temp_dir().join(format!("tagmatch-report-{}-limit", std::process::id()));
    std::fs::write(&path, "as it was").unwrap();
    let rank = Rank::start(0, 1, path.to_str().unwrap(), &[]);
    rank.limit_files(16);
    let words = rank.end();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(text, "as it was");
    assert!(words.contains("File too large"), "{words}");
}
