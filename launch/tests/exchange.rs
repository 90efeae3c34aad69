//! Exchanges of real processes, some of which are killed or stopped meanwhile, or give nonsense.
//! Each process is this test program, started with a role in its environment.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, thread};

use rustix::process::{Signal, getpid, kill_process};
use tagmatch_launch::launcher::{self, Failure, Launch};
use tagmatch_launch::pmi1::Pmi1;
use tagmatch_launch::wire::{from_hex, to_hex};
use tagmatch_launch::{Error, Job, Launcher};
use tagmatch_os::exit_audit;

const ROLE: &str = "TAGMATCH_LAUNCH_TEST_ROLE";
/// What distinguishes runs in one role: a moment, or a kind of nonsense.
const TURN: &str = "TAGMATCH_LAUNCH_TEST_TURN";
/// The process that is killed or stopped, or gives nonsense.
const WHO: &str = "TAGMATCH_LAUNCH_TEST_WHO";
/// Runs one job at a time: the environment belongs to the whole process.
static ONE: Mutex<()> = Mutex::new(());

fn words(role: &str, turn: u64, who: u32) -> Vec<OsString> {
    let variables = [format!("{ROLE}={role}"), format!("{TURN}={turn}"), format!("{WHO}={who}")];
    let mut words: Vec<OsString> = vec!["env".into()];
    words.extend(variables.map(OsString::from));
    words.push(env::current_exe().unwrap().into());
    words.extend(["--exact", "role", "--nocapture"].map(OsString::from));
    words
}

/// Runs a job under our launcher; all processes go on when one dies. Returns who has failed.
fn run(role: &str, turn: u64, who: u32, size: u32) -> Vec<(u32, Failure)> {
    exit_audit::begin();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let launch = Launch::new(words(role, turn, who), size).label(true).keep_going(true);
    let mut failures = Vec::new();
    let told = |member: launcher::Member, failure: &Failure| {
        failures.push((member.rank, failure.clone()));
    };
    launcher::run(&launch, told).unwrap();
    failures
}

fn number(name: &str) -> u64 {
    env::var(name).unwrap().parse().unwrap()
}

/// Plays the role that the environment names, if it names one.
#[test]
fn role() {
    let Ok(role) = env::var(ROLE) else { return };
    let who = u32::try_from(number(WHO)).unwrap();
    match &*role {
        "lie" => return lie(number(TURN), who),
        "killed" | "stopped" | "stopped and killed" => return trouble(&role, who),
        _ => {}
    }
    let mut job = Job::join().unwrap();
    match &*role {
        "exchange" => exchange(&mut job),
        "exchange without the dead" => {
            job.exchange(&own(job.rank(), 0)).unwrap();
            if job.rank() == who {
                kill_this_process();
            }
            wait_for_death(&mut job, who);
            let ended = job.exchange(&own(job.rank(), 1));
            let error = ended.map(|all| all.len()).unwrap_err();
            println!("@told {error}");
        }
        other => panic!("no role {other}"),
    }
    job.leave().unwrap();
}

fn own(rank: u32, round: usize) -> Vec<u8> {
    let length = [20, 0, 5000, 64][round % 4] + rank as usize % 3;
    [&rank.to_le_bytes()[..], &vec![7; length]].concat()
}

