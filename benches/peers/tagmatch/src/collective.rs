//! The collective operations of `benches/peers/mpi.c`, in the same order and as often. Change both
//! together.

use std::mem;
use std::time::{Duration, Instant};

use tagmatch::{Address, Buffer, Worker};
use tagmatch_comm::coll::{Op, from_bytes, to_bytes};
use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_comm::{Comm, Config, Runtime};
use tagmatch_launch::Job;

use crate::case::{Case, Kind, Operation, Outcome, Samples, print_begin};
use crate::probe::Probe;

const CONTROL: u32 = 5;
const SIZE_MAX: usize = 2 << 20;

/// One of the two ranks.
pub(crate) struct Pair {
    world: Comm<WorkerNet>,
    sum: Op,
    /// The buffer that a call takes and gives back.
    buffer: Buffer,
    probe: Probe,
}

impl Pair {
    pub(crate) fn new(worker: Worker, other: Address, first: bool) -> Outcome<Self> {
        let own = worker.address();
        let (addresses, rank) = if first { ([own, other], 0) } else { ([other, own], 1) };
        let net = WorkerNet::new(worker, addresses.to_vec(), rank)?;
        let world = Runtime::new(net, Config::default())?.world();
        Ok(Pair {
            world,
            sum: Op::sum::<u64>(),
            buffer: Buffer::default(),
            probe: Probe::new(first)?,
        })
    }

    pub(crate) fn run(mut self, cases: &[Case], milliseconds: f64) -> Outcome<()> {
        let duration = Duration::try_from_secs_f64(milliseconds / 1e3)?;
        for case in cases {
            let Kind::Collective { operation, size } = case.kind else {
                return Err(format!("{} is no collective operation", case.name).into());
            };
            if size > SIZE_MAX || !size.is_multiple_of(8) {
                return Err(format!("{}: multiples of 8 bytes would be right", case.name).into());
            }
            self.check(operation, size).map_err(|why| format!("{}: {why}", case.name))?;
            self.run_timed(case, operation, size, duration)?;
        }
        self.agree(0)?;
        Ok(())
    }

    fn run_timed(
        &mut self,
        case: &Case,
        operation: Operation,
        size: usize,
        duration: Duration,
    ) -> Outcome<()> {
        let each = if operation == Operation::Alltoall { 2 } else { 1 };
        self.buffer = vec![1; each * size].into();
        let is_first = self.world.rank() == 0;
        if is_first {
            print_begin(case);
        }
        let before = self.probe.distance();
        if !is_first {
            loop {
                match self.agree(0)? {
                    0 => {
                        self.probe.distance();
                        return Ok(());
                    }
                    count => self.calls(operation, size, count, 0)?,
                }
            }
        }
        // The first pass is warm-up.
        for (duration, is_last) in [(duration / 4, false), (duration, true)] {
            let mut samples = Samples::begin();
            while !samples.enough(duration) {
                self.agree(case.batch)?;
                let start = Instant::now();
                self.calls(operation, size, case.batch, 0)?;
                samples.push(start.elapsed().as_nanos() as f64 / case.batch as f64);
            }
            if is_last {
                self.agree(0)?;
                samples.print(case, [before, self.probe.distance()]);
            }
        }
        Ok(())
    }

    /// `root` is the root of the first broadcast. Roots take turns, so that none runs ahead.
    fn calls(
        &mut self,
        operation: Operation,
        size: usize,
        count: usize,
        mut root: u32,
    ) -> Outcome<()> {
        for _ in 0..count {
            let data = mem::take(&mut self.buffer);
            self.buffer = match operation {
                Operation::Barrier => self.world.barrier().wait().map(|()| data),
                Operation::Bcast => self.world.broadcast(root, data).wait(),
                Operation::Allreduce => self.world.allreduce(data, &self.sum).wait(),
                Operation::Alltoall => self.world.alltoall(data).wait(),
                // The result is the memory of this rank's part in the next call.
                Operation::Allgather => {
                    self.world.allgather(data).wait().map(|blocks| blocks.resized(size))
                }
                Operation::Dup => self.world.dup().wait().map(|copy| {
                    copy.free();
                    data
                }),
                Operation::Agree => self.world.agree(u64::MAX).wait().map(|_| data),
            }?;
            root ^= 1;
        }
        Ok(())
    }

    /// Checks each result once, at both ranks.
    fn check(&mut self, operation: Operation, size: usize) -> Outcome<()> {
        let rank = u64::from(self.world.rank());
        let bytes =
            |seed: u64| (0..size as u64).map(move |i| (seed + i * 7 + i / 251).to_le_bytes()[0]);
        let values =
            |factor: u64| to_bytes(&(1..=size as u64 / 8).map(|i| i * factor).collect::<Vec<_>>());
        let mut check = |given: Vec<u8>, wanted: Vec<u8>, root: u32| {
            self.buffer = given.into();
            self.calls(operation, size, 1, root)?;
            if self.buffer == wanted { Ok(()) } else { Err("a wrong result".into()) }
        };
        match operation {
            Operation::Bcast => (0..2).try_for_each(|root: u32| {
                let given = if rank == u64::from(root) { 11 } else { 12 };
                check(bytes(given).collect(), bytes(11).collect(), root)
            }),
            Operation::Allreduce => check(values(rank + 1), values(3), 0),
            Operation::Alltoall => {
                let given = (0..2).flat_map(|to| bytes(11 + 2 * rank + to)).collect();
                check(given, (0..2).flat_map(|from| bytes(11 + 2 * from + rank)).collect(), 0)
            }
            Operation::Allgather => {
                let given: Vec<u8> = bytes(11 + rank).collect();
                let blocks = self.world.allgather(given).wait()?;
                let wanted: Vec<u8> = (0..2).flat_map(|from| bytes(11 + from)).collect();
                if blocks == wanted { Ok(()) } else { Err("a wrong result".into()) }
            }
            Operation::Barrier | Operation::Dup => check(Vec::new(), Vec::new(), 0),
            Operation::Agree => {
                let agreed = self.world.agree(!(1 << rank)).wait()?;
                if agreed.flags == !3 { Ok(()) } else { Err("wrong flags".into()) }
            }
        }
    }

    /// Both ranks agree on how many calls the next batch has; 0 ends the case. This is also a
    /// barrier.
    fn agree(&self, count: usize) -> Outcome<usize> {
        let mut number = to_bytes(&[count as u64]);
        let first = self.world.rank() == 0;
        if first {
            self.world.send(1, CONTROL, number.clone()).wait()?;
        }
        let other = u32::from(first);
        number = self.world.recv(other, CONTROL, number).wait()?.data().to_vec();
        if !first {
            self.world.send(0, CONTROL, number.clone()).wait()?;
        }
        let count = from_bytes::<u64>(&number).first().copied().unwrap_or(0);
        Ok(usize::try_from(count)?)
    }
}

/// Barriers of a launched job with more ranks than cores, as in `benches/peers/mpi.c`.
pub(crate) fn run_ranks(case: &Case, ranks: u32, milliseconds: f64) -> Outcome<()> {
    let duration = Duration::try_from_secs_f64(milliseconds / 1e3)?;
    let mut job = Job::join()?;
    let worker = Worker::new(tagmatch::Config::default())?;
    let net = WorkerNet::meet(worker, job.rank(), |own| job.exchange(own))?;
    let world = Runtime::new(net, Config::default())?.world();
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
