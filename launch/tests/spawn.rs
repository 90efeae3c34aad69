//! Jobs whose processes spawn other jobs. Each process is this test program, started with a role
//! among its arguments.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{self, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tagmatch_launch::launcher::{self, Failure, Launch, Member};
use tagmatch_launch::pmi1::Pmi1Error;
use tagmatch_launch::spawn::SpawnError;
use tagmatch_launch::wire::to_hex;
use tagmatch_launch::{Error, Job, Spawn};
use tagmatch_os::exit_audit;

/// The prefix of the role, which is the last argument. The test harness takes it for one more name
/// of a test.
const ROLE: &str = "role=";
/// Arguments with characters that have a meaning in PMI-1 lines or in shells. The test harness
/// takes them for names of tests.
const ARGUMENTS: [&str; 5] = [" a b ", "", "c=é", "'$HOME\"\t%s", "mcmd=spawn"];
/// Runs one job at a time: the environment belongs to the whole process.
static ONE: Mutex<()> = Mutex::new(());

/// The command that starts this program in a role.
fn command(role: &str) -> Vec<OsString> {
    let program = env::current_exe().unwrap().into_os_string();
    let role = format!("{ROLE}{role}").into();
    vec![program, "--exact".into(), "role".into(), "--nocapture".into(), role]
}

fn spawn(role: &str, size: u32) -> Spawn {
    Spawn::new(command(role), size)
}

fn run(role: &str, size: u32, keep_going: bool) -> Option<(Member, Failure)> {
    exit_audit::begin();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let launch = Launch::new(command(role), size).label(true).keep_going(keep_going);
    launcher::run(&launch, |_, _| {}).unwrap()
}

/// The listener's address as a string for spawned processes, as long as the name of an MPI port.
fn word(listener: &TcpListener) -> String {
    format!("{:#<200}", listener.local_addr().unwrap().to_string())
}

