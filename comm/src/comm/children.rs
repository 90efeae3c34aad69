//! The communicators that come with each: its members on one machine, and one member of each machine.
//!
//! Which process is where, all know alike ([`Net::node`]); the ids are derived from the communicator's. So
//! they are made without a message, when they are first asked for, and live as long as it does, or longer: its
//! id is given out again once they are gone too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Error;
use crate::ft::{Life, epoch};
use crate::ids::Sub;
use crate::net::Net;
use crate::runtime::State;

use super::{Comm, CommInfo, Inner};

/// Those that were asked for.
pub(crate) struct Children<N: Net> {
    intranode: Mutex<Option<Arc<Inner<N>>>>,
    internode: Mutex<Option<Arc<Inner<N>>>>,
}

impl<N: Net> Default for Children<N> {
    fn default() -> Self {
        Children { intranode: Mutex::new(None), internode: Mutex::new(None) }
    }
}

impl<N: Net> Comm<N> {
    /// The members on this process's machine, in their order. Does not block; the same one at each call.
    ///
    /// # Errors
    /// [`Error::NoChildren`] if this one is such a part itself; a layer refused it.
    pub fn intranode(&self) -> Result<Comm<N>, Error> {
        let of_node = self.by_node()?.into_values().find(|ranks| ranks.contains(&self.rank()));
        let place = &self.inner.children.intranode;
        self.child(Sub::Intranode, of_node.unwrap_or_default(), place)
    }

    /// One member of each machine, that of the lowest rank, in their order; `None` at the others. Does not
    /// block; the same one at each call.
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
        self.child(Sub::Internode, first, &self.inner.children.internode).map(Some)
    }

    /// Ranks on each machine, ascending.
    fn by_node(&self) -> Result<BTreeMap<u32, Vec<u32>>, Error> {
        // Their ids would be those of other parts of the whole.
        if self.shared.ids.sub_of(self.id()) != Sub::Whole {
            return Err(Error::NoChildren);
        }
        let mut nodes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let net = &self.shared.lock().net;
        let is_of_job = self.group().is_below(net.processes());
        for (rank, process) in (0..).zip(self.group().processes()) {
            // No two jobs number machines alike: of members of several each counts as on one of its own.
            let node = if is_of_job { net.node(*process) } else { rank };
            nodes.entry(node).or_default().push(rank);
        }
        Ok(nodes)
    }

    fn child(
        &self,
        sub: Sub,
        ranks: Vec<u32>,
        place: &Mutex<Option<Arc<Inner<N>>>>,
    ) -> Result<Comm<N>, Error> {
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inner) = &*place {
            return Ok(Comm::new(&self.shared, Arc::clone(inner)));
        }
        let group = Arc::new(self.group().include(&ranks)?);
        let own = ranks.iter().position(|rank| *rank == self.rank()).ok_or(Error::Group)?;
        let rank = u32::try_from(own).unwrap_or(u32::MAX);
        let origin = [self.inner.life.key.epoch, sub as u64];
        let epoch = epoch(&origin, &group, self.group());
        let info = CommInfo { id: self.shared.ids.sub(self.id(), sub), group, rank };
        let life = Arc::new(Life::new(info.id, epoch, &info.group, rank));
        let owned = self.inner.owned.clone();
        let inner = Inner::new(info, Arc::clone(&life), owned, &self.shared.tables, "")?;
        let inner = Arc::new(inner);
        let comm = Comm::new(&self.shared, Arc::clone(&inner));
        comm.set_error_handler(self.error_handler());
        {
            let State { net, ft, .. } = &mut *self.shared.lock();
            ft.register(net, &life);
        }
        *place = Some(inner);
        Ok(comm)
    }
}
