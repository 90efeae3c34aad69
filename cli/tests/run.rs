//! `tagperf run`, and tagperf as ranks of a job, under its own launcher and under foreign ones.

#[path = "common/agents.rs"]
mod agents;
mod common;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tagmatch_testkit::process::{Signal, send_signal};
use tagmatch_testkit::scratch::Scratch;

use agents::{HERE, Place, are_gone};
use common::{
    children, command, eventually, guardian, kill, lives, outliving, refused, tagperf, text,
};

const TAGPERF: &str = env!("CARGO_BIN_EXE_tagperf");

fn status(args: &str) -> Option<i32> {
    tagperf(args).status.code()
}

#[test]
fn every_rank_is_started_and_labelled() {
    let output = command("run -n 3 --label -- sh -c")
        .arg("echo $PMI_RANK of $PMI_SIZE; echo x >&2")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let mut lines: Vec<_> = text(&output.stdout).lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] 0 of 3", "[1] 1 of 3", "[2] 2 of 3"]);
    assert_eq!(text(&output.stderr).lines().count(), 3);
}

#[test]
fn the_exit_status_is_of_the_first_that_failed() {
    assert_eq!(status("run -n 2 -- true"), Some(0));
    assert_eq!(status("run -n 2 -- false"), Some(1));
    let script = |script: &str| command("run -n 2 -- sh -c").arg(script).output().unwrap();
    let output = script("[ $PMI_RANK = 0 ] || exit 7; sleep 600");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(text(&output.stderr), "tagperf run: rank 1 exited with status 7\n");
    let output = script("[ $PMI_RANK = 0 ] || kill -KILL $$; sleep 600");
    assert_eq!(output.status.code(), Some(137));
    assert!(refused("run -n 2 -- /nonexistent").contains("cannot start /nonexistent"));
    assert!(refused("run -n 0 -- true").contains("'0'"));
    refused("run -n 2");
}

#[test]
fn standard_input_is_of_rank_0() {
    let mut run = command("run -n 2 -- cat");
    let file = std::fs::File::open("/proc/self/comm").unwrap();
    let output = run.stdin(file).output().unwrap();
    assert_eq!(text(&output.stdout).lines().count(), 1);
}

#[test]
fn no_other_rank_takes_from_the_input_of_rank_0() {
    let scratch = Scratch::new("input");
    // Rank 0 reads when rank 1 has read all that there is for it, and says how much that was.
    let script = "if [ $PMI_RANK = 1 ]; then wc -c > $0.new; mv $0.new $0; \
        else while [ ! -e $0 ]; do sleep 0.01; done; cat $0 -; fi";
    let mut run = command("run -n 2 -- sh -c");
    let run = run.arg(script).arg(scratch.path("read"));
    let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    run.stdin.take().unwrap().write_all(b"all of this\n").unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "0\nall of this\n");
}

#[test]
fn a_second_request_to_end_kills_what_ignores_the_first() {
    let mut launcher = command("run -n 2 -- sh -c");
    let launcher = launcher.arg("trap '' TERM; exec sleep 600").stderr(Stdio::null());
    let mut launcher = launcher.spawn().unwrap();
    let ranks = ranks(launcher.id(), 2);
    let is_sleep = |rank: &u32| {
        std::fs::read_to_string(format!("/proc/{rank}/comm")).is_ok_and(|c| c == "sleep\n")
    };
    assert!(eventually(|| ranks.iter().all(is_sleep)));
    send_signal(launcher.id(), Signal::TERM);
    // Longer than the time in which signals are one request.
    std::thread::sleep(Duration::from_millis(700));
    assert!(ranks.iter().all(|rank| lives(*rank)), "they ignore the first");
    send_signal(launcher.id(), Signal::TERM);
    let ended = eventually(|| launcher.try_wait().unwrap().is_some());
    if !ended {
        kill(launcher.id());
    }
    assert!(ended, "the second request ends nothing");
    assert!(!ranks.iter().any(|rank| lives(*rank)));
}

