//! Collective operations, and the table by which layers override them.
//!
//! All members of a communicator call them in the same order, blocking or not. Their messages are in the
//! communicator's collective context: no receive of the program sees them.

mod exchange;
mod kept;
mod long;
mod number;
mod op;
pub(crate) mod plan;
mod table;
pub(crate) mod uneven;

pub use long::Algorithms;
pub use op::{Element, Op, from_bytes, to_bytes};
pub use table::{Attached, CollLayer, CollTable, Run, Start, TableBuilder};

pub(crate) use exchange::{Exchange, Landing, Plan};
pub(crate) use kept::Kept;
pub(crate) use number::{Numbers, Turn};
pub(crate) use table::{Bound, Tables};

use crate::comm::{Comm, Running};
use crate::error::Error;
use crate::net::Net;
use crate::request::Request;

/// A collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coll {
    /// All have come.
    Barrier,
    /// The root's bytes to all.
    Broadcast,
    /// All values, combined, to the root.
    Reduce,
    /// All values, combined, to all.
    Allreduce,
    /// A block of each to the root.
    Gather,
    /// A block to each from the root.
    Scatter,
    /// A block of each to all.
    Allgather,
    /// A block of each to each.
    Alltoall,
    /// The values up to the own one, combined.
    Scan,
    /// The values before the own one, combined.
    ExclusiveScan,
    /// A block of each to the root, of any lengths.
    Gatherv,
    /// A block to each from the root, of any lengths.
    Scatterv,
    /// A block of each to all, of any lengths.
    Allgatherv,
    /// A block of each to each, of any lengths.
    Alltoallv,
    /// All values, combined; a block of them to each, of any lengths.
    ReduceScatter,
}

/// How many there are.
pub(crate) const COLLS: usize = 15;

impl Coll {
    /// All of them.
    pub const ALL: [Coll; COLLS] = [
        Coll::Barrier,
        Coll::Broadcast,
        Coll::Reduce,
        Coll::Allreduce,
        Coll::Gather,
        Coll::Scatter,
        Coll::Allgather,
        Coll::Alltoall,
        Coll::Scan,
        Coll::ExclusiveScan,
        Coll::Gatherv,
        Coll::Scatterv,
        Coll::Allgatherv,
        Coll::Alltoallv,
        Coll::ReduceScatter,
    ];
}

/// A call of a collective operation, as the table's entries get it.
#[derive(Clone, Debug)]
pub struct Call {
    /// Which operation.
    pub coll: Coll,
    /// The root, where there is one; else 0.
    pub root: u32,
    /// What this member gives.
    pub data: Vec<u8>,
    /// Bytes for each rank, where they may differ.
    pub sends: Vec<usize>,
    /// Bytes from each rank, where they may differ; one number where there is one source.
    pub receives: Vec<usize>,
    /// What values are combined with, where they are.
    pub op: Option<Op>,
}

impl Call {
    pub(crate) fn new(coll: Coll, root: u32, data: Vec<u8>) -> Self {
        Call { coll, root, data, sends: Vec::new(), receives: Vec::new(), op: None }
    }

    pub(crate) fn sending(self, sends: &[usize]) -> Self {
        Call { sends: sends.to_vec(), ..self }
    }

    pub(crate) fn receiving(self, receives: &[usize]) -> Self {
        Call { receives: receives.to_vec(), ..self }
    }

    pub(crate) fn with(self, op: &Op) -> Self {
        Call { op: Some(op.clone()), ..self }
    }
}

/// A collective operation under way. It ends with the bytes that it gives this member.
pub type CollRequest<N> = Request<N, Running<N, Vec<u8>>>;

impl<N: Net> Comm<N> {
    /// The table of its collective operations.
    pub fn table(&self) -> &std::sync::Arc<CollTable<N>> {
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
        // What is refused here uses up no number: other members' calls may be right.
        let channel = self.outside(0);
        let op = call.op.clone();
        let plan = plan::of(&channel, call, &self.shared.algorithms)?;
        Ok(Exchange::new(self.numbered(channel), plan, op))
    }

    pub(crate) fn start_planned(&self, call: Call) -> CollRequest<N> {
        match self.planned(call) {
            Ok(exchange) => self.start(exchange),
            Err(error) => self.ended(Err(error)),
        }
    }

    pub(crate) fn run_planned(&self, call: Call) -> Result<Vec<u8>, Error> {
        // Another thread may be at it, with an operation of its own that does not block.
        match self.inner.kept.try_lock() {
            Ok(mut kept) => {
                let result = kept.run(self, call);
                drop(kept);
                self.raise(result)
            }
            Err(_) => self.run(self.raise(self.planned(call))?),
        }
    }
}
