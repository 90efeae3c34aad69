//! How long the ranks of a job take to meet, from the start of the last one.
//!
//! `cargo build --release -p tagmatch-comm --example meeting`, then one of `tagperf run -n 512 --`,
//! `mpiexec.hydra -n 512` and `mpirun -n 512 --oversubscribe` with
//! `target/release/examples/meeting`.

use std::time::{SystemTime, UNIX_EPOCH};

use tagmatch::{Config, Worker};
use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_launch::Job;

/// Microseconds of a clock that all processes of a machine read.
fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let started = now();
    let mut job = Job::join()?;
    let joined = now();
    let worker = Worker::new(Config::default())?;
    let mut exchanged = 0;
    let _net = WorkerNet::meet(worker, job.rank(), |own| {
        let all = job.exchange(own);
        exchanged = now();
        all
    })?;
    let own = [started, joined, exchanged, now()].map(u128::to_le_bytes).concat();
    let all = job.exchange(&own)?;
    if job.rank() == 0 {
        let time = |of: &Vec<u8>, at: usize| of.chunks(16).nth(at)?.try_into().ok();
        let times = |at| all.iter().filter_map(move |of| time(of, at)).map(u128::from_le_bytes);
        let last = |at| times(at).max().unwrap_or(0);
        let after = |at| (last(at) - last(0)) as f64 / 1e3;
        let first = times(0).min().unwrap_or(0);
        println!(
            "{} ranks by {}: all started in {:.1} ms; since the last start, all had joined after \
             {:.1}, exchanged after {:.1}, and met after {:.1} ms",
            job.size(),
            job.launcher(),
            (last(0) - first) as f64 / 1e3,
            after(1),
            after(2),
            after(3)
        );
    }
    job.leave()?;
    Ok(())
}
