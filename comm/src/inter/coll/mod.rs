//! Collective operations of both groups.
//!
//! Each group gets what the other one gives (MPI-4.1 section 6.2.2). Where all give and all get, one group may
//! give nothing. There is neither scan nor exclusive scan of an intercommunicator: MPI defines none.
//!
//! The algorithms are MPICH's: what the local group can do by itself is a communicator's operation, of which the
//! leader, of rank 0, has the result or gives the data; in between the leaders speak to each other.

mod between;

use crate::coll::algorithms::{
    self,
    blocks::{LENGTH_MAX, check, end, places},
};
use crate::coll::{Call, Coll, CollRequest, Exchange, Op};
use crate::error::Error;
use crate::net::Net;

use super::InterComm;
use between::Between;

/// Where an operation has its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InterRoot {
    /// It is this process (MPI's `MPI_ROOT`).
    Own,
    /// It is another one of the local group (MPI's `MPI_PROC_NULL`): there is nothing to do.
    Local,
    /// It is the remote process of this rank.
    Remote(u32),
}

impl<N: Net> InterComm<N> {
    /// Blocks until all of both groups have called it.
    ///
    /// # Errors
    /// A process of either group is down, on which this one depends. As for all collective operations, its
    /// rank is said if it is a remote one; another process may have succeeded.
    pub fn barrier(&self) -> Result<(), Error> {
        self.ibarrier().wait().map(drop)
    }

    /// The same, without blocking.
    pub fn ibarrier(&self) -> CollRequest<N> {
        let channel = self.channel();
        let plan = algorithms::barrier(&channel);
        self.comm.start(Exchange::new(channel, plan, None))
    }

    /// Gives all of one group the bytes of a process of the other one. They give as many of their own. The others of
    /// that one get their own back. Blocks.
    ///
    /// # Errors
    /// A process is down, on which this one depends; there is no such rank; lengths differ.
    pub fn broadcast(&self, root: InterRoot, data: Vec<u8>) -> Result<Vec<u8>, Error> {
        self.ibroadcast(root, data).wait()
    }

    /// The same, without blocking.
    pub fn ibroadcast(&self, root: InterRoot, data: Vec<u8>) -> CollRequest<N> {
        let length = data.len();
        let broadcast = Call::new(Coll::Broadcast, 0, Vec::new());
        if root == InterRoot::Local {
            return self.all(data, Ok);
        }
        self.rooted(root, data, |both, root| {
            Ok(match root {
                None => both.give(0, length),
                Some(root) => both.leader_takes(root, length).local(length, broadcast),
            })
        })
    }