/// Connects to the parent, whose string is its address, sends this process's rank, and waits until
/// the parent has read that. Without the wait the process may end before the launcher has answered
/// its parent, and `srun` then never answers (docs/launch.md).
fn call_parent(job: &Job) {
    let place = job.parent().unwrap().trim_end_matches('#');
    let mut stream = TcpStream::connect(place).unwrap();
    write!(stream, "{} of {}", job.rank(), job.size()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(io::read_to_string(stream).unwrap(), "");
}

/// Accepts `count` connections, and returns the texts that they send, sorted.
fn calls(listener: &TcpListener, count: usize) -> Vec<String> {
    let call = |_| io::read_to_string(listener.accept().unwrap().0).unwrap();
    let mut calls: Vec<_> = (0..count).map(call).collect();
    calls.sort_unstable();
    calls
}

/// Plays the role that the arguments name, if they name one.
#[test]
fn role() {
    let last = env::args().next_back().unwrap();
    let Some(role) = last.strip_prefix(ROLE) else { return };
    let mut job = Job::join().unwrap();
    match role {
        "parents of two" => {
            assert_eq!(job.parent(), None);
            if job.rank() == 0 {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                job.spawn(&spawn("children", 2), &word(&listener)).unwrap();
                job.spawn(&spawn("children", 3), &word(&listener)).unwrap();
                let all = ["0 of 2", "0 of 3", "1 of 2", "1 of 3", "2 of 3"];
                assert_eq!(calls(&listener, 5), all);
            }
            exchange(&mut job);
        }
        "children" => {
            exchange(&mut job);
            call_parent(&job);
        }
        // The secret comes by the launcher's key-value store, or with PMIx in the environment of
        // the children.
        "parent with a secret" => {
            let secret = job.secret().unwrap().unwrap();
            if job.rank() > 0 {
                return job.leave().unwrap();
            }
            let spawn = spawn("children with a secret", 2);
            job.spawn(&spawn, &to_hex(secret.expose())).unwrap();
        }
        "children with a secret" => {
            let secret = job.secret().unwrap().unwrap();
            assert_eq!(job.parent(), Some(&*to_hex(secret.expose())));
        }
        "grandparent" => job.spawn(&spawn("parent", 1), "a").unwrap(),
        "parent" => {
            assert_eq!(job.parent(), Some("a"));
            job.spawn(&spawn("grandchildren", 3), "b").unwrap();
        }
        "grandchildren" => {
            assert_eq!((job.parent(), job.size()), (Some("b"), 3));
            exchange(&mut job);
            if job.rank() == 2 {
                process::exit(9);
            }
            job.barrier().unwrap();
        }
        "parent of a failure" => {
            job.spawn(&spawn("failure", 2), "x").unwrap();
            thread::sleep(Duration::from_secs(600));
        }
        "failure" if job.rank() == 1 => process::exit(5),
        "failure" => thread::sleep(Duration::from_secs(600)),
        "parent that outlives" => {
            job.spawn(&spawn("failure among survivors", 2), "x").unwrap();
            job.barrier().unwrap();
            assert_eq!(job.dead().unwrap(), [], "rank 1 of the other job has died");
        }
        "failure among survivors" => {
            if job.rank() == 1 {
                process::exit(5);
            }
            job.barrier().unwrap();
            assert_eq!(job.dead().unwrap(), [1]);
        }
        "refused" => refused(&mut job),
        "arguments" => {
            let mut spawn = spawn("argued", 1);
            spawn.command.splice(1..1, ARGUMENTS.map(Into::into));
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            job.spawn(&spawn, &word(&listener)).unwrap();
            assert_eq!(calls(&listener, 1), ["0 of 1"]);
        }
        "argued" => {
            assert_eq!(env::args().skip(1).take(ARGUMENTS.len()).collect::<Vec<_>>(), ARGUMENTS);
            call_parent(&job);
        }
        other => panic!("no role {other}"),
    }
    println!("@{} done", job.rank());
    job.leave().unwrap();
}

fn exchange(job: &mut Job) {
    for round in 0..2usize {
        let of = |rank: u32| vec![u8::try_from(rank).unwrap(); round * 3000 + rank as usize];
        let all = job.exchange(&of(job.rank())).unwrap();
        assert_eq!(all, (0..job.size()).map(of).collect::<Vec<_>>());
    }
}

/// A job that can't be started is an error, and the asking job goes on.
fn refused(job: &mut Job) {
    let missing = Spawn::new(vec!["/nonexistent/app".into()], 3);
    let error = job.spawn(&missing, "x").unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::Pmi1(Pmi1Error::Refused { .. })), "{message}");
    assert!(message.contains("cannot_start_/nonexistent/app:_No_such_file"), "{message}");
    let error = job.spawn(&Spawn::new(vec![], 1), "x").unwrap_err();
    assert!(matches!(error, Error::Spawn(SpawnError::OutOfRange { words: 0, .. })));
    let error = job.spawn(&spawn("children", 1), "two words").unwrap_err();
    assert!(matches!(error, Error::Spawn(SpawnError::Word { .. })));
    let lines = Spawn::new(vec!["echo".into(), "a\nb".into()], 1);
    let error = job.spawn(&lines, "x").unwrap_err();
    assert!(matches!(error, Error::Spawn(SpawnError::Argument { .. })));
    assert_eq!(job.exchange(b"x").unwrap(), [b"x"]);
}

#[test]
fn two_spawned_jobs_exchange_separately() {
    assert_eq!(run("parents of two", 3, false), None);
}

#[test]
fn spawned_processes_share_the_secret_that_their_parent_has_agreed_on() {
    assert_eq!(run("parent with a secret", 2, false), None);
}

#[test]
fn a_spawned_process_spawns() {
    let (member, failure) = run("grandparent", 1, true).unwrap();
    assert_eq!((member, failure), (Member { job: 2, rank: 2 }, Failure::Exited(9)));
    assert_eq!(member.to_string(), "2:2");
}

#[test]
fn a_spawned_process_that_fails_ends_all_jobs() {
    let (member, failure) = run("parent of a failure", 2, false).unwrap();
    assert!([1, 2].contains(&member.job) && member.rank == 1, "{member}");
    assert_eq!(failure, Failure::Exited(5));
}

