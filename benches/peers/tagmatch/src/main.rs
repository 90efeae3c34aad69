//! `ci/peers`: tagmatch beside Open MPI, MPICH and UCX.
//!
//! `compare OPTIONS` lets all programs take turns ([`compare`]), and makes tables, JSON and charts
//! of what they have measured ([`report`]).
//!
//! Otherwise this is tagmatch's program: the work of `benches/peers/work.h`, over the public API.
//! It takes the arguments of the C programs: `CORE_A CORE_B MILLISECONDS CASE...`. The first
//! process measures. It starts the second one, which runs the same program and answers. The ranks
//! of `ranks` are started by a launcher, as those of `scale` are. The collective operations are
//! those that `tagperf` measures.

#![deny(unsafe_code)]

mod case;
mod collective;
mod compare;
#[allow(unsafe_code, reason = "buffers by pointer, as users of an MPI pass them")]
mod memory;
mod one_sided;
#[allow(unsafe_code, reason = "cache lines that two processes share")]
mod probe;
mod report;
mod scale;
mod timing;
mod work;

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use tagmatch::ofi::OfiConfig;
use tagmatch::shm::{SenderWrites, ShmConfig};
use tagmatch::tcp::TcpConfig;
use tagmatch::{Address, Config, DeviceConfig, Worker};

use crate::case::{Case, Kind, Outcome};
use crate::collective::{run_pair, run_ranks};
use crate::work::Side;

/// Environment variable with the address of the first process's worker; set for the second process
/// only.
const FIRST: &str = "TAGMATCH_PEERS_FIRST";

/// Environment variable with the provider of libfabric that workers use instead of shared memory.
const OFI: &str = "PEERS_OFI";

/// Environment variable with the address of this machine at which workers listen for TCP. Without
/// it they use shared memory.
const LISTEN: &str = "PEERS_ADDRESS";
/// The variable with the other process' address, if the other process is in another network
/// namespace.
const OTHER_LISTEN: &str = "PEERS_OTHER_ADDRESS";
/// The variable with the file of that namespace.
const OTHER_NETWORK: &str = "PEERS_OTHER_NETWORK";

/// The status when a program can't measure.
const FAILED: u8 = 3;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [name, options @ ..] = &arguments[..]
        && name == "compare"
    {
        return match compare::command(options) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(1),
            Err(error) => {
                eprintln!("ci/peers: {error}");
                ExitCode::from(2)
            }
        };
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(FAILED)
        }
    }
}

fn run(arguments: &[String]) -> Outcome<()> {
    if arguments == ["scale"] {
        return scale::run();
    }
    let [core_a, core_b, milliseconds, cases @ ..] = arguments else {
        return Err("usage: tagmatch-peers CORE_A CORE_B MILLISECONDS CASE...".into());
    };
    let cores: [usize; 2] = [core_a.parse()?, core_b.parse()?];
    let duration = Duration::try_from_secs_f64(milliseconds.parse::<f64>()? / 1e3)?;
    let cases = cases.iter().map(|case| case.parse()).collect::<Result<Vec<Case>, _>>()?;
    if let [case @ Case { kind: Kind::Ranks { ranks }, .. }] = &cases[..] {
        return run_ranks(case, *ranks, duration);
    }
    match env::var(FIRST) {
        Ok(first) => {
            pin(cores[1])?;
            let worker = Worker::new(config()?)?;
            println!("{}", worker.address());
            work(worker, first.parse()?, false, &cases, duration)
        }
        Err(_) => {
            pin(cores[0])?;
            println!("version tagmatch {}", env!("CARGO_PKG_VERSION"));
            let worker = Worker::new(config()?)?;
            let mut second = second()?
                .args(arguments)
                .env(FIRST, worker.address().to_string())
                .stdout(Stdio::piped())
                .spawn()?;
            let mut address = String::new();
            let output = second.stdout.take().ok_or("the other process has no output")?;
            BufReader::new(output).read_line(&mut address)?;
            work(worker, address.trim().parse()?, true, &cases, duration)?;
            let status = second.wait()?;
            if status.success() {
                Ok(())
            } else {
                Err(format!("the other process: {status}").into())
            }
        }
    }
}

/// The command of the other process.
fn second() -> Outcome<Command> {
    let program = env::current_exe()?;
    let Ok(network) = env::var(OTHER_NETWORK) else { return Ok(Command::new(program)) };
    let mut second = Command::new("nsenter");
    second.arg(format!("--net={network}")).arg(program).env(LISTEN, env::var(OTHER_LISTEN)?);
    Ok(second)
}

fn config() -> Outcome<Config> {
    if let Ok(provider) = env::var(OFI) {
        let ofi = OfiConfig::default().provider(Some(provider));
        return Ok(Config::default().device(DeviceConfig::Ofi(ofi)));
    }
    let Ok(address) = env::var(LISTEN) else {
        // All buffers are lent, as those of the peers are.
        let shm = ShmConfig::default().sender_writes(SenderWrites::AllBuffers);
        return Ok(Config::default().device(DeviceConfig::Shm(shm)));
    };
    let tcp = TcpConfig::default().listen(vec![address.parse()?]);
    Ok(Config::default().device(DeviceConfig::Tcp(tcp)))
}

/// Collective cases use a communicator, which owns the worker; all others use the worker directly.
fn work(
    worker: Worker,
    other: Address,
    first: bool,
    cases: &[Case],
    duration: Duration,
) -> Outcome<()> {
    if cases.iter().all(|case| matches!(case.kind, Kind::Collective { .. })) {
        return run_pair(worker, other, first, cases, duration);
    }
    let peer = worker.connect(&other)?;
    Side::new(worker, peer, first, env::var(OFI).is_ok())?.run(cases, duration)
}

fn pin(core: usize) -> Outcome<()> {
    if core >= CpuSet::MAX_CPU {
        return Err(format!("no core {core}").into());
    }
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).map_err(|e| format!("can't run on core {core}: {e}").into())
}
