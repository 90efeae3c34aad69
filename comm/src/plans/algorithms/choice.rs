//! The choice of the algorithm for a call.

use super::{long, short, uneven};
use crate::driver::Channel;
use crate::error::Error;
use crate::plans::{Call, Coll, Plan};
use crate::settings::Algorithms;

/// Checks the arguments of a call that a member can check alone, except the lengths of blocks.
#[inline]
pub(crate) fn check(call: &Call, size: u32) -> Result<(), Error> {
    let root = call.root;
    let length = call.data.len();
    if root >= size {
        return Err(Error::Rank { rank: root, size });
    }
    if call.coll == Coll::Alltoall && !length.is_multiple_of(size as usize) {
        return Err(Error::Length { length, what: "an alltoall needs one block for each rank" });
    }
    call.op.as_ref().map_or(Ok(()), |op| op.check(length))
}

/// Makes this member's plan of a call, with the algorithm that fits its length and the number of
/// members.
pub(crate) fn plan_of(
    channel: &Channel,
    mut call: Call,
    algorithms: &Algorithms,
) -> Result<Plan, Error> {
    let root = call.root;
    let length = call.data.len();
    let size = channel.size();
    check(&call, size)?;
    let op = call.op.take();
    let op = op.as_ref();
    let commutes = op.filter(|op| op.is_commutative());
    let if_from = |least: usize| commutes.filter(|_| length >= least);
    let at_once = algorithms.pairs_at_once(length / size as usize);
    let is_long_broadcast =
        length >= algorithms.broadcast_long && size >= algorithms.broadcast_members;
    let is_long_allgather = length.saturating_mul(size as usize) >= algorithms.allgather_long;
    let lengths = |block| vec![block; size as usize];
    Ok(match call.coll {
        Coll::Barrier => short::barrier(channel),
        Coll::Broadcast if is_long_broadcast => long::broadcast(channel, root, call.data),
        Coll::Broadcast => short::broadcast(channel, root, call.data),
        Coll::Reduce => match if_from(algorithms.reduce_long) {
            Some(op) => long::reduce(channel, root, call.data, op),
            None => short::reduce(channel, root, call.data, commutes.is_none()),
        },
        Coll::Allreduce => match if_from(algorithms.allreduce_long) {
            Some(op) => long::allreduce(channel, call.data, op),
            None => short::allreduce(channel, call.data),
        },
        Coll::Gather => short::gather(channel, root, call.data),
        Coll::Scatter => short::scatter(channel, call)?,
        Coll::Allgather if is_long_allgather => {
            uneven::allgather(channel, Call { receives: lengths(length), ..call })?
        }
        Coll::Allgather => short::allgather(channel, call.data),
        Coll::Alltoall if algorithms.is_short_alltoall(length / size as usize, size) => {
            short::alltoall(channel, call.data)
        }
        Coll::Alltoall => {
            let lengths = lengths(length / size as usize);
            let call = Call { sends: lengths.clone(), receives: lengths, ..call };
            uneven::alltoall(channel, call, at_once)?
        }
        Coll::Scan => short::scan(channel, call.data, false),
        Coll::ExclusiveScan => short::scan(channel, call.data, true),
        Coll::Gatherv => uneven::gather(channel, call)?,
        Coll::Scatterv => uneven::scatter(channel, call)?,
        Coll::Allgatherv => uneven::allgather(channel, call)?,
        Coll::Alltoallv => uneven::alltoall(channel, call, at_once)?,
        Coll::ReduceScatter => {
            let op =
                op.ok_or(Error::Length { length: 0, what: "a reduce-scatter needs an operation" })?;
            call.sends.iter().try_for_each(|length| op.check(*length))?;
            if op.is_commutative() {
                long::reduce_scatter(channel, call, length >= algorithms.reduce_scatter_long)?
            } else {
                uneven::reduce_scatter(channel, call)?
            }
        }
    })
}
