//! How long collective calls take between processes over shared memory: median and minimum, in
//! microseconds.
//!
//! `cargo run --release -p tagmatch-comm --example collectives -- [RANKS]` starts the ranks itself.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tagmatch::{Address, Config as WorkerConfig, Worker};
use tagmatch_comm::coll::Op;
use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_comm::{Comm, Config, Runtime};

type Error = Box<dyn std::error::Error>;

const ROUNDS: usize = 20_000;
const WARM_UP: usize = 2_000;

fn main() -> Result<(), Error> {
    let argument = std::env::args().nth(1).unwrap_or_else(|| "2".to_owned());
    match argument.strip_prefix("rank=") {
        Some(rank) => measure(rank.parse()?),
        None => launch(argument.parse()?),
    }
}

/// Starts the ranks, and hands all addresses to each.
fn launch(ranks: usize) -> Result<(), Error> {
    let program = std::env::current_exe()?;
    let mut children: Vec<Child> = Vec::new();
    for rank in 0..ranks {
        let mut command = Command::new(&program);
        command.arg(format!("rank={rank}")).stdin(Stdio::piped()).stdout(Stdio::piped());
        children.push(command.spawn()?);
    }
    let mut outputs = Vec::new();
    let mut addresses = Vec::new();
    for child in &mut children {
        let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        addresses.push(line.trim().to_owned());
        outputs.push(output);
    }
    for child in &mut children {
        writeln!(child.stdin.as_mut().ok_or("no input")?, "{}", addresses.join(" "))?;
    }
    println!("{ranks} ranks over shared memory      median     min  us");
    for line in outputs.remove(0).lines() {
        println!("{}", line?);
    }
    for mut child in children {
        child.wait()?;
    }
    Ok(())
}

fn measure(rank: u32) -> Result<(), Error> {
    let worker = Worker::new(WorkerConfig::default())?;
    println!("{}", worker.address());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let addresses = line.split_whitespace().map(str::parse).collect::<Result<Vec<Address>, _>>()?;
    let runtime = Runtime::new(WorkerNet::new(worker, addresses, rank)?, Config::default())?;
    let world = runtime.world();
    let sum = Op::sum::<u64>();
    let print = |name: &str, times: Vec<Duration>| {
        if rank == 0 {
            let us = |time: Duration| time.as_secs_f64() * 1e6;
            println!("{name:30} {:8.2} {:8.2}", us(times[times.len() / 2]), us(times[0]));
        }
    };
    print("barrier", times(&world, || world.barrier().wait())?);
    print("broadcast of 8 bytes", times(&world, || world.broadcast(0, vec![0; 8]).wait())?);
    print("allreduce of 8 bytes", times(&world, || world.allreduce(vec![0; 8], &sum).wait())?);
    print(
        "alltoall of 8 bytes each",
        times(&world, || world.alltoall(vec![0; 8 * world.size() as usize]).wait())?,
    );
    print("dup and free", times(&world, || world.dup().wait())?);
    Ok(())
}

/// Times of a call, sorted. A barrier before each keeps the ranks together.
fn times<T>(
    world: &Comm<WorkerNet>,
    call: impl Fn() -> Result<T, tagmatch_comm::Error>,
) -> Result<Vec<Duration>, Error> {
    let mut times = Vec::with_capacity(ROUNDS);
    for round in 0..WARM_UP + ROUNDS {
        world.barrier().wait()?;
        let start = Instant::now();
        drop(call()?);
        if round >= WARM_UP {
            times.push(start.elapsed());
        }
    }
    times.sort_unstable();
    Ok(times)
}
