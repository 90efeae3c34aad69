//! A trace run through all of tagmatch: a worker for each source sends its messages over shared
//! memory, another one receives, probes and cancels, and may have a NIC that matches.
//!
//! All workers run on the caller's thread, so the trace and a seed alone decide what happens:
//!
//! 1. The result of `cancel`, `probe`, `mprobe`, `mrecv` and `mcancel` depends on when they are
//!    called. So each of them waits until everything that was begun before has ended.
//! 2. Before `recv`, and before `msg` of the same source as the one before, the seed decides how
//!    much is left outstanding (`lag`). Without a seed nothing is. Which receive gets which message
//!    does not depend on it: the order of the receives and the order of the messages decide that.
//! 3. A match is the result of the later one of its two operations, and it may become known much
//!    later. So results are collected by operation.

mod agreement;
mod error;
mod lag;
mod lengths;
mod payload;
mod requests;
mod senders;
mod two_workers;

use tagmatch::HwTags;

use crate::format::TraceOp;
use crate::trace::Trace;
pub use agreement::Agreement;
pub use error::WorkersError;
use lag::Lag;
use two_workers::TwoWorkers;
pub use two_workers::WorkersRun;

/// Runs a trace, with `nic` in the receiving worker. A message that a process has sent to itself is
/// one that the receiving worker sends to itself, so it passes the NIC by. `seed` decides how far
/// the NIC and the workers lag behind the trace.
///
/// # Errors
///
/// If a worker cannot be made, a request fails, a message comes with another envelope or other
/// bytes than it was sent with, or the NIC breaks the rules of its list.
pub fn replay(trace: &Trace, nic: HwTags, seed: Option<u64>) -> Result<WorkersRun, WorkersError> {
    let mut workers = TwoWorkers::new(trace, nic)?;
    let mut lag = seed.map(Lag::new);
    let mut last_source = None;
    for (at, op) in trace.ops.iter().enumerate() {
        let may_lag = match op {
            // Messages of several sources would come in any order.
            TraceOp::Msg { source, .. } => last_source.replace(*source) == Some(*source),
            TraceOp::Recv { .. } => true,
            _ => false,
        };
        match &mut lag {
            Some(lag) if may_lag => lag.before(&mut workers)?,
            _ => workers.settle()?,
        }
        workers.run(at, op)?;
    }
    workers.finish()
}
