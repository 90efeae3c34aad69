//! The measured calls: one call and its time, and the check of its result.

use std::fmt::Display;
use std::mem;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tagmatch::Buffer;
use tagmatch_comm::Error;
use tagmatch_comm::coll::{Op, from_bytes, to_bytes};
use tagmatch_results::show::{invalid, one_line, show_size};

use super::ranks::World;
use crate::failure::Failure;
use crate::units::Sizes;

/// Bytes that an alltoall may have at each rank.
const BYTES_MAX: u64 = 1 << 30;
/// Bytes of a value that is summed.
const VALUE: u64 = 8;

/// The operation that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// All wait for all.
    Barrier,
    /// The root's bytes for all.
    Bcast,
    /// The sum of all ranks' `u64` values for all.
    Allreduce,
    /// A message of each rank to each.
    Alltoall,
    /// The bytes of each rank for all; only `benches/peers` measures it.
    Allgather,
    /// A duplicate of the communicator, and its end.
    Dup,
    /// An agreement on a word of flags.
    Agree,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 7] = [
        Self::Barrier,
        Self::Bcast,
        Self::Allreduce,
        Self::Alltoall,
        Self::Allgather,
        Self::Dup,
        Self::Agree,
    ];

    /// The name in commands and cases.
    pub fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Bcast => "bcast",
            Self::Allreduce => "allreduce",
            Self::Alltoall => "alltoall",
            Self::Allgather => "allgather",
            Self::Dup => "dup",
            Self::Agree => "agree",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Bcast => "broadcast of the last rank's bytes",
            Self::Allreduce => "allreduce: the sum of u64 values, known to all",
            Self::Alltoall => "alltoall: a message of each rank to each",
            Self::Allgather => "allgather: the bytes of each rank, known to all",
            Self::Dup => "dup: a duplicate of the communicator, and its end",
            Self::Agree => "agree: a word of flags, nobody having failed",
        }
    }

    pub(super) fn has_size(self) -> bool {
        !matches!(self, Self::Barrier | Self::Dup | Self::Agree)
    }

    /// The sizes to measure; 0 for an operation without data.
    pub(super) fn sizes(self, wanted: Option<Sizes>) -> Result<Vec<u64>, Failure> {
        if !self.has_size() {
            return Ok(vec![0]);
        }
        let sizes = wanted.unwrap_or_else(|| Sizes::powers(VALUE, 1 << 20)).0;
        let odd = sizes.iter().find(|size| !size.is_multiple_of(VALUE));
        match odd.filter(|_| self == Self::Allreduce) {
            Some(size) => {
                let expected = format!("a multiple of {VALUE}, the size of a value");
                Err(Failure::Usage(invalid("size", size, expected)))
            }
            None => Ok(sizes),
        }
    }

    /// Bytes that each of `ranks` ranks gives.
    fn bytes(self, size: u64, ranks: u32) -> u64 {
        let each = if self == Self::Alltoall { ranks.into() } else { 1 };
        size.saturating_mul(each)
    }

    /// Whether the ranks have room for all sizes.
    pub(super) fn fits(self, sizes: &[u64], ranks: u32) -> Result<(), String> {
        let large = sizes.iter().find(|size| self.bytes(**size, ranks) > BYTES_MAX);
        large.map_or(Ok(()), |size| {
            let size = show_size(*size);
            let most = show_size(BYTES_MAX);
            Err(format!("--sizes: {size} for {ranks} ranks: expected at most {most} in all"))
        })
    }
}

/// One operation of one size, and the buffer that it gets and returns.
pub struct Call<'a> {
    /// The root of a broadcast. Unless it is changed it is not rank 0, so that rank 0, whose
    /// percentiles are printed, receives.
    pub root: u32,
    operation: Operation,
    world: &'a World,
    sum: Op,
    size: usize,
    buffer: Buffer,
}

impl<'a> Call<'a> {
    /// A call of a size that [fits](Operation::fits).
    pub fn new(operation: Operation, size: u64, world: &'a World) -> Self {
        let whole = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let buffer = Buffer::zeroed(whole(operation.bytes(size, world.size())));
        let size = whole(size);
        let root = world.size() - 1;
        Self { root, operation, world, sum: Op::sum::<u64>(), size, buffer }
    }

