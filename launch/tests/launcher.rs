//! Jobs of real processes. Each process is this test program, started with a role in its
//! environment.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{env, fs, process, thread};

use rustix::process::{Signal, getpid, kill_process};
use tagmatch_launch::launcher::{self, Failure, Hosts, Launch, LaunchError};
use tagmatch_launch::{Error, Job, Launcher};
use tagmatch_os::exit_audit;

const ROLE: &str = "TAGMATCH_LAUNCH_TEST_ROLE";
/// Runs one job at a time: the environment belongs to the whole process.
static ONE: Mutex<()> = Mutex::new(());

fn start(role: &str, size: u32, keep_going: bool) -> (Option<(u32, Failure)>, Vec<u32>) {
    exit_audit::begin();
    let program = env::current_exe().unwrap().into_os_string();
    let role = OsString::from(format!("{ROLE}={role}"));
    let mut words = vec!["env".into(), role, program];
    words.extend(["--exact", "role", "--nocapture"].map(OsString::from));
    let launch = Launch::new(words, size).label(true).keep_going(keep_going);
    let mut told = Vec::new();
    let first = launcher::run(&launch, |member, _| told.push(member.rank)).unwrap();
    (first.map(|(member, failure)| (member.rank, failure)), told)
}

/// Runs a job on machines of these names, which all are this one: the agent ignores the name.
fn start_on(machines: &[&str], role: &str, size: u32) -> Option<(u32, Failure)> {
    exit_audit::begin();
    let program = env::current_exe().unwrap().into_os_string();
    let as_role = |role: &str| {
        let role = OsString::from(format!("{ROLE}={role}"));
        let words = ["--exact", "role", "--nocapture"].map(OsString::from);
        [["env".into(), role, program.clone()], words].concat()
    };
    let agent = ["sh", "-c", "exec sh -c \"$2\"", "agent"].map(OsString::from).into();
    let hosts = Hosts {
        hosts: machines.iter().map(|name| name.parse().unwrap()).collect(),
        per_host: None,
        agent: Some(agent),
        helper: as_role("help").join(OsStr::new(" ")),
    };
    let launch = Launch::new(as_role(role), size);
    let first = launcher::run_on(&launch, Some(&hosts), |_, _| {}).unwrap();
    first.map(|(member, failure)| (member.rank, failure))
}

/// Plays the role that the environment names, if it names one.
#[test]
fn role() {
    let Ok(role) = env::var(ROLE) else { return };
    if role == "help" {
        launcher::help().unwrap();
        // What a test harness prints at its end is for no launcher.
        process::exit(0);
    }
    if role == "join" {
        return println!("@{}", Job::join().unwrap_err());
    }
    let mut job = Job::join().unwrap();
    if role == "find the dead" {
        return find_the_dead(job);
    }
    if role == "agree on a secret" {
        return agree_on_a_secret(job);
    }
    assert_eq!(job.launcher(), Launcher::Pmi1);
    assert!(matches!(Job::join(), Err(Error::JoinedBefore)));
    let rank = job.rank();
    match &*role {
        "exchange" => exchange(&mut job),
        "find a secret" => {
            let secret = env::var("TAGMATCH_SECRET").unwrap();
            assert_eq!(job.secret().unwrap().unwrap().expose(), secret.as_bytes());
            let all = job.exchange(secret.as_bytes()).unwrap();
            assert!(all.iter().all(|one| one == secret.as_bytes()));
        }
        "find another secret than rank 0" => {
            let told = job.secret().map_err(|error| error.to_string());
            let is_told = matches!(&told, Err(why) if why.contains("process 1 has a secret"));
            assert_eq!(is_told, rank == 1, "{told:?}");
            job.barrier().unwrap();
        }
        "survive" => {
            survive(&mut job);
            return job.leave().unwrap();
        }
        _ if rank != 1 => thread::sleep(Duration::from_secs(600)),
        "exit" => process::exit(3),
        "leave early" => process::exit(0),
        "abort" => job.abort(7),
        other => panic!("no role {other}"),
    }
    job.leave().unwrap();
}

fn exchange(job: &mut Job) {
    for round in 0..3usize {
        let of = |rank: u32| vec![u8::try_from(rank).unwrap(); round * 3000 + rank as usize];
        let all = job.exchange(&of(job.rank())).unwrap();
        assert_eq!(all, (0..job.size()).map(of).collect::<Vec<_>>());
    }
    job.barrier().unwrap();
    assert_eq!(job.dead().unwrap(), []);
}

/// The environment has no secret: rank 0 makes it, and the others get it.
fn agree_on_a_secret(mut job: Job) {
    assert!(env::var_os("TAGMATCH_SECRET").is_none());
    let secret = job.secret().unwrap().unwrap();
    assert_eq!(secret.expose().len(), 64);
    assert_eq!(
        job.secret().unwrap().unwrap().expose(),
        secret.expose(),
        "the same when asked again"
    );
    let all = job.exchange(secret.expose()).unwrap();
    assert!(all.iter().all(|one| one == secret.expose()));
    println!("@agreed");
    job.leave().unwrap();
}