/// The launcher's processes, when there are `count`.
fn ranks(launcher: u32, count: usize) -> Vec<u32> {
    let guardian = guardian(launcher);
    assert!(eventually(|| children(guardian).len() == count));
    children(guardian)
}

/// Ranks that start processes, in their process groups and in sessions of their own, and leave
/// their numbers in the folder.
const FAMILY: &str = "sleep 600 & one=$!; setsid sleep 600 & two=$!
    echo $$ $one $two > $0/$PMI_RANK.new; mv $0/$PMI_RANK.new $0/$PMI_RANK; wait";

#[test]
fn what_ranks_have_started_ends_with_either_process_of_the_launcher() {
    for killed in ["front", "guardian"] {
        for hosts in ["", "--hosts one,two"] {
            let place = Place::new(&format!("family-{killed}-{}", hosts.len()), HERE);
            let mut run = match hosts {
                "" => command("run -n 2"),
                hosts => place.run(&format!("-n 2 {hosts}")),
            };
            let run = run.args(["--", "sh", "-c", FAMILY]).arg(&*place.0).stderr(Stdio::null());
            let mut run = run.spawn().unwrap();
            let files = [0, 1].map(|rank| place.0.join(rank.to_string()));
            assert!(eventually(|| files.iter().all(|file| file.exists())), "{killed} {hosts}");
            let text = files.map(|file| std::fs::read_to_string(file).unwrap()).concat();
            let pids: Vec<u32> = text.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
            assert!(pids.len() == 6 && pids.iter().all(|&pid| lives(pid)));
            let guardian = guardian(run.id());
            kill(if killed == "front" { run.id() } else { guardian });
            let code = run.wait().unwrap().code();
            assert_eq!(code, if killed == "front" { None } else { Some(137) });
            assert!(are_gone(&[&pids[..], &[guardian]].concat()), "{killed} {hosts}");
        }
    }
}

#[test]
fn what_a_helper_has_started_ends_with_either_process_of_the_helper() {
    for is_front in [true, false] {
        let place = Place::new(&format!("helper-{is_front}"), HERE);
        let mut run = place.run("-n 2 --hosts one,two");
        let run = run.args(["--", "sh", "-c", FAMILY]).arg(&*place.0);
        let mut run = run.stderr(Stdio::null()).spawn().unwrap();
        let files = [0, 1].map(|rank| place.0.join(rank.to_string()));
        assert!(eventually(|| files.iter().all(|file| file.exists())));
        let text = files.map(|file| std::fs::read_to_string(file).unwrap()).concat();
        let pids: Vec<u32> = text.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        // The agent becomes the shell, and that the front of the helper.
        let front = children(guardian(run.id()))[0];
        kill(if is_front { front } else { guardian(front) });
        // The launcher hears of the lost machine, or first that a rank there was killed.
        let code = run.wait().unwrap().code();
        assert!(matches!(code, Some(1 | 137)), "{is_front}: {code:?}");
        assert!(are_gone(&pids[..5]), "{is_front}");
        // The other machine's job ends in order, which a process of another session outlives; if
        // it doesn't in its time, all processes are killed.
        if lives(pids[5]) {
            kill(pids[5]);
        }
    }
}

/// With few descriptors a rank can't make its worker, each number fails another call; with 18 it
/// can't connect to its neighbours. Without an end at each rank, some would wait for ranks that
/// know of a failure.
#[test]
fn each_rank_without_descriptors_for_its_job_ends_and_names_the_limit() {
    for (limit, ranks) in (8..16).map(|limit| (limit, 3)).chain([(18, 12)]) {
        let mut run = command(&format!("run -n {ranks} --keep-going -- sh -c"));
        let line = format!("ulimit -n {limit}; exec $0 barrier --duration 100ms");
        let output = run.arg(line).arg(TAGPERF).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let message = text(&output.stderr);
        assert_eq!(message.matches("exited with status 1").count(), ranks, "{limit}: {message}");
        let named = |line: &str| line.matches("RLIMIT_NOFILE, ulimit -n").count();
        assert!(message.lines().any(|line| named(line) == 1), "{limit}: {message}");
        let is_right = |line: &str| !line.contains("os error 24") || named(line) == 1;
        assert!(message.lines().all(is_right), "{limit}: {message}");
    }
}