    /// Bytes that this rank gives.
    pub(super) fn bytes(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// A failure with the operation's name, size and rank.
    pub(super) fn failed(&self, why: impl Display) -> Failure {
        let name = self.operation.name();
        let rank = self.world.rank();
        let size = if self.operation.has_size() {
            format!(" of {}", show_size(self.size as u64))
        } else {
            String::new()
        };
        Failure::Measurement(one_line(format!("{name}{size} at rank {rank}: {why}")))
    }

    /// Makes the call once; returns its duration.
    pub(super) fn make(&mut self) -> Result<Duration, Error> {
        let start = Instant::now();
        self.run()?;
        Ok(start.elapsed())
    }

    /// Makes the call once, and waits for its end.
    ///
    /// # Errors
    /// A rank has failed.
    #[inline]
    pub fn run(&mut self) -> Result<(), Error> {
        let world = self.world;
        let data = mem::take(&mut self.buffer);
        self.buffer = match self.operation {
            Operation::Barrier => world.barrier().wait().map(|()| data),
            Operation::Bcast => world.broadcast(self.root, data).wait(),
            Operation::Allreduce => world.allreduce(data, &self.sum).wait(),
            Operation::Alltoall => world.alltoall(data).wait(),
            // The result is the memory of this rank's part in the next call.
            Operation::Allgather => {
                world.allgather(data).wait().map(|blocks| blocks.resized(self.size))
            }
            Operation::Dup => world.dup().wait().map(|copy| {
                copy.free();
                data
            }),
            Operation::Agree => world.agree(u64::MAX).wait().map(|_| data),
        }?;
        Ok(())
    }

    /// Makes the call once with values by which each rank can check the result. `one_clock`: all
    /// ranks read the same clock.
    ///
    /// # Errors
    /// A rank has failed, or the result is wrong; the text says what is.
    pub fn check(&mut self, one_clock: bool) -> Result<(), String> {
        let world = self.world;
        let size = self.size;
        let own = world.rank();
        let ranks = world.size();
        let text = |error: Error| error.to_string();
        match self.operation {
            Operation::Barrier if one_clock => {
                let arrival = now_ns();
                world.barrier().wait().map_err(text)?;
                let departure = now_ns();
                let all = world.allgather(to_bytes(&[arrival])).wait().map_err(text)?;
                let last = from_bytes::<u64>(&all).into_iter().max();
                right(
                    last.is_some_and(|last| last <= departure),
                    "left before the last rank had come",
                )
            }
            Operation::Barrier => world.barrier().wait().map_err(text),
            Operation::Bcast => {
                let root = self.root;
                let given = pattern(if own == root { root } else { own }, 0, size);
                let got = world.broadcast(root, given).wait().map_err(text)?;
                right(got == pattern(root, 0, size), "other bytes than the root's")
            }
            Operation::Allreduce => {
                let values = |factor: u64| -> Vec<u8> {
                    to_bytes(
                        &(0..size as u64 / VALUE).map(|i| (i + 1) * factor).collect::<Vec<_>>(),
                    )
                };
                let got =
                    world.allreduce(values(u64::from(own) + 1), &self.sum).wait().map_err(text)?;
                let ranks = u64::from(ranks);
                right(got == values(ranks * (ranks + 1) / 2), "a wrong sum")
            }
            Operation::Alltoall => {
                let to_all =
                    |of: &dyn Fn(u32) -> Vec<u8>| (0..ranks).flat_map(of).collect::<Vec<_>>();
                let given = to_all(&|to| pattern(own, to, size));
                let got = world.alltoall(given).wait().map_err(text)?;
                right(got == to_all(&|from| pattern(from, own, size)), "other bytes than were sent")
            }
            Operation::Allgather => {
                let got = world.allgather(pattern(own, 0, size)).wait().map_err(text)?;
                let sent: Vec<u8> = (0..ranks).flat_map(|from| pattern(from, 0, size)).collect();
                right(got == sent, "other bytes than were sent")
            }
            Operation::Dup => {
                let copy = world.dup().wait().map_err(text)?;
                right(copy.id() != world.id(), "the context id of its parent")?;
                works(&copy)
            }
            Operation::Agree => {
                let flag = 1 << (own % u64::BITS);
                let agreed = world.agree(!flag).wait().map_err(text)?;
                let all =
                    (0..ranks).fold(u64::MAX, |flags, rank| flags & !(1 << (rank % u64::BITS)));
                right(agreed.flags == all, "flags that are not the AND of all")?;
                right(agreed.unacknowledged.is_empty(), "failures of ranks that live")
            }
        }
    }
}

/// Checks that a communicator works: its members sum up their ranks.
pub(super) fn works(comm: &World) -> Result<(), String> {
    let sum = comm.allreduce(to_bytes(&[u64::from(comm.rank())]), &Op::sum::<u64>()).wait();
    let sum = sum.map_err(|error| error.to_string())?;
    let size = u64::from(comm.size());
    right(from_bytes::<u64>(&sum) == [size * (size - 1) / 2], "a wrong sum of its ranks")
}

fn right(is_right: bool, else_what: &str) -> Result<(), String> {
    if is_right { Ok(()) } else { Err(format!("wrong result: {else_what}")) }
}

/// The bytes that rank `from` has for rank `to`.
fn pattern(from: u32, to: u32, size: usize) -> Vec<u8> {
    let seed = u64::from(from) * 31 + u64::from(to) * 7 + 1;
    (0..size as u64).map(|i| (seed + i * 13 + i / 251).to_le_bytes()[0]).collect()
}

/// The monotonic clock, which all processes of this machine read alike.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec.cast_unsigned()) * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tagmatch::{Config as WorkerConfig, Worker};
    use tagmatch_comm::net::worker::WorkerNet;
    use tagmatch_comm::{Config, Runtime};

    #[test]
    fn every_operation_is_right_and_takes_time() {
        let worker = Worker::new(WorkerConfig::default()).unwrap();
        let addresses = vec![worker.address()];
        let net = WorkerNet::new(worker, addresses, 0).unwrap();
        let world = Runtime::new(net, Config::default()).unwrap().world();
        for operation in Operation::ALL {
            let mut call = Call::new(operation, 24, &world);
            call.check(true).unwrap();
            let before = call.bytes();
            call.make().unwrap();
            assert_eq!(call.bytes(), before, "{operation:?}: its buffer is there again");
        }
    }

    #[test]
    fn sizes_are_of_those_that_have_one() {
        let sizes = |operation: Operation, text: &str| operation.sizes(text.parse().ok());
        assert_eq!(Operation::Barrier.sizes(None).unwrap(), [0]);
        assert_eq!(Operation::Bcast.sizes(None).unwrap().len(), 18);
        assert_eq!(sizes(Operation::Alltoall, "1,3").unwrap(), [1, 3]);
        assert!(sizes(Operation::Allreduce, "8,12").is_err());
        assert!(Operation::Bcast.fits(&[8, BYTES_MAX], 4).is_ok());
        assert!(Operation::Bcast.fits(&[8, BYTES_MAX + 1], 4).is_err());
        assert!(Operation::Alltoall.fits(&[8, BYTES_MAX / 2], 3).is_err());
        assert_ne!(pattern(1, 2, 8), pattern(2, 1, 8));
    }
}