fn kill_this_process() {
    kill_process(getpid(), Signal::KILL).unwrap();
    thread::sleep(Duration::from_secs(600));
}

/// Rank 1 is killed. The others ask until they know of it.
fn find_the_dead(mut job: Job) {
    assert_eq!(job.launcher(), Launcher::Pmix);
    assert_eq!(job.dead().unwrap(), []);
    job.exchange(b"x").unwrap();
    if job.rank() == 1 {
        kill_this_process();
    }
    // Another process may have found out, left and ended before.
    while !job.dead().unwrap().contains(&1) {
        thread::sleep(Duration::from_millis(1));
    }
    println!("@found");
    job.leave().unwrap();
}

/// Rank 1 is killed, rank 2 exits. The others go on, and find out.
fn survive(job: &mut Job) {
    job.barrier().unwrap();
    match job.rank() {
        1 => kill_this_process(),
        2 => process::exit(5),
        _ => {}
    }
    job.barrier().unwrap();
    assert_eq!(job.dead().unwrap(), [1, 2]);
    assert!(matches!(job.exchange(b"x"), Err(Error::Dead { rank: 1 })));
}

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn processes_exchange_data_longer_than_a_line() {
    let _one = alone();
    assert_eq!(start("exchange", 4, false), (None, vec![]));
}

/// Writing beyond the limit would end a process by SIGXFSZ.
#[test]
fn processes_that_may_write_no_long_files_exchange_without_shared_memory() {
    let _one = alone();
    let program = env::current_exe().unwrap();
    let script =
        format!("ulimit -f 1; {ROLE}=exchange exec {} --exact role --nocapture", program.display());
    let command = ["sh", "-c", &script].map(OsString::from).into();
    assert_eq!(launcher::run(&Launch::new(command, 4), |_, _| {}).unwrap(), None);
}

#[test]
fn processes_of_one_machine_get_no_secret_and_agree_on_one() {
    let _one = alone();
    assert_eq!(start("agree on a secret", 3, false), (None, vec![]));
}

#[test]
fn processes_of_several_machines_have_the_same_secret_in_their_environment() {
    let _one = alone();
    assert_eq!(start_on(&["one", "two"], "find a secret", 3), None);
    assert_eq!(start_on(&["one"], "agree on a secret", 3), None);
}

#[test]
fn processes_on_several_machines_exchange_and_fail_as_on_one() {
    let _one = alone();
    assert_eq!(start_on(&["one", "two"], "exchange", 4), None);
    assert_eq!(start_on(&["one", "two"], "exit", 3), Some((1, Failure::Exited(3))));
    assert_eq!(start_on(&["one", "two"], "abort", 3), Some((1, Failure::Aborted(7))));
}

#[test]
fn a_process_alone_in_having_a_secret_is_told() {
    let _one = alone();
    let program = env::current_exe().unwrap();
    let script = format!(
        "[ $PMI_RANK = 0 ] || export TAGMATCH_SECRET=0123456789abcdef; {ROLE}='find another secret than rank 0' \
         exec {} --exact role --nocapture",
        program.display()
    );
    let command = ["sh", "-c", &script].map(OsString::from).into();
    let launch = Launch::new(command, 2).label(true);
    assert_eq!(launcher::run(&launch, |_, _| {}).unwrap(), None);
}

#[test]
#[ignore = "needs mpich and openmpi: ci/test launch"]
fn processes_of_foreign_launchers_agree_on_a_secret() {
    let _one = alone();
    for launcher in [
        "mpiexec.hydra -n 3",
        "mpiexec.hydra -pmi-port -n 3",
        "mpirun -n 3 --oversubscribe --allow-run-as-root",
    ] {
        let mut words = launcher.split(' ');
        let mut run = process::Command::new(words.next().unwrap());
        run.args(words).arg(env::current_exe().unwrap());
        run.args(["--exact", "role", "--nocapture"]).env(ROLE, "agree on a secret");
        let output = run.stdin(process::Stdio::null()).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(stdout.matches("@agreed").count(), 3, "{launcher}: {errors}{stdout}");
    }
}

/// In a step of 4 processes, on one node of Slurm and on two.
fn steps(mpi: &str, role: &str, mut check: impl FnMut(Option<i32>, &str, u32)) {
    for nodes in [1, 2] {
        let mut step = process::Command::new("srun");
        step.args(["--overcommit", "--ntasks=4"]).arg(format!("--mpi={mpi}"));
        step.arg(format!("--nodes={nodes}")).arg(env::current_exe().unwrap());
        step.args(["--exact", "role", "--nocapture"]).env(ROLE, role);
        let output = step.stdin(process::Stdio::null()).output().unwrap();
        let message = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        check(output.status.code(), &format!("{mpi}, {role}: {}", message.concat()), nodes);
    }
}

#[test]
#[ignore = "needs slurm: ci/test launch"]
fn processes_of_slurm_exchange_and_agree_on_a_secret() {
    let _one = alone();
    steps("pmi2", "exchange", |status, said, _| assert_eq!(status, Some(0), "{said}"));
    for mpi in ["pmi2", "pmix"] {
        steps(mpi, "agree on a secret", |status, said, _| {
            assert_eq!((status, said.matches("@agreed").count()), (Some(0), 4), "{said}");
        });
    }
}