#[test]
fn other_jobs_outlive_a_spawned_process_that_fails() {
    let (member, failure) = run("parent that outlives", 1, true).unwrap();
    assert_eq!((member, failure), (Member { job: 1, rank: 1 }, Failure::Exited(5)));
}

#[test]
fn a_job_that_cannot_be_started_is_refused() {
    assert_eq!(run("refused", 1, false), None);
}

#[test]
fn arguments_arrive_as_they_were() {
    assert_eq!(run("arguments", 1, false), None);
}

/// Runs a shell that sends these lines to the launcher, and returns its failure as text.
fn shell_says(lines: &str) -> String {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let script = format!("printf '{lines}' >&$PMI_FD; sleep 600");
    let command = ["sh", "-c", &script].map(OsString::from).into();
    let launch = Launch::new(command, 1).keep_going(true);
    let (member, failure) = launcher::run(&launch, |_, _| {}).unwrap().unwrap();
    assert_eq!(member, Member { job: 0, rank: 0 });
    failure.to_string()
}

#[test]
fn a_process_that_sends_a_malformed_request_is_killed() {
    let init = r"cmd=init pmi_version=1 pmi_subversion=1\n";
    for (asked, why) in [
        (r"mcmd=spawn\nnprocs\nendcmd\n", "`nprocs` is not a PMI-1 line"),
        (r"mcmd=spawn\nnprocs=1\nendcmd\n", "has no valid `argcnt`"),
        (r"mcmd=spawn\nargcnt=4294967295\nendcmd\n", "has no valid `argcnt`"),
        (r"mcmd=spawn\n%40000s\n", "more than 32768 bytes"),
    ] {
        let stdout = shell_says(&format!("{init}{asked}"));
        assert!(stdout.contains(why), "{stdout}");
    }
    let early = r"mcmd=spawn\nnprocs=1\nexecname=x\ntotspawns=1\nspawnssofar=1\nargcnt=0\nendcmd\n";
    let output_text = shell_says(early);
    assert!(output_text.contains("`cmd=spawn` is not allowed at this point"), "{output_text}");
}

#[test]
fn spawning_needs_a_launcher() {
    let mut job = Job::alone();
    assert_eq!(job.parent(), None);
    let error = job.spawn(&spawn("children", 1), "x").unwrap_err();
    assert!(matches!(error, Error::Spawn(SpawnError::NoLauncher)));
}

#[test]
#[ignore = "needs mpich and openmpi: ci/test launch"]
fn foreign_launchers_spawn_too() {
    for launcher in [
        "mpiexec.hydra -n 2",
        "mpiexec.hydra -pmi-port -n 2",
        "mpirun -n 2 --oversubscribe --allow-run-as-root",
    ] {
        for (role, processes) in
            [("parents of two", 7), ("arguments", 4), ("parent with a secret", 3)]
        {
            let mut words = launcher.split(' ');
            let mut run = Command::new(words.next().unwrap());
            let run = run.args(words).args(command(role)).stdin(Stdio::null());
            let output = run.output().unwrap();
            let output_text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{launcher}: {errors}{output_text}");
            assert_eq!(
                output_text.matches(" done").count(),
                processes,
                "{launcher}: {errors}{output_text}"
            );
        }
    }
}

/// The spawned processes need more processors than the node has.
#[test]
#[ignore = "needs slurm: ci/test launch"]
fn slurm_spawns_where_processes_may_share_processors() {
    for (role, processes) in [("parents of two", 7), ("arguments", 4)] {
        let mut step = Command::new("srun");
        step.args(["--mpi=pmi2", "--nodes=1", "--ntasks=2"]).args(command(role));
        step.env("SLURM_OVERLAP", "1").env("SLURM_OVERCOMMIT", "1").stdin(Stdio::null());
        let output = step.output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{role}: {errors}{stdout}");
        assert_eq!(stdout.matches(" done").count(), processes, "{role}: {errors}{stdout}");
    }
}