#[test]
fn a_launcher_without_descriptors_names_the_limit() {
    let mut limited = Command::new("sh");
    let limited = limited.args(["-c", "ulimit -n 10; exec $0 run -n 2 true"]).arg(TAGPERF);
    let output = limited.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error_text = text(&output.stderr);
    assert!(error_text.contains("os error 24") && error_text.contains("ulimit -n"), "{error_text}");
}

/// Each rank sends to all others.
#[test]
fn a_rank_needs_no_descriptors_for_each_other_rank() {
    let mut run = command("run -n 40 -- sh -c");
    let run = run
        .arg("ulimit -n 64; exec $0 alltoall --sizes 8 --duration 10ms --by-messages")
        .arg(TAGPERF);
    let output = run.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// The launcher itself takes two descriptors a rank.
#[test]
fn a_soft_limit_on_descriptors_is_no_limit_on_ranks() {
    let script = "ulimit -Sn 32; exec $0 run -n 40 -- sh -c 'ulimit -Sn; ulimit -Hn'";
    let output = Command::new("sh").args(["-c", script, TAGPERF]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    let limits: Vec<u64> = stdout.lines().filter_map(|line| line.trim().parse().ok()).collect();
    let least = limits.iter().min();
    let most = limits.iter().max();
    assert_eq!((limits.len(), *least.unwrap()), (80, (*most.unwrap()).min(1 << 16)), "{stdout}");
}

#[test]
fn the_guardian_leaves_no_zombies_of_processes_that_it_has_inherited() {
    let mut run = command("run -n 2 -- sh -c");
    let script = "for i in 1 2 3 4 5; do sh -c 'setsid sleep 0.1 &'; done; exec sleep 600";
    let mut run = run.arg(script).spawn().unwrap();
    let guardian = guardian(run.id());
    let names = || -> Vec<String> {
        let name = |pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        children(guardian).into_iter().map(name).collect()
    };
    assert!(eventually(|| names() == ["sleep\n", "sleep\n"]), "{:?}", names());
    send_signal(run.id(), Signal::TERM);
    assert_eq!(run.wait().unwrap().code(), Some(143));
}

#[test]
fn signals_are_handed_on_and_nothing_outlives_the_launcher() {
    for (signal, code) in
        [(Signal::INT, Some(130)), (Signal::TERM, Some(143)), (Signal::KILL, None)]
    {
        let mut launcher = command("run -n 2 -- sleep 600").stderr(Stdio::null()).spawn().unwrap();
        let ranks = ranks(launcher.id(), 2);
        let is_sleep = |rank: &u32| {
            std::fs::read_to_string(format!("/proc/{rank}/comm")).is_ok_and(|c| c == "sleep\n")
        };
        assert!(eventually(|| ranks.iter().all(is_sleep)));
        send_signal(launcher.id(), signal);
        assert_eq!(launcher.wait().unwrap().code(), code, "{signal:?}");
        assert!(eventually(|| !ranks.iter().any(|&rank| lives(rank))), "{signal:?}");
    }
}

fn check_lat(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output_text = text(&output.stdout);
    assert!(output_text.contains("rank 1 of a launched job"), "{output_text}");
    assert_eq!(output_text.matches("# other side").count(), 1, "one rank speaks: {output_text}");
}

#[test]
fn two_ranks_measure_between_each_other() {
    let lat = format!("{TAGPERF} lat --sizes 8 --iters 50 --pin none");
    check_lat(&tagperf(&format!("run -n 2 -- {lat}")));
    let alone = tagperf(&format!("run -n 1 -- {lat}"));
    assert!(text(&alone.stdout).contains("a second process here"), "{}", text(&alone.stderr));
    let three = tagperf(&format!("run -n 3 -- {lat}"));
    assert_eq!(three.status.code(), Some(2));
    assert!(text(&three.stderr).contains("of 3: two processes measure; use -n 2"));
}

#[test]
fn processes_of_a_step_without_a_pmi_are_told_what_to_type() {
    for test in ["lat --sizes 8 --iters 5", "barrier -n 2 --iters 5"] {
        let mut step = command(test);
        let output = step.env("SLURM_STEP_NUM_TASKS", "4").env("SLURM_STEP_ID", "0");
        let output = output.output().unwrap();
        assert_ne!(output.status.code(), Some(0), "{test}");
        let message = text(&output.stderr);
        assert!(
            message.contains("--mpi=pmi2") && message.contains("TAGMATCH_ALONE"),
            "{test}: {message}"
        );
        let alone = step.env("TAGMATCH_ALONE", "1").output().unwrap();
        assert_eq!(alone.status.code(), Some(0), "{test}: {}", text(&alone.stderr));
        // The shell of `salloc`.
        let mut shell = command(test);
        let shell = shell.env("SLURM_STEP_NUM_TASKS", "4").env("SLURM_STEP_ID", "4294967290");
        assert_eq!(shell.output().unwrap().status.code(), Some(0), "{test}");
    }
}

fn example(name: &str) -> PathBuf {
    PathBuf::from(TAGPERF).with_file_name("examples").join(name)
}

#[test]
#[ignore = "needs mpich and openmpi: ci/test launch"]
fn three_launchers_start_the_same_example() {
    let own = format!("{TAGPERF} run -n 4 --");
    for (launcher, protocol) in [
        (&*own, "PMI-1"),
        ("mpiexec.hydra -n 4", "PMI-1"),
        ("mpiexec.hydra -pmi-port -n 4", "PMI-1"),
        ("mpirun -n 4 --oversubscribe --allow-run-as-root", "PMIx"),
    ] {
        let mut words = launcher.split(' ');
        let mut run = Command::new(words.next().unwrap());
        let output =
            run.args(words).arg(example("launched")).stdin(Stdio::null()).output().unwrap();
        let stdout = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{launcher}: {}", text(&output.stderr));
        let line = format!("4 ranks by {protocol}: 2 over the even ones, 6 over all\n");
        assert!(stdout.starts_with(&line), "{launcher}: {stdout}");
    }
}

#[test]
#[ignore = "needs mpich and openmpi: ci/test launch"]
fn under_three_launchers_ranks_that_share_a_processor_give_way_at_once() {
    let processors = two_processors();
    let own = format!("{TAGPERF} run -n 2 --");
    let openmpi = "mpirun -n 2 --oversubscribe --bind-to none --allow-run-as-root";
    for launcher in [&*own, "mpiexec.hydra -n 2", openmpi] {
        for (allowed, polls) in [(&processors[..1], 4), (&processors[..2], 8192)] {
            let mut run = Command::new("taskset");
            run.args(["-c", &allowed.join(",")]).args(launcher.split(' '));
            let output = run.arg(example("launched")).stdin(Stdio::null()).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{launcher}: {}", text(&output.stderr));
            let line = format!("blocking calls yield after {polls} polls\n");
            let output_text = text(&output.stdout);
            assert!(output_text.ends_with(&line), "{launcher} on {allowed:?}: {output_text}");
        }
    }
}

/// The first two processors that this process may use.
fn two_processors() -> [String; 2] {
    let output = Command::new("sh").args(["-c", "taskset -cp $$"]).output().unwrap();
    let output_text = text(&output.stdout);
    let list = output_text.rsplit(' ').next().unwrap().trim();
    let each = list.split(',').flat_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse::<u32>().unwrap()..=last.parse().unwrap()
    });
    let mut first_two = each.take(2).map(|processor| processor.to_string());
    [(); 2].map(|()| first_two.next().expect("two processors"))
}

