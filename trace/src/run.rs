//! Runs a trace through a matcher, operation by operation. Each sees the effects of all before it.
//!
//! The record of matches, the statistics and the timing use the same loop: it runs a chunk of
//! operations under the clock, and shows what they came to between chunks.

use std::time::{Duration, Instant};

use crate::format::{Id, TraceOp};
use crate::matcher::Matcher;
use crate::result::OpResult;
use crate::trace::Trace;

/// Operations between two readings of the clock: enough that the clock's cost does not show, and
/// few enough that their results stay in the nearest cache.
const CHUNK: usize = 512;

/// A run of a trace.
#[derive(Debug)]
pub struct Pass<M> {
    /// The lists at its end.
    pub lists: M,
    /// The time of the matching alone.
    pub took: Duration,
    /// How many operations were run: all, unless the lists reached the bound of their work.
    pub ops: usize,
}

impl<M> Pass<M> {
    /// Mean time of an operation in nanoseconds.
    #[must_use]
    pub fn ns_per_op(&self) -> f64 {
        self.took.as_secs_f64() * 1e9 / self.ops.max(1) as f64
    }
}

/// Runs `trace` through `lists`, until the end or until the lists have walked `entries_max`
/// entries. The bound is not a time, so that a trace always stops at the same operation. `see` is
/// shown each operation and its result.
///
/// # Errors
///
/// The first error of `see`, which ends the run.
pub fn run<M: Matcher, E>(
    trace: &Trace,
    lists: M,
    entries_max: u64,
    mut see: impl FnMut(&TraceOp, Option<OpResult>) -> Result<(), E>,
) -> Result<Pass<M>, E> {
    let ids = trace.lens.len();
    let lens = &trace.lens;
    let mut runner = Runner { lens, lists, handles: vec![None; ids], held: vec![None; ids] };
    let mut results = Vec::with_capacity(CHUNK);
    let mut took = Duration::ZERO;
    let mut ops = 0;
    for chunk in trace.ops.chunks(CHUNK) {
        results.clear();
        let start = Instant::now();
        for op in chunk {
            if runner.lists.entries_walked() >= entries_max {
                break;
            }
            results.push(runner.run(op));
        }
        took += start.elapsed();
        ops += results.len();
        for (op, result) in chunk.iter().zip(&results) {
            see(op, *result)?;
        }
        if results.len() < chunk.len() {
            break;
        }
    }
    Ok(Pass { lists: runner.lists, took, ops })
}

/// A run in progress: the lists, and what their owner has to remember.
struct Runner<'a, M: Matcher> {
    lens: &'a [u64],
    lists: M,
    /// Of receives that were posted, by id.
    handles: Vec<Option<M::Handle>>,
    /// The messages that matched probes have found, by the probe's id.
    held: Vec<Option<Id>>,
}

impl<M: Matcher> Runner<'_, M> {
    #[inline]
    fn run(&mut self, op: &TraceOp) -> Option<OpResult> {
        Some(match *op {
            TraceOp::Msg { id: msg, tag, source } => match self.lists.take_posted(tag, source) {
                Some(recv) => self.matched(recv, msg, false),
                None => {
                    self.lists.push(tag, source, msg);
                    return None;
                }
            },
            TraceOp::Recv { id: recv, ref pattern, .. } => {
                match self.lists.take_unexpected(pattern) {
                    Some(msg) => self.matched(recv, msg, true),
                    None => {
                        self.handles[recv.index()] = Some(self.lists.post(pattern, recv));
                        return None;
                    }
                }
            }
            // A receive that met an unexpected message has no handle; the handle of one that has
            // left the list is stale.
            TraceOp::Cancel { recv } => match self.handles[recv.index()] {
                Some(handle) if self.lists.cancel(handle) => OpResult::Cancelled { recv },
                _ => OpResult::Late { recv },
            },
            TraceOp::Probe { ref pattern } => {
                OpResult::Probe { msg: self.lists.find_unexpected(pattern) }
            }
            TraceOp::Mprobe { id, ref pattern } => {
                let msg = self.lists.take_unexpected(pattern);
                self.held[id.index()] = msg;
                OpResult::Mprobe { id, msg }
            }
            TraceOp::Mrecv { mprobe: id, len } => {
                let msg = self.held[id.index()];
                let truncated = msg.is_some_and(|msg| self.lens[msg.index()] > len);
                OpResult::Mrecv { id, msg, truncated }
            }
            TraceOp::Mcancel { mprobe: id } => {
                OpResult::Mcancelled { id, msg: self.held[id.index()] }
            }
            TraceOp::Lost { msg } => {
                OpResult::Lost { msg: Some(msg).filter(|msg| self.lists.remove_unexpected(*msg)) }
            }
        })
    }

    fn matched(&self, recv: Id, msg: Id, unexpected: bool) -> OpResult {
        let truncated = self.lens[msg.index()] > self.lens[recv.index()];
        OpResult::Match { recv, msg, truncated, unexpected }
    }
}
