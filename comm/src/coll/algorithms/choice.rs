//! The choice of the algorithm for a call.

use crate::coll::call::{Call, Coll};
use crate::coll::plan::Plan;
use crate::driver::Channel;
use crate::error::Error;

use super::settings::Algorithms;
use super::{long, short, uneven};

/// Makes this member's plan of a call, with the algorithm that fits its length and the number of
/// members.
pub(crate) fn plan_of(
    channel: &Channel,
    call: Call,
    algorithms: &Algorithms,
) -> Result<Plan, Error> {
    let Call { coll, root, data, sends, receives, op } = call;
    let size = channel.size();
    if root >= size {
        return Err(Error::Rank { rank: root, size });
    }
    let op = op.as_ref();
    op.map_or(Ok(()), |op| op.check(data.len()))?;
    let own = receives.first().copied().unwrap_or(0);
    let length = data.len();
    let commutes = op.filter(|op| op.is_commutative());
    let if_from = |least: usize| commutes.filter(|_| length >= least);
    let at_once = algorithms.pairs_at_once(length / size as usize);
    let is_long_broadcast =
        length >= algorithms.broadcast_long && size >= algorithms.broadcast_members;
    let is_long_allgather = length.saturating_mul(size as usize) >= algorithms.allgather_long;
    Ok(match coll {
        Coll::Barrier => short::barrier(channel),
        Coll::Broadcast if is_long_broadcast => long::broadcast(channel, root, data),
        Coll::Broadcast => short::broadcast(channel, root, data),
        Coll::Reduce => match if_from(algorithms.reduce_long) {
            Some(op) => long::reduce(channel, root, data, op),
            None => short::reduce(channel, root, data, commutes.is_none()),
        },
        Coll::Allreduce => match if_from(algorithms.allreduce_long) {
            Some(op) => long::allreduce(channel, data, op),
            None => short::allreduce(channel, data),
        },
        Coll::Gather => short::gather(channel, root, data),
        Coll::Scatter => short::scatter(channel, root, data, own)?,
        Coll::Allgather if is_long_allgather => {
            uneven::allgather(channel, data, &vec![length; size as usize])?
        }
        Coll::Allgather => short::allgather(channel, data),
        Coll::Alltoall => short::alltoall(channel, data, at_once)?,
        Coll::Scan => short::scan(channel, data, false),
        Coll::ExclusiveScan => short::scan(channel, data, true),
        Coll::Gatherv => uneven::gather(channel, root, data, &receives)?,
        Coll::Scatterv => uneven::scatter(channel, root, data, &sends, own)?,
        Coll::Allgatherv => uneven::allgather(channel, data, &receives)?,
        Coll::Alltoallv => uneven::alltoall(channel, data, &sends, &receives, at_once)?,
        Coll::ReduceScatter => {
            let op =
                op.ok_or(Error::Length { length: 0, what: "a reduce-scatter needs an operation" })?;
            sends.iter().try_for_each(|length| op.check(*length))?;
            if op.is_commutative() {
                let is_long = length >= algorithms.reduce_scatter_long;
                long::reduce_scatter(channel, data, &sends, is_long)?
            } else {
                uneven::reduce_scatter(channel, data, &sends)?
            }
        }
    })
}
