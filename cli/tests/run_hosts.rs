//! `tagperf run --hosts`: ranks on other machines. An agent that ignores the name of the machine
//! makes any name a machine; network namespaces are machines where root runs the tests.

#[path = "common/agents.rs"]
mod agents;
mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use tagmatch_testkit::process::{Signal, send_signal};

use agents::{HERE, Place, are_gone};
use common::{children, eventually, guardian, kill, lives, refused, text};

fn sorted(output: &[u8]) -> Vec<&str> {
    let mut lines: Vec<_> = text(output).lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn ranks_are_divided_in_blocks_and_their_output_is_passed_on() {
    let place = Place::new("blocks", HERE);
    let script = "echo $PMI_RANK/$PMI_SIZE $MPI_LOCALRANKID/$MPI_LOCALNRANKS; echo x >&2; cat";
    let output = place.shell("-n 5 --hosts one,two --label", script);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines = ["[0] 0/5 0/3", "[1] 1/5 1/3", "[2] 2/5 2/3", "[3] 3/5 0/2", "[4] 4/5 1/2"];
    assert_eq!(sorted(&output.stdout), lines);
    assert_eq!(sorted(&output.stderr), ["[0] x", "[1] x", "[2] x", "[3] x", "[4] x"]);
    let output = place.shell("-n 3 --hosts one:1,two:4", "printf $MPI_LOCALNRANKS");
    let mut stdout = text(&output.stdout).to_owned().into_bytes();
    stdout.sort_unstable();
    assert_eq!(stdout, b"122", "bytes come as they were, without a label");
    fs::write(place.0.join("hosts"), "one # first\ntwo slots=2\n").unwrap();
    let mut run = place.run("-n 3 --hostfile");
    let output = run.arg(place.0.join("hosts")).args(["--", "sh", "-c", "echo $MPI_LOCALNRANKS"]);
    assert_eq!(sorted(&output.output().unwrap().stdout), ["1", "2", "2"]);
    let output = place.shell("-n 3 --hosts one,two --ppn 2", "echo $MPI_LOCALNRANKS");
    assert_eq!(sorted(&output.stdout), ["1", "2", "2"]);
}

#[test]
fn what_a_shell_prints_at_its_start_does_no_harm() {
    let place = Place::new("motd", &format!("echo welcome to $1\n{HERE}"));
    let output = place.shell("-n 2 --hosts one,two", "echo $PMI_RANK");
    assert_eq!(sorted(&output.stdout), ["0", "1"]);
    assert_eq!(sorted(&output.stderr), ["welcome to one", "welcome to two"]);
}

#[test]
fn the_helper_may_begin_in_a_line_that_a_shell_has_begun() {
    let place = Place::new("title", &format!("printf x\n{HERE}"));
    let output = place.shell("-n 2 --hosts one", "echo $PMI_RANK");
    assert_eq!(sorted(&output.stdout), ["0", "1"]);
    assert_eq!(text(&output.stderr), "x");
}

#[test]
fn only_a_run_on_several_machines_makes_a_secret() {
    let place = Place::new("new-secret", HERE);
    let given = |options| {
        let mut run = place.run(options);
        run.env_remove("TAGMATCH_SECRET").env_remove("TAGMATCH_SECRET_FILE");
        let output = run.args(["--", "sh", "-c", "echo ${TAGMATCH_SECRET-none}"]).output().unwrap();
        sorted(&output.stdout).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let [one, two] = <[String; 2]>::try_from(given("-n 2 --hosts one,two")).unwrap();
    assert!(one == two && one.len() == 64, "{one} {two}");
    // Workers that find a secret listen for other machines.
    assert_eq!(given("-n 2 --hosts one"), ["none", "none"]);
}

#[test]
fn the_secret_goes_to_a_helper_of_this_version_only() {
    let secret = "0123456789abcdef0123456789abcdef";
    let helper = "tagmatch-launch helper of version";
    // The second agent echoes what it gets, after a true helper has greeted and ended.
    for (name, agent) in [
        ("echoes", "exec timeout 1 tee $0.got"),
        ("echoes-later", "exec 3<&0; sh -c \"$2\" < /dev/null; exec timeout 5 cat <&3"),
        ("version", &*format!("echo {helper} 9.9.9; exec timeout 5 tee $0.got")),
        ("title", &*format!("printf 'x{helper} 9.9.9\\n'; exec timeout 5 tee $0.got")),
    ] {
        let place = Place::new(&format!("secret-{name}"), agent);
        let mut run = place.run("-n 1 --hosts one -- true");
        let output = run.env("TAGMATCH_SECRET", secret).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}");
        let is_in = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(secret);
        assert!(!is_in(&output.stdout) && !is_in(&output.stderr), "{name}");
        let got = fs::read(place.0.join("agent.got")).unwrap_or_default();
        assert!(got.is_empty(), "{name}: the agent got {} bytes", got.len());
    }
}

#[test]
fn the_exit_status_is_of_the_first_that_failed_on_any_machine() {
    let place = Place::new("status", HERE);
    let output = place.shell("-n 4 --hosts one,two", "[ $PMI_RANK = 3 ] && exit 7; sleep 600");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(text(&output.stderr), "tagperf run: rank 3 exited with status 7\n");
    let output = place.shell("-n 4 --hosts one,two", "[ $PMI_RANK = 0 ] && kill -9 $$; sleep 600");
    assert_eq!(output.status.code(), Some(137));
}

#[test]
fn machines_that_cannot_be_used_are_told() {
    let place = Place::new("errors", HERE);
    let fails_with = |place: &Place, options: &str, what: &str| {
        let output = place.run(options).args(["--", "/nonexistent"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        let message = text(&output.stderr);
        assert!(message.contains(what) && message.lines().count() == 1, "{message}");
    };
    // Either machine may answer first.
    fails_with(&place, "-n 4 --hosts one,two", ": cannot start /nonexistent: No such file");
    fails_with(&place, "-n 4 --hosts one", "run: one: cannot start /nonexistent: No such file");
    fails_with(
        &place,
        "-n 4 --hosts one:2,two",
        "4 processes need as many slots, and the hosts have 3",
    );
    fails_with(
        &Place::new("fails", "exit 5"),
        "-n 2 --hosts one",
        "run: one: its agent has ended (exit",
    );
    fails_with(&Place::new("hangs", "sleep 600"), "-n 2 --hosts two,-x", "invalid host `-x`");
    let output = Place::new("garbage", "yes x").run("-n 2 --hosts one -- true").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).ends_with("no helper has answered, but something that prints much\n")
    );
    let garbled = Place::new("garbled", "exec 2>&1; echo '4 bytes'; sh -c \"$2\" < /dev/null; yes");
    let output = garbled.run("-n 2 --hosts one -- true").output().unwrap();
    assert!(text(&output.stderr).contains("run: one: "), "{}", text(&output.stderr));
    assert!(refused("run -n 2 --agent x -- true").contains("use --hosts"));
    assert!(refused("run -n 2 --ppn 1 -- true").contains("use --hosts"));
    assert!(refused("run -n 2 --hostfile /nonexistent -- true").contains("No such file"));
}

#[test]
fn signals_reach_all_machines_and_nothing_is_left_behind() {
    for (signal, code) in
        [(Signal::INT, Some(130)), (Signal::TERM, Some(143)), (Signal::KILL, None)]
    {
        let place = Place::new(&format!("signal{}", signal.as_raw()), HERE);
        let (mut run, pids) = place.waiting("");
        send_signal(run.id(), signal);
        assert_eq!(run.wait().unwrap().code(), code, "{signal:?}");
        assert!(are_gone(&pids), "{signal:?}");
    }
}

/// The agent passes on bytes to and from a machine whose processes are no descendants of the
/// launcher, as `ssh` does.
#[test]
fn ranks_that_only_a_connection_binds_to_the_launcher_end_with_it() {
    let place = Place::new("far", "echo \"$2\" > $0.$1; cat $0.$1.out & exec cat > $0.$1.in");
    let far = "mkfifo $0.in $0.out; read -r helper < $0; exec sh -c \"$helper\" < $0.in > $0.out";
    let start = |host: &str| {
        let name = place.0.join(format!("agent.{host}"));
        assert!(Command::new("mkfifo").arg(&name).status().unwrap().success());
        Command::new("sh").arg("-c").arg(far).arg(&name).spawn().unwrap()
    };
    let machines = ["one", "two"].map(start);
    let (mut run, pids) = place.waiting("");
    kill(run.id());
    run.wait().unwrap();
    assert!(are_gone(&pids[..4]));
    for mut machine in machines {
        machine.wait().unwrap();
    }
}

#[test]
fn an_interrupt_ends_a_launcher_that_waits_for_a_machine() {
    let place = Place::new("waits", "touch $0.began; exec sleep 600");
    let mut run = place.run("-n 2 --hosts one -- true").spawn().unwrap();
    assert!(eventually(|| place.0.join("agent.began").exists()));
    let agents = children(guardian(run.id()));
    send_signal(run.id(), Signal::INT);
    assert_eq!(run.wait().unwrap().code(), Some(130));
    assert!(are_gone(&agents));
}

#[test]
fn an_interrupt_of_the_start_leaves_nothing_behind_where_ranks_run_already() {
    let place = Place::new("half", "[ $1 = two ] && exec sleep 600\nexec sh -c \"$2\"");
    let script = "sleep 600 & echo $$ $PPID $! > $0/new; mv $0/new $0/pids; wait";
    let mut run = place.run("-n 2 --hosts one,two -- sh -c");
    let run = run.arg(script).arg(&*place.0).spawn().unwrap();
    assert!(eventually(|| place.0.join("pids").exists()));
    let pids = fs::read_to_string(place.0.join("pids")).unwrap();
    let mut pids: Vec<_> = pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    pids.extend(children(guardian(run.id())));
    send_signal(run.id(), Signal::INT);
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(text(&output.stderr), "");
    assert!(are_gone(&pids));
}

/// A shell stands between launcher and helper, as `ssh` does.
const BETWEEN: &str = "sh -c \"$2\"; exit $?";

#[test]
fn nothing_is_left_behind_when_an_agent_or_a_helper_is_killed() {
    for is_agent in [true, false] {
        let place = Place::new(&format!("agent{is_agent}"), BETWEEN);
        let (mut run, pids) = place.waiting("");
        kill(if is_agent { children(guardian(run.id()))[1] } else { pids[5] });
        assert_eq!(run.wait().unwrap().code(), Some(1), "agent: {is_agent}");
        assert!(are_gone(&pids), "agent: {is_agent}");
    }
}

#[test]
fn the_ranks_of_other_machines_outlive_one_if_they_are_to() {
    let place = Place::new("outlive", HERE);
    let (mut run, pids) = place.waiting("--keep-going");
    kill(pids[4]);
    assert!(are_gone(&pids[..2]));
    assert!(lives(pids[2]) && lives(pids[3]) && run.try_wait().unwrap().is_none());
    // The launcher has to know of the lost ranks before the others fail.
    let mut log = BufReader::new(run.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut all_lines: Vec<_> = log.by_ref().take(2).collect();
    kill(pids[2]);
    kill(pids[3]);
    all_lines.extend(log);
    assert_eq!(run.wait().unwrap().code(), Some(1));
    all_lines.sort_unstable();
    assert_eq!(all_lines.len(), 4, "{all_lines:?}");
    let lost = "tagperf run: rank 0 was lost: the connection to one has ended: its agent has ended";
    assert!(all_lines[0].starts_with(lost), "{all_lines:?}");
    assert_eq!(all_lines[2], "tagperf run: rank 2 was killed by signal 9");
}

#[test]
fn the_secret_is_in_no_command_line_and_nobody_listens() {
    let place = Place::new("secret", HERE);
    let secret = "0123456789abcdef0123456789abcdef";
    let file = place.0.join("secret");
    fs::write(&file, secret).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut run = place.run("-n 2 --hosts one,two -- sh -c");
    let script =
        "[ -z \"$TAGMATCH_SECRET_FILE\" ] && echo $TAGMATCH_SECRET > $0.$PMI_RANK; exec sleep 600";
    run.arg(script).arg(&file).env("TAGMATCH_SECRET_FILE", &file);
    let mut run = run.spawn().unwrap();
    let given = |rank: u32| fs::read_to_string(place.0.join(format!("secret.{rank}")));
    let is_given = |rank| given(rank).is_ok_and(|given| given.trim() == secret);
    assert!(eventually(|| is_given(0) && is_given(1)), "the secret of the file reaches all ranks");
    let tcp: Vec<_> = ["tcp", "tcp6"]
        .map(|table| fs::read_to_string(format!("/proc/net/{table}")))
        .into_iter()
        .flatten()
        .collect();
    let guardian = guardian(run.id());
    let helpers = children(guardian);
    for pid in helpers.iter().copied().chain([run.id(), guardian]) {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(!String::from_utf8_lossy(&line).contains(secret));
        for descriptor in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
            let target = fs::read_link(descriptor.unwrap().path()).unwrap_or_default();
            let target = target.to_string_lossy().into_owned();
            let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
            let is_tcp = |inode| tcp.iter().any(|t| t.contains(&format!(" {inode} ")));
            assert!(!inode.is_some_and(is_tcp), "{pid} has a TCP socket");
        }
    }
    kill(run.id());
    run.wait().unwrap();
    assert!(are_gone(&helpers));
}

/// Rank 0 asks for a job, and for one that can't be started.
const SPAWN: &str = r#"
exec 3<&$PMI_FD 4>&$PMI_FD
ask() { echo "$1" >&4; read -r answer <&3; }
spawn() {
    ask "mcmd=spawn
nprocs=3
execname=$1
arg1=-c
arg2=echo child $PMI_RANK: \$PMI_RANK of \$PMI_SIZE, \$MPI_LOCALNRANKS here
argcnt=2
totspawns=1
spawnssofar=1
preput_num=0
info_num=0
endcmd"
    echo $answer
}
ask 'cmd=init pmi_version=1 pmi_subversion=1'
[ $PMI_RANK != 0 ] || { spawn sh; spawn /nonexistent; }
ask cmd=barrier_in
ask cmd=finalize
"#;

#[test]
fn jobs_that_ranks_ask_for_are_divided_among_the_machines_too() {
    let place = Place::new("spawn", HERE);
    let output = place.run("-n 2 --hosts one,two -- bash -c").arg(SPAWN).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines = sorted(&output.stdout);
    let children =
        ["child 0: 0 of 3, 2 here", "child 0: 1 of 3, 2 here", "child 0: 2 of 3, 1 here"];
    assert_eq!(lines[..3], children);
    let refused = lines[3]
        .strip_suffix(":_cannot_start_/nonexistent:_No_such_file_or_directory_(os_error_2)");
    assert!(
        refused.is_some_and(|line| line.starts_with("cmd=spawn_result rc=-1 msg=")),
        "{lines:?}"
    );
    assert_eq!(lines[4..], ["cmd=spawn_result rc=0"]);
}

#[test]
fn a_rank_that_sends_garbage_is_killed_on_its_machine() {
    let place = Place::new("rank-garbage", HERE);
    let script = "[ $PMI_RANK = 1 ] && echo GET / >&$PMI_FD; exec sleep 600";
    let mut run = place.run("-n 2 --hosts one,two -- bash -c");
    let output = run.arg(script).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let why =
        "tagperf run: rank 1 was killed because it broke PMI-1: `GET /` is not a PMI-1 line\n";
    assert_eq!(text(&output.stderr), why);
}

/// Two network namespaces, connected by a pair of interfaces. Dropping it removes them.
struct Namespaces([String; 2]);

impl Namespaces {
    /// `None`: this user may not make them.
    fn new() -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let names = ["a", "b"].map(|end| format!("tagperf-{end}{number}-{}", std::process::id()));
        let [a, b] = &names;
        let script = format!(
            "ip netns add {a} && ip netns add {b} &&
             ip -n {a} link add net0 type veth peer name net0 netns {b} &&
             ip -n {a} addr add 10.99.0.1/24 dev net0 && ip -n {b} addr add 10.99.0.2/24 dev net0 &&
             for n in {a} {b}; do ip -n $n link set lo up && ip -n $n link set net0 up || exit 1; done"
        );
        let namespaces = Self(names);
        let made = Command::new("sh").args(["-c", &script]).output().unwrap();
        made.status.success().then_some(namespaces)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

/// A rank that tells the others its network namespace, and prints those of all.
const EXCHANGE: &str = r#"
exec 3<&$PMI_FD 4>&$PMI_FD
ask() { echo "$1" >&4; read -r answer <&3; }
ask 'cmd=init pmi_version=1 pmi_subversion=1'
ask cmd=get_my_kvsname; kvs=${answer#*kvsname=}
ask "cmd=put kvsname=$kvs key=of-$PMI_RANK value=$(readlink /proc/self/ns/net)"
ask cmd=barrier_in
for rank in 0 1 2 3; do ask "cmd=get kvsname=$kvs key=of-$rank"; all="$all ${answer#*value=}"; done
ask "cmd=get kvsname=$kvs key=PMI_process_mapping"
echo $all ${answer#*value=}
ask cmd=finalize
"#;

#[test]
fn two_network_namespaces_are_two_machines() {
    let Some(namespaces) = Namespaces::new() else {
        println!("SKIPPED: needs root and ip(8), to make network namespaces");
        return;
    };
    let place = Place::new("namespaces", "exec ip netns exec $1 sh -c \"$2\"");
    let hosts = namespaces.0.join(",");
    let output =
        place.run(&format!("-n 4 --hosts {hosts} -- bash -c")).arg(EXCHANGE).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines = sorted(&output.stdout);
    assert!(lines.len() == 4 && lines.iter().all(|line| *line == lines[0]), "{lines:?}");
    let words: Vec<_> = lines[0].split(' ').collect();
    assert!(words[0] == words[1] && words[2] == words[3] && words[0] != words[2], "{words:?}");
    assert_eq!(words[4], "(vector,(0,2,2))");
    // Between the machines alone, and with shared memory inside of each.
    for device in ["tcp", "the default"] {
        for (ranks, test) in
            [("4", "barrier --by-messages --iters 20"), ("2", "lat --sizes 8,200K --iters 20")]
        {
            let mut run = place.run(&format!("-n {ranks} --hosts {hosts} --"));
            run.arg(env!("CARGO_BIN_EXE_tagperf")).args(test.split_whitespace());
            if device == "tcp" {
                run.args(["--device", device]);
            }
            let output = run.output().unwrap();
            let message = (text(&output.stdout), text(&output.stderr));
            assert_eq!(output.status.code(), Some(0), "{test} over {device}: {message:?}");
            let matched = message
                .0
                .lines()
                .any(|line| line.contains("matched") && !line.contains(" 0 receives"));
            assert!(matched, "{test} over {device}: {message:?}");
            let is_beyond = message.0.contains("messages, credits included, left over a network");
            assert_eq!(is_beyond, device != "tcp", "{test}: {message:?}");
        }
    }
    // A NIC's list beside shared memory still matches what comes over the network.
    let model = "lat --sizes 4K --iters 20 --hw-tags model";
    let mut run = place.run(&format!("-n 2 --hosts {hosts} --"));
    run.arg(env!("CARGO_BIN_EXE_tagperf")).args(model.split_whitespace());
    let stdout = run.output().unwrap().stdout;
    let matched = text(&stdout).lines().find(|line| line.contains("matched")).unwrap();
    assert!(!matched.contains(" 0 in hardware"), "{matched}");
    let shm = [env!("CARGO_BIN_EXE_tagperf"), "barrier", "--device", "shm"];
    let output = place.run(&format!("-n 2 --hosts {hosts} --")).args(shm).output().unwrap();
    assert!(text(&output.stderr).contains("one network namespace"), "{}", text(&output.stderr));
    let (mut run, pids) = place.waiting_on(&hosts, "");
    let network = |pid: u32| fs::read_link(Path::new("/proc").join(pid.to_string()).join("ns/net"));
    assert_ne!(network(pids[0]).unwrap(), network(pids[2]).unwrap());
    kill(run.id());
    run.wait().unwrap();
    assert!(are_gone(&pids));
}

/// Without `--device`, and with the default settings of a worker: between machines these are other
/// networks than within.
#[test]
#[ignore = "needs root, and the example: ci/test tcp"]
fn by_default_ranks_use_shared_memory_within_a_machine_and_tcp_between() {
    let namespaces = Namespaces::new().expect("root can make network namespaces");
    let hosts = namespaces.0.join(",");
    let place = Place::new("default", "exec ip netns exec $1 sh -c \"$2\"");
    let tagperf = Path::new(env!("CARGO_BIN_EXE_tagperf"));
    let run = |options: &str, program: &Path, args: &str| {
        let mut run = place.run(&format!("--hosts {hosts} {options} --"));
        run.env_remove("TAGMATCH_SECRET").env_remove("TAGMATCH_SECRET_FILE");
        run.arg(program).args(args.split_whitespace()).output().unwrap()
    };
    // Of the eight messages of a barrier of four ranks, two stay within a machine.
    for (options, test) in
        [("-n 4", "barrier --by-messages --iters 200"), ("-n 2", "lat --sizes 8,200K --iters 50")]
    {
        let output = run(options, tagperf, &format!("{test} --json -"));
        assert_eq!(output.status.code(), Some(0), "{test}: {}", text(&output.stderr));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let matching = &document["matching"];
        let count = |name: &str| matching[name].as_u64().unwrap();
        let received = count("posted") + count("unexpected");
        let beyond = count("sent_beyond");
        assert_eq!(document["device"], "auto");
        let has_both = options == "-n 4";
        assert!(beyond > 0 && (beyond < received) == has_both, "{test}: {matching}");
    }
    // Rank 1 is killed. Its machine has one more rank, and the other one has two.
    let survivors = tagperf.with_file_name("examples/survivors");
    let output = run("-n 4 --keep-going", &survivors, "");
    assert_eq!(output.status.code(), Some(137), "{}", text(&output.stderr));
    let expected = "3 of 4 go on; together they received 6000 bytes\n";
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
}

#[test]
fn a_launcher_whose_directory_was_deleted_says_so() {
    let folder = std::env::temp_dir().join(format!("tagperf-deleted-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let script = "rmdir \"$PWD\" && exec \"$0\" run --hosts localhost -n 1 -- true";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_tagperf")])
        .current_dir(&folder)
        .output()
        .unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && why.contains("the directory"), "{why}");
}
