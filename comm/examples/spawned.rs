//! A job that starts another one, as `MPI_Comm_spawn` does; then all are ranks of one communicator.
//!
//! `cargo build -p tagmatch-comm --example spawned`, then one of `tagperf run -n 2 --`,
//! `mpiexec.hydra -n 2` and `mpirun -n 2 --oversubscribe` with `target/debug/examples/spawned`.

use std::env;

use tagmatch::{Config as WorkerConfig, Worker};
use tagmatch_comm::coll::{Op, from_bytes, to_bytes};
use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_comm::{Config, PortName, Runtime, Uniformity};
use tagmatch_launch::{Job, Spawn};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut job = Job::join()?;
    let worker = Worker::new(WorkerConfig::default())?;
    let net = WorkerNet::meet(worker, job.rank(), |own| job.exchange(own))?;
    let world = Runtime::new(net, Config::default())?.world();

    let (is_child, others) = if let Some(word) = job.parent() {
        // Its parents are at the port of which they have told it the name.
        (true, world.connect(Uniformity::Strict, 0, Some(word.parse()?)).wait()?)
    } else {
        let more = Spawn::new(vec![env::current_exe()?.into()], 3);
        let start = |port: &PortName| job.spawn(&more, &port.to_string());
        (false, world.spawn(Uniformity::Strict, 0, (world.rank() == 0).then_some(start)).wait()?)
    };
    let all = others.merge(is_child).wait()?;
    let own = to_bytes(&[u64::from(all.rank())]);
    let sum = from_bytes::<u64>(&all.allreduce(own, &Op::sum::<u64>()).wait()?)[0];
    if all.rank() == 0 {
        let before = world.size();
        let more = others.remote_size();
        println!("{before} ranks have started {more}; the ranks of all make {sum}");
    }
    all.barrier().wait()?;
    job.leave()?;
    Ok(())
}
