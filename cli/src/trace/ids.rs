//! The one id space of messages, receives and matched probes.
//!
//! Which ids are defined, and whether a matched probe is used up, depends on the file alone and
//! not on what matches what: so it is settled while reading, and a replay cannot fail.

use std::collections::HashMap;

use super::error::{Instead, Kind, Mistake};
use super::line::RawOp;
use super::{Index, Op};

/// The matching lists hold no more entries than this; such a trace is a file of 20 GB.
const IDS_MAX: u32 = 1 << 30;

/// Ids defined so far.
#[derive(Default)]
pub(super) struct Ids {
    known: Known,
    names: Vec<u64>,
}

/// What an id is. A recorder counts its ids up, as a rule: those that are small for their number
/// stand in an array. All others are in a map, whose seeded hash no choice of ids makes slow.
#[derive(Default)]
struct Known {
    small: Vec<Option<Id>>,
    others: HashMap<u64, Id>,
}

#[derive(Clone, Copy)]
struct Id {
    index: Index,
    kind: Kind,
    used_up: bool,
}

impl Known {
    fn find(&mut self, id: u64) -> Option<&mut Id> {
        match usize::try_from(id).ok().and_then(|id| self.small.get_mut(id)) {
            // The array may have grown past an id that went into the map before.
            Some(Some(known)) => Some(known),
            _ if self.others.is_empty() => None,
            _ => self.others.get_mut(&id),
        }
    }

    /// Adds an id that is not known. `defined` is how many are.
    fn add(&mut self, id: u64, known: Id, defined: usize) {
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
    /// Defines the id that `raw` defines, looks up the one it refers to.
    pub(super) fn resolve(&mut self, raw: RawOp) -> Result<Op, Box<Mistake>> {
        Ok(match raw {
            RawOp::Msg { id, envelope, len } => {
                Op::Msg { id: self.define(id, Kind::Message)?, envelope, len }
            }
            RawOp::Recv { id, pattern, len } => {
                Op::Recv { id: self.define(id, Kind::Receive)?, pattern, len }
            }
            RawOp::Mprobe { id, pattern } => {
                Op::Mprobe { id: self.define(id, Kind::Mprobe)?, pattern }
            }
            RawOp::Probe { pattern } => Op::Probe { pattern },
            RawOp::Cancel { recv } => Op::Cancel { recv: self.receive(recv)? },
            RawOp::Mrecv { mprobe, len } => Op::Mrecv { mprobe: self.use_up(mprobe)?, len },
            RawOp::Mcancel { mprobe } => Op::Mcancel { mprobe: self.use_up(mprobe)? },
        })
    }

    pub(super) fn into_names(self) -> Vec<u64> {
        self.names
    }

    fn define(&mut self, id: u64, kind: Kind) -> Result<Index, Box<Mistake>> {
        let defined = self.names.len();
        let index = u32::try_from(defined).unwrap_or(u32::MAX);
        if index >= IDS_MAX {
            return Err(Box::new(Mistake::TooManyIds));
        }
        if let Some(first) = self.known.find(id) {
            return Err(Box::new(Mistake::Reused { id, kind: first.kind }));
        }
        self.known.add(id, Id { index: Index(index), kind, used_up: false }, defined);
        self.names.push(id);
        Ok(Index(index))
    }

    fn receive(&mut self, id: u64) -> Result<Index, Box<Mistake>> {
        let unknown = |found| Box::new(Mistake::Unknown { id, found, wanted: "a recv" });
        match self.known.find(id) {
            Some(known) if known.kind == Kind::Receive => Ok(known.index),
            Some(known) => Err(unknown(Instead::Other(known.kind))),
            None => Err(unknown(Instead::Nothing)),
        }
    }

    fn use_up(&mut self, id: u64) -> Result<Index, Box<Mistake>> {
        let unknown = |found| Box::new(Mistake::Unknown { id, found, wanted: "an unused mprobe" });
        match self.known.find(id) {
            Some(known) if known.kind != Kind::Mprobe => Err(unknown(Instead::Other(known.kind))),
            Some(known) if known.used_up => Err(unknown(Instead::UsedUp)),
            Some(known) => {
                known.used_up = true;
                Ok(known.index)
            }
            None => Err(unknown(Instead::Nothing)),
        }
    }
}
