//! Processes in containers: each has its own pid and user namespace and 64 MiB of `/dev/shm`, and
//! may lack system calls. Their messages are right, or the error says what is missing.
//!
//! unshare(1) and setpriv(1) make the containers, and `hw/os/examples/deny.rs` their seccomp
//! filters. Making them needs root: `ci/test --nightly containers`, with `--ignored`.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tagmatch_testkit::scratch::Scratch;

use common::{Server, printed, text};

/// No number that is special in a user namespace.
const USER: u32 = 1000;
/// The user that stands for all users without a number, see user_namespaces(7).
const OVERFLOW_USER: u32 = 65534;
const LAT: &str = "lat --sizes 8,64K,8M --iters 10 --warmup 2 --json -";
const BW: &str = "bw --sizes 8,1M --iters 20 --warmup 2 --json -";

/// The programs, where every user reaches them.
struct Programs(Scratch);

impl Programs {
    fn new(test: &str) -> Self {
        let scratch = Scratch::new(test);
        let built = Path::new(env!("CARGO_BIN_EXE_tagperf")).parent().unwrap();
        for program in ["tagperf", "examples/deny", "examples/launched"] {
            let name = Path::new(program).file_name().unwrap();
            let copied = fs::copy(built.join(program), scratch.join(name));
            copied.unwrap_or_else(|error| panic!("{program} is not built: {error}"));
        }
        fs::set_permissions(&*scratch, fs::Permissions::from_mode(0o755)).unwrap();
        Programs(scratch)
    }

    /// Where the container has a program.
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// How a process is started.
#[derive(Clone, Copy)]
struct Container {
    user: u32,
    /// Options of unshare(1); none for a process that is in no container.
    namespaces: &'static [&'static str],
    /// The system calls that its seccomp profile refuses, as arguments of `deny`.
    denied: Option<&'static str>,
}

const NONE: Container = Container { user: 0, namespaces: &[], denied: None };
const ROOT: Container = Container {
    namespaces: &["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"],
    ..NONE
};
const ORDINARY: Container = Container { user: USER, ..ROOT };
/// As with Docker's `--ipc=private`.
const OWN_IPC: Container = Container {
    namespaces: &[
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--ipc",
    ],
    ..NONE
};
/// A user without a number in the container.
const UNMAPPED: Container = Container {
    user: USER,
    namespaces: &["--user", "--pid", "--fork", "--kill-child"],
    denied: None,
};

impl Container {
    fn without(self, calls: &'static str) -> Self {
        Container { denied: Some(calls), ..self }
    }

    /// The words of a command in this container.
    fn words(&self, programs: &Programs, program: &str, args: &str) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let mut add = |line: &str| words.extend(line.split_whitespace().map(str::to_owned));
        if self.user != 0 {
            let user = self.user;
            add(&format!("setpriv --reuid={user} --regid={user} --clear-groups --"));
        }
        if !self.namespaces.is_empty() {
            add("unshare");
            add(&self.namespaces.join(" "));
        }
        if self.namespaces.contains(&"--map-root-user") {
            words.extend(["sh", "-c"].map(str::to_owned));
            words.push("mount -t tmpfs -o size=64m tmpfs /dev/shm && exec \"$@\"".into());
            words.push("sh".into());
        }
        if let Some(denied) = self.denied {
            words.push(programs.path("deny").display().to_string());
            words.push(denied.into());
        }
        words.push(programs.path(program).display().to_string());
        words.extend(args.split_whitespace().map(str::to_owned));
        words
    }

    /// `tagperf serve` in this container. If it is killed, so is the container.
    fn serve(&self, programs: &Programs, device: &str) -> Server {
        let serve = format!("serve --port 0 --device {device}");
        Server::of(plain(&self.words(programs, "tagperf", &serve)))
    }

    /// `tagperf` in this container. If it hangs, it fails with status 124.
    fn tagperf(&self, programs: &Programs, args: &str) -> Command {
        let limit = ["timeout", "--kill-after=5", "120"].map(str::to_owned);
        plain(&[limit.to_vec(), self.words(programs, "tagperf", args)].concat())
    }
}

/// A command without input, and without a secret in its environment.
fn plain(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    command.env_remove("TAGMATCH_SECRET").env_remove("TAGMATCH_SECRET_FILE");
    command
}

/// A `tagperf serve` in one container, and its client in another one.
fn pair(programs: &Programs, [server, client]: [Container; 2], args: &str) -> Output {
    let (_, device) = args.split_once("--device ").unwrap();
    let server = server.serve(programs, device);
    client_of(&server, programs, client, args).output().unwrap()
}

fn client_of(server: &Server, programs: &Programs, client: Container, args: &str) -> Command {
    let (test, rest) = args.split_once(' ').unwrap();
    let args = format!("{test} 127.0.0.1:{} {rest}", server.port);
    let mut client = client.tagperf(programs, &args);
    client.env("TAGMATCH_SECRET", server.secret());
    client
}

