//! Jobs of real processes. A test starts its own program again for every rank, with a role in the
//! environment. In that process the test `role` runs the code of the role. Without a role in the
//! environment it does nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use tagmatch::model::{Chance, Delay, Knobs, ModelConfig};
use tagmatch::ofi::OfiConfig;
use tagmatch::tcp::TcpConfig;
use tagmatch::verbs::VerbsConfig;
use tagmatch::{Access, Config as WorkerConfig, DeviceConfig, HwTags, Secret, TagLayout, WorkerOf};
use tagmatch_comm::net::Net;
use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_comm::{Config, Runtime};
use tagmatch_launch::wire::{from_hex, to_hex};

const ROLE: &str = "TAGMATCH_COMM_TEST_ROLE";
const RANK: &str = "TAGMATCH_COMM_TEST_RANK";
/// This variable is set in ranks whose workers have a NIC that matches.
const NIC: &str = "TAGMATCH_COMM_TEST_NIC";
/// Two network namespaces that stand for two machines. The first half of each job's ranks runs in
/// one, the others run in the other one. Only root can start a process in a network namespace.
const MACHINES: &str = "TAGMATCH_COMM_TEST_MACHINES";

/// A job of this program's processes. Dropping it kills the processes that still run.
pub(crate) struct Job(Vec<(Child, BufReader<ChildStdout>)>);

impl Job {
    /// Starts the ranks, and gives the addresses and places of all ranks to each.
    pub(crate) fn start(role: &str, ranks: usize) -> Self {
        Self::start_with(role, ranks, &[])
    }

    /// As [`start`](Self::start), with a NIC that matches in each rank.
    pub(crate) fn on_nics(role: &str, ranks: usize) -> Self {
        Self::start_with(role, ranks, &[(NIC, "1")])
    }

    fn start_with(role: &str, ranks: usize, environment: &[(&str, &str)]) -> Self {
        let start = |rank: usize| {
            let mut child = program(rank, ranks)
                .envs(environment.iter().copied())
                .args(["--exact", "role", "--nocapture", "--test-threads=1"])
                .env(ROLE, role)
                .env(RANK, rank.to_string())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let output = BufReader::new(child.stdout.take().unwrap());
            (child, output)
        };
        let mut job = Job((0..ranks).map(start).collect());
        let addresses: Vec<String> = (0..ranks).map(|rank| job.hear(rank, "address")).collect();
        (0..ranks).for_each(|rank| job.tell(rank, addresses.join(" ")));
        job
    }

    /// The text of the next line of a rank that begins with this word.
    pub(crate) fn hear(&mut self, rank: usize, word: &str) -> String {
        for line in self.0[rank].1.by_ref().lines() {
            let line = line.unwrap();
            // The first line has text of the test runner before the word.
            if let Some(at) = line.find(&format!("@{word}")) {
                return line[at + word.len() + 1..].trim().to_owned();
            }
        }
        panic!("rank {rank} ended without saying {word}");
    }

