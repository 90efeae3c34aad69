//! The collective operations as methods of a communicator.

use std::sync::Arc;

use tagmatch::Buffer;

use super::layer;
use crate::comm::{CollRequest, CollTable, Collective, Comm};
use crate::error::Error;
use crate::net::Net;
use crate::plans::{Call, Coll, Exchange, Op, algorithms};

impl<N: Net> Comm<N> {
    /// The table that carries out this communicator's collective operations.
    pub fn table(&self) -> &Arc<CollTable<N>> {
        &self.inner.bound.table
    }

    /// Waits until all members have begun the barrier.
    ///
    /// # Errors
    /// A member on which this one depends is down. As in all collective operations, another member
    /// may have succeeded.
    pub fn barrier(&self) -> Collective<'_, N, ()> {
        Collective::without_result(self, Call::empty(Coll::Barrier))
    }

    /// Copies the root's bytes to all members. Each other member passes as many bytes, whose
    /// contents are ignored.
    ///
    /// # Errors
    /// A member is down; the communicator has no rank `root`; the lengths differ.
    pub fn broadcast(&self, root: u32, data: impl Into<Buffer>) -> Collective<'_, N> {
        Collective::call(self, Call::new(Coll::Broadcast, root, data))
    }

    /// Combines the values of all members. The root gets the result, the other members get nothing.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn reduce(&self, root: u32, data: impl Into<Buffer>, op: &Op) -> Collective<'_, N> {
        Collective::call(self, Call::new(Coll::Reduce, root, data).with(op))
    }

    /// Combines the values of all members. All members get the result.
    ///
    /// # Errors
    /// A member is down; the lengths differ.
    pub fn allreduce(&self, data: impl Into<Buffer>, op: &Op) -> Collective<'_, N> {
        Collective::call(self, Call::new(Coll::Allreduce, 0, data).with(op))
    }

    /// Collects the bytes of all members at the root, in the order of ranks. The other members get
    /// nothing.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn gather(&self, root: u32, data: impl Into<Buffer>) -> Collective<'_, N> {
        Collective::call(self, Call::new(Coll::Gather, root, data))
    }

    /// Sends each member its block of the root's bytes. A block has `block` bytes. The data that
    /// the other members pass is ignored.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn scatter(&self, root: u32, data: impl Into<Buffer>, block: usize) -> Collective<'_, N> {
        Collective::call(self, Call::new(Coll::Scatter, root, data).receiving(&[block]))
    }

    /// Collects the bytes of all members at each member, in the order of ranks.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn allgather(&self, data: impl Into<Buffer>) -> Collective<'_, N> {
        Collective::call(self, Call::new(Coll::Allgather, 0, data))
    }

    /// Each member passes one block for each rank, and gets the blocks that all members have passed
    /// for its own rank, in the order of ranks.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn alltoall(&self, data: impl Into<Buffer>) -> Collective<'_, N> {
        Collective::call(self, Call::new(Coll::Alltoall, 0, data))
    }

    /// Combines, in the order of ranks, the values of all members up to and including this one.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn scan(&self, data: impl Into<Buffer>, op: &Op) -> Collective<'_, N> {
        Collective::call(self, Call::new(Coll::Scan, 0, data).with(op))
    }

    /// Combines, in the order of ranks, the values of all members before this one. Rank 0 gets
    /// nothing.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn exclusive_scan(&self, data: impl Into<Buffer>, op: &Op) -> Collective<'_, N> {
        Collective::call(self, Call::new(Coll::ExclusiveScan, 0, data).with(op))
    }

    /// Combines the values of all members, and sends each member its block of the result. `lengths`
    /// has the bytes of each rank's block.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn reduce_scatter(
        &self,
        data: impl Into<Buffer>,
        lengths: &[usize],
        op: &Op,
    ) -> Collective<'_, N> {
        Collective::call(self, Call::new(Coll::ReduceScatter, 0, data).sending(lengths).with(op))
    }

    /// As [`gather`](Self::gather), with blocks of different lengths. `lengths` has the bytes of
    /// each rank's block; it is read at the root alone.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn gatherv(
        &self,
        root: u32,
        data: impl Into<Buffer>,
        lengths: &[usize],
    ) -> Collective<'_, N> {
        Collective::call(self, Call::new(Coll::Gatherv, root, data).receiving(lengths))
    }

    /// As [`scatter`](Self::scatter), with blocks of different lengths. `lengths` has the bytes of
    /// each rank's block; it is read at the root alone. `own` is the length of this member's block.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn scatterv(
        &self,
        root: u32,
        data: impl Into<Buffer>,
        lengths: &[usize],
        own: usize,
    ) -> Collective<'_, N> {
        let call = Call::new(Coll::Scatterv, root, data).sending(lengths).receiving(&[own]);
        Collective::call(self, call)
    }

    /// As [`allgather`](Self::allgather), with blocks of different lengths. `lengths` has the bytes
    /// of each rank's block.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn allgatherv(&self, data: impl Into<Buffer>, lengths: &[usize]) -> Collective<'_, N> {
        Collective::call(self, Call::new(Coll::Allgatherv, 0, data).receiving(lengths))
    }

    /// As [`alltoall`](Self::alltoall), with blocks of different lengths. `sends` has the bytes of
    /// the block for each rank, `receives` the bytes of the block from each rank.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn alltoallv(
        &self,
        data: impl Into<Buffer>,
        sends: &[usize],
        receives: &[usize],
    ) -> Collective<'_, N> {
        let call = Call::new(Coll::Alltoallv, 0, data).sending(sends).receiving(receives);
        Collective::call(self, call)
    }

    fn planned(&self, call: Call) -> Result<Exchange, Error> {
        // The channel gets its number after the plan is made. A call that fails here uses up no
        // number, so this member's numbers stay equal to those of members whose calls were right.
        let channel = self.outside(0);
        let shared = layer::takes(self, &call);
        let op = call.op.clone();
        let coll = call.coll;
        let length = call.data.len();
        let plan = algorithms::plan_of(&channel, call, &self.driver().settings.algorithms)?;
        log::trace!(
            "{coll:?} of {length} bytes in context {:#x}: {} by {} steps",
            self.id().bits(),
            if shared { "in shared memory, or else" } else { "messages" },
            plan.steps.len()
        );
        let channel = if shared { self.shared_numbered(channel) } else { self.numbered(channel) };
        Ok(Exchange::new(channel, plan, op))
    }

    /// Begins a call with the algorithms of this crate. This is the bottom entry of every table.
    pub(crate) fn start_planned(&self, call: Call) -> CollRequest<N> {
        match self.planned(call) {
            Ok(exchange) => self.start(exchange),
            Err(error) => self.ended(Err(error)),
        }
    }

    /// Carries a call out with the algorithms of this crate. Blocks.
    pub(crate) fn run_planned(&self, call: Call) -> Result<Buffer, Error> {
        // If another thread's operation uses the kept plans, this one makes its own plan.
        let result = match self.inner.repeats.try_lock() {
            Ok(mut repeats) => repeats.run(
                self.driver(),
                call,
                |call| self.planned(call),
                |channel| self.renumber(channel),
            ),
            Err(_) => self.planned(call).and_then(|exchange| self.driver().run(exchange)),
        };
        self.raise(result)
    }
}
