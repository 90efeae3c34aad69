//! Collective operations of both groups.
//!
//! They are the plans of a communicator, on a channel that sends to each group in its own context.

use std::sync::Arc;

use crate::coll::{CollRequest, Exchange, plan};
use crate::error::Error;
use crate::group::Group;
use crate::net::Net;
use crate::port::{Abroad, Channel};

use super::InterComm;

/// Where a broadcast comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InterRoot {
    /// From this process (MPI's `MPI_ROOT`).
    Own,
    /// From another one of the local group (MPI's `MPI_PROC_NULL`): there is nothing to do.
    Local,
    /// From the remote process of this rank.
    Remote(u32),
}

impl<N: Net> InterComm<N> {
    /// Blocks until all of both groups have called it.
    ///
    /// # Errors
    /// A process of either group is down, on which this one depends.
    pub fn barrier(&self) -> Result<(), Error> {
        self.ibarrier().wait().map(drop)
    }

    /// The same, without blocking.
    pub fn ibarrier(&self) -> CollRequest<N> {
        let channel = self.channel();
        let plan = plan::barrier(&channel);
        self.comm.start(Exchange::new(channel, plan, None))
    }

    /// Gives all of one group the bytes of a process of the other one. They give as many of their own. Blocks.
    ///
    /// # Errors
    /// A process is down, on which this one depends; there is no such rank; lengths differ.
    pub fn broadcast(&self, root: InterRoot, data: Vec<u8>) -> Result<Vec<u8>, Error> {
        self.ibroadcast(root, data).wait()
    }

    /// The same, without blocking.
    pub fn ibroadcast(&self, root: InterRoot, data: Vec<u8>) -> CollRequest<N> {
        let both = self.channel();
        let (own, root, group) = match root {
            InterRoot::Local => return self.comm.ended(Ok(data)),
            InterRoot::Own => (0, self.group().process(self.rank()), self.remote_group()),
            InterRoot::Remote(rank) => {
                let Some(root) = self.remote_group().process(rank) else {
                    let size = self.remote_size();
                    return self.comm.ended(Err(Error::Rank { rank, size }));
                };
                (1 + self.rank(), Some(root), self.group())
            }
        };
        let members = root.into_iter().chain(group.processes().iter().copied());
        let group = Arc::new(Group::new(members));
        // Seen from either side, the other one is abroad.
        let ranks = if own == 0 { 1..group.size() } else { 0..1 };
        let abroad = both.abroad.map(|Abroad { context, .. }| Abroad { ranks, context });
        let channel = Channel { group, own, abroad, ..both };
        let plan = plan::broadcast(&channel, 0, data);
        self.comm.start(Exchange::new(channel, plan, None))
    }
}
