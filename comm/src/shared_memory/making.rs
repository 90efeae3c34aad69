//! How the members of a communicator get their segment, and agree that all have it.

use std::sync::Arc;

use tagmatch::shm::segment::{NAME_BYTES, Segment, SegmentName};

use super::local::LocalMembers;
use crate::driver::{Agree, Channel, Machine, MachineIo};
use crate::life::Life;
use crate::net::Net;
use crate::plans::{Exchange, algorithms};

/// One member's part in making the segment.
pub(crate) struct Making {
    local: LocalMembers,
    /// The broadcast of the segment's name, until it has ended.
    telling: Option<Exchange>,
    agree: Agree,
    segment: Option<Segment>,
    /// The first member keeps the segment's memory open for the others until all have mapped it.
    _name: Option<SegmentName>,
}

impl Making {
    /// Begins. All members of the communicator do this at the same call, with the same `channel`,
    /// if they reach it. `life` is for the agreement alone. `local`: the members that map this
    /// process's segment.
    pub(crate) fn new(life: &Arc<Life>, local: &LocalMembers, channel: Channel) -> Self {
        let members = local.size();
        let own = local.own;
        // Without memory the first member tells an invalid name.
        let first = if own == 0 { Segment::create(members, own).ok() } else { None };
        let (segment, name) = first.unzip();
        let bytes = name.as_ref().map_or([0; NAME_BYTES], |name| *name.as_bytes());
        let part = local.part_of(&channel);
        let plan = algorithms::broadcast(&part, 0, bytes.to_vec()).renamed(&local.ranks);
        Making {
            local: local.clone(),
            telling: Some(Exchange::new(channel, plan, None)),
            agree: Agree::watching_few(life, 0),
            segment,
            _name: name,
        }
    }

    /// Goes on. The result is the segment if all living members of the communicator have theirs. A
    /// failure or a revocation is no error here: the operations that follow find it themselves.
    pub(crate) fn step<N: Net>(&mut self, io: &mut MachineIo<'_, N>) -> Option<Option<Segment>> {
        if let Some(telling) = &mut self.telling {
            let name = telling.step(io)?;
            self.telling = None;
            let members = self.local.size();
            let own = self.local.own;
            if self.segment.is_none() {
                self.segment = name.ok().and_then(|name| Segment::open(&name, members, own).ok());
            }
            self.agree.set_flags(u64::from(self.segment.is_some()));
        }
        let decision = self.agree.step(io)?;
        let have_all = decision.is_ok_and(|decision| decision.flags & 1 != 0);
        Some(self.segment.take().filter(|_| have_all))
    }
}
