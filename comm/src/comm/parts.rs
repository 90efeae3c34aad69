//! The two communicators that come with each communicator: its members on one machine, and one
//! member of each machine.
//!
//! All members know which process is on which machine ([`Net::node`]), and the context ids are
//! derived from the communicator's. So these communicators are made without a message, at the first
//! call that asks for them. They may outlive the whole communicator, whose id is given out again
//! when they are freed, too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::communicator::Comm;
use super::info::CommInfo;
use crate::error::Error;
use crate::ids::Sub;
use crate::life::{Life, epoch};
use crate::net::Net;

impl<N: Net> Comm<N> {
    /// The members on this process's machine, in the order of ranks. Does not block. Each call
    /// gives the same communicator.
    ///
    /// # Errors
    /// [`Error::NoChildren`]: this communicator was made by `intranode` or `internode`. A layer
    /// refused the new communicator.
    pub fn intranode(&self) -> Result<Comm<N>, Error> {
        let of_node = self.by_node()?.into_values().find(|ranks| ranks.contains(&self.rank()));
        let place = &self.inner.intranode;
        self.part(Sub::Intranode, of_node.unwrap_or_default(), place)
    }

    /// The member of the lowest rank of each machine, in the order of ranks; `None` at the other
    /// members. Does not block. Each call gives the same communicator.
    ///
    /// # Errors
    /// As for [`intranode`](Self::intranode).
    pub fn internode(&self) -> Result<Option<Comm<N>>, Error> {
        let mut first: Vec<u32> =
            self.by_node()?.values().filter_map(|ranks| ranks.first().copied()).collect();
        first.sort_unstable();
        if !first.contains(&self.rank()) {
            return Ok(None);
        }
        self.part(Sub::Internode, first, &self.inner.internode).map(Some)
    }

    /// The ranks on each machine, in ascending order.
    fn by_node(&self) -> Result<BTreeMap<u32, Vec<u32>>, Error> {
        // The derived ids of a part would be the same as those of other parts of the whole
        // communicator.
        if self.driver().settings.ids.sub_of(self.id()) != Sub::Whole {
            return Err(Error::NoChildren);
        }
        let mut nodes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let net = &self.driver().lock().net;
        let is_of_job = self.group().is_below(net.processes());
        for (rank, process) in (0..).zip(self.group().processes()) {
            // Two jobs number machines differently, so in a communicator of several jobs each
            // member counts as being on a machine of its own.
            let node = if is_of_job { net.node(*process) } else { rank };
            nodes.entry(node).or_default().push(rank);
        }
        Ok(nodes)
    }

    fn part(
        &self,
        sub: Sub,
        ranks: Vec<u32>,
        place: &Mutex<Option<Comm<N>>>,
    ) -> Result<Comm<N>, Error> {
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = &*place {
            return Ok(part.clone());
        }
        let group = Arc::new(self.group().include(&ranks)?);
        let own = ranks.iter().position(|rank| *rank == self.rank()).ok_or(Error::Group)?;
        let rank = u32::try_from(own).unwrap_or(u32::MAX);
        let origin = [self.inner.life.key.epoch, sub as u64];
        let epoch = epoch(&origin, &group, self.group());
        let info = CommInfo { id: self.driver().settings.ids.sub(self.id(), sub), group, rank };
        let of_whole = self.inner.owned.as_ref().and_then(|owned| owned.used());
        let life = Life::new(info.id, epoch, &info.group, rank).using(of_whole);
        let part = self.make(info, life, self.inner.owned.clone())?;
        part.set_error_handler(self.error_handler());
        *place = Some(part.clone());
        Ok(part)
    }
}
