//! The calls of collective operations.

use std::sync::Arc;

use crate::comm::Comm;
use crate::error::Error;
use crate::net::Net;

use super::algorithms;
use super::call::{Call, Coll};
use super::exchange::Exchange;
use super::op::Op;
use super::table::{CollRequest, CollTable};

impl<N: Net> Comm<N> {
    /// The table of its collective operations.
    pub fn table(&self) -> &Arc<CollTable<N>> {
        &self.inner.bound.table
    }

    /// Blocks until all members have called it.
    ///
    /// # Errors
    /// A member is down. As for all collective operations: this member depended on it; another one may have
    /// succeeded.
    pub fn barrier(&self) -> Result<(), Error> {
        self.table().run(self, Call::new(Coll::Barrier, 0, Vec::new())).map(drop)
    }

    /// The same, without blocking.
    pub fn ibarrier(&self) -> CollRequest<N> {
        self.table().start(self, Call::new(Coll::Barrier, 0, Vec::new()))
    }

    /// Gives all members the root's bytes. Others give as many of their own. Blocks.
    ///
    /// # Errors
    /// A member is down; there is no such root; lengths differ.
    pub fn broadcast(&self, root: u32, data: Vec<u8>) -> Result<Vec<u8>, Error> {
        self.table().run(self, Call::new(Coll::Broadcast, root, data))
    }

    /// The same, without blocking.
    pub fn ibroadcast(&self, root: u32, data: Vec<u8>) -> CollRequest<N> {
        self.table().start(self, Call::new(Coll::Broadcast, root, data))
    }