    /// Sends a line to a rank, which reads it by [`told`].
    pub(crate) fn tell(&mut self, rank: usize, line: impl std::fmt::Display) {
        writeln!(self.0[rank].0.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn kill(&mut self, rank: usize) {
        self.0[rank].0.kill().unwrap();
        self.0[rank].0.wait().unwrap();
    }

    /// Waits until all ranks have ended. A rank that is not in `dead` must end without an error.
    pub(crate) fn finish(mut self, dead: &[usize]) {
        for (rank, (child, _)) in self.0.iter_mut().enumerate() {
            assert!(child.wait().unwrap().success() || dead.contains(&rank), "rank {rank} failed");
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for (child, _) in &mut self.0 {
            // The process may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// This program, to be started as one of some ranks on the machine of that rank.
fn program(rank: usize, ranks: usize) -> Command {
    let own = std::env::current_exe().unwrap();
    let Ok(machines) = std::env::var(MACHINES) else { return Command::new(own) };
    let namespace = machines.split(',').nth(machine(rank, ranks)).unwrap();
    // `ip` becomes the program, so it has the number of the process that a test kills.
    let mut ip = Command::new("ip");
    ip.args(["netns", "exec", namespace]).arg(own);
    ip
}

/// Sends a line to the test that started this process.
pub(crate) fn say(word: &str, rest: impl std::fmt::Display) {
    println!("@{word} {rest}");
    std::io::stdout().flush().unwrap();
}

/// The next line from the test that started this process.
pub(crate) fn told() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// Joins the job. See [`transport`].
pub(crate) fn join<A: Access + 'static>() -> Runtime<WorkerNet<A>> {
    Runtime::new(transport(), settings()).unwrap()
}

/// A transport to all ranks: sends this process's address and place, and reads those of all ranks.
pub(crate) fn transport<A: Access + 'static>() -> WorkerNet<A> {
    let worker = WorkerOf::<A>::new(worker_config()).unwrap();
    let rank = std::env::var(RANK).unwrap().parse().unwrap();
    let exchange = |own: &[u8]| {
        say("address", to_hex(own));
        let all = told();
        all.split_whitespace().map(|one| from_hex(one).ok_or("not hexadecimal")).collect()
    };
    WorkerNet::meet(worker, rank, exchange).unwrap()
}

/// The settings of a runtime. A device that matches by itself has fewer bits for tags.
pub(crate) fn settings<N: Net>() -> Config<N> {
    let tags = match std::env::var("TAGMATCH_TEST_DEVICE").as_deref() {
        Ok("ofi") => TagLayout::new(16, 12, 19).unwrap(),
        _ => TagLayout::MPI,
    };
    Config::default().tags(tags)
}

/// The settings of this process's worker. With [`NIC`] set, the worker has a NIC that matches all
/// receives that it can. `ci/test planted` sets the variable for all tests between processes. With
/// `TAGMATCH_TEST_DEVICE=tcp` the worker is on TCP, on loopback, as in `ci/test tcp`; with `verbs`
/// on RDMA, and with `verbs+nic` the device's NIC matches all receives that it can, as in `ci/test
/// hca`; with `ofi` on the provider of `TAGMATCH_TEST_OFI`. Between two machines it is on all
/// networks that the default has where there is a secret.
fn worker_config() -> WorkerConfig {
    let secret = || Secret::from_bytes(b"the secret of these tests").ok();
    let default = match std::env::var("TAGMATCH_TEST_DEVICE").as_deref() {
        Ok("tcp") => {
            let listen = vec![std::net::Ipv4Addr::LOCALHOST.into()];
            let device = DeviceConfig::Tcp(TcpConfig::default().listen(listen));
            WorkerConfig::default().device(device).secret(secret())
        }
        Ok(verbs @ ("verbs" | "verbs+nic")) => {
            let hw_tags = if verbs == "verbs" { HwTags::Off } else { HwTags::Auto };
            let device = DeviceConfig::Verbs(VerbsConfig::default());
            WorkerConfig::default().device(device).hw_tags(hw_tags).hw_tags_threshold(0)
        }
        Ok("ofi") => {
            let provider = std::env::var("TAGMATCH_TEST_OFI").ok();
            let device = DeviceConfig::Ofi(OfiConfig::default().provider(provider));
            let layout = TagLayout::new(0, 12, 47).unwrap();
            WorkerConfig::default().device(device).layout(layout)
        }
        _ if is_divided() => WorkerConfig::default().secret(secret()),
        _ => WorkerConfig::default(),
    };
    match std::env::var(NIC) {
        Ok(_) => {
            // Like a card, it answers after some time.
            let answer = Delay { chance: Chance::ALWAYS, ticks_max: 20 };
            let knobs = Knobs::default().answer(answer);
            let hw_tags = HwTags::Model(ModelConfig::default().knobs(knobs));
            default.hw_tags(hw_tags).hw_tags_threshold(0)
        }
        Err(_) => default,
    }
}

/// Whether the ranks of a job are divided between two machines.
pub(crate) fn is_divided() -> bool {
    std::env::var(MACHINES).is_ok()
}

/// The machine of a rank, 0 or 1, if the ranks of its job are divided between two machines.
pub(crate) fn machine(rank: usize, ranks: usize) -> usize {
    rank / ranks.div_ceil(2)
}

/// The role of this process, if it has one.
pub(crate) fn role_of() -> Option<String> {
    std::env::var(ROLE).ok()
}
