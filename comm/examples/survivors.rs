//! A job that outlives one of its ranks: the program that README shows.
//!
//! `cargo build -p tagmatch-comm --example survivors`; README says how launchers start it.

use std::process::{Command, id};

use tagmatch::{Address, Config as WorkerConfig, Worker};
use tagmatch_comm::coll::{Op, from_bytes, to_bytes};
use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_comm::{Config, Runtime, Source};
use tagmatch_launch::Job;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut job = Job::join()?; // whoever has launched it
    let worker = Worker::new(WorkerConfig::default())?;
    let addresses = job.exchange(worker.address().as_bytes())?;
    let addresses: Result<Vec<_>, _> = addresses.iter().map(|a| Address::from_bytes(a)).collect();
    let net = WorkerNet::new(worker, addresses?, job.rank())?;
    let world = Runtime::new(net, Config::default())?.world();

    // Even ranks and odd ones, each in a ring. A matched probe takes a message; then its buffer is made.
    let ring = world.split(Some(world.rank() % 2), 0)?.ok_or("no ring")?;
    let sent = ring.send((ring.rank() + 1) % ring.size(), 7, vec![1; 1000 * ring.size() as usize]);
    let message = ring.mprobe_blocking(Source::Any, 7)?;
    let room = vec![0; usize::try_from(message.status().length)?];
    let received = message.recv(room).wait()?.data().len();
    sent.wait()?;

    if world.rank() == 1 {
        Command::new("kill").args(["-9", &id().to_string()]).status()?;
    }
    while world.barrier().is_ok() {} // until somebody misses it ...
    world.revoke(); // ... and tells everybody
    let living = world.shrink()?;
    let sum = living.allreduce(to_bytes(&[received as u64]), &Op::sum::<u64>())?;
    if living.rank() == 0 {
        let (before, after, sum) = (world.size(), living.size(), from_bytes::<u64>(&sum)[0]);
        println!("{after} of {before} go on; together they received {sum} bytes");
    }
    living.barrier()?; // nobody goes while others need it
    job.leave()?;
    Ok(())
}