fn all(size: u32, round: usize) -> Vec<Vec<u8>> {
    (0..size).map(|rank| own(rank, round)).collect()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn exchange(job: &mut Job) {
    let before = descriptors();
    for round in 0..6 {
        let got = job.exchange(&own(job.rank(), round)).unwrap();
        assert_eq!(got, all(job.size(), round));
        assert_eq!(descriptors(), before, "a board is closed with its exchange");
    }
    println!("@exchanged");
}

fn kill_this_process() -> ! {
    kill_process(getpid(), Signal::KILL).unwrap();
    loop {
        thread::sleep(Duration::from_secs(600));
    }
}

fn wait_for_death(job: &mut Job, who: u32) {
    // With PMIx the kernel tells about this machine's processes, and nobody about others.
    let until = Instant::now() + Duration::from_millis(300);
    while !job.dead().unwrap().contains(&who) {
        if job.launcher() == Launcher::Pmix && Instant::now() > until {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// One of the processes is killed or stopped at some moment of many exchanges.
fn trouble(role: &str, who: u32) {
    let mut job = Job::join().unwrap();
    job.barrier().unwrap();
    if job.rank() == who {
        let pid = getpid();
        let moment = Duration::from_micros(number(TURN));
        let signal = if role == "stopped" { "CONT" } else { "KILL" };
        let later = format!("sleep 0.05; kill -{signal} {}", pid.as_raw_nonzero());
        let role = role.to_owned();
        thread::spawn(move || {
            thread::sleep(moment);
            if role == "killed" {
                kill_this_process();
            }
            let mut sleeper = Command::new("sh").args(["-c", &later]).spawn().unwrap();
            kill_process(pid, Signal::STOP).unwrap();
            sleeper.wait().unwrap();
        });
    }
    let mut is_dead = false;
    for round in 0..40 {
        match job.exchange(&own(job.rank(), round)) {
            Ok(got) => assert!(got == all(job.size(), round) && !is_dead),
            Err(Error::Dead { rank }) if rank == who && role != "stopped" => is_dead = true,
            Err(other) => panic!("{other}"),
        }
    }
    while job.rank() == who && role != "stopped" {
        thread::sleep(Duration::from_secs(600));
    }
    assert!(
        is_dead || role == "stopped" || job.dead().unwrap() == [who] || {
            // The process dies after all exchanges.
            job.barrier().unwrap();
            job.dead().unwrap() == [who]
        }
    );
    job.leave().unwrap();
}

/// One process speaks PMI-1 itself, and gives nonsense; the others exchange.
fn lie(kind: u64, who: u32) {
    let rank: u32 = env::var("PMI_RANK").unwrap().parse().unwrap();
    if rank != who {
        let mut job = Job::join().unwrap();
        let error = job.exchange(&own(job.rank(), 0)).map(|all| all.len()).unwrap_err();
        let is_told = matches!(error, Error::Garbled { rank, .. } if rank == who);
        assert!(is_told, "{kind}: {error}");
        return job.leave().unwrap();
    }
    let mut pmi = Pmi1::from_env().unwrap().unwrap();
    let pipe = std::io::pipe().unwrap();
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&pipe.0);
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let space = fs::read_link("/proc/self/ns/pid").unwrap();
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let started = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap();
    let pid = std::process::id();
    let boot = boot.trim();
    let place = format!("{boot} {} {pid} {started} {descriptor}", space.display());
    let places = ["zz".to_owned(), "00".to_owned(), to_hex(place.as_bytes())];
    if let Some(place) = places.get(usize::try_from(kind).unwrap()) {
        pmi.put(&format!("tagmatch-0-{who}-board"), place).unwrap();
    }
    pmi.barrier().unwrap();
    if kind == 5 {
        scribble(&mut pmi);
    }
    pmi.barrier().unwrap();
    if kind == 4 {
        pmi.put(&format!("tagmatch-0-{who}-0"), "00000003ffffff").unwrap();
    }
    pmi.barrier().unwrap();
    pmi.barrier().unwrap();
    pmi.finalize().unwrap();
}

/// Fills the leader's board with ones, but for where the other processes have written or will
/// write.
fn scribble(pmi: &mut Pmi1) {
    let place = pmi.get("tagmatch-0-0-board").unwrap().unwrap();
    let place = String::from_utf8(from_hex(&place).unwrap()).unwrap();
    let words: Vec<&str> = place.split(' ').collect();
    let path = format!("/proc/{}/fd/{}", words[2], words[4]);
    let board = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let record = (4096 + (64 << 10)) as u64;
    board.write_all_at(&[0xff; 4096], (1 + u64::from(pmi.rank())) * record).unwrap();
}

#[test]
fn the_processes_of_a_machine_exchange() {
    for size in [1, 2, 7, 48] {
        assert_eq!(run("exchange", 0, 0, size), [], "{size}");
    }
}

#[test]
fn a_process_that_is_killed_at_any_moment_is_told_to_all() {
    let turns = (0..24).map(|turn| turn * 400);
    for (turn, who) in turns.zip([0, 3, 7].into_iter().cycle()) {
        assert_eq!(run("killed", turn, who, 8), [(who, Failure::Killed(9))], "{turn}");
    }
}

#[test]
fn a_process_that_is_stopped_holds_up_the_others_until_it_goes_on_or_is_killed() {
    let turns = (0..8).map(|turn| turn * 1000);
    for (turn, who) in turns.zip([0, 3].into_iter().cycle()) {
        assert_eq!(run("stopped", turn, who, 4), [], "{turn}");
        let killed = [(who, Failure::Killed(9))];
        assert_eq!(run("stopped and killed", turn, who, 4), killed, "{turn}");
    }
}

#[test]
fn a_process_that_gives_nonsense_is_told_to_all() {
    for kind in 0..5 {
        assert_eq!(run("lie", kind, 0, 4), [], "a leader, {kind}");
    }
    for kind in [3, 5] {
        assert_eq!(run("lie", kind, 2, 4), [], "another process, {kind}");
    }
}

/// Runs a job under another launcher; returns what it has printed.
fn foreign(launcher: &str, role: &str, who: u32) -> String {
    let mut launcher = launcher.split(' ');
    let mut run = Command::new(launcher.next().unwrap());
    run.args(launcher).args(words(role, 0, who)).stdin(Stdio::null());
    let output = run.output().unwrap();
    [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
}

#[test]
#[ignore = "needs mpich and openmpi: ci/test launch"]
fn processes_of_foreign_launchers_exchange() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for launcher in [
        "mpiexec.hydra -n 33",
        "mpiexec.hydra -pmi-port -n 5",
        "mpirun -n 33 --oversubscribe --allow-run-as-root",
    ] {
        let reply = foreign(launcher, "exchange", 0);
        let count = launcher.split(' ').find_map(|word| word.parse::<usize>().ok()).unwrap();
        assert_eq!(reply.matches("@exchanged").count(), count, "{launcher}: {reply}");
    }
}

#[test]
#[ignore = "needs openmpi: ci/test launch"]
fn an_exchange_after_a_death_is_an_error_with_open_mpi() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for who in [0, 1] {
        let launcher = "mpirun -n 3 --oversubscribe --allow-run-as-root --enable-recovery";
        let answer_line = foreign(launcher, "exchange without the dead", who);
        let told = format!("@told process {who} of the job has died");
        assert_eq!(answer_line.matches(&told).count(), 2, "{answer_line}");
    }
}

#[test]
#[ignore = "needs slurm: ci/test launch"]
fn processes_of_slurm_exchange_on_one_node_and_on_two() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for mpi in ["pmi2", "pmix"] {
        for step in ["--nodes=1", "--nodes=2", "--nodes=2 --distribution=cyclic"] {
            let launcher = format!("srun --overcommit --ntasks=9 --mpi={mpi} {step}");
            let answer_line = foreign(&launcher, "exchange", 0);
            assert_eq!(answer_line.matches("@exchanged").count(), 9, "{launcher}: {answer_line}");
        }
    }
}

/// Slurm ends the step about a second after a death that its PMIx server has seen. Until then, an
/// exchange says that something has ended, on the node of the death with the rank.
#[test]
#[ignore = "needs slurm: ci/test launch"]
fn an_exchange_after_a_death_is_an_error_with_pmix_of_slurm() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for nodes in [1, 2] {
        let launcher = "srun --overcommit --ntasks=4 --mpi=pmix --kill-on-bad-exit=0";
        let launcher = format!("{launcher} --nodes={nodes}");
        let answer_line = foreign(&launcher, "exchange without the dead", 1);
        let told = answer_line.matches("@told process 1 of the job has died").count();
        assert!(told >= 4 / nodes - 1, "{nodes} nodes: {answer_line}");
        assert!(!answer_line.contains("@exchanged"), "{answer_line}");
    }
}
