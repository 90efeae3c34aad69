//! A job that outlives one of its ranks: the program that docs/communicators.md shows.
//!
//! `cargo build -p tagmatch-comm --example survivors`; that page says how launchers start it.

use std::process::Command;

use tagmatch::{Config as WorkerConfig, Worker};
use tagmatch_comm::coll::{Op, from_bytes, to_bytes};
use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_comm::{Config, Runtime, Source};
use tagmatch_launch::Job;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut job = Job::join()?; // whoever has launched it
    let worker = Worker::new(WorkerConfig::default())?;
    let net = WorkerNet::meet(worker, job.rank(), |own| job.exchange(own))?;
    let world = Runtime::new(net, Config::default())?.world();
    if world.size() < 2 {
        return Err("nobody is left when rank 1 dies; start it as 4 ranks".into());
    }
    // Even ranks and odd ones, each in a ring. A matched probe takes a message; then its buffer is
    // made.
    let ring = world.split(Some(world.rank() % 2), 0).wait()?.ok_or("no ring")?;
    let sent = ring.send((ring.rank() + 1) % ring.size(), 7, vec![1; 1000 * ring.size() as usize]);
    let received = ring.mprobe_blocking(Source::Any, 7)?.recv_whole().wait()?.data().len() as u64;
    sent.wait()?;
    if world.rank() == 1 {
        Command::new("sh").args(["-c", "kill -9 $PPID"]).status()?;
    }
    while world.barrier().wait().is_ok() {} // until somebody misses it ...
    world.revoke(); // ... and tells everybody
    let living = world.shrink().wait()?;
    let sum =
        from_bytes::<u64>(&living.allreduce(to_bytes(&[received]), &Op::sum::<u64>()).wait()?)[0];
    if living.rank() == 0 {
        println!("{} of {} go on; together they received {sum} bytes", living.size(), world.size());
    }
    living.barrier().wait()?; // nobody goes while others need it
    Ok(job.leave()?)
}
