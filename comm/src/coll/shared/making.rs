//! How the members of a communicator get their segment, and agree that all have it.

use std::sync::Arc;

use tagmatch::shm::segment::{NAME_BYTES, Segment, SegmentName};

use crate::coll::algorithms;
use crate::coll::exchange::Exchange;
use crate::driver::{Channel, Machine, MachineIo};
use crate::ft::{Agree, Life};
use crate::net::Net;

/// One member's part in making the segment.
pub(super) struct Making {
    life: Arc<Life>,
    /// The broadcast of the segment's name, until it has ended.
    telling: Option<Exchange>,
    agree: Agree,
    segment: Option<Segment>,
    /// Rank 0 keeps the segment's memory open for the others until all have mapped it.
    _name: Option<SegmentName>,
}

impl Making {
    /// Begins. All members do this at the same call, with the same `channel`.
    pub(super) fn new(life: &Arc<Life>, channel: Channel) -> Self {
        let (members, own) = (life.group.size(), life.own);
        // Without memory rank 0 tells an invalid name.
        let made = if own == 0 { Segment::create(members, own).ok() } else { None };
        let (segment, name) = made.unzip();
        let bytes = name.as_ref().map_or([0; NAME_BYTES], |name| *name.as_bytes());
        let plan = algorithms::broadcast(&channel, 0, bytes.to_vec());
        Making {
            life: Arc::clone(life),
            telling: Some(Exchange::new(channel, plan, None)),
            agree: Agree::new(life, 0),
            segment,
            _name: name,
        }
    }

    /// Goes on. The result is the segment if all living members have it. A failure is no error
    /// here: the operations that follow find it themselves.
    pub(super) fn step<N: Net>(&mut self, io: &mut MachineIo<'_, N>) -> Option<Option<Segment>> {
        if let Some(telling) = &mut self.telling {
            let told = telling.step(io)?;
            self.telling = None;
            // An operation may wait for any member, so the death of each must become known.
            self.life.watch(io.net);
            let (members, own) = (self.life.group.size(), self.life.own);
            if self.segment.is_none() {
                self.segment = told.ok().and_then(|name| Segment::open(&name, members, own).ok());
            }
            self.agree.set_flags(u64::from(self.segment.is_some()));
        }
        let decision = self.agree.step(io)?;
        Some(self.segment.take().filter(|_| decision.flags & 1 != 0))
    }
}
