//! The collective operations of `benches/peers/mpi.c`, in the same order and as often. Change both
//! together.

use std::time::{Duration, Instant};

use tagmatch::{Address, Worker};
use tagmatch_comm::coll::{from_bytes, to_bytes};
use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_comm::{Config, Runtime};
use tagmatch_launch::Job;
use tagperf::shared::{Call, World};

use crate::case::{Case, Kind, Outcome};
use crate::probe::Probe;
use crate::timing::{Process, Samples, measure, print_begin};

const CONTROL: u32 = 5;
const SIZE_MAX: usize = 2 << 20;

/// One of the two ranks, with the operation that it measures.
struct Rank<'a> {
    world: &'a World,
    call: Call<'a>,
    probe: &'a mut Probe,
}

/// Measures collective operations of two ranks.
pub(crate) fn run_pair(
    worker: Worker,
    other: Address,
    first: bool,
    cases: &[Case],
    duration: Duration,
) -> Outcome<()> {
    let own = worker.address();
    let (addresses, rank) = if first { ([own, other], 0) } else { ([other, own], 1) };
    let net = WorkerNet::new(worker, addresses.to_vec(), rank)?;
    let world = Runtime::new(net, Config::default())?.world();
    let mut probe = Probe::new(first)?;
    for case in cases {
        let Kind::Collective { operation, size } = case.kind else {
            return Err(format!("{} is no collective operation", case.name).into());
        };
        if size > SIZE_MAX || !size.is_multiple_of(8) {
            return Err(format!("{}: expected a multiple of 8 bytes", case.name).into());
        }
        let mut call = Call::new(operation, size as u64, &world);
        for root in [1, 0] {
            call.root = root;
            call.check(true).map_err(|why| format!("{}: {why}", case.name))?;
        }
        measure(&mut Rank { world: &world, call, probe: &mut probe }, case, 1, duration)?;
    }
    agree(&world, 0)?;
    Ok(())
}

impl Process for Rank<'_> {
    fn is_first(&self) -> bool {
        self.world.rank() == 0
    }

    fn probe(&mut self) -> &mut Probe {
        self.probe
    }

    fn agree(&self, count: usize) -> Outcome<usize> {
        agree(self.world, count)
    }

    fn batch(&mut self, _: &Case, count: usize) -> Outcome<()> {
        self.call.root = 0;
        for _ in 0..count {
            self.call.run()?;
            // Roots take turns, so that none runs ahead.
            self.call.root ^= 1;
        }
        Ok(())
    }
}

/// Both ranks agree on how many calls the next batch has.
fn agree(world: &World, count: usize) -> Outcome<usize> {
    let mut number = to_bytes(&[count as u64]);
    let is_first = world.rank() == 0;
    if is_first {
        world.send(1, CONTROL, number.clone()).wait()?;
    }
    let other = u32::from(is_first);
    number = world.recv(other, CONTROL, number).wait()?.data().to_vec();
    if !is_first {
        world.send(0, CONTROL, number.clone()).wait()?;
    }
    let count = from_bytes::<u64>(&number).first().copied().unwrap_or(0);
    Ok(usize::try_from(count)?)
}

/// Joins the job that a launcher has made.
pub(crate) fn join() -> Outcome<(Job, World)> {
    let mut job = Job::join()?;
    let worker = Worker::new(tagmatch::Config::default())?;
    let net = WorkerNet::meet(worker, job.rank(), |own| job.exchange(own))?;
    let world = Runtime::new(net, Config::default())?.world();
    Ok((job, world))
}

/// Barriers of a launched job with more ranks than cores, as in `benches/peers/mpi.c`.
pub(crate) fn run_ranks(case: &Case, ranks: u32, duration: Duration) -> Outcome<()> {
    let (job, world) = join()?;
    if world.size() != ranks {
        return Err(format!("{}: {} ranks", case.name, world.size()).into());
    }
    if world.rank() == 0 {
        println!("version tagmatch {}", env!("CARGO_PKG_VERSION"));
        print_begin(case);
    }
    // The first pass is warm-up.
    for (duration, is_last) in [(duration / 4, false), (duration, true)] {
        let mut samples = Samples::begin();
        loop {
            let count = if samples.enough(duration) { 0 } else { case.batch as u64 };
            let count = world.broadcast(0, to_bytes(&[count])).wait()?;
            let count = from_bytes::<u64>(&count).first().copied().unwrap_or(0);
            if count == 0 {
                break;
            }
            let start = Instant::now();
            for _ in 0..count {
                world.barrier().wait()?;
            }
            samples.push(start.elapsed().as_nanos() as f64 / count as f64);
        }
        if is_last && world.rank() == 0 {
            samples.print(case, [0.0; 2]);
        }
    }
    // No rank goes before all are done with each other.
    world.barrier().wait()?;
    job.leave()?;
    Ok(())
}