#[test]
#[ignore = "needs slurm: ci/test launch"]
fn a_process_of_slurm_ends_all() {
    let _one = alone();
    steps("pmi2", "abort", |status, said, _| {
        assert_eq!(
            (status, said.contains("task 1: Exited with exit code 7")),
            (Some(137), true),
            "{said}"
        );
    });
}

#[test]
fn a_process_that_fails_ends_the_job() {
    let _one = alone();
    assert_eq!(start("exit", 3, false), (Some((1, Failure::Exited(3))), vec![1]));
    assert_eq!(start("leave early", 3, false), (Some((1, Failure::LeftEarly)), vec![1]));
    assert_eq!(start("abort", 3, true), (Some((1, Failure::Aborted(7))), vec![1]));
}

#[test]
fn the_last_request_of_a_process_counts_before_its_exit() {
    let _one = alone();
    // The launcher still reads the many requests when the process has exited.
    let init = r"cmd=init pmi_version=1 pmi_subversion=1\n";
    let gets = r"cmd=get kvsname=x key=y\n".repeat(300);
    let script = format!(r"printf '{init}{gets}cmd=abort exitcode=7\n' >&$PMI_FD; exit 3");
    for _ in 0..20 {
        // A plain `sh` knows no descriptor above 9.
        let command = ["bash", "-c", &script].map(OsString::from).into();
        let launch = Launch::new(command, 1).keep_going(true);
        let (_, failure) = launcher::run(&launch, |_, _| {}).unwrap().unwrap();
        assert_eq!(failure, Failure::Aborted(7));
    }
}

#[test]
fn survivors_go_on_and_find_out() {
    let _one = alone();
    let (first, mut told) = start("survive", 4, true);
    told.sort_unstable();
    assert_eq!(told, [1, 2]);
    let first = first.unwrap();
    assert!([(1, Failure::Killed(9)), (2, Failure::Exited(5))].contains(&first), "{first:?}");
}

#[test]
#[ignore = "needs openmpi: ci/test launch"]
fn the_dead_are_found_under_pmix_too() {
    let _one = alone();
    let output = process::Command::new("mpirun")
        .args("-n 3 --oversubscribe --allow-run-as-root --enable-recovery".split(' '))
        .arg(env::current_exe().unwrap())
        .args(["--exact", "role", "--nocapture"])
        .env(ROLE, "find the dead")
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(stdout.matches("@found").count(), 2, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_process_that_does_not_speak_pmi_is_killed() {
    let _one = alone();
    let words = ["sh", "-c", "echo GET / >&$PMI_FD; sleep 600"];
    let command = words.map(OsString::from).into();
    let launch = Launch::new(command, 1).keep_going(true);
    let (member, failure) = launcher::run(&launch, |_, _| {}).unwrap().unwrap();
    assert!(member.rank == 0 && failure.status() == 1, "{failure}");
    assert!(failure.to_string().contains("`GET /` is not a PMI-1 line"), "{failure}");
}

#[test]
fn a_number_of_a_standard_stream_is_no_socket_of_a_launcher() {
    let _one = alone();
    for number in ["0", "1", "2", "-1", "x"] {
        let mut command = process::Command::new(env::current_exe().unwrap());
        command.args(["--exact", "role", "--nocapture"]).env(ROLE, "join");
        let output = command.env("PMI_FD", number).output().unwrap();
        let output_text = String::from_utf8_lossy(&output.stdout);
        let wanted = format!("PMI_FD=`{number}`: expected the number of an open socket");
        assert!(output_text.contains(&wanted), "{output_text}");
    }
}

#[test]
fn a_command_that_cannot_be_started_is_an_error() {
    let _one = alone();
    let run = |command: &[&str], size| {
        let command = command.iter().map(OsString::from).collect();
        launcher::run(&Launch::new(command, size), |_, _| {})
    };
    let missing = run(&["/nonexistent/app"], 2).unwrap_err();
    assert!(matches!(&missing, LaunchError::Start { .. }), "{missing}");
    assert!(missing.to_string().starts_with("cannot start /nonexistent/app: "), "{missing}");
    assert!(matches!(run(&[], 2), Err(LaunchError::OutOfRange { .. })));
    assert!(matches!(run(&["true"], 0), Err(LaunchError::OutOfRange { .. })));
}

#[test]
fn the_process_group_of_a_process_ends_with_it() {
    let _one = alone();
    let path: PathBuf = env::temp_dir().join(format!("tagmatch-launch-{}", process::id()));
    let script = format!("sleep 600 & echo $! > {}", path.display());
    let command = ["sh", "-c", &script].map(OsString::from).into();
    let launch = Launch::new(command, 1);
    assert_eq!(launcher::run(&launch, |_, _| {}).unwrap(), None);
    let pid = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    for _ in 0..500 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        if stat.is_empty() || stat.contains(") Z ") {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the process {pid} lives");
}