    /// Gives the root the values of all of the other group, combined; others nothing. The root gives as many
    /// bytes of its own, which count for nothing else. Blocks.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn reduce(&self, root: InterRoot, data: Vec<u8>, op: &Op) -> Result<Vec<u8>, Error> {
        self.ireduce(root, data, op).wait()
    }

    /// The same, without blocking.
    pub fn ireduce(&self, root: InterRoot, data: Vec<u8>, op: &Op) -> CollRequest<N> {
        let length = data.len();
        let reduce = Call::new(Coll::Reduce, 0, Vec::new()).with(op);
        self.rooted(root, data, |both, root| {
            op.check(length)?;
            Ok(match root {
                None => both.take(0, length),
                Some(root) => both.local(length, reduce).leader_gives(root, length).nothing(),
            })
        })
    }

    /// Gives all of each group the values of all of the other one, combined. Both groups give as many. Blocks.
    ///
    /// # Errors
    /// A process is down, on which this one depends; lengths differ.
    pub fn allreduce(&self, data: Vec<u8>, op: &Op) -> Result<Vec<u8>, Error> {
        self.iallreduce(data, op).wait()
    }

    /// The same, without blocking.
    pub fn iallreduce(&self, data: Vec<u8>, op: &Op) -> CollRequest<N> {
        let length = data.len();
        let reduce = Call::new(Coll::Reduce, 0, Vec::new()).with(op);
        let broadcast = Call::new(Coll::Broadcast, 0, Vec::new());
        self.all(data, |both| {
            op.check(length)?;
            let reduced = both.local(length, reduce);
            Ok(reduced.leaders_swap(length, length).local(length, broadcast))
        })
    }

    /// Combines the values of all of the other group, and gives each of this one its block of them, of `lengths`
    /// bytes by local rank. Both groups give as many values. Blocks. With equal lengths it is MPI's
    /// `MPI_Reduce_scatter_block`.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn reduce_scatter(
        &self,
        data: Vec<u8>,
        lengths: &[usize],
        op: &Op,
    ) -> Result<Vec<u8>, Error> {
        self.ireduce_scatter(data, lengths, op).wait()
    }

    /// The same, without blocking.
    pub fn ireduce_scatter(&self, data: Vec<u8>, lengths: &[usize], op: &Op) -> CollRequest<N> {
        let length = data.len();
        let reduce = Call::new(Coll::Reduce, 0, Vec::new()).with(op);
        let scatter = Call::new(Coll::Scatterv, 0, Vec::new()).sending(lengths);
        let (size, own) = (self.size(), self.rank());
        self.all(data, |both| {
            let places = places(size, lengths, 0)?;
            check(length, end(&places))?;
            lengths.iter().try_for_each(|length| op.check(*length))?;
            let scatter = scatter.receiving(&[places[own as usize].len()]);
            let reduced = both.local(length, reduce);
            Ok(reduced.leaders_swap(length, length).local(length, scatter))
        })
    }

    /// Gives the root the bytes of all of the other group, by rank; others nothing. How many each of them gives,
    /// `block`, counts at the root, whose own bytes are ignored. Blocks.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn gather(&self, root: InterRoot, data: Vec<u8>, block: usize) -> Result<Vec<u8>, Error> {
        self.igather(root, data, block).wait()
    }

    /// The same, without blocking.
    pub fn igather(&self, root: InterRoot, data: Vec<u8>, block: usize) -> CollRequest<N> {
        let length = data.len();
        let (size, remote) = (self.size(), self.remote_size());
        self.rooted(root, data, |both, root| match root {
            None => Ok(both.take(0, blocks(remote, block)?)),
            Some(root) => {
                let gathered = both.local(length, Call::new(Coll::Gather, 0, Vec::new()));
                Ok(gathered.leader_gives(root, blocks(size, length)?).nothing())
            }
        })
    }

    /// Like [`gather`](Self::gather), with blocks of `lengths` bytes by remote rank, which count at the root. Blocks.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn gatherv(
        &self,
        root: InterRoot,
        data: Vec<u8>,
        lengths: &[usize],
    ) -> Result<Vec<u8>, Error> {
        self.igatherv(root, data, lengths).wait()
    }

    /// The same, without blocking.
    pub fn igatherv(&self, root: InterRoot, data: Vec<u8>, lengths: &[usize]) -> CollRequest<N> {
        let length = data.len();
        let remote = self.remote_size();
        self.rooted(root, data, |both, root| match root {
            None => Ok(both.take_each(&places(remote, lengths, 0)?)),
            Some(root) => Ok(both.give(root, length).nothing()),
        })
    }

    /// Gives each of the other group its block, of `block` bytes, of the root's bytes. What those who are not the
    /// root give is ignored. Blocks.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn scatter(&self, root: InterRoot, data: Vec<u8>, block: usize) -> Result<Vec<u8>, Error> {
        self.iscatter(root, data, block).wait()
    }

    /// The same, without blocking.
    pub fn iscatter(&self, root: InterRoot, data: Vec<u8>, block: usize) -> CollRequest<N> {
        let length = data.len();
        let (size, remote) = (self.size(), self.remote_size());
        let scatter = Call::new(Coll::Scatter, 0, Vec::new()).receiving(&[block]);
        self.rooted(root, data, |both, root| match root {
            None => {
                check(length, blocks(remote, block)?)?;
                Ok(both.give(0, length).nothing())
            }
            Some(root) => {
                let all = blocks(size, block)?;
                Ok(both.leader_takes(root, all).local(all, scatter))
            }
        })
    }

    /// Like [`scatter`](Self::scatter), with blocks of `lengths` bytes by remote rank, which count at the root;
    /// `own` is this process's, which counts elsewhere. Blocks.
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn scatterv(
        &self,
        root: InterRoot,
        data: Vec<u8>,
        lengths: &[usize],
        own: usize,
    ) -> Result<Vec<u8>, Error> {
        self.iscatterv(root, data, lengths, own).wait()
    }

    /// The same, without blocking.
    pub fn iscatterv(
        &self,
        root: InterRoot,
        data: Vec<u8>,
        lengths: &[usize],
        own: usize,
    ) -> CollRequest<N> {
        let length = data.len();
        let remote = self.remote_size();
        self.rooted(root, data, |both, root| match root {
            None => {
                let places = places(remote, lengths, 0)?;
                check(length, end(&places))?;
                Ok(both.give_each(&places))
            }
            Some(root) => Ok(both.take(root, own)),
        })
    }

    /// Gives all of each group the bytes of all of the other one, by rank: `block` of each. Those of a group
    /// give as many each; the groups may differ. Blocks.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn allgather(&self, data: Vec<u8>, block: usize) -> Result<Vec<u8>, Error> {
        self.iallgather(data, block).wait()
    }

    /// The same, without blocking.
    pub fn iallgather(&self, data: Vec<u8>, block: usize) -> CollRequest<N> {
        let length = data.len();
        let (size, remote) = (self.size(), self.remote_size());
        self.all(data, |both| {
            let (given, taken) = (blocks(size, length)?, blocks(remote, block)?);
            let gathered = both.local(length, Call::new(Coll::Gather, 0, Vec::new()));
            let broadcast = Call::new(Coll::Broadcast, 0, Vec::new());
            Ok(gathered.leaders_swap(given, taken).local(taken, broadcast))
        })
    }

    /// Like [`allgather`](Self::allgather), with blocks of `lengths` bytes by remote rank. Blocks.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn allgatherv(&self, data: Vec<u8>, lengths: &[usize]) -> Result<Vec<u8>, Error> {
        self.iallgatherv(data, lengths).wait()
    }

    /// The same, without blocking.
    pub fn iallgatherv(&self, data: Vec<u8>, lengths: &[usize]) -> CollRequest<N> {
        let remote = self.remote_size();
        self.all(data, |both| {
            let places = places(remote, lengths, 0)?;
            let broadcast = Call::new(Coll::Broadcast, 0, Vec::new());
            Ok(both.leaders_take_each(&places).local(end(&places), broadcast))
        })
    }

    /// Gives each process the blocks that those of the other group have for it, by rank: `block` bytes of each.
    /// It has a block for each of them. The groups may differ in the length of blocks. Blocks.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn alltoall(&self, data: Vec<u8>, block: usize) -> Result<Vec<u8>, Error> {
        self.ialltoall(data, block).wait()
    }

    /// The same, without blocking.
    pub fn ialltoall(&self, data: Vec<u8>, block: usize) -> CollRequest<N> {
        let remote = self.remote_size() as usize;
        let sends = vec![data.len() / remote; remote];
        self.ialltoallv(data, &sends, &vec![block; remote])
    }

    /// Like [`alltoall`](Self::alltoall), with blocks of `sends` bytes for each remote process and of `receives`
    /// from each. Blocks.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    pub fn alltoallv(
        &self,
        data: Vec<u8>,
        sends: &[usize],
        receives: &[usize],
    ) -> Result<Vec<u8>, Error> {
        self.ialltoallv(data, sends, receives).wait()
    }

    /// The same, without blocking.
    pub fn ialltoallv(&self, data: Vec<u8>, sends: &[usize], receives: &[usize]) -> CollRequest<N> {
        let length = data.len();
        let remote = self.remote_size();
        let at_once =
            self.comm.driver().settings.algorithms.pairs_at_once(length / remote as usize);
        self.all(data, |both| {
            let from = places(remote, sends, 0)?;
            check(length, end(&from))?;
            let into = places(remote, receives, length)?;
            Ok(both.pairs(&from, &into, at_once))
        })
    }

    /// Begins an operation in which all do the same, if what this process gives can be.
    fn all(
        &self,
        data: Vec<u8>,
        stages: impl FnOnce(Between) -> Result<Between, Error>,
    ) -> CollRequest<N> {
        match stages(Between::new(self, data)) {
            Ok(between) => self.comm.start(between.numbered(self)),
            Err(error) => self.comm.ended(Err(error)),
        }
    }

    /// The same with a root: of the other group, with its rank there, or this process.
    fn rooted(
        &self,
        root: InterRoot,
        data: Vec<u8>,
        stages: impl FnOnce(Between, Option<u32>) -> Result<Between, Error>,
    ) -> CollRequest<N> {
        let size = self.remote_size();
        self.all(data, |both| match root {
            InterRoot::Own => stages(both, None),
            InterRoot::Local => Ok(both.nothing()),
            InterRoot::Remote(rank) if rank < size => stages(both, Some(rank)),
            InterRoot::Remote(rank) => Err(Error::Rank { rank, size }),
        })
    }
}

/// Bytes of a block of each of so many processes.
fn blocks(size: u32, block: usize) -> Result<usize, Error> {
    let what = "more than there can be, of all together";
    let all = block.checked_mul(size as usize).filter(|all| *all <= LENGTH_MAX);
    all.ok_or(Error::Length { length: block, what })
}
