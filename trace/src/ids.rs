//! The ids of a trace: messages, receives and matched probes share one id space.
//!
//! Whether an id is defined, and whether a matched probe has been received or dropped, does not
//! depend on what matches what. So all of it is checked while the file is read.

use std::collections::HashMap;

use crate::error::{FoundId, IdKind, Mistake};
use crate::format::{Id, TraceOp};
use crate::line::RawOp;

/// The matching lists hold no more entries than this. A trace with as many ids is a file of 20 GB.
const IDS_MAX: u32 = 1 << 30;

/// The ids that are defined so far.
#[derive(Default)]
pub(super) struct Ids {
    known: Known,
    names: Vec<u64>,
}

/// The definition of each id. Most recorders count their ids up, so ids that are small, given how
/// many there are, stand in an array. All others are in a map, whose hash is seeded: no choice of
/// ids makes it slow.
#[derive(Default)]
struct Known {
    small: Vec<Option<Definition>>,
    others: HashMap<u64, Definition>,
}

#[derive(Clone, Copy)]
struct Definition {
    id: Id,
    kind: IdKind,
    /// Whether the message of a matched probe has been received or dropped.
    used_up: bool,
}

impl Known {
    fn find(&mut self, id: u64) -> Option<&mut Definition> {
        match usize::try_from(id).ok().and_then(|id| self.small.get_mut(id)) {
            // The array may have grown past an id that went into the map before.
            Some(Some(known)) => Some(known),
            _ if self.others.is_empty() => None,
            _ => self.others.get_mut(&id),
        }
    }

    /// Adds an id that is not known, as the next one after `defined` others.
    fn add(&mut self, id: u64, known: Definition, defined: usize) {
        match usize::try_from(id) {
            Ok(id) if id < 4 * (defined + 256) => {
                if id >= self.small.len() {
                    self.small.resize(id + 1, None);
                }
                self.small[id] = Some(known);
            }
            _ => drop(self.others.insert(id, known)),
        }
    }
}

impl Ids {
    /// Checks the id of an operation and replaces it.
    pub(super) fn resolve(&mut self, raw: RawOp) -> Result<TraceOp, Box<Mistake>> {
        Ok(match raw {
            RawOp::Msg { id, envelope, len } => {
                TraceOp::Msg { id: self.define(id, IdKind::Message)?, envelope, len }
            }
            RawOp::Recv { id, pattern, len } => {
                TraceOp::Recv { id: self.define(id, IdKind::Receive)?, pattern, len }
            }
            RawOp::Mprobe { id, pattern } => {
                TraceOp::Mprobe { id: self.define(id, IdKind::Mprobe)?, pattern }
            }
            RawOp::Probe { pattern } => TraceOp::Probe { pattern },
            RawOp::Cancel { recv } => TraceOp::Cancel { recv: self.receive(recv)? },
            RawOp::Mrecv { mprobe, len } => TraceOp::Mrecv { mprobe: self.use_up(mprobe)?, len },
            RawOp::Mcancel { mprobe } => TraceOp::Mcancel { mprobe: self.use_up(mprobe)? },
        })
    }

    pub(super) fn into_names(self) -> Vec<u64> {
        self.names
    }

    fn define(&mut self, id: u64, kind: IdKind) -> Result<Id, Box<Mistake>> {
        let defined = self.names.len();
        let next = u32::try_from(defined).unwrap_or(u32::MAX);
        if next >= IDS_MAX {
            return Err(Box::new(Mistake::TooManyIds));
        }
        if let Some(first) = self.known.find(id) {
            return Err(Box::new(Mistake::Reused { id, kind: first.kind }));
        }
        self.known.add(id, Definition { id: Id(next), kind, used_up: false }, defined);
        self.names.push(id);
        Ok(Id(next))
    }

    fn receive(&mut self, id: u64) -> Result<Id, Box<Mistake>> {
        let unknown = |found| Box::new(Mistake::Unknown { id, found, wanted: "a recv" });
        match self.known.find(id) {
            Some(known) if known.kind == IdKind::Receive => Ok(known.id),
            Some(known) => Err(unknown(FoundId::Other(known.kind))),
            None => Err(unknown(FoundId::Nothing)),
        }
    }

    fn use_up(&mut self, id: u64) -> Result<Id, Box<Mistake>> {
        let unknown = |found| Box::new(Mistake::Unknown { id, found, wanted: "an unused mprobe" });
        match self.known.find(id) {
            Some(known) if known.kind != IdKind::Mprobe => Err(unknown(FoundId::Other(known.kind))),
            Some(known) if known.used_up => Err(unknown(FoundId::UsedUp)),
            Some(known) => {
                known.used_up = true;
                Ok(known.id)
            }
            None => Err(unknown(FoundId::Nothing)),
        }
    }
}