    /// Gives the root all members' values, combined; others nothing. Blocks.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn reduce(&self, root: u32, data: Vec<u8>, op: &Op) -> Result<Vec<u8>, Error> {
        self.table().run(self, Call::new(Coll::Reduce, root, data).with(op))
    }

    /// The same, without blocking.
    pub fn ireduce(&self, root: u32, data: Vec<u8>, op: &Op) -> CollRequest<N> {
        self.table().start(self, Call::new(Coll::Reduce, root, data).with(op))
    }

    /// Gives all members all members' values, combined. Blocks.
    ///
    /// # Errors
    /// A member is down; lengths differ.
    pub fn allreduce(&self, data: Vec<u8>, op: &Op) -> Result<Vec<u8>, Error> {
        self.table().run(self, Call::new(Coll::Allreduce, 0, data).with(op))
    }

    /// The same, without blocking.
    pub fn iallreduce(&self, data: Vec<u8>, op: &Op) -> CollRequest<N> {
        self.table().start(self, Call::new(Coll::Allreduce, 0, data).with(op))
    }

    /// Gives the root all members' bytes, by rank; others nothing. Blocks.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn gather(&self, root: u32, data: Vec<u8>) -> Result<Vec<u8>, Error> {
        self.table().run(self, Call::new(Coll::Gather, root, data))
    }

    /// The same, without blocking.
    pub fn igather(&self, root: u32, data: Vec<u8>) -> CollRequest<N> {
        self.table().start(self, Call::new(Coll::Gather, root, data))
    }

    /// Gives each member its block, of `block` bytes, of the root's bytes. What others give is ignored.
    /// Blocks.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn scatter(&self, root: u32, data: Vec<u8>, block: usize) -> Result<Vec<u8>, Error> {
        self.table().run(self, Call::new(Coll::Scatter, root, data).receiving(&[block]))
    }

    /// The same, without blocking.
    pub fn iscatter(&self, root: u32, data: Vec<u8>, block: usize) -> CollRequest<N> {
        self.table().start(self, Call::new(Coll::Scatter, root, data).receiving(&[block]))
    }

    /// Gives all members all members' bytes, by rank. Blocks.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn allgather(&self, data: Vec<u8>) -> Result<Vec<u8>, Error> {
        self.table().run(self, Call::new(Coll::Allgather, 0, data))
    }

    /// The same, without blocking.
    pub fn iallgather(&self, data: Vec<u8>) -> CollRequest<N> {
        self.table().start(self, Call::new(Coll::Allgather, 0, data))
    }

    /// Gives each member the blocks that all have for it, by rank. Blocks.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn alltoall(&self, data: Vec<u8>) -> Result<Vec<u8>, Error> {
        self.table().run(self, Call::new(Coll::Alltoall, 0, data))
    }

    /// The same, without blocking.
    pub fn ialltoall(&self, data: Vec<u8>) -> CollRequest<N> {
        self.table().start(self, Call::new(Coll::Alltoall, 0, data))
    }

    /// Gives each member the values up to its own, combined in the order of ranks. Blocks.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn scan(&self, data: Vec<u8>, op: &Op) -> Result<Vec<u8>, Error> {
        self.table().run(self, Call::new(Coll::Scan, 0, data).with(op))
    }

    /// The same, without blocking.
    pub fn iscan(&self, data: Vec<u8>, op: &Op) -> CollRequest<N> {
        self.table().start(self, Call::new(Coll::Scan, 0, data).with(op))
    }

    /// Gives each member the values before its own, combined in the order of ranks; the first one nothing.
    /// Blocks.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn exclusive_scan(&self, data: Vec<u8>, op: &Op) -> Result<Vec<u8>, Error> {
        self.table().run(self, Call::new(Coll::ExclusiveScan, 0, data).with(op))
    }

    /// The same, without blocking.
    pub fn iexclusive_scan(&self, data: Vec<u8>, op: &Op) -> CollRequest<N> {
        self.table().start(self, Call::new(Coll::ExclusiveScan, 0, data).with(op))
    }

    /// Combines all members' values and gives each member its block of them, of `lengths` bytes by rank. Blocks.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn reduce_scatter(
        &self,
        data: Vec<u8>,
        lengths: &[usize],
        op: &Op,
    ) -> Result<Vec<u8>, Error> {
        self.table().run(self, Call::new(Coll::ReduceScatter, 0, data).sending(lengths).with(op))
    }

    /// The same, without blocking.
    pub fn ireduce_scatter(&self, data: Vec<u8>, lengths: &[usize], op: &Op) -> CollRequest<N> {
        self.table().start(self, Call::new(Coll::ReduceScatter, 0, data).sending(lengths).with(op))
    }

    /// Like [`gather`](Self::gather), with blocks of `lengths` bytes by rank, which count at the root. Blocks.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn gatherv(&self, root: u32, data: Vec<u8>, lengths: &[usize]) -> Result<Vec<u8>, Error> {
        self.table().run(self, Call::new(Coll::Gatherv, root, data).receiving(lengths))
    }

    /// The same, without blocking.
    pub fn igatherv(&self, root: u32, data: Vec<u8>, lengths: &[usize]) -> CollRequest<N> {
        self.table().start(self, Call::new(Coll::Gatherv, root, data).receiving(lengths))
    }

    /// Like [`scatter`](Self::scatter), with blocks of `lengths` bytes by rank, which count at the root; `own`
    /// is this member's. Blocks.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn scatterv(
        &self,
        root: u32,
        data: Vec<u8>,
        lengths: &[usize],
        own: usize,
    ) -> Result<Vec<u8>, Error> {
        let call = Call::new(Coll::Scatterv, root, data).sending(lengths).receiving(&[own]);
        self.table().run(self, call)
    }

    /// The same, without blocking.
    pub fn iscatterv(
        &self,
        root: u32,
        data: Vec<u8>,
        lengths: &[usize],
        own: usize,
    ) -> CollRequest<N> {
        let call = Call::new(Coll::Scatterv, root, data).sending(lengths).receiving(&[own]);
        self.table().start(self, call)
    }

    /// Like [`allgather`](Self::allgather), with blocks of `lengths` bytes by rank. Blocks.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn allgatherv(&self, data: Vec<u8>, lengths: &[usize]) -> Result<Vec<u8>, Error> {
        self.table().run(self, Call::new(Coll::Allgatherv, 0, data).receiving(lengths))
    }

    /// The same, without blocking.
    pub fn iallgatherv(&self, data: Vec<u8>, lengths: &[usize]) -> CollRequest<N> {
        self.table().start(self, Call::new(Coll::Allgatherv, 0, data).receiving(lengths))
    }

    /// Like [`alltoall`](Self::alltoall), with blocks of `sends` bytes for each rank and of `receives` from
    /// each. Blocks.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn alltoallv(
        &self,
        data: Vec<u8>,
        sends: &[usize],
        receives: &[usize],
    ) -> Result<Vec<u8>, Error> {
        let call = Call::new(Coll::Alltoallv, 0, data).sending(sends).receiving(receives);
        self.table().run(self, call)
    }

    /// The same, without blocking.
    pub fn ialltoallv(&self, data: Vec<u8>, sends: &[usize], receives: &[usize]) -> CollRequest<N> {
        let call = Call::new(Coll::Alltoallv, 0, data).sending(sends).receiving(receives);
        self.table().start(self, call)
    }

    fn planned(&self, call: Call) -> Result<Exchange, Error> {
        // A call that is refused here uses up no number: other members' calls may be right.
        let channel = self.outside(0);
        let op = call.op.clone();
        let plan = algorithms::plan_of(&channel, call, &self.driver().settings.algorithms)?;
        Ok(Exchange::new(self.numbered(channel), plan, op))
    }

    /// Begins a call by the algorithms of this crate: the bottom of every table.
    pub(crate) fn start_planned(&self, call: Call) -> CollRequest<N> {
        match self.planned(call) {
            Ok(exchange) => self.start(exchange),
            Err(error) => self.ended(Err(error)),
        }
    }

    /// Carries a call out by the algorithms of this crate. Blocks.
    pub(crate) fn run_planned(&self, call: Call) -> Result<Vec<u8>, Error> {
        // The kept plans may be in use by another thread's operation.
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