/// A pair measures, and every byte is right.
fn exchange(programs: &Programs, pair_of: [Container; 2], args: &str) {
    let output = pair(programs, pair_of, args);
    let document = printed(&output);
    assert_eq!(document["validated"], true, "{args}");
    let rows = document["results"].as_array().unwrap();
    assert!(rows.len() >= 2, "{args}: {document}");
}

/// A measurement that is refused, and why.
fn refused(programs: &Programs, pair_of: [Container; 2], args: &str, why: &str) {
    let output = pair(programs, pair_of, args);
    let message = text(&output.stderr);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{:?}: {message}", output.status);
    assert!(message.contains(why) && message.lines().count() == 1, "{message}");
}

#[test]
#[ignore = "needs root: ci/test --nightly containers"]
fn messages_between_containers_are_right() {
    let programs = Programs::new("containers");
    for between in [[ROOT, ROOT], [ORDINARY, ORDINARY], [OWN_IPC, OWN_IPC], [NONE, ROOT]] {
        for device in ["shm", "auto"] {
            exchange(&programs, between, &format!("{LAT} --device {device}"));
        }
        exchange(&programs, between, &format!("{BW} --device shm"));
    }
}

#[test]
#[ignore = "needs root: ci/test --nightly containers"]
fn without_process_vm_readv_messages_are_right() {
    let programs = Programs::new("readv");
    const EPERM: &str = "process_vm_readv,process_vm_writev=EPERM";
    const ENOSYS: &str = "process_vm_readv,process_vm_writev=ENOSYS";
    for denied in [EPERM, ENOSYS] {
        let without = NONE.without(denied);
        for between in [[without, without], [without, NONE], [NONE, without]] {
            exchange(&programs, between, &format!("{LAT} --device shm"));
        }
        exchange(&programs, [ROOT.without(denied); 2], &format!("{BW} --device shm"));
        let info = without.tagperf(&programs, "info").output().unwrap();
        let info = text(&info.stdout);
        assert!(info.contains("copied through the device, two copies"), "{info}");
        assert!(info.contains("the kernel refuses process_vm_readv; next: grep Seccomp"), "{info}");
    }
}

#[test]
#[ignore = "needs root: ci/test --nightly containers"]
fn other_forbidden_calls_only_cost_time() {
    let programs = Programs::new("calls");
    for denied in ["membarrier=EPERM", "pidfd_open=EPERM", "close_range,statx,clone3=ENOSYS"] {
        let without = NONE.without(denied);
        for between in [[without, without], [without, ROOT], [ROOT, without]] {
            exchange(&programs, between, &format!("{LAT} --device shm"));
        }
    }
}

#[test]
#[ignore = "needs root: ci/test --nightly containers"]
fn without_memfd_create_the_error_names_it() {
    let programs = Programs::new("memfd");
    let without = ROOT.without("memfd_create=EPERM");
    let why = "the seccomp profile of a container must allow memfd_create(2)";
    let args = format!("{LAT} --device shm");
    refused(&programs, [without, ROOT], &args, why);
    refused(&programs, [ROOT, without], &args, why);
    let info = text(&without.tagperf(&programs, "info").output().unwrap().stdout).to_owned();
    assert!(info.contains(why) && info.contains("next: grep Seccomp"), "{info}");
}

/// Two users, or users that the kernel can't tell apart, don't reach each other over shared memory.
/// They reach each other over TCP.
#[test]
#[ignore = "needs root: ci/test --nightly containers"]
fn users_that_differ_or_have_no_number_take_tcp() {
    let programs = Programs::new("users");
    let overflow = Container { user: OVERFLOW_USER, ..UNMAPPED };
    for between in [[ROOT, ORDINARY], [UNMAPPED, UNMAPPED], [ORDINARY, UNMAPPED], [overflow; 2]] {
        refused(&programs, between, &format!("{LAT} --device shm"), "network namespace or user");
        exchange(&programs, between, &format!("{LAT} --device auto"));
    }
}

/// Without a pidfd of the other process, since that has no number here.
#[test]
#[ignore = "needs root: ci/test --nightly containers"]
fn a_death_in_another_container_is_noticed() {
    let programs = Programs::new("death");
    let server = ROOT.serve(&programs, "shm");
    let lat = "lat --sizes 8 --device shm --duration 50s";
    let mut client = client_of(&server, &programs, ROOT, lat);
    let client = client.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    drop(server);
    let output = client.wait_with_output().unwrap();
    let message = text(&output.stderr);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{:?}: {message}", output.status);
}

#[test]
#[ignore = "needs root: ci/test --nightly containers"]
fn the_ranks_of_a_job_are_containers() {
    let programs = Programs::new("job");
    for container in [ROOT, OWN_IPC, ROOT.without("process_vm_readv,process_vm_writev=EPERM")] {
        for (program, args) in [
            ("launched", ""),
            ("tagperf", "allreduce --sizes 8,64K --iters 10 --warmup 2"),
            ("tagperf", "alltoall --sizes 8,64K --iters 10 --warmup 2"),
        ] {
            let mut run = NONE.tagperf(&programs, "run -n 4 --");
            let run = run.args(container.words(&programs, program, args));
            let output = run.output().unwrap();
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{program} {args}: {said}");
        }
    }
}