#[test]
#[ignore = "needs mpich and openmpi: ci/test launch"]
fn under_three_launchers_a_job_starts_another_and_both_are_one() {
    let own = format!("{TAGPERF} run -n 2 --");
    let openmpi = "mpirun -n 2 --oversubscribe --allow-run-as-root";
    for launcher in [&*own, "mpiexec.hydra -n 2", openmpi] {
        let mut words = launcher.split(' ');
        let mut run = Command::new(words.next().unwrap());
        let output = run.args(words).arg(example("spawned")).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{launcher}: {}", text(&output.stderr));
        let expected = "2 ranks have started 3; the ranks of all make 10\n";
        assert_eq!(text(&output.stdout), expected, "{launcher}: {}", text(&output.stderr));
    }
}

#[test]
fn the_page_shows_the_example_as_it_is() {
    let example = include_str!("../../comm/examples/survivors.rs");
    let (_, program) = example.split_once("\n\n").unwrap();
    let shown = format!("```rust,ignore\n{program}```\n");
    let page = include_str!("../../docs/communicators.md");
    assert!(page.contains(&shown), "docs/communicators.md must show:\n{shown}");
}

/// The launchers' options are those of docs/communicators.md. Without them launchers end a job when
/// one of its processes is killed.
#[test]
#[ignore = "needs mpich and openmpi: ci/test launch"]
fn three_launchers_start_an_example_that_outlives_a_rank() {
    let survivors = example("survivors").display().to_string();
    let through_a_shell = outliving(&survivors);
    let mut own = command("run -n 4 --keep-going --");
    own.arg(&survivors);
    let mut mpich = Command::new("mpiexec.hydra");
    mpich.args(["-n", "4", "-disable-auto-cleanup", "bash", "-c", &through_a_shell]);
    let mut openmpi = Command::new("mpirun");
    openmpi.args("-n 4 --oversubscribe --allow-run-as-root --enable-recovery".split(' '));
    openmpi.arg(&survivors);
    let alone = Command::new(&survivors).stdin(Stdio::null()).output().unwrap();
    assert_eq!(alone.status.code(), Some(1), "without a launcher");
    assert!(text(&alone.stderr).contains("start it as 4 ranks"), "{}", text(&alone.stderr));
    // Our own launcher's exit status says that a process was killed.
    for (mut run, status) in [(own, 137), (mpich, 0), (openmpi, 0)] {
        let output = run.stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{run:?}: {}", text(&output.stderr));
        let expected_line = "3 of 4 go on; together they received 6000 bytes\n";
        assert_eq!(text(&output.stdout), expected_line, "{run:?}: {}", text(&output.stderr));
    }
}

#[test]
#[ignore = "needs mpich and openmpi: ci/test launch"]
fn foreign_launchers_start_both_sides() {
    for launcher in ["mpiexec.hydra -n 2", "mpirun -n 2 --oversubscribe --allow-run-as-root"] {
        let mut words = launcher.split(' ');
        let mut run = Command::new(words.next().unwrap());
        let lat = ["lat", "--sizes", "8", "--iters", "50"];
        let run = run.args(words).arg(TAGPERF).args(lat).stdin(Stdio::null());
        // Open MPI binds each rank to a core, and gives it a terminal of its own for standard
        // output.
        let output = run.env("TERM", "xterm").output().unwrap();
        check_lat(&output);
        let stdout = text(&output.stdout);
        let cpus = stdout.lines().find_map(|line| line.strip_prefix("# pinning     CPU "));
        let cpus = cpus.and_then(|stdout| stdout.split_once(" there")?.0.split_once(" here, CPU "));
        assert!(cpus.is_some_and(|(here, there)| here != there), "{launcher}: {stdout}");
        assert!(
            !stdout.contains("processes: figures depend on the scheduler"),
            "{launcher}: {stdout}"
        );
        assert!(!stdout.contains('\u{1b}'), "{launcher}: {stdout}");
    }
}
