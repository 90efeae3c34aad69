//! A job that any launcher starts: splits the world, adds up ranks, prints two lines.
//!
//! `cargo build -p tagmatch-comm --example launched`, then one of `tagperf run -n 4 --`,
//! `mpiexec.hydra -n 4` and `mpirun -n 4 --oversubscribe` with `target/debug/examples/launched`.

use tagmatch::{Config as WorkerConfig, Worker};
use tagmatch_comm::coll::{Op, from_bytes, to_bytes};
use tagmatch_comm::net::Net;
use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_comm::{Config, Runtime};
use tagmatch_launch::Job;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut job = Job::join()?;
    let worker = Worker::new(WorkerConfig::default())?;
    let net = WorkerNet::meet(worker, job.rank(), |own| job.exchange(own))?;
    let runtime = Runtime::new(net, Config::default())?;
    let world = runtime.world();

    // Even ranks and odd ones, each among themselves.
    let half = world.split(Some(world.rank() % 2), 0).wait()?.ok_or("no half")?;
    let own = to_bytes(&[u64::from(world.rank())]);
    let sum = from_bytes::<u64>(&half.allreduce(own.clone(), &Op::sum::<u64>()).wait()?)[0];
    let all = from_bytes::<u64>(&world.allreduce(own, &Op::sum::<u64>()).wait()?)[0];
    if world.rank() == 0 {
        let launcher = job.launcher();
        let size = world.size();
        println!("{size} ranks by {launcher}: {sum} over the even ones, {all} over all");
        println!("blocking calls yield after {} polls", runtime.with_net(Net::wait_policy).spin);
    }
    // Nobody goes before all are done with each other.
    world.barrier().wait()?;
    job.leave()?;
    Ok(())
}
