//! Collective operations of intercommunicators.
//!
//! Each group gets the data of the other group (MPI-4.1 section 6.2.2). In operations without a
//! root, one group may contribute no bytes. There is no scan and no exclusive scan: MPI defines
//! none for intercommunicators.
//!
//! The algorithms are MPICH's. A part that the local group can do alone is a collective operation
//! of the local group, with the leader, the member of rank 0, as its root. Between these parts the
//! two leaders exchange messages.

mod operation;

use tagmatch::Buffer;

use super::InterComm;
use crate::comm::{CollRequest, Collective};
use crate::error::Error;
use crate::net::Net;
use crate::plans::WorkMemory;
use crate::plans::algorithms::{
    self,
    blocks::{LENGTH_MAX, check, end, places},
};
use crate::plans::{Call, Coll, Exchange, Op};
use operation::InterOperation;

/// The root of an operation, as this process sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InterRoot {
    /// This process is the root (MPI's `MPI_ROOT`).
    Own,
    /// Another process of the local group is the root (MPI's `MPI_PROC_NULL`). This process has
    /// nothing to do.
    Local,
    /// The remote process of this rank is the root.
    Remote(u32),
}

impl<N: Net> InterComm<N> {
    /// Waits until all processes of both groups have begun the barrier.
    ///
    /// # Errors
    /// A process of either group on which this one depends is down. As in all collective
    /// operations, the error has the rank of the failed process only if that is a remote one, and
    /// another process may have succeeded.
    pub fn barrier(&self) -> Collective<'_, N, ()> {
        Collective::begun_by(|| self.start_barrier())
    }

    pub(super) fn start_barrier(&self) -> CollRequest<N, ()> {
        let channel = self.channel();
        let plan = algorithms::barrier(&channel);
        self.comm.start(Exchange::new(channel, plan, None)).map(drop)
    }

    /// Copies the root's bytes to all processes of the other group, which pass as many bytes. The
    /// root and the other processes of its group get their own bytes back.
    ///
    /// # Errors
    /// A process on which this one depends is down; the remote group has no rank `root`; the
    /// lengths differ.
    pub fn broadcast(&self, root: InterRoot, data: impl Into<Buffer>) -> Collective<'_, N> {
        let broadcast = Call::empty(Coll::Broadcast);
        if root == InterRoot::Local {
            return self.all(data, |operation, _| Ok(operation));
        }
        self.rooted(root, data, |operation, length, root| {
            Ok(match root {
                None => operation.give(0, length),
                Some(root) => operation.leader_takes(root, length).local(length, broadcast),
            })
        })
    }

    /// Combines the values of all processes of the other group at the root. The other processes get
    /// nothing. The root passes as many bytes as they, but their contents are ignored.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn reduce(&self, root: InterRoot, data: impl Into<Buffer>, op: &Op) -> Collective<'_, N> {
        let reduce = Call::empty(Coll::Reduce).with(op);
        self.rooted(root, data, |operation, length, root| {
            op.check(length)?;
            Ok(match root {
                None => operation.take(0, length),
                Some(root) => operation.local(length, reduce).leader_gives(root, length).nothing(),
            })
        })
    }

    /// Combines the values of each group at all processes of the other group. All processes pass as
    /// many values.
    ///
    /// # Errors
    /// A process on which this one depends is down; the lengths differ.
    pub fn allreduce(&self, data: impl Into<Buffer>, op: &Op) -> Collective<'_, N> {
        let reduce = Call::empty(Coll::Reduce).with(op);
        let broadcast = Call::empty(Coll::Broadcast);
        self.all(data, |operation, length| {
            op.check(length)?;
            let reduced = operation.local(length, reduce);
            Ok(reduced.leaders_swap(length, length).local(length, broadcast))
        })
    }

    /// Combines the values of the remote group, and sends each local process its block of the
    /// result. `lengths` has the bytes of each local rank's block. All processes of both groups
    /// pass as many values. With equal lengths this is MPI's `MPI_Reduce_scatter_block`.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn reduce_scatter(
        &self,
        data: impl Into<Buffer>,
        lengths: &[usize],
        op: &Op,
    ) -> Collective<'_, N> {
        let reduce = Call::empty(Coll::Reduce).with(op);
        let scatter = Call::empty(Coll::Scatterv).sending(lengths);
        let size = self.size();
        let own = self.rank();
        self.all(data, |operation, length| {
            let places = places(size, lengths, 0)?;
            check(length, end(&places))?;
            lengths.iter().try_for_each(|length| op.check(*length))?;
            let scatter = scatter.receiving(&[places[own as usize].len()]);
            let reduced = operation.local(length, reduce);
            Ok(reduced.leaders_swap(length, length).local(length, scatter))
        })
    }

    /// Collects the bytes of all processes of the other group at the root, in the order of ranks.
    /// The other processes get nothing. `block` is the number of bytes of each process; it is read
    /// at the root alone. The root's own bytes are ignored.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn gather(
        &self,
        root: InterRoot,
        data: impl Into<Buffer>,
        block: usize,
    ) -> Collective<'_, N> {
        self.rooted(root, data, |operation, length, root| match root {
            None => Ok(operation.take(0, blocks(self.remote_size(), block)?)),
            Some(root) => {
                let gathered = operation.local(length, Call::empty(Coll::Gather));
                Ok(gathered.leader_gives(root, blocks(self.size(), length)?).nothing())
            }
        })
    }

    /// As [`gather`](Self::gather), with blocks of different lengths. `lengths` has the bytes of
    /// each remote rank's block; it is read at the root alone.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn gatherv(
        &self,
        root: InterRoot,
        data: impl Into<Buffer>,
        lengths: &[usize],
    ) -> Collective<'_, N> {
        self.rooted(root, data, |operation, length, root| match root {
            None => Ok(operation.take_each(&places(self.remote_size(), lengths, 0)?)),
            Some(root) => Ok(operation.give(root, length).nothing()),
        })
    }

    /// Sends each process of the other group its block of the root's bytes. A block has `block`
    /// bytes. The data that other processes pass is ignored.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn scatter(
        &self,
        root: InterRoot,
        data: impl Into<Buffer>,
        block: usize,
    ) -> Collective<'_, N> {
        let scatter = Call::empty(Coll::Scatter).receiving(&[block]);
        self.rooted(root, data, |operation, length, root| match root {
            None => {
                check(length, blocks(self.remote_size(), block)?)?;
                Ok(operation.give(0, length).nothing())
            }
            Some(root) => {
                let all = blocks(self.size(), block)?;
                Ok(operation.leader_takes(root, all).local(all, scatter))
            }
        })
    }

    /// As [`scatter`](Self::scatter), with blocks of different lengths. `lengths` has the bytes of
    /// each remote rank's block; it is read at the root alone. `own` is the length of this
    /// process's block; it is read in the other group.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn scatterv(
        &self,
        root: InterRoot,
        data: impl Into<Buffer>,
        lengths: &[usize],
        own: usize,
    ) -> Collective<'_, N> {
        self.rooted(root, data, |operation, length, root| match root {
            None => {
                let places = places(self.remote_size(), lengths, 0)?;
                check(length, end(&places))?;
                Ok(operation.give_each(&places))
            }
            Some(root) => Ok(operation.take(root, own)),
        })
    }

    /// Collects the bytes of each group at all processes of the other group, in the order of ranks.
    /// `block` is the number of bytes of each remote process. All processes of one group pass as
    /// many bytes; the two groups may pass different numbers.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn allgather(&self, data: impl Into<Buffer>, block: usize) -> Collective<'_, N> {
        self.all(data, |operation, length| {
            let given = blocks(self.size(), length)?;
            let taken = blocks(self.remote_size(), block)?;
            let gathered = operation.local(length, Call::empty(Coll::Gather));
            let broadcast = Call::empty(Coll::Broadcast);
            Ok(gathered.leaders_swap(given, taken).local(taken, broadcast))
        })
    }

    /// As [`allgather`](Self::allgather), with blocks of different lengths. `lengths` has the bytes
    /// of each remote rank's block.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn allgatherv(&self, data: impl Into<Buffer>, lengths: &[usize]) -> Collective<'_, N> {
        self.all(data, |operation, _| {
            let places = places(self.remote_size(), lengths, 0)?;
            let broadcast = Call::empty(Coll::Broadcast);
            Ok(operation.leaders_take_each(&places).local(end(&places), broadcast))
        })
    }

    /// Each process passes one block for each remote process, and gets one block from each, in the
    /// order of ranks. `block` is the number of bytes of a received block. The blocks of the two
    /// groups may have different lengths.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn alltoall(&self, data: impl Into<Buffer>, block: usize) -> Collective<'_, N> {
        let remote = self.remote_size() as usize;
        let data = data.into();
        let sends = vec![data.len() / remote; remote];
        self.alltoallv(data, &sends, &vec![block; remote])
    }

    /// As [`alltoall`](Self::alltoall), with blocks of different lengths. `sends` has the bytes of
    /// the block for each remote process, `receives` the bytes of the block from each.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn alltoallv(
        &self,
        data: impl Into<Buffer>,
        sends: &[usize],
        receives: &[usize],
    ) -> Collective<'_, N> {
        self.all(data, |operation, length| {
            let from = places(self.remote_size(), sends, 0)?;
            check(length, end(&from))?;
            let into = places(self.remote_size(), receives, length)?;
            Ok(operation.pairs(&from, &into))
        })
    }

    /// An operation without a root. `add_phases` gets the length of the data, checks the
    /// arguments and adds the phases.
    fn all(
        &self,
        data: impl Into<Buffer>,
        add_phases: impl FnOnce(InterOperation, usize) -> Result<InterOperation, Error>,
    ) -> Collective<'_, N> {
        let data = WorkMemory::from(data.into());
        let length = data.len();
        let operation = add_phases(InterOperation::new(self, data), length);
        Collective::of_machine(&self.comm, || Ok(operation?.numbered(self)))
    }

    /// An operation with a root. `add_phases` gets the root's rank if the root is a remote process,
    /// `None` if it is this process. The other processes of the root's group have nothing to do.
    fn rooted(
        &self,
        root: InterRoot,
        data: impl Into<Buffer>,
        add_phases: impl FnOnce(InterOperation, usize, Option<u32>) -> Result<InterOperation, Error>,
    ) -> Collective<'_, N> {
        let size = self.remote_size();
        self.all(data, |operation, length| match root {
            InterRoot::Own => add_phases(operation, length, None),
            InterRoot::Local => Ok(operation.nothing()),
            InterRoot::Remote(rank) if rank < size => add_phases(operation, length, Some(rank)),
            InterRoot::Remote(rank) => Err(Error::Rank { rank, size }),
        })
    }
}

/// The bytes of `size` blocks.
fn blocks(size: u32, block: usize) -> Result<usize, Error> {
    let what = "the blocks of all processes together are longer than any memory";
    let all = block.checked_mul(size as usize).filter(|all| *all <= LENGTH_MAX);
    all.ok_or(Error::Length { length: block, what })
}
